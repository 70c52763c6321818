// Filters whose result is a string or a number.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "model/jinja_print.h"
#include "model/jinja_strings.h"
#include "model/jinja_tables.h"
#include "model/jinja_unicode.h"

namespace myriad::jinja {
namespace {

Result<Value> no_arguments(std::string_view whose, const Arguments& arguments, Result<Value> result) {
  MYRIAD_TRY_STATUS(Bound::none(whose, arguments));
  return result;
}

template <CaseChange Change>
Result<Value> change_case(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const TextPtr text, str(value, heap.budget()));
  return no_arguments("a filter that changes case", arguments, with_case(*text, Change, heap));
}

Result<Value> trim(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("trim", arguments, {"chars"}));
  MYRIAD_TRY(const TextPtr set, bound.text(0, nullptr));
  MYRIAD_TRY(const TextPtr text, str(value, heap.budget()));
  return stripped(*text, set.get(), true, true, heap);
}

Result<Value> replace(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("replace", arguments, {"old", "new", "count"}, 2));
  MYRIAD_TRY(const TextPtr text, str(value, heap.budget()));
  MYRIAD_TRY(const TextPtr old, str(*bound[0], heap.budget()));
  MYRIAD_TRY(const TextPtr replacement, str(*bound[1], heap.budget()));
  MYRIAD_TRY(const std::int64_t count, bound.given(2) ? bound.integer(2, -1) : Result<std::int64_t>(-1));
  return replaced(*text, *old, *replacement, count < 0 ? kNoLimit : count, heap);
}

Result<Value> string(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(TextPtr text, str(value, heap.budget()));
  return no_arguments("string", arguments, Value(std::move(text)));
}

Result<Value> safe(Heap&, const Value& value, const Arguments& arguments) {
  return no_arguments("safe", arguments, value);
}

Result<Value> length_filter(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const std::int64_t count, length(value, heap.budget()));
  return no_arguments("length", arguments, Value(count));
}

Result<Value> default_filter(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("default", arguments, {"default_value", "boolean"}));
  if (!is<Undefined>(value) && !(bound.boolean(1, false) && !truthy(value))) return value;
  if (bound[0] != nullptr) return *bound[0];
  return heap.text("", true);
}

// The first line stays, the others and, if asked for, blank ones are indented.
Result<Value> indent(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("indent", arguments, {"width", "first", "blank"}));
  if (is<Undefined>(value)) return undefined_error(value);
  const Text* text = text_of(value);
  if (text == nullptr) return fail(Code::invalid_argument, "indent of a value of type {}", type_name(value));
  TextPtr indention;
  if (bound[0] != nullptr && text_of(*bound[0]) != nullptr) {
    MYRIAD_TRY(indention, bound.text(0, nullptr));
  } else {
    MYRIAD_TRY(const std::int64_t width, bound.integer(0, 4));
    if (width > 1000) return fail(Code::limit, "indent: a width of {}, at most 1000 is supported", width);
    indention = std::make_shared<const Text>(
        std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '), true);
  }
  MYRIAD_TRY(const Value lines, split_lines(*text, false, heap));
  const auto& items = std::get<List*>(lines)->items;
  // A line break at the very end begins one more line, an empty one.
  const std::string& bytes = text->bytes();
  bool ends_line = bytes.empty();
  for (std::size_t back = 1; back <= 3 && back <= bytes.size() && !ends_line; ++back) {
    const Range end = line_end(bytes, bytes.size() - back);
    ends_line = end.from == bytes.size() - back && end.to == bytes.size();
  }
  const std::size_t count = items.size() + (ends_line ? 1 : 0);
  TextBuilder out(heap.budget());
  if (bound.boolean(1, false)) out.append(*indention);
  for (std::size_t i = 0; i < count; ++i) {
    const bool blank = i >= items.size() || text_of(items[i])->bytes().empty();
    if (i > 0) out.append("\n", true);
    if (i > 0 && (!blank || bound.boolean(2, false))) out.append(*indention);
    if (i < items.size()) out.append(*text_of(items[i]));
  }
  return std::move(out).finish();
}

