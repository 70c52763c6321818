#include "model/pretokenizer.h"

#include <algorithm>
#include <cassert>
#include <span>

#include "model/unicode_tables.h"
#include "model/utf8_stream.h"

namespace myriad {
namespace {

struct Named {
  std::string_view name;
  Pretokenizer pretokenizer;
};

struct Pattern {
  std::string_view text;
  PieceRule rule;
};

// The expressions as the released tokenizer.json files have them. Some hold line ends as such, others as \r and \n.
constexpr Pattern kPatterns[]{
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     llama3_piece},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     qwen2_piece},
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", gpt2_piece},
    {R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
     R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     kimi_piece},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     o200k_piece},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     tekken_piece},
    {R"(\p{N})", one_number},
    {R"(\p{N}{1,3})", three_numbers},
    {R"(\p{N}+)", all_numbers},
    {"[\r\n]", one_line_end},
    {R"([\r\n])", one_line_end},
    {"[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", deepseek_v3_cjk},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     deepseek_v3_words},
    {"[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+", deepseek_cjk},
    {R"(\s?\p{L}+)", deepseek_coder_letters},
    {R"(\s?\p{P}+)", deepseek_coder_punctuation},
    {"\\s?[A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373"
     "\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F"
     "\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
     "\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D"
     "\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4"
     "\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
     "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D"
     "\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A"
     "\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2"
     "\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943]+",
     deepseek_llm_letters},
    {"\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+", deepseek_llm_punctuation},
    {R"(\s+$)", space_at_end},
};

}  // namespace

Pretokenizer::Pretokenizer(std::initializer_list<PieceRule> rules) {
  for (const PieceRule next : rules) {
    [[maybe_unused]] const bool added = add(next);
    assert(added);
  }
}

bool Pretokenizer::add(PieceRule next) {
  if (count_ == kMaxRules) return false;
  rules_[count_++] = next;
  return true;
}

namespace {

std::span<const Named> named_pretokenizers() {
  static const Named kNames[]{
      {"default", {punctuation_run, gpt2_piece, all_numbers, three_ascii_digits}},
      {"llama-bpe", {llama3_piece}},
      {"llama3", {llama3_piece}},
      {"llama-v3", {llama3_piece}},
      {"dbrx", {llama3_piece}},
      {"qwen2", {qwen2_piece}},
      {"deepseek-r1-qwen", {qwen2_piece}},
      {"deepseek-v3", {three_numbers, deepseek_v3_cjk, deepseek_v3_words}},
      {"deepseek-coder", {one_line_end, deepseek_coder_letters, deepseek_coder_punctuation, deepseek_cjk, one_number}},
      {"deepseek-llm",
       {one_line_end, deepseek_llm_letters, deepseek_llm_punctuation, space_at_end, deepseek_cjk, all_numbers}},
      {"kimi-k2", {kimi_piece}},
      {"gpt-2", {gpt2_piece}},
      {"smollm", {one_number, gpt2_piece}},
      {"gpt-4o", {o200k_piece}},
      {"llama4", {o200k_piece}},
      {"tekken", {tekken_piece}},
  };
  return kNames;
}

}  // namespace

std::optional<Pretokenizer> pretokenizer_by_name(std::string_view name) {
  if (name.empty()) name = "default";
  for (const Named& named : named_pretokenizers()) {
    if (named.name == name) return named.pretokenizer;
  }
  return std::nullopt;
}

std::vector<std::string_view> names_of_pretokenizer(const Pretokenizer& pretokenizer) {
  std::vector<std::string_view> names;
  for (const Named& named : named_pretokenizers()) {
    bool same = named.pretokenizer.size() == pretokenizer.size();
    for (std::size_t i = 0; same && i < pretokenizer.size(); ++i) {
      same = named.pretokenizer.rule(i) == pretokenizer.rule(i);
    }
    if (same) names.push_back(named.name);
  }
  return names;
}

bool takes_whole_pieces(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kWholePieces{"llama-bpe", "llama3", "llama-v3", "tekken"};
  return std::find(kWholePieces.begin(), kWholePieces.end(), name) != kWholePieces.end();
}

PieceRule piece_rule_of_pattern(std::string_view pattern) {
  for (const Pattern& known : kPatterns) {
    if (known.text == pattern) return known.rule;
  }
  return nullptr;
}

bool PieceCutter::next(std::string_view& piece) {
  if (at_ >= text_.size()) return false;
  std::size_t end = text_.size();
  for (std::size_t i = 0; i < pretokenizer_.size(); ++i) {
    if (ends_[i] <= at_) ends_[i] = pretokenizer_.rule(i)(text_.substr(0, end), at_);
    end = ends_[i];
  }
  piece = text_.substr(at_, end - at_);
  at_ = end;
  return true;
}

std::vector<std::string_view> pretokenize(const Pretokenizer& pretokenizer, std::string_view text) {
  std::vector<std::string_view> pieces;
  PieceCutter cutter(pretokenizer, text);
  for (std::string_view piece; cutter.next(piece);) pieces.push_back(piece);
  return pieces;
}

bool is_python_space(char32_t code_point) {
  if (code_point >= 0x1C && code_point <= 0x1F) return true;
  return (unicode_class(code_point) & kUnicodeSpace) != 0;
}

bool LongTextCutter::next(std::string_view& part) {
  if (at_ >= text_.size()) return false;
  const std::size_t start = at_;
  if (start == 0 && text_.size() <= kCutRun) {  // no fewer bytes than characters: nothing to cut
    at_ = text_.size();
    part = text_;
    return true;
  }
  std::size_t run = 0;
  bool run_is_space = false;
  while (at_ < text_.size()) {
    if (left_ == 0) {
      left_ = kCutCharacters;
      break;
    }
    const Utf8Char c = utf8_char_at(text_, at_);
    const bool space = c.valid && is_python_space(c.code_point);
    if (run > 0 && space != run_is_space) run = 0;
    run_is_space = space;
    if (run == kCutRun) break;
    ++run;
    --left_;
    at_ += c.length;
  }
  part = text_.substr(start, at_ - start);
  return true;
}

}  // namespace myriad
