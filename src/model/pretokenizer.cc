#include "model/pretokenizer.h"

#include <cstdint>

#include "model/unicode_tables.h"
#include "model/utf8_stream.h"

namespace myriad {
namespace {

// A character of the text, and the sets of the expression that it belongs to.
struct Char {
  char32_t code_point = 0;
  std::size_t length = 0;  // bytes
  std::uint16_t flags = 0;

  [[nodiscard]] bool is(std::uint16_t bits) const { return (flags & bits) != 0; }
  [[nodiscard]] bool han() const { return is(kUnicodeHan); }
  [[nodiscard]] bool line_end() const { return code_point == '\r' || code_point == '\n'; }
  [[nodiscard]] bool space() const { return is(kUnicodeSpace); }
  [[nodiscard]] bool upper() const {
    return is(kUnicodeLu | kUnicodeLt | kUnicodeLm | kUnicodeLo | kUnicodeMark) && !han();
  }
  [[nodiscard]] bool lower() const { return is(kUnicodeLl | kUnicodeLm | kUnicodeLo | kUnicodeMark) && !han(); }
  // [^\r\n L N]
  [[nodiscard]] bool prefix() const { return !is(kUnicodeLetter | kUnicodeNumber) && !line_end(); }
  // [^\s L N]
  [[nodiscard]] bool symbol() const { return !is(kUnicodeLetter | kUnicodeNumber | kUnicodeSpace); }
};

// Past the end: a character of length 0 that no set contains.
Char char_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const Utf8Char c = utf8_char_at(text, at);
  if (!c.valid) return {static_cast<char32_t>(0xFFFFFFFF), 1, 0};
  return {c.code_point, c.length, unicode_class(c.code_point)};
}

// Skips characters for which `in` holds.
template <class Set>
std::size_t skip(std::string_view text, std::size_t at, Set in) {
  for (Char c = char_at(text, at); c.length > 0 && in(c); c = char_at(text, at)) at += c.length;
  return at;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)?
std::size_t after_contraction(std::string_view text, std::size_t at) {
  if (at >= text.size() || text[at] != '\'') return at;
  const Char first = char_at(text, at + 1);
  const auto folded = [](const Char& c) -> char {
    if (c.code_point == 0x17F) return 's';
    if (c.code_point >= 'A' && c.code_point <= 'Z') return static_cast<char>(c.code_point - 'A' + 'a');
    return c.code_point < 0x80 ? static_cast<char>(c.code_point) : '\0';
  };
  if (first.length == 0) return at;
  const char one = folded(first);
  const std::size_t after_one = at + 1 + first.length;
  if (one == 's' || one == 't' || one == 'm' || one == 'd') return after_one;
  const Char second = char_at(text, after_one);
  if (second.length == 0) return at;
  const char two = folded(second);
  if ((one == 'r' && two == 'e') || (one == 'v' && two == 'e') || (one == 'l' && two == 'l')) {
    return after_one + second.length;
  }
  return at;
}

// Alternative 2 without its optional first character: upper* lower+. 0 if it does not match.
std::size_t word_with_lower(std::string_view text, std::size_t start) {
  // The greedy upper* runs to `end` and gives characters back from there until a lower one follows it.
  std::size_t last_both_end = 0;  // the end of the last character in the run that is also in the lower set
  std::size_t end = start;
  for (Char c = char_at(text, end); c.length > 0 && c.upper(); c = char_at(text, end)) {
    end += c.length;
    if (c.lower()) last_both_end = end;
  }
  const std::size_t after = skip(text, end, [](const Char& c) { return c.lower(); });
  if (after > end) return after;
  // Behind that last character come upper ones only, so lower+ is this one character.
  return last_both_end;
}

// Alternative 3 without its optional first character: upper+ lower*. 0 if it does not match.
std::size_t word_of_upper(std::string_view text, std::size_t start) {
  const std::size_t end = skip(text, start, [](const Char& c) { return c.upper(); });
  if (end == start) return 0;
  return skip(text, end, [](const Char& c) { return c.lower(); });
}

// Alternatives 2 and 3. 0 if neither matches.
std::size_t word_end(std::string_view text, std::size_t at, const Char& first) {
  for (const auto alternative : {word_with_lower, word_of_upper}) {
    if (first.prefix()) {
      if (const std::size_t end = alternative(text, at + first.length)) return after_contraction(text, end);
    }
    if (const std::size_t end = alternative(text, at)) return after_contraction(text, end);
  }
  return 0;
}

// Alternatives 6 to 8 on a run of white space.
std::size_t space_end(std::string_view text, std::size_t at) {
  std::size_t end = at, after_line_end = 0, before_last = at;
  for (Char c = char_at(text, end); c.length > 0 && c.space(); c = char_at(text, end)) {
    before_last = end;
    end += c.length;
    if (c.line_end()) after_line_end = end;
  }
  if (after_line_end > 0) return after_line_end;
  if (end == text.size() || before_last == at) return end;
  return before_last;  // the last one goes with what follows
}

}  // namespace

std::size_t pretoken_end(std::string_view text, std::size_t at) {
  const Char first = char_at(text, at);
  if (first.han()) return skip(text, at, [](const Char& c) { return c.han(); });
  if (const std::size_t end = word_end(text, at, first)) return end;
  if (first.is(kUnicodeNumber)) {
    std::size_t end = at;
    for (int n = 0; n < 3; ++n) {
      const Char c = char_at(text, end);
      if (!c.is(kUnicodeNumber)) break;
      end += c.length;
    }
    return end;
  }
  const std::size_t symbols = first.code_point == ' ' ? at + 1 : at;
  const std::size_t after_symbols = skip(text, symbols, [](const Char& c) { return c.symbol(); });
  if (after_symbols > symbols) return skip(text, after_symbols, [](const Char& c) { return c.line_end(); });
  return space_end(text, at);
}

std::vector<std::string_view> pretokenize(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = pretoken_end(text, at);
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
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
