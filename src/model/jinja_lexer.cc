#include "model/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "model/jinja_unicode.h"
#include "model/unicode_tables.h"

namespace myriad::jinja {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) MYRIAD_TRY_STATUS(data_and_tag());
    add(Kind::end, source_.size(), source_.size());
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  [[nodiscard]] bool here(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  void skip_space() {
    while (at_ < source_.size() && is_space_at(source_, at_)) at_ = next_character(source_, at_);
  }
  void add(Kind kind, std::size_t from, std::size_t to) {
    tokens_.push_back({kind, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to)});
  }
  [[nodiscard]] std::unexpected<Error> bad(std::size_t at, std::string_view what) const {
    return fail(Code::corrupt, "{}: {}", place_in(source_, at), what);
  }

  // Text up to the next tag, and that tag to its end.
  Status data_and_tag() {
    const std::size_t start = at_;
    std::size_t tag = start;
    while (tag + 1 < source_.size() &&
           (source_[tag] != '{' || std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos)) {
      ++tag;
    }
    if (tag + 1 >= source_.size()) {
      add(Kind::data, start, source_.size());
      at_ = source_.size();
      return {};
    }
    at_ = tag + 2;
    const char type = source_[tag + 1];
    const char sign = peek() == '-' || peek() == '+' ? source_[at_++] : '\0';
    if (const std::size_t end = data_end(start, tag, type != '{', sign); end > start) add(Kind::data, start, end);
    if (type == '#') return comment(tag);
    if (type == '%' && raw_begins()) return raw(tag);
    add(type == '{' ? Kind::variable_begin : Kind::block_begin, tag, at_);
    return type == '{' ? expression(Kind::variable_end) : expression(Kind::block_end);
  }

  // Where the text [start, tag) ends when a tag has taken its white space.
  [[nodiscard]] std::size_t data_end(std::size_t start, std::size_t tag, bool block, char sign) const {
    const std::string_view text = source_.substr(start, tag - start);
    if (sign == '-') return start + strip_space(text, false, true).to;
    if (sign == '+' || !block) return tag;
    const std::size_t last_break = text.rfind('\n');
    if (last_break == std::string_view::npos && !line_starting_) return tag;
    const std::size_t line = last_break == std::string_view::npos ? 0 : last_break + 1;
    const std::string_view indent = text.substr(line);
    return strip_space(indent, true, false).from == indent.size() ? start + line : tag;
  }

  // The end of a tag of two characters, if it is here: passes it and the space that it takes.
  bool tag_end(std::string_view end, bool block) {
    if (here(end)) {
      at_ += 2;
      if (block && peek() == '\n') ++at_;
    } else if (peek() == '-' && source_.substr(at_ + 1).starts_with(end)) {
      at_ += 3;
      skip_space();
    } else if (block && peek() == '+' && source_.substr(at_ + 1).starts_with(end)) {
      at_ += 3;
    } else {
      return false;
    }
    line_starting_ = source_[at_ - 1] == '\n';
    return true;
  }

  Status comment(std::size_t tag) {
    for (std::size_t end = source_.find("#}", at_); end != std::string_view::npos; end = source_.find("#}", end + 1)) {
      at_ = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+') ? end - 1 : end;
      if (tag_end("#}", true)) return {};
    }
    return bad(tag, "a comment begins that does not end");
  }

  bool raw_begins() {
    const std::size_t start = at_;
    skip_space();
    if (here("raw")) {
      at_ += 3;
      skip_space();
      if (tag_end("%}", false)) return true;
    }
    at_ = start;
    return false;
  }

  Status raw(std::size_t tag) {
    const std::size_t start = at_;
    const bool starting = line_starting_;
    for (std::size_t end = source_.find("{%", at_); end != std::string_view::npos; end = source_.find("{%", end + 1)) {
      at_ = end + 2;
      const char sign = peek() == '-' || peek() == '+' ? source_[at_++] : '\0';
      skip_space();
      if (!here("endraw")) continue;
      at_ += 6;
      skip_space();
      if (!tag_end("%}", true)) continue;
      const bool after = std::exchange(line_starting_, starting);
      if (const std::size_t last = data_end(start, end, true, sign); last > start) add(Kind::data, start, last);
      line_starting_ = after;
      return {};
    }
    return bad(tag, "a raw block begins that does not end");
  }

  // Tokens up to the end of the tag, which closes it only outside of brackets.
  Status expression(Kind end) {
    const std::size_t tag = at_ - 2;
    const std::string_view sign = end == Kind::variable_end ? "}}" : "%}";
    std::string open;
    for (;;) {
      const std::size_t from = at_;
      if (open.empty() && tag_end(sign, end == Kind::block_end)) {
        add(end, from, at_);
        return {};
      }
      if (at_ >= source_.size()) return bad(tag, "a tag begins that does not end");
      if (is_space_at(source_, at_)) {
        skip_space();
      } else if (is_digit(peek())) {
        number();
      } else if (const std::size_t length = name_length(); length > 0) {
        at_ += length;
        add(Kind::name, from, at_);
      } else if (peek() == '"' || peek() == '\'') {
        MYRIAD_TRY_STATUS(string());
      } else {
        MYRIAD_TRY_STATUS(operator_or_bracket(open));
      }
    }
  }

  [[nodiscard]] std::size_t name_length() const {
    std::size_t end = at_;
    while (end < source_.size()) {
      const Utf8Char c = utf8_char_at(source_, end);
      const bool ascii = c.code_point < 0x80;
      const auto letter = static_cast<unsigned char>(source_[end] | 0x20);
      const bool part = ascii ? (letter >= 'a' && letter <= 'z') || source_[end] == '_' || is_digit(source_[end])
                              : (unicode_class(c.code_point) & (kUnicodeLetter | kUnicodeMark | kUnicodeNumber)) != 0;
      if (!c.valid || !part) break;
      end += c.length;
    }
    return end - at_;
  }

  // Digits with single underscores between them.
  std::size_t digits(std::size_t at) const {
    while (at < source_.size() && (is_digit(source_[at]) || (source_[at] == '_' && is_digit(source_[at - 1]) &&
                                                             at + 1 < source_.size() && is_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void number() {
    const std::size_t from = at_;
    const auto digit_at = [&](std::size_t at) { return at < source_.size() && is_digit(source_[at]); };
    if (peek() == '0' && std::string_view("bBoOxX").find(peek(1)) != std::string_view::npos && peek(1) != '\0') {
      std::size_t end = at_ + 2;
      while (end < source_.size() && (isxdigit(static_cast<unsigned char>(source_[end])) != 0 || source_[end] == '_')) {
        ++end;
      }
      at_ = end;
      add(Kind::integer, from, at_);
      return;
    }
    at_ = digits(at_);
    Kind kind = Kind::integer;
    if (from == 0 || source_[from - 1] != '.') {
      if (peek() == '.' && digit_at(at_ + 1)) {
        at_ = digits(at_ + 1);
        kind = Kind::real;
      }
      if (peek() == 'e' || peek() == 'E') {
        const std::size_t exponent = at_ + (peek(1) == '+' || peek(1) == '-' ? 2 : 1);
        if (digit_at(exponent)) {
          at_ = digits(exponent);
          kind = Kind::real;
        }
      }
    }
    add(kind, from, at_);
  }

  Status string() {
    const std::size_t from = at_;
    const char quote = source_[at_++];
    for (; at_ < source_.size(); ++at_) {
      if (source_[at_] == '\\') {
        ++at_;
      } else if (source_[at_] == quote) {
        ++at_;
        add(Kind::string, from, at_);
        return {};
      }
    }
    return bad(from, "a string begins that does not end");
  }

  Status operator_or_bracket(std::string& open) {
    static constexpr std::array<std::string_view, 6> kPairs{"//", "**", "==", "!=", ">=", "<="};
    const std::size_t from = at_;
    for (const std::string_view pair : kPairs) {
      if (here(pair)) {
        at_ += 2;
        add(Kind::sign, from, at_);
        return {};
      }
    }
    const char c = peek();
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      return bad(from, fmt::format("the character '{}' is not part of the language",
                                   source_.substr(from, next_character(source_, from) - from)));
    }
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) {
        return bad(from, open.empty() ? fmt::format("'{}' closes nothing", c)
                                      : fmt::format("'{}' where '{}' is expected", c, open.back()));
      }
      open.pop_back();
    }
    ++at_;
    add(Kind::sign, from, at_);
    return {};
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool line_starting_ = true;  // what was passed last ended with a line break
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalized_source(std::string_view text) {
  std::string source;
  source.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\r') {
      source += '\n';
      if (at + 1 < text.size() && text[at + 1] == '\n') ++at;
    } else {
      source += text[at];
    }
  }
  if (source.ends_with('\n')) source.pop_back();
  return source;
}

