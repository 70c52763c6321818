// Text to tokens and back, for the vocabularies of every model family that Myriad runs.
//
// Three kinds stand behind one interface:
//   * tiktoken: byte-level BPE by rank, `tiktoken.model` and GGUF files that say `kimi-k2`. A pair of neighbours merges
//     into the token of the lowest rank, which is its id.
//   * byte-level BPE by a list of merges: `tokenizer.json` of Llama 3, Qwen, DeepSeek, GPT-2 …, and `gpt2` in GGUF.
//   * SentencePiece BPE: `tokenizer.model`, `llama` in GGUF (merging by score), and the `tokenizer.json` of Llama 2 and
//   its
//     kin (merging by a list). A space is spelled ▁ in the file; characters without a token become byte tokens.
//
// Encoding cuts the text at the names of tokens, normalises what is between, cuts that into pieces
// (model/pretokenizer.h) and merges in each piece (model/token_merger.h). Special tokens have names that no plain text
// can produce. User-defined tokens (in a tokenizer.json: added, but not special), such as Qwen's <tool_call>, are part
// of the text: their names become them in any text, as in the references.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/gguf_vocabulary.h"
#include "model/pretokenizer.h"
#include "model/token_merger.h"
#include "model/token_table.h"
#include "model/tokenizer_config.h"

namespace myriad {

struct SentencePieceFile;

class Tokenizer {
 public:
  // Limits of the files, checked before anything is allocated for them.
  static constexpr std::size_t kMaxVocabularyBytes = std::size_t{64} << 20;
  static constexpr std::size_t kMaxConfigBytes = kMaxTokenizerConfigBytes;
  static constexpr std::int32_t kMaxVocabulary = TokenTable::kMaxTokens;
  static constexpr std::size_t kMaxTokenBytes = TokenTable::kMaxTokenBytes;
  static constexpr std::size_t kMaxSpecials = 4096;
  // Special slots of the official Kimi tokenizer, used when neither a configuration nor a vocabulary size says how many
  // there are.
  static constexpr std::int32_t kOfficialSpecials = 256;

  // Reads a folder's `tiktoken.model`, `tokenizer.json` or `tokenizer.model`, the first of them that is there, and
  // `tokenizer_config.json` if it is there. `vocab_size` is the model's: ids up to it that the files do not define are
  // special (tiktoken: `<|reserved_token_N|>`; else nameless). 0: what the files define; for tiktoken up to the last
  // named id, or 256 specials when none is named. Blocks on the file system. Errors: not_found, io, limit, corrupt,
  // unsupported, with the file and what was wrong in it.
  static Result<Tokenizer> load(const std::filesystem::path& folder, std::int32_t vocab_size = 0);
  // The same from memory; an empty `config_json` stands for a file that is not there.
  static Result<Tokenizer> parse(std::string_view tiktoken, std::string_view config_json, std::int32_t vocab_size = 0);
  static Result<Tokenizer> from_tokenizer_json(std::string_view json, std::string_view config_json = {},
                                               std::int32_t vocab_size = 0);
  static Result<Tokenizer> from_sentencepiece(std::string_view model, std::string_view config_json = {},
                                              std::int32_t vocab_size = 0);
  // The vocabulary of a GGUF file; behaves as llama.cpp does with it, but for what docs/tokenizers.md says.
  static Result<Tokenizer> from_gguf(const GgufVocabulary& vocabulary);
  // What from_gguf makes this tokenizer of again. Scores are the tokens' places in the order of merging, not those of
  // the file that it was read from; merges of a tiktoken vocabulary are reconstructed, for those who merge by a list.
  // Errors: unsupported (GGUF has no name for its pre-tokeniser, or no scores give its merges).
  [[nodiscard]] Result<GgufVocabularyTexts> to_gguf() const;

  // Ids of any bytes, as plain text: the name of a special token gives the ids of its letters. decode() gives the text
  // back, but for what the model's own files do to it: normalization (Qwen), ▁ read as a space (SentencePiece), and
  // U+FFFD for 0xC0, 0xC1 and 0xF5 to 0xFF, which UTF-8 never has, where the vocabulary has no token for them (older
  // DeepSeek).
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view bytes) const;
  // The same, but names of special tokens become those tokens. Only for text that no user wrote.
  [[nodiscard]] std::vector<std::int32_t> encode_with_specials(std::string_view bytes) const;
  // The ids of one text that comes in spans, some written by the program (a chat template) and some by a user: pieces
  // and merges go across their borders, but special tokens are found only inside spans that allow them.
  struct Span {
    std::string_view text;
    bool specials = false;
  };
  [[nodiscard]] std::vector<std::int32_t> encode_spans(std::span<const Span> spans) const;
  // A text to be continued: encode(), with BOS in front where the model's texts begin with it.
  [[nodiscard]] std::vector<std::int32_t> encode_prompt(std::string_view bytes) const;

