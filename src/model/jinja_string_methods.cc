// The methods of Python's str.
#include <algorithm>
#include <array>

#include "model/jinja_access.h"
#include "model/jinja_print.h"
#include "model/jinja_strings.h"
#include "model/jinja_tables.h"
#include "model/jinja_unicode.h"
#include "model/pretokenizer.h"
#include "model/unicode_tables.h"

namespace myriad::jinja {
namespace {

template <bool Left, bool Right>
Result<Value> strip(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("strip", arguments, {"chars"}));
  MYRIAD_TRY(const TextPtr set, bound.text(0, nullptr));
  return stripped(*text_of(self), set.get(), Left, Right, heap);
}

template <bool FromRight>
Result<Value> split_method(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("split", arguments, {"sep", "maxsplit"}));
  MYRIAD_TRY(const TextPtr separator, bound.text(0, nullptr));
  MYRIAD_TRY(const std::int64_t count, bound.integer(1, -1));
  return split(*text_of(self), separator.get(), count, FromRight, heap);
}

Result<Value> splitlines(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("splitlines", arguments, {"keepends"}));
  return split_lines(*text_of(self), bound.boolean(0, false), heap);
}

// The arguments `start` and `end` of many methods, as bytes. False if start is behind the end.
Result<bool> range_of(const Bound& bound, std::size_t first, const std::string& bytes, Heap& heap, Range& range) {
  range = {0, bytes.size()};
  if (!bound.given(first) && !bound.given(first + 1)) return true;
  heap.budget().work(bytes.size());
  const auto count = static_cast<std::int64_t>(count_characters(bytes));
  MYRIAD_TRY(std::int64_t start, bound.given(first) ? bound.integer(first, 0) : Result<std::int64_t>(0));
  MYRIAD_TRY(std::int64_t end, bound.given(first + 1) ? bound.integer(first + 1, 0) : Result<std::int64_t>(count));
  if (start < 0) start = std::max<std::int64_t>(start + count, 0);
  if (end < 0) end = std::max<std::int64_t>(end + count, 0);
  end = std::min(end, count);
  if (start > end) return false;
  range.from = offset_of_character(bytes, static_cast<std::size_t>(start));
  range.to = offset_of_character(bytes, static_cast<std::size_t>(end));
  return true;
}

template <bool AtStart>
Result<Value> affix_test(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound,
             Bound::of(AtStart ? "startswith" : "endswith", arguments, {"prefix", "start", "end"}, 1));
  const std::string& bytes = text_of(self)->bytes();
  Range range{};
  MYRIAD_TRY(const bool valid, range_of(bound, 1, bytes, heap, range));
  if (!valid) return false;
  const std::string_view part = std::string_view(bytes).substr(range.from, range.to - range.from);
  const auto fits = [&](const Text& affix) {
    heap.budget().work(affix.bytes().size());
    return AtStart ? part.starts_with(affix.bytes()) : part.ends_with(affix.bytes());
  };
  if (const auto* list = std::get_if<List*>(bound[0]); list != nullptr && (*list)->kind == List::Kind::tuple) {
    for (const Value& affix : (*list)->items) {
      if (text_of(affix) != nullptr && fits(*text_of(affix))) return true;
    }
    return false;
  }
  MYRIAD_TRY(const TextPtr affix, bound.text(0, nullptr));
  if (affix == nullptr) return fail(Code::invalid_argument, "a string that begins or ends with None is asked for");
  return fits(*affix);
}

template <CaseChange Change>
Result<Value> change_case(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY_STATUS(Bound::none("a change of case", arguments));
  return with_case(*text_of(self), Change, heap);
}

Result<Value> replace(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("replace", arguments, {"old", "new", "count"}, 2));
  MYRIAD_TRY(const TextPtr old, bound.text(0, nullptr));
  MYRIAD_TRY(const TextPtr replacement, bound.text(1, nullptr));
  MYRIAD_TRY(const std::int64_t count, bound.integer(2, -1));
  if (old == nullptr || replacement == nullptr) return fail(Code::invalid_argument, "replace: None is no string");
  return replaced(*text_of(self), *old, *replacement, count < 0 ? kNoLimit : count, heap);
}

Result<Value> join_method(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("join", arguments, {"iterable"}, 1));
  MYRIAD_TRY(const List* const items, elements(*bound[0], heap));
  return join(*items, *text_of(self), true, heap);
}