// ---- numbers ----

std::string number_text(const Text& text) {
  const Range inner = strip_space(text.bytes(), true, true);
  std::string digits = text.bytes().substr(inner.from, inner.to - inner.from);
  // An underscore counts only between digits; elsewhere it stays and spoils the number.
  for (std::size_t i = digits.find('_', 1); i != std::string::npos && i + 1 < digits.size() && i < 400;
       i = digits.find('_', i + 1)) {
    if (isxdigit(static_cast<unsigned char>(digits[i - 1])) != 0 &&
        isxdigit(static_cast<unsigned char>(digits[i + 1])) != 0) {
      digits.erase(i--, 1);
    }
  }
  return digits;
}

// Python's int(text, base).
std::optional<std::int64_t> integer_of(const Text& text, int base, bool& too_large) {
  std::string digits = number_text(text);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  const auto prefixed = [&](const char* prefix) {
    return digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == prefix[0];
  };
  if ((base == 16 && prefixed("x")) || (base == 8 && prefixed("o")) || (base == 2 && prefixed("b"))) digits.erase(0, 2);
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  if (negative) digits.insert(0, "-");
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  too_large = error == std::errc::result_out_of_range;
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// Python's float(text).
std::optional<double> real_of(const Text& text) {
  std::string digits = number_text(text);
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.erase(0, 1);
  if (digits.find('(') != std::string::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || digits.empty()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    const bool tiny = digits.find("e-") != std::string::npos || digits.find("E-") != std::string::npos;
    return tiny ? 0.0 : std::numeric_limits<double>::infinity();
  }
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

Result<Value> int_filter(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("int", arguments, {"default", "base"}));
  if (is<Undefined>(value)) return undefined_error(value);
  MYRIAD_TRY(const std::int64_t base, bound.integer(1, 10));
  if (base < 2 || base > 36) return fail(Code::unsupported, "int: the base {}", base);
  std::int64_t whole = 0;
  if (as_integer(value, whole)) return whole;
  if (is<BigInteger>(value)) return value;
  std::optional<double> real;
  if (const auto* number = std::get_if<double>(&value)) real = *number;
  if (const Text* text = text_of(value)) {
    heap.budget().work(text->bytes().size());
    bool too_large = false;
    if (const auto parsed = integer_of(*text, static_cast<int>(base), too_large)) return *parsed;
    if (too_large) return fail(Code::unsupported, "int: a number that does not fit into 64 bits");
    real = real_of(*text);
  }
  if (real && std::isfinite(*real)) {
    if (std::abs(*real) >= 0x1p63) return fail(Code::unsupported, "int: a number that does not fit into 64 bits");
    return static_cast<std::int64_t>(*real);
  }
  return bound[0] != nullptr ? *bound[0] : Value(std::int64_t{0});
}

Result<Value> float_filter(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("float", arguments, {"default"}));
  if (is<Undefined>(value)) return undefined_error(value);
  double real = 0;
  if (as_number(value, real)) return real;
  if (const auto* big = std::get_if<BigInteger>(&value)) return real_of(*big->digits).value_or(0.0);
  if (const Text* text = text_of(value)) {
    heap.budget().work(text->bytes().size());
    if (const auto parsed = real_of(*text)) return *parsed;
  }
  return bound[0] != nullptr ? *bound[0] : Value(0.0);
}

Result<Value> abs_filter(Heap&, const Value& value, const Arguments& arguments) {
  std::int64_t whole = 0;
  if (as_integer(value, whole) && whole != std::numeric_limits<std::int64_t>::min()) {
    return no_arguments("abs", arguments, Value(std::abs(whole)));
  }
  if (const auto* real = std::get_if<double>(&value)) return no_arguments("abs", arguments, Value(std::abs(*real)));
  if (is<Undefined>(value)) return undefined_error(value);
  if (is<BigInteger>(value) || whole != 0) return fail(Code::unsupported, "abs of an integer of over 64 bits");
  return fail(Code::invalid_argument, "abs of a value of type {}", type_name(value));
}

