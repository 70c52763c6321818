#include "model/json_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "model/utf8_stream.h"

namespace myriad {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxDigits = 4300;  // Python's limit for turning digits into an integer

// One pass over the text with a stack of the containers that are open.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Json> parse() {
    MYRIAD_TRY_STATUS(value());
    while (!open_.empty()) MYRIAD_TRY_STATUS(step());
    skip_space();
    if (at_ < text_.size()) return bad("nothing more after the value");
    return std::move(result_);
  }

 private:
  struct Container {
    Json json;
    std::string key;                          // of the member whose value is being read
    std::map<std::string, std::size_t> seen;  // where members are; kept once there are more than a few
  };

  // A value, or the beginning of a container, which step() then continues.
  Status value() {
    skip_space();
    if (at_ == text_.size()) return bad("a value");
    switch (text_[at_]) {
      case '{':
      case '[':
        if (open_.size() == kMaxJsonDepth) {
          return fail(Code::limit, "parsing JSON: it is nested deeper than {} levels at byte {}", kMaxJsonDepth, at_);
        }
        open_.push_back({text_[at_] == '{' ? Json::object() : Json::array(), {}, {}});
        ++at_;
        fresh_ = true;
        return {};
      case '"': {
        std::string text;
        MYRIAD_TRY_STATUS(string(text));
        return place(Json(std::move(text)));
      }
      default:
        break;
    }
    static const std::array<std::pair<std::string_view, Json>, 6> kWords{{
        {"true", true},
        {"false", false},
        {"null", nullptr},
        {"NaN", std::numeric_limits<double>::quiet_NaN()},
        {"Infinity", std::numeric_limits<double>::infinity()},
        {"-Infinity", -std::numeric_limits<double>::infinity()},
    }};
    for (const auto& [word, meaning] : kWords) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return place(meaning);
      }
    }
    return number();
  }

  // The next member or element of the innermost container, or its end.
  Status step() {
    const bool first = std::exchange(fresh_, false);
    const bool object = open_.back().json.is_object();
    const char end = object ? '}' : ']';
    skip_space();
    if (at_ < text_.size() && text_[at_] == end) {
      ++at_;
      Json done = std::move(open_.back().json);
      open_.pop_back();
      return place(std::move(done));
    }
    if (!first) {
      if (at_ == text_.size() || text_[at_] != ',') return bad(object ? "',' or '}'" : "',' or ']'");
      ++at_;
    }
    if (!object) {
      skip_space();
      if (at_ < text_.size() && text_[at_] == ']') return bad("a value");
      return value();
    }
    skip_space();
    if (at_ == text_.size() || text_[at_] != '"') return bad("a member's name in double quotes");
    std::string key;
    MYRIAD_TRY_STATUS(string(key));
    skip_space();
    if (at_ == text_.size() || text_[at_] != ':') return bad("':'");
    ++at_;
    open_.back().key = std::move(key);
    return value();
  }

  // Puts a complete value where it belongs.
  Status place(Json value) {
    if (open_.empty()) {
      result_ = std::move(value);
      return {};
    }
    Container& container = open_.back();
    if (container.json.is_array()) {
      container.json.push_back(std::move(value));
      return {};
    }
    // Json's own look-up by key is a linear search: with it, foreign text could make parsing take quadratic time.
    auto& members = container.json.get_ref<Json::object_t&>();
    constexpr std::size_t kFew = 8;
    if (members.size() <= kFew) {
      const auto same =
          std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.first == container.key; });
      if (same != members.end()) {
        same->second = std::move(value);
        return {};
      }
    } else {
      if (container.seen.empty()) {
        for (std::size_t i = 0; i < members.size(); ++i)
          container.seen.emplace((members.begin() + static_cast<std::ptrdiff_t>(i))->first, i);
      }
      const auto [same, is_new] = container.seen.emplace(container.key, members.size());
      if (!is_new) {
        (members.begin() + static_cast<std::ptrdiff_t>(same->second))->second = std::move(value);
        return {};
      }
    }
    members.emplace_back(container.key, std::move(value));
    return {};
  }

  Status string(std::string& out) {
    ++at_;  // the quote
    for (;;) {
      if (at_ == text_.size()) return bad("'\"' at the end of a string");
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return {};
      }
      if (c == '\\') {
        MYRIAD_TRY_STATUS(escape(out));
        continue;
      }
      if (static_cast<unsigned char>(c) < 0x20) return bad("a control character in a string as an escape");
      const Utf8Char character = utf8_char_at(text_, at_);
      if (!character.valid) return bad("well-formed UTF-8");
      out.append(text_, at_, character.length);
      at_ += character.length;
    }
  }

  Status escape(std::string& out) {
    static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (at_ + 1 == text_.size()) return bad("an escape");
    const char letter = text_[at_ + 1];
    if (const std::size_t i = kLetters.find(letter); i != std::string_view::npos) {
      out += kMeanings[i];
      at_ += 2;
      return {};
    }
    std::int32_t unit = letter == 'u' ? four_hex_digits(at_ + 2) : -1;
    if (unit < 0) return bad("an escape");
    at_ += 6;
    if (unit >= 0xD800 && unit < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      const std::int32_t low = four_hex_digits(at_ + 2);
      if (low >= 0xDC00 && low < 0xE000) {
        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        at_ += 6;
      }
    }
    append_utf8(out, unit >= 0xD800 && unit < 0xE000 ? char32_t{0xFFFD} : static_cast<char32_t>(unit));
    return {};
  }

  // −1 if there are none at `at`.
  [[nodiscard]] std::int32_t four_hex_digits(std::size_t at) const {
    if (at > text_.size() || text_.size() - at < 4) return -1;
    std::int32_t value = -1;
    const auto [end, error] = std::from_chars(text_.data() + at, text_.data() + at + 4, value, 16);
    return error == std::errc{} && end == text_.data() + at + 4 && value >= 0 && text_[at] != '-' ? value : -1;
  }

  std::size_t digits() {
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - start;
  }

  Status number() {
    const std::size_t start = at_;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    const std::size_t integer = at_;
    std::size_t n = digits();
    if (n == 0) {
      at_ = start;
      return bad("a value");
    }
    if (text_[integer] == '0' && n > 1) {
      at_ = integer + 1;
      n = 1;
    }
    // A point or an exponent without digits does not belong to the number; what follows is then an error anyway.
    bool whole = true;
    std::size_t end = at_;
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      if (digits() > 0) {
        whole = false;
        end = at_;
      } else {
        at_ = end;
      }
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (digits() > 0) {
        whole = false;
        end = at_;
      }
    }
    at_ = end;
    if (end - start > kMaxDigits) {
      return fail(Code::limit, "parsing JSON: the number at byte {} has more than {} characters", start, kMaxDigits);
    }
    const std::string_view digits = text_.substr(start, end - start);
    return place(whole ? whole_number(digits) : real_number(digits));
  }

  static Json whole_number(std::string_view text) {
    const char *begin = text.data(), *end = text.data() + text.size();
    if (std::int64_t value = 0; std::from_chars(begin, end, value).ec == std::errc{}) return value;
    if (std::uint64_t value = 0; text[0] != '-' && std::from_chars(begin, end, value).ec == std::errc{}) return value;
    return Json::binary(std::vector<std::uint8_t>(text.begin(), text.end()));
  }

  static Json real_number(std::string_view text) {
    double value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{}) return value;
    // Out of range: infinite if the first digit that is not 0 stands far before the point, else 0.
    const bool negative = text[0] == '-';
    const std::size_t e = text.find_first_of("eE");
    const std::string_view mantissa = text.substr(negative ? 1 : 0, std::min(e, text.size()) - (negative ? 1 : 0));
    const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
    const std::size_t first = mantissa.find_first_of("123456789");
    if (first == std::string_view::npos) return negative ? -0.0 : 0.0;
    // Only the exponent's sign can matter when it does not fit: the mantissa has at most kMaxDigits.
    std::int64_t exponent = 0;
    if (e != std::string_view::npos) {
      std::string_view digits = text.substr(e + 1);
      const bool minus = digits[0] == '-';
      if (digits[0] == '+') digits.remove_prefix(1);
      if (std::from_chars(digits.data(), digits.data() + digits.size(), exponent).ec != std::errc{}) {
        exponent = minus ? -1'000'000'000 : 1'000'000'000;
      }
    }
    const bool huge = exponent > -static_cast<std::int64_t>(point) + static_cast<std::int64_t>(first);
    const double magnitude = huge ? std::numeric_limits<double>::infinity() : 0.0;
    return negative ? -magnitude : magnitude;
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }

  [[nodiscard]] std::unexpected<Error> bad(std::string_view expected) const {
    if (at_ >= text_.size()) {
      return fail(Code::corrupt, "parsing JSON: the text ends at byte {} where {} is expected", text_.size(), expected);
    }
    const auto byte = static_cast<unsigned char>(text_[at_]);
    const std::string found =
        byte > 0x20 && byte < 0x7F ? fmt::format("'{}'", text_[at_]) : fmt::format("byte 0x{:02X}", byte);
    return fail(Code::corrupt, "parsing JSON: {} at byte {} where {} is expected", found, at_, expected);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Container> open_;
  bool fresh_ = false;  // the innermost container has just been opened
  Json result_;
};

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