std::string place_in(std::string_view source, std::size_t offset) {
  const std::string_view before = source.substr(0, offset);
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("line {}, column {}", std::count(before.begin(), before.end(), '\n') + 1,
                     count_characters(before.substr(line_start)) + 1);
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(source).run();
}

Result<std::string> unescaped(std::string_view quoted) {
  const std::string_view text = quoted.substr(1, quoted.size() - 2);
  std::string out;
  out.reserve(text.size());
  // A code unit of UTF-16 whose other half may follow.
  std::uint32_t high = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      out += text[at++];
      continue;
    }
    const char c = text[at + 1];
    static constexpr std::string_view kLetters = "\\'\"abfnrtv\n", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    if (const std::size_t letter = kLetters.find(c); letter != std::string_view::npos) {
      if (letter < kMeanings.size()) out += kMeanings[letter];  // a backslash at a line's end continues the line
      at += 2;
      continue;
    }
    const bool octal = c >= '0' && c <= '7';
    const std::size_t width = octal ? 3 : c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == 'N') return fail(Code::unsupported, "the escape \\N, a character by its name");
    if (width == 0) {
      out += '\\';
      ++at;
      continue;
    }
    const char* begin = text.data() + at + (octal ? 1 : 2);
    const char* limit = std::min(begin + width, text.data() + text.size());
    std::uint32_t code = 0;
    const auto [end, error] = std::from_chars(begin, limit, code, octal ? 8 : 16);
    if (error != std::errc{} || (!octal && end != begin + width) || code > 0x10FFFF) {
      return fail(Code::corrupt, "the escape '{}' is not complete", text.substr(at, width + 2));
    }
    at = static_cast<std::size_t>(end - text.data());
    if (code >= 0xDC00 && code < 0xE000 && high != 0) {
      code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00);
      out.resize(out.size() - 3);
      high = 0;
    } else {
      high = code >= 0xD800 && code < 0xDC00 && text.substr(at).starts_with("\\u") ? code : 0;
    }
    append_utf8(out, code >= 0xD800 && code < 0xE000 ? char32_t{0xFFFD} : static_cast<char32_t>(code));
  }
  return out;
}

}  // namespace myriad::jinja
