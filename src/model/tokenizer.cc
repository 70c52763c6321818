#include "model/tokenizer.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <system_error>

#include "model/normalization.h"
#include "model/utf8_stream.h"

namespace myriad {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";  // ▁

Result<std::string> read_file(const std::filesystem::path& path, std::size_t limit) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    return fail(Code::not_found, "reading {}: there is no such file", path.string());
  if (!std::filesystem::is_regular_file(status)) {
    return fail(Code::io, "reading {}: it is not a regular file", path.string());
  }
  const auto size = std::filesystem::file_size(path, error);
  if (error) return fail(Code::io, "reading {}: {}", path.string(), error.message());
  if (size > limit) {
    return fail(Code::limit, "reading {}: it has {} bytes, at most {} are expected of such a file", path.string(), size,
                limit);
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(size, '\0');
  if (!in || !in.read(text.data(), static_cast<std::streamsize>(size))) {
    return fail(Code::io, "reading {}: the operating system refused; check its permissions", path.string());
  }
  return text;
}

// Whether no well-formed UTF-8 has the byte.
bool is_never_utf8(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == 0xC0 || byte == 0xC1 || byte >= 0xF5;
}

// Names of tokens that end a turn or a text, in the families of docs/tokenizers.md.
constexpr std::array<std::string_view, 10> kEndNames{
    "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>",     "<|endoftext|>",
    "</s>",       "[EOS]",      "[EOT]",           "<|end_of_msg|>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};

}  // namespace

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder, std::int32_t vocab_size) {
  struct Kind {
    const char* file;
    Result<Tokenizer> (*read)(std::string_view, std::string_view, std::int32_t);
  };
  static constexpr std::array<Kind, 3> kKinds{
      {{"tiktoken.model", parse}, {"tokenizer.json", from_tokenizer_json}, {"tokenizer.model", from_sentencepiece}}};
  std::error_code error;
  for (const Kind& kind : kKinds) {
    if (!std::filesystem::exists(folder / kind.file, error)) continue;
    MYRIAD_TRY(const std::string vocabulary, read_file(folder / kind.file, kMaxVocabularyBytes));
    std::string config;
    if (std::filesystem::exists(folder / "tokenizer_config.json", error)) {
      MYRIAD_TRY(config, read_file(folder / "tokenizer_config.json", kMaxConfigBytes));
    }
    auto tokenizer = kind.read(vocabulary, config, vocab_size);
    if (!tokenizer) {
      return std::unexpected(
          std::move(tokenizer).error().within(fmt::format("loading the tokenizer in {}", folder.string())));
    }
    return tokenizer;
  }
  return fail(Code::not_found,
              "loading the tokenizer in {}: there is none of tiktoken.model, tokenizer.json and tokenizer.model",
              folder.string());
}

Status Tokenizer::pad_to(std::int32_t vocab_size, std::string_view file) {
  if (vocab_size < 0 || vocab_size > kMaxVocabulary) {
    return fail(Code::invalid_argument, "a vocabulary of {} tokens was asked for; at most {} are supported", vocab_size,
                kMaxVocabulary);
  }
  if (vocab_size != 0 && vocab_size < table_.size()) {
    return fail(Code::corrupt,
                "the model's vocabulary of {} tokens and its tokenizer do not belong together: {} defines {} tokens",
                vocab_size, file, table_.size());
  }
  while (table_.size() < vocab_size) MYRIAD_TRY_STATUS(table_.add({}, TokenKind::unused));
  return {};
}

Status Tokenizer::index_bytes(std::string_view file, bool all) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const std::int32_t id = table_.find(std::string_view(&c, 1));
    if (id < 0 && !all && is_never_utf8(c)) {
      text_.lacks_bytes = true;
    } else if (id < 0) {
      return fail(Code::corrupt, "{} has {} tokens but none for the single byte 0x{:02X}, which is needed", file,
                  table_.size(), byte);
    }
    rules_.bytes[static_cast<std::size_t>(byte)] = id;
  }
  return {};
}

void Tokenizer::cut_at_spaces_if_possible() {
  if (pretokenizer_.size() != 0 || rules_.whole_pieces) return;
  for (std::int32_t id = 0; id < table_.size(); ++id) {
    if (table_.kind(id) != TokenKind::text && table_.kind(id) != TokenKind::user_defined) continue;
    const std::string_view token = table_.bytes(id);
    for (std::size_t i = 1; i < token.size(); ++i) {
      if (token[i] == ' ' && token[i - 1] != ' ') return;
    }
  }
  pretokenizer_ = {space_run_first_piece};
}