Result<Value> round_filter(Heap&, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("round", arguments, {"precision", "method"}));
  MYRIAD_TRY(const std::int64_t precision, bound.integer(0, 0));
  MYRIAD_TRY(const TextPtr method, bound.text(1, nullptr));
  double real = 0;
  if (is<Undefined>(value)) return undefined_error(value);
  if (const auto* big = std::get_if<BigInteger>(&value)) {
    real = std::strtod(big->digits->bytes().c_str(), nullptr);
  } else if (!as_number(value, real)) {
    return fail(Code::invalid_argument, "round of a value of type {}", type_name(value));
  }
  if (precision < 0 || precision > 15) return fail(Code::unsupported, "round: a precision of {}", precision);
  const std::string how = method == nullptr ? "common" : method->bytes();
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (how == "ceil" || how == "floor") {
    std::int64_t integer = 0;
    if (is<BigInteger>(value) || as_integer(value, integer)) return real;  // Python scales integers without rounding
    return (how == "ceil" ? std::ceil(real * scale) : std::floor(real * scale)) / scale;
  }
  if (how != "common") return fail(Code::invalid_argument, "round: the method is common, ceil or floor, not '{}'", how);
  if (is<BigInteger>(value)) return value;
  std::int64_t whole = 0;
  if (as_integer(value, whole)) return whole;
  if (!std::isfinite(real) || std::abs(real) > 1e22) return real;
  std::array<char, 64> digits{};  // rounds the exact value, a tie to the even neighbour
  const int size = std::snprintf(digits.data(), digits.size(), "%.*f", static_cast<int>(precision), real);
  std::from_chars(digits.data(), digits.data() + size, real);
  return real;
}

Result<Value> tojson(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonOptions options;
  options.ascii = bound.boolean(0, false);
  options.sort_keys = bound.boolean(3, false);
  if (bound.given(1)) {
    if (const Text* indent_text = text_of(*bound[1])) {
      options.indent = indent_text->bytes();
    } else {
      MYRIAD_TRY(const std::int64_t width, bound.integer(1, 0));
      if (width > 100) return fail(Code::limit, "tojson: an indent of {}, at most 100 is supported", width);
      options.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
    options.comma = ",";
  }
  if (bound.given(2)) {
    const auto* pair = std::get_if<List*>(bound[2]);
    if (pair == nullptr || (*pair)->items.size() != 2 || text_of((*pair)->items[0]) == nullptr ||
        text_of((*pair)->items[1]) == nullptr) {
      return fail(Code::invalid_argument, "tojson: 'separators' is no pair of strings");
    }
    options.comma = text_of((*pair)->items[0])->bytes();
    options.colon = text_of((*pair)->items[1])->bytes();
  }
  TextBuilder out(heap.budget());
  MYRIAD_TRY_STATUS(append_json(out, value, options, heap.budget()));
  return std::move(out).finish();
}

Result<Value> format_filter(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const TextPtr format, str(value, heap.budget()));
  if (!arguments.named.empty()) return fail(Code::unsupported, "format with named values");
  List* values = heap.list(List::Kind::tuple);
  for (const Value& argument : arguments.positional) heap.append(values, argument);
  return format_percent(*format, values, heap);
}

constexpr std::array<Entry<Function>, 19> kFilters{{
    {"abs", abs_filter},
    {"capitalize", change_case<CaseChange::capitalize>},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"float", float_filter},
    {"format", format_filter},
    {"indent", indent},
    {"int", int_filter},
    {"length", length_filter},
    {"lower", change_case<CaseChange::lower>},
    {"replace", replace},
    {"round", round_filter},
    {"safe", safe},
    {"string", string},
    {"title", change_case<CaseChange::title_filter>},
    {"tojson", tojson},
    {"trim", trim},
    {"upper", change_case<CaseChange::upper>},
}};
static_assert(is_sorted(kFilters));

}  // namespace

Function find_text_filter(std::string_view name) {
  return find_entry(kFilters, name);
}

}  // namespace myriad::jinja
