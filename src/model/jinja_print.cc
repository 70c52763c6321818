#include "model/jinja_print.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "model/json_text.h"
#include "model/unicode_tables.h"
#include "model/utf8_stream.h"

namespace myriad::jinja {
namespace {

Status too_deep() {
  return fail(Code::limit, "a value that is printed is nested deeper than {} levels", kMaxValueDepth);
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return json_number(value);
}

// Whether Python's repr shows the character as it is. Unassigned code points count as printable, unlike in Python.
bool is_printable(char32_t c) {
  static constexpr std::array<std::pair<char32_t, char32_t>, 24> kHidden{{
      {0x00, 0x1F},       {0x7F, 0xA0},       {0xAD, 0xAD},       {0x600, 0x605},      {0x61C, 0x61C},
      {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},      {0x180E, 0x180E},
      {0x200B, 0x200F},   {0x2028, 0x202E},   {0x2060, 0x206F},   {0xD800, 0xF8FF},    {0xFEFF, 0xFEFF},
      {0xFFF0, 0xFFFB},   {0xFFFE, 0xFFFF},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD},  {0x13430, 0x1343F},
      {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}, {0xF0000, 0x10FFFF},
  }};
  if (c == ' ') return true;
  if ((unicode_class(c) & kUnicodeSpace) != 0) return false;
  const auto after = std::upper_bound(kHidden.begin(), kHidden.end(), c,
                                      [](char32_t value, const auto& range) { return value < range.first; });
  return after == kHidden.begin() || c > std::prev(after)->second;
}

std::string escaped(char32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\\':
      return "\\\\";
    default:
      break;
  }
  const auto code = static_cast<std::uint32_t>(c);
  return c < 0x100     ? fmt::format("\\x{:02x}", code)
         : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                       : fmt::format("\\U{:08x}", code);
}

// Appends a string, with what `escape` gives in place of each character for which that is not empty.
template <class Escape>
void append_escaped(TextBuilder& out, const Text& text, Escape escape) {
  const std::string& bytes = text.bytes();
  std::size_t done = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Char c = utf8_char_at(bytes, at);
    if (const std::string instead = escape(c); !instead.empty()) {
      out.append(text, done, at);
      out.append(instead, text.control_at(at));
      done = at + c.length;
    }
    at += c.length;
  }
  out.append(text, done, bytes.size());
}

void append_repr(TextBuilder& out, const Text& text) {
  const std::string& bytes = text.bytes();
  const char quote = bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos ? '"' : '\'';
  out.append(std::string_view(&quote, 1), false);
  append_escaped(out, text, [&](const Utf8Char& c) -> std::string {
    if (c.code_point == static_cast<char32_t>(quote) && c.valid) return std::string("\\") + quote;
    return !c.valid || (is_printable(c.code_point) && c.code_point != '\\') ? std::string{} : escaped(c.code_point);
  });
  out.append(std::string_view(&quote, 1), false);
}

// A value that holds no others; false if it is another one.
bool append_scalar(TextBuilder& out, const Value& value, bool json) {
  if (is<None>(value)) {
    out.append(json ? "null" : "None", true);
  } else if (const auto* boolean = std::get_if<bool>(&value)) {
    out.append(json ? (*boolean ? "true" : "false") : (*boolean ? "True" : "False"), true);
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    out.append(std::to_string(*integer), true);
  } else if (const auto* real = std::get_if<double>(&value)) {
    out.append(json ? json_number(*real) : float_text(*real), true);
  } else if (const auto* big = std::get_if<BigInteger>(&value)) {
    out.append(*big->digits);
  } else {
    return false;
  }
  return true;
}

Status append_value(TextBuilder& out, const Value& value, bool quoted, Budget& budget, std::size_t depth) {
  if (depth > kMaxValueDepth) return too_deep();
  MYRIAD_TRY_STATUS(budget.status());
  if (append_scalar(out, value, false)) return {};
  if (is<Undefined>(value)) {
    if (quoted) out.append("Undefined", false);
    return {};
  }
  if (const Text* text = text_of(value)) {
    if (quoted) {
      append_repr(out, *text);
    } else {
      out.append(*text);
    }
    return {};
  }
  if (const auto* found = std::get_if<List*>(&value); found != nullptr && (*found)->has_positions()) {
    const List& list = **found;
    const bool tuple = list.kind == List::Kind::tuple;
    out.append(tuple ? "(" : "[", false);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out.append(", ", false);
      MYRIAD_TRY_STATUS(append_value(out, list.items[i], true, budget, depth + 1));
    }
    out.append(tuple ? (list.items.size() == 1 ? ",)" : ")") : "]", false);
    return {};
  }
  if (const auto* found = std::get_if<Dict*>(&value)) {
    out.append("{", false);
    bool first = true;
    for (const auto& [key, item] : (*found)->members()) {
      if (!std::exchange(first, false)) out.append(", ", false);
      MYRIAD_TRY_STATUS(append_value(out, key, true, budget, depth + 1));
      out.append(": ", false);
      MYRIAD_TRY_STATUS(append_value(out, item, true, budget, depth + 1));
    }
    out.append("}", false);
    return {};
  }
  return fail(Code::unsupported, "a value of type {} is printed, which has no text of its own", type_name(value));
}