// One call of encode: the text that is being worked on and the memory that is used again and again.
class Tokenizer::Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, std::vector<std::int32_t>& out)
      : t_(tokenizer), merger_(tokenizer.table_, tokenizer.rules_), out_(out) {}

  // `ends[i]` is where span i ends in `text`.
  void encode(std::string_view text, std::span<const Span> spans, std::span<const std::size_t> ends) {
    whole_ = text;
    spans_ = spans;
    ends_ = ends;
    if (!t_.text_.kimi_cuts) {
      part(text);
      return;
    }
    LongTextCutter cutter(text);
    for (std::string_view piece; cutter.next(piece);) part(piece);
  }

 private:
  // Names, and the text between them. `text` is a part of the whole text.
  void part(std::string_view text) {
    const auto offset = static_cast<std::size_t>(text.data() - whole_.data());
    std::size_t plain = 0;  // where the text begins that has not been encoded yet
    for (std::size_t at = 0; at < text.size();) {
      while (ends_[span_] <= offset + at) ++span_;
      const bool specials = spans_[span_].specials;
      const std::size_t end = std::min(ends_[span_] - offset, text.size());
      if (!specials && (!t_.table_.has_user_defined() || t_.text_.user_defined_inside)) {
        at = end;
        continue;
      }
      const std::string_view rest = text.substr(at, end - at);
      const std::int32_t id = !specials                      ? t_.table_.user_defined_at(rest)
                              : t_.text_.user_defined_inside ? t_.table_.special_at(rest)
                                                             : t_.table_.name_at(rest);
      if (id < 0) {
        ++at;
        continue;
      }
      plain_text(text.substr(plain, at - plain), offset + plain == 0);
      out_.push_back(id);
      at += t_.table_.bytes(id).size();
      plain = at;
    }
    plain_text(text.substr(plain), offset + plain == 0);
  }

  void plain_text(std::string_view text, bool first) {
    if (text.empty()) return;
    merger_.begin_text();
    if (t_.text_.sentencepiece) {
      text = with_spaces(text, first);
    } else if (t_.text_.nfc && !surely_nfc(text)) {
      scratch_ = normalized_nfc(text);
      text = scratch_;
    }
    if (t_.text_.lacks_bytes) text = with_known_bytes(text);
    if (!t_.text_.user_defined_inside || !t_.table_.has_user_defined()) {
      pieces(text);
      return;
    }
    std::size_t plain = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::int32_t id = t_.table_.user_defined_at(text.substr(at));
      if (id < 0) {
        ++at;
        continue;
      }
      pieces(text.substr(plain, at - plain));
      out_.push_back(id);
      merger_.begin_text();
      at += t_.table_.bytes(id).size();
      plain = at;
    }
    pieces(text.substr(plain));
  }

  std::string_view with_known_bytes(std::string_view text) {
    const auto lacks = [this](char c) { return t_.rules_.bytes[static_cast<unsigned char>(c)] < 0; };
    if (std::none_of(text.begin(), text.end(), lacks)) return text;
    std::string known;
    for (const char c : text) {
      if (lacks(c)) {
        append_utf8(known, 0xFFFD);
      } else {
        known.push_back(c);
      }
    }
    scratch_ = std::move(known);
    return scratch_;
  }

  // The text with the prefix and with spaces for ▁.
  std::string_view with_spaces(std::string_view text, bool first) {
    using Prefix = TextRules::Prefix;
    const bool begins_with_space = text[0] == ' ' || text.starts_with(kSpaceMark);
    const bool prefix = (t_.text_.prefix == Prefix::each || (t_.text_.prefix == Prefix::first && first)) &&
                        !(t_.text_.prefix_unless_space && begins_with_space);
    std::size_t mark = text.find(kSpaceMark);
    if (!prefix && mark == text.npos) return text;
    scratch_.assign(prefix ? 1 : 0, ' ');
    std::size_t at = 0;
    for (; mark != text.npos; mark = text.find(kSpaceMark, at)) {
      scratch_.append(text, at, mark - at);
      scratch_.push_back(' ');
      at = mark + kSpaceMark.size();
    }
    scratch_.append(text, at);
    return scratch_;
  }

  void pieces(std::string_view text) {
    PieceCutter cutter(t_.pretokenizer_, text);
    for (std::string_view piece; cutter.next(piece);) merger_.merge(piece, out_);
  }

  const Tokenizer& t_;
  TokenMerger merger_;
  std::vector<std::int32_t>& out_;
  std::string_view whole_;
  std::span<const Span> spans_;
  std::span<const std::size_t> ends_;
  std::size_t span_ = 0;  // the one that the text is in which is being looked at
  std::string scratch_;
};

std::vector<std::int32_t> Tokenizer::encode(std::string_view bytes) const {
  const Span span{bytes, false};
  return encode_spans(std::span(&span, 1));
}

std::vector<std::int32_t> Tokenizer::encode_with_specials(std::string_view bytes) const {
  const Span span{bytes, true};
  return encode_spans(std::span(&span, 1));
}

std::vector<std::int32_t> Tokenizer::encode_spans(std::span<const Span> spans) const {
  std::vector<std::int32_t> out;
  std::vector<std::size_t> ends;
  std::string joined;
  std::string_view text;
  if (spans.size() == 1) {
    text = spans[0].text;
    ends.push_back(text.size());
  } else {
    for (const Span& span : spans) {
      joined.append(span.text);
      ends.push_back(joined.size());
    }
    text = joined;
  }
  out.reserve(text.size() / 4 + 1);
  Encoder(*this, out).encode(text, spans, ends);
  return out;
}

std::vector<std::int32_t> Tokenizer::encode_prompt(std::string_view bytes) const {
  std::vector<std::int32_t> ids = encode(bytes);
  if (add_bos_ && bos_) ids.insert(ids.begin(), *bos_);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string out;
  TokenDecoder decoder(*this);
  for (const std::int32_t id : ids) out.append(decoder.push(id));
  return out;
}

std::string_view TokenDecoder::push(std::int32_t id) {
  std::string_view bytes = tokenizer_.token_bytes(id);
  if (strip_ && !bytes.empty() && !tokenizer_.is_special(id)) {
    strip_ = false;
    if (bytes[0] == ' ') bytes.remove_prefix(1);
  }
  return bytes;
}

std::vector<std::int32_t> Tokenizer::end_ids() const {
  std::vector<std::int32_t> ids;
  if (eos_) ids.push_back(*eos_);
  if (end_of_turn_) ids.push_back(*end_of_turn_);
  for (const std::string_view name : kEndNames) {
    if (const auto id = special_id(name); id && is_special(*id)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::size_t Tokenizer::memory_bytes() const {
  return sizeof *this + table_.memory_bytes() + rules_.list.memory_bytes() +
         rules_.score_rank.capacity() * sizeof rules_.score_rank[0];
}

}  // namespace myriad