  // The bytes of ids that begin a text, special tokens by their names. Ids outside the vocabulary give nothing.
  // SentencePiece puts a space in front of a text; it is taken away here. See TokenDecoder for ids one by one.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;
  // The bytes of one id inside a text, for a special token its name; empty for an id outside the vocabulary. Valid as
  // long as the tokenizer.
  [[nodiscard]] std::string_view token_bytes(std::int32_t id) const { return table_.bytes(id); }

  // Every id is in [0, vocab_size()).
  [[nodiscard]] std::int32_t vocab_size() const { return table_.size(); }
  // Of a tiktoken file, how many ranks it has; the ids from there on are special. 0 for the other kinds.
  [[nodiscard]] std::int32_t rank_count() const { return rank_count_; }
  // Whether an id is nothing to show as text: a special token, or an id without a token.
  [[nodiscard]] bool is_special(std::int32_t id) const {
    const TokenKind kind = table_.kind(id);
    return id >= 0 && id < vocab_size() && (kind == TokenKind::special || kind == TokenKind::unused);
  }
  // The id of a special or user-defined token by its name, such as "<|open|>".
  [[nodiscard]] std::optional<std::int32_t> special_id(std::string_view name) const { return table_.named(name); }
  // The tokens that begin and end a text, as the configuration says, else (tiktoken) "[BOS]" and "[EOS]" where they
  // exist.
  [[nodiscard]] std::optional<std::int32_t> bos() const { return bos_; }
  [[nodiscard]] std::optional<std::int32_t> eos() const { return eos_; }
  // Every token after which a model has nothing more to say: eos(), the end of turn that a GGUF names, and special
  // tokens with one of the names that are used for it (<|eot_id|>, <|im_end|>, …). Ascending.
  [[nodiscard]] std::vector<std::int32_t> end_ids() const;
  // Whether a text to be continued begins with bos(). Then bos() is there.
  [[nodiscard]] bool add_bos() const { return add_bos_; }
  // No token stands for more bytes of text than this.
  [[nodiscard]] std::size_t longest_token() const { return (text_.nfc ? 3 : 1) * table_.longest(); }
  // Bytes that this object occupies.
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  friend class TokenDecoder;
  class Encoder;
  struct JsonLoader;
  Tokenizer() = default;

  // What is done to text besides cutting and merging.
  struct TextRules {
    enum class Prefix : std::uint8_t { none, first, each };
    bool kimi_cuts = false;            // very long texts are cut first (LongTextCutter)
    bool nfc = false;                  // normalization form C
    bool lacks_bytes = false;          // bytes that have no token are read as U+FFFD
    bool sentencepiece = false;        // ▁ is a space
    bool user_defined_inside = false;  // user-defined names are looked for after the space prefix was added
    Prefix prefix = Prefix::none;      // a space before the text, or before the text behind each name as well
    bool prefix_unless_space = false;  // … but for a text that begins with one
    bool strip_first_space = false;    // decoding drops the prefix
  };

  Status read_ranks(std::string_view tiktoken);
  Status read_specials(const TokenizerConfig& config, std::int32_t vocab_size);
  Status read_gguf_tokens(const GgufVocabulary& vocabulary);
  Status read_gguf_rules(std::span<const std::string_view> rules);
  // Parts of to_gguf.
  [[nodiscard]] Result<std::string> gguf_pre() const;
  [[nodiscard]] Result<std::vector<float>> gguf_scores() const;
  [[nodiscard]] std::vector<std::string> gguf_merges() const;
  [[nodiscard]] std::vector<std::string> gguf_rules() const;
  Status read_pieces(const SentencePieceFile& file, const TokenizerConfig& config, std::int32_t vocab_size);
  // Nameless special ids up to the model's vocabulary.
  Status pad_to(std::int32_t vocab_size, std::string_view file);
  // The tokens of single bytes, which must be there; without `all` the bytes that UTF-8 never has may lack one.
  Status index_bytes(std::string_view file, bool all);
  // SentencePiece text may be cut at spaces if no token has a space behind another character.
  void cut_at_spaces_if_possible();

  TokenTable table_;
  MergeRules rules_;
  Pretokenizer pretokenizer_;
  TextRules text_;
  std::int32_t rank_count_ = 0;
  std::optional<std::int32_t> bos_, eos_, end_of_turn_;
  bool add_bos_ = false;
};

// Ids to bytes one by one, as they come: together what decode() gives. The tokenizer must outlive it.
class TokenDecoder {
 public:
  // `continues`: the ids are not the beginning of their text.
  explicit TokenDecoder(const Tokenizer& tokenizer, bool continues = false)
      : tokenizer_(tokenizer), strip_(!continues && tokenizer.text_.strip_first_space) {}
  // What this id adds; valid as long as the tokenizer.
  std::string_view push(std::int32_t id);

 private:
  const Tokenizer& tokenizer_;
  bool strip_;  // the first text is still to come
};

}  // namespace myriad