// The character position of a part, −1 if it is not there.
template <bool Last>
Result<std::int64_t> position_of(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("find", arguments, {"sub", "start", "end"}, 1));
  const std::string& bytes = text_of(self)->bytes();
  MYRIAD_TRY(const TextPtr wanted, bound.text(0, nullptr));
  if (wanted == nullptr) return fail(Code::invalid_argument, "find: None is no string");
  Range range{};
  MYRIAD_TRY(const bool valid, range_of(bound, 1, bytes, heap, range));
  heap.budget().work(bytes.size() * (Last ? std::min<std::size_t>(wanted->bytes().size(), 4096) + 1 : 1));
  MYRIAD_TRY_STATUS(heap.budget().status());
  if (!valid) return -1;
  const std::string_view part = std::string_view(bytes).substr(range.from, range.to - range.from);
  const std::size_t at = Last ? find_last_bytes(part, wanted->bytes()) : find_bytes(part, wanted->bytes());
  if (at == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(count_characters(std::string_view(bytes).substr(0, range.from + at)));
}
template <bool Last>
Result<Value> find(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const std::int64_t at, position_of<Last>(heap, self, arguments));
  return at;
}
template <bool Last>
Result<Value> index(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const std::int64_t at, position_of<Last>(heap, self, arguments));
  if (at < 0) return fail(Code::invalid_argument, "index: the part is not in the string");
  return at;
}

Result<Value> count(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("count", arguments, {"sub"}, 1));
  MYRIAD_TRY(const TextPtr wanted, bound.text(0, nullptr));
  const std::string& bytes = text_of(self)->bytes();
  heap.budget().work(bytes.size());
  if (wanted == nullptr) return fail(Code::invalid_argument, "count: None is no string");
  if (wanted->bytes().empty()) return static_cast<std::int64_t>(count_characters(bytes)) + 1;
  std::int64_t found = 0;
  for (std::size_t at = find_bytes(bytes, wanted->bytes()); at != std::string::npos && heap.budget().step();
       at = find_bytes(bytes, wanted->bytes(), at + wanted->bytes().size())) {
    ++found;
  }
  MYRIAD_TRY_STATUS(heap.budget().status());
  return found;
}

template <bool Prefix>
Result<Value> remove_affix(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("removeprefix or removesuffix", arguments, {"affix"}, 1));
  MYRIAD_TRY(const TextPtr affix, bound.text(0, nullptr));
  if (affix == nullptr) return fail(Code::invalid_argument, "removeprefix: None is no string");
  const std::string &bytes = text_of(self)->bytes(), &part = affix->bytes();
  if (Prefix && bytes.starts_with(part)) return part_of(*text_of(self), part.size(), bytes.size(), heap);
  if (!Prefix && bytes.ends_with(part)) return part_of(*text_of(self), 0, bytes.size() - part.size(), heap);
  return self;
}

template <bool Last>
Result<Value> partition(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("partition", arguments, {"sep"}, 1));
  MYRIAD_TRY(const TextPtr cut, bound.text(0, nullptr));
  if (cut == nullptr || cut->bytes().empty()) return fail(Code::invalid_argument, "partition at an empty separator");
  const Text& text = *text_of(self);
  const std::string& bytes = text.bytes();
  heap.budget().work(bytes.size() * (Last ? std::min<std::size_t>(cut->bytes().size(), 4096) : 1));
  MYRIAD_TRY_STATUS(heap.budget().status());
  const std::size_t at = Last ? find_last_bytes(bytes, cut->bytes()) : find_bytes(bytes, cut->bytes());
  std::array<std::size_t, 4> bounds{0, at, at + cut->bytes().size(), bytes.size()};
  if (at == std::string::npos) {
    bounds = Last ? std::array<std::size_t, 4>{0, 0, 0, bytes.size()}
                  : std::array<std::size_t, 4>{0, bytes.size(), bytes.size(), bytes.size()};
  }
  List* made = heap.list(List::Kind::tuple);
  for (std::size_t i = 0; i < 3; ++i) {
    MYRIAD_TRY(Value part, part_of(text, bounds[i], bounds[i + 1], heap));
    heap.append(made, std::move(part));
  }
  return made;
}

