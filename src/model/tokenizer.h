// Byte-level BPE by rank in the tiktoken file format, as the Kimi models use it.
//
// `tiktoken.model` has one line a token: base64 of its bytes, a space, its rank, which is its id. Encoding cuts the
// text into pieces (model/pretokenizer.h) and in each piece merges the adjacent pair of tokens whose concatenation has
// the lowest rank, the leftmost first, until no concatenation is a token. The ids after the ranks are special tokens:
// they have names, which no plain text can produce.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace myriad {

class Tokenizer {
 public:
  // Limits of the files, checked before anything is allocated for them.
  static constexpr std::size_t kMaxVocabularyBytes = std::size_t{64} << 20;
  static constexpr std::size_t kMaxConfigBytes = std::size_t{4} << 20;
  static constexpr std::int32_t kMaxVocabulary = 1 << 20;
  static constexpr std::size_t kMaxTokenBytes = 1024;
  static constexpr std::size_t kMaxSpecials = 4096;
  // Special slots of the official tokenizer, used when neither a configuration nor a vocabulary size says how many
  // there are.
  static constexpr std::int32_t kOfficialSpecials = 256;

  // Reads `tiktoken.model` and, if it is there, `tokenizer_config.json` from a folder. `vocab_size` is the model's: ids
  // up to it without a name in the configuration are `<|reserved_token_N|>`. 0: up to the last named id, or 256
  // specials when none is named. Blocks on the file system. Errors: not_found, io, limit, corrupt (with the line and
  // what was wrong with it).
  static Result<Tokenizer> load(const std::filesystem::path& folder, std::int32_t vocab_size = 0);
  // The same from memory; an empty `config_json` stands for a file that is not there.
  static Result<Tokenizer> parse(std::string_view tiktoken, std::string_view config_json, std::int32_t vocab_size = 0);

  // Ids of any bytes, as plain text: the name of a special token gives the ids of its letters.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view bytes) const;
  // The same, but names of special tokens become those tokens. Only for text that no user wrote.
  [[nodiscard]] std::vector<std::int32_t> encode_with_specials(std::string_view bytes) const;
  // The bytes of ids, special tokens by their names. Ids outside the vocabulary give nothing.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;
  // The bytes of one id, for a special token its name; empty for an id outside the vocabulary. Valid as long as the
  // tokenizer.
  [[nodiscard]] std::string_view token_bytes(std::int32_t id) const;

  // Every id is in [0, vocab_size()); the ids from rank_count() on are special.
  [[nodiscard]] std::int32_t vocab_size() const { return static_cast<std::int32_t>(offsets_.size()) - 1; }
  [[nodiscard]] std::int32_t rank_count() const { return rank_count_; }
  [[nodiscard]] bool is_special(std::int32_t id) const { return id >= rank_count_ && id < vocab_size(); }
  // The id of a special token by its name, such as "<|open|>".
  [[nodiscard]] std::optional<std::int32_t> special_id(std::string_view name) const;
  // The tokens that the configuration calls bos_token and eos_token, else "[BOS]" and "[EOS]" where they exist.
  [[nodiscard]] std::optional<std::int32_t> bos() const { return bos_; }
  [[nodiscard]] std::optional<std::int32_t> eos() const { return eos_; }
  // Bytes that this object occupies.
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  class Merger;
  Tokenizer() = default;
  Status read_ranks(std::string_view tiktoken);
  Status read_specials(std::string_view config_json, std::int32_t vocab_size);
  // The id of a token of the ranks, −1 if there is none with these bytes.
  [[nodiscard]] std::int32_t rank_of(std::string_view bytes) const;
  void encode_plain(std::string_view text, Merger& merger, std::vector<std::int32_t>& out) const;
  // The special token whose name begins the text, the longest such; −1 if there is none.
  [[nodiscard]] std::int32_t special_at(std::string_view text) const;

  std::int32_t rank_count_ = 0;
  std::string bytes_;                   // all tokens' bytes, by id, back to back
  std::vector<std::uint32_t> offsets_;  // token i is bytes_[offsets_[i], offsets_[i + 1])
  std::vector<std::int32_t> table_;     // open-addressing hash table of ids; −1 is free; the size is a power of two
  std::vector<std::int32_t> by_name_;   // special ids, ascending by name
  std::size_t longest_ = 0;             // bytes of the longest token with a rank
  std::optional<std::int32_t> bos_, eos_;
};

}  // namespace myriad