Status append_value(std::string& out, const Json& value, JsonStyle style, std::size_t depth) {
  if (depth > kMaxJsonDepth)
    return fail(Code::limit, "writing JSON: it is nested deeper than {} levels", kMaxJsonDepth);
  const std::string_view comma = style == JsonStyle::spaced ? ", " : ",",
                         colon = style == JsonStyle::spaced ? ": " : ":";
  switch (value.type()) {
    case Json::value_t::object: {
      std::vector<const Json::object_t::value_type*> members;
      for (const auto& member : value.get_ref<const Json::object_t&>()) members.push_back(&member);
      if (style == JsonStyle::compact_sorted) {
        // The order of UTF-8 bytes is the order of code points.
        std::sort(members.begin(), members.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
      }
      out += '{';
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (i > 0) out += comma;
        append_quoted(out, members[i]->first);
        out += colon;
        MYRIAD_TRY_STATUS(append_value(out, members[i]->second, style, depth + 1));
      }
      out += '}';
      return {};
    }
    case Json::value_t::array:
      out += '[';
      for (std::size_t i = 0; i < value.size(); ++i) {
        if (i > 0) out += comma;
        MYRIAD_TRY_STATUS(append_value(out, value[i], style, depth + 1));
      }
      out += ']';
      return {};
    case Json::value_t::string:
      append_quoted(out, value.get_ref<const std::string&>());
      return {};
    case Json::value_t::boolean:
      out += value.get<bool>() ? "true" : "false";
      return {};
    case Json::value_t::number_integer:
      out += std::to_string(value.get<std::int64_t>());
      return {};
    case Json::value_t::number_unsigned:
      out += std::to_string(value.get<std::uint64_t>());
      return {};
    case Json::value_t::number_float:
      out += json_number(value.get<double>());
      return {};
    case Json::value_t::binary:
      out.append(value.get_binary().begin(), value.get_binary().end());
      return {};
    case Json::value_t::null:
    case Json::value_t::discarded:
      break;
  }
  out += "null";
  return {};
}

}  // namespace