// Whether there are characters and all are of the kind. `cased`: only cased ones count.
template <class Is>
bool all_characters(const std::string& bytes, Heap& heap, Is is_kind) {
  heap.budget().work(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Char c = utf8_char_at(bytes, at);
    if (!c.valid || !is_kind(c.code_point)) return false;
    at += c.length;
  }
  return !bytes.empty();
}
Result<Value> isspace(Heap& heap, const Value& self, const Arguments&) {
  return all_characters(text_of(self)->bytes(), heap, is_python_space);
}
Result<Value> isalpha(Heap& heap, const Value& self, const Arguments&) {
  return all_characters(text_of(self)->bytes(), heap,
                        [](char32_t c) { return (unicode_class(c) & kUnicodeLetter) != 0; });
}
Result<Value> isalnum(Heap& heap, const Value& self, const Arguments&) {
  return all_characters(text_of(self)->bytes(), heap,
                        [](char32_t c) { return (unicode_class(c) & (kUnicodeLetter | kUnicodeNumber)) != 0; });
}
Result<Value> isnumeric(Heap& heap, const Value& self, const Arguments&) {
  return all_characters(text_of(self)->bytes(), heap,
                        [](char32_t c) { return (unicode_class(c) & kUnicodeNumber) != 0; });
}
// Other scripts' digits cannot be told from their other numbers here.
Result<Value> isdigit(Heap& heap, const Value& self, const Arguments& arguments) {
  const std::string& bytes = text_of(self)->bytes();
  const bool ascii = std::none_of(bytes.begin(), bytes.end(), [](char c) { return (c & 0x80) != 0; });
  MYRIAD_TRY(const Value numeric, isnumeric(heap, self, arguments));
  if (truthy(numeric) && !ascii) return fail(Code::unsupported, "isdigit of digits that are not ASCII");
  return numeric;
}
template <bool Upper>
Result<Value> is_case(Heap& heap, const Value& self, const Arguments&) {
  heap.budget().work(text_of(self)->bytes().size());
  return has_case(text_of(self)->bytes(), Upper);
}

// str.format with fields {}, {0} and {name}.
Result<Value> format_method(Heap& heap, const Value& self, const Arguments& arguments) {
  const Text& format = *text_of(self);
  const std::string& bytes = format.bytes();
  TextBuilder out(heap.budget());
  std::size_t next = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.append(format, at, brace);
    if (brace == bytes.size()) break;
    if (bytes.compare(brace, 2, "{{") == 0 || bytes.compare(brace, 2, "}}") == 0) {
      out.append(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const std::size_t end = bytes.find('}', brace);
    if (bytes[brace] == '}' || end == std::string::npos) {
      return fail(Code::invalid_argument, "format: a brace without its other half");
    }
    const std::string_view field = std::string_view(bytes).substr(brace + 1, end - brace - 1);
    if (field.find_first_of("!:.[{") != std::string_view::npos) {
      return fail(Code::unsupported, "the field '{{{}}}' of format", field.substr(0, 40));
    }
    const Value* value = nullptr;
    if (field.empty() || (field.size() < 4 && field.find_first_not_of("0123456789") == std::string_view::npos)) {
      const std::size_t position = field.empty() ? next++ : std::stoul(std::string(field));
      if (position < arguments.positional.size()) value = &arguments.positional[position];
    } else {
      for (const auto& [name, given] : arguments.named) {
        if (*name == field) value = &given;
      }
    }
    if (value == nullptr) {
      return fail(Code::invalid_argument, "format: there is no value for the field '{{{}}}'", field.substr(0, 40));
    }
    MYRIAD_TRY_STATUS(append_str(out, *value, heap.budget()));
    at = end + 1;
  }
  return std::move(out).finish();
}

constexpr std::array<Entry<Function>, 32> kMethods{{
    {"capitalize", change_case<CaseChange::capitalize>},
    {"count", count},
    {"endswith", affix_test<false>},
    {"find", find<false>},
    {"format", format_method},
    {"index", index<false>},
    {"isalnum", isalnum},
    {"isalpha", isalpha},
    {"isdecimal", isdigit},
    {"isdigit", isdigit},
    {"islower", is_case<false>},
    {"isnumeric", isnumeric},
    {"isspace", isspace},
    {"isupper", is_case<true>},
    {"join", join_method},
    {"lower", change_case<CaseChange::lower>},
    {"lstrip", strip<true, false>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace},
    {"rfind", find<true>},
    {"rindex", index<true>},
    {"rpartition", partition<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip<false, true>},
    {"split", split_method<false>},
    {"splitlines", splitlines},
    {"startswith", affix_test<true>},
    {"strip", strip<true, true>},
    {"title", change_case<CaseChange::title>},
    {"upper", change_case<CaseChange::upper>},
}};
static_assert(is_sorted(kMethods));

}  // namespace

Function find_string_method(std::string_view name, bool& exists) {
  static constexpr std::array<std::string_view, 15> kOthers{
      "casefold", "center", "encode",    "expandtabs", "format_map", "isascii",   "isidentifier", "isprintable",
      "istitle",  "ljust",  "maketrans", "rjust",      "swapcase",   "translate", "zfill"};
  const Function found = find_entry(kMethods, name);
  exists = found != nullptr || std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end();
  return found;
}

}  // namespace myriad::jinja