class JsonWriter {
 public:
  JsonWriter(TextBuilder& out, const JsonOptions& options, Budget& budget)
      : out_(out), options_(options), budget_(budget) {}

  Status value(const Value& value, std::size_t depth) {
    if (depth > kMaxValueDepth) return too_deep();
    MYRIAD_TRY_STATUS(budget_.status());
    if (append_scalar(out_, value, true)) return {};
    if (const Text* text = text_of(value)) {
      string(*text);
      return {};
    }
    if (const auto* list = std::get_if<List*>(&value); list != nullptr && (*list)->has_positions()) {
      return array((*list)->items, depth);
    }
    if (const auto* dict = std::get_if<Dict*>(&value)) return object(**dict, depth);
    if (is<Undefined>(value)) return undefined_error(value);
    return fail(Code::invalid_argument, "a value of type {} cannot be written as JSON", type_name(value));
  }

 private:
  void plain(std::string_view text) { out_.append(text, false); }

  void string(const Text& text) {
    plain("\"");
    append_escaped(out_, text, [&](const Utf8Char& c) -> std::string {
      if (!c.valid) return {};
      switch (c.code_point) {
        case '"':
          return "\\\"";
        case '\\':
          return "\\\\";
        case '\n':
          return "\\n";
        case '\r':
          return "\\r";
        case '\t':
          return "\\t";
        case '\f':
          return "\\f";
        case '\b':
          return "\\b";
        default:
          break;
      }
      const auto code = static_cast<std::uint32_t>(c.code_point);
      if (code >= 0x20 && (!options_.ascii || code < 0x7F)) return {};
      if (code < 0x10000) return fmt::format("\\u{:04x}", code);
      return fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF));
    });
    plain("\"");
  }

  // The space before an element, or before the bracket that closes.
  void line(std::size_t depth) {
    if (!options_.indent) return;
    plain("\n");
    for (std::size_t i = 0; i < depth && !budget_.exceeded(); ++i) plain(*options_.indent);
  }

  Status array(const std::vector<Value>& items, std::size_t depth) {
    if (items.empty()) {
      plain("[]");
      return {};
    }
    plain("[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) plain(options_.comma);
      line(depth + 1);
      MYRIAD_TRY_STATUS(value(items[i], depth + 1));
    }
    line(depth);
    plain("]");
    return {};
  }

  Status key(const Value& key) {
    if (const Text* text = text_of(key)) {
      string(*text);
      return {};
    }
    plain("\"");
    append_scalar(out_, key, true);
    plain("\"");
    return {};
  }

  Status object(const Dict& dict, std::size_t depth) {
    if (dict.members().empty()) {
      plain("{}");
      return {};
    }
    std::vector<const Dict::Member*> members;
    members.reserve(dict.members().size());
    for (const auto& member : dict.members()) members.push_back(&member);
    if (options_.sort_keys) {
      for (const auto* member : members) {
        if (text_of(member->first) == nullptr) {
          return fail(Code::unsupported, "the keys of a dict that are no strings cannot be sorted for JSON");
        }
        budget_.work(text_of(member->first)->bytes().size() * 16);
      }
      MYRIAD_TRY_STATUS(budget_.status());
      std::sort(members.begin(), members.end(),
                [](const auto* a, const auto* b) { return text_of(a->first)->bytes() < text_of(b->first)->bytes(); });
    }
    plain("{");
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0) plain(options_.comma);
      line(depth + 1);
      MYRIAD_TRY_STATUS(key(members[i]->first));
      plain(options_.colon);
      MYRIAD_TRY_STATUS(value(members[i]->second, depth + 1));
    }
    line(depth);
    plain("}");
    return {};
  }

  TextBuilder& out_;
  const JsonOptions& options_;
  Budget& budget_;
};

}  // namespace

Status append_str(TextBuilder& out, const Value& value, Budget& budget) {
  return append_value(out, value, false, budget, 0);
}

Result<TextPtr> str(const Value& value, Budget& budget) {
  if (const auto* text = std::get_if<TextPtr>(&value)) return *text;
  TextBuilder out(budget);
  MYRIAD_TRY_STATUS(append_str(out, value, budget));
  return std::move(out).finish();
}

Status append_json(TextBuilder& out, const Value& value, const JsonOptions& options, Budget& budget) {
  return JsonWriter(out, options, budget).value(value, 0);
}

}  // namespace myriad::jinja