Result<Json> parse_json_text(std::string_view text) {
  return Parser(text).parse();
}

Result<std::string> json_text(const Json& value, JsonStyle style) {
  std::string out;
  MYRIAD_TRY_STATUS(append_value(out, value, style, 0));
  return out;
}

// An exponent stands outside of 1e-4 … 1e16.
std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  std::array<char, 40> buffer{};
  const auto [last, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  static_cast<void>(error);  // 40 characters hold every double
  const std::string_view scientific(buffer.data(), static_cast<std::size_t>(last - buffer.data()));
  const std::size_t e = scientific.find('e');
  std::string digits(scientific.substr(0, e));
  int exponent = 0;
  const char* exponent_text = scientific.data() + e + 1;
  if (*exponent_text == '+') ++exponent_text;
  std::from_chars(exponent_text, last, exponent);
  std::string sign;
  if (digits[0] == '-') {
    sign = "-";
    digits.erase(0, 1);
  }
  std::erase(digits, '.');
  if (exponent < -4 || exponent >= 16) {
    if (digits.size() > 1) digits.insert(1, ".");
    return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto before = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= before) return sign + digits + std::string(before - digits.size(), '0') + ".0";
  digits.insert(before, ".");
  return sign + digits;
}

std::string json_quoted(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

}  // namespace myriad
