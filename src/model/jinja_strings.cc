#include "model/jinja_strings.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja_print.h"
#include "model/jinja_unicode.h"
#include "model/unicode_case.h"
#include "model/unicode_tables.h"

namespace myriad::jinja {
namespace {

bool is_letter(const Utf8Char& c) {
  return c.valid && (unicode_class(c.code_point) & kUnicodeLetter) != 0;
}

// Whether a large sigma at `at` ends a word, where it becomes ς.
bool ends_word(std::string_view text, std::size_t at, bool after_letter) {
  const std::size_t next = next_character(text, at);
  return after_letter && (next >= text.size() || !is_letter(utf8_char_at(text, next)));
}

// Appends the parts of a text to a list.
class Parts {
 public:
  Parts(const Text& text, Heap& heap) : text_(text), heap_(heap), list_(heap.list()) {}
  Status add(std::size_t from, std::size_t to) {
    MYRIAD_TRY(Value part, part_of(text_, from, to, heap_));
    heap_.append(list_, std::move(part));
    return heap_.budget().status();
  }
  [[nodiscard]] List* list() { return list_; }

 private:
  const Text& text_;
  Heap& heap_;
  List* list_;
};

Status split_at_space(const std::string& bytes, std::int64_t count, Parts& parts) {
  std::size_t at = strip_space(bytes, true, false).from;
  while (at < bytes.size()) {
    std::size_t end = at;
    if (count-- <= 0) {
      end = strip_space(bytes, false, true).to;
      return parts.add(at, end);
    }
    while (end < bytes.size() && !is_space_at(bytes, end)) end = next_character(bytes, end);
    MYRIAD_TRY_STATUS(parts.add(at, end));
    at = end;
    while (at < bytes.size() && is_space_at(bytes, at)) at = next_character(bytes, at);
  }
  return {};
}

}  // namespace

Result<Value> part_of(const Text& text, std::size_t from, std::size_t to, Heap& heap) {
  TextBuilder out(heap.budget());
  out.append(text, from, to);
  return std::move(out).finish();
}

Result<Value> stripped(const Text& text, const Text* set, bool left, bool right, Heap& heap) {
  heap.budget().work(text.bytes().size());
  if (set != nullptr) heap.budget().work(set->bytes().size() * 16);
  MYRIAD_TRY_STATUS(heap.budget().status());
  const Range range =
      set == nullptr ? strip_space(text.bytes(), left, right) : strip_set(text.bytes(), set->bytes(), left, right);
  return part_of(text, range.from, range.to, heap);
}

Result<Value> with_case(const Text& text, CaseChange change, Heap& heap) {
  const std::string& bytes = text.bytes();
  TextBuilder out(heap.budget());
  bool first = true, after_letter = false, begins = true;
  std::string mapped;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Char c = utf8_char_at(bytes, at);
    LetterCase wanted = change == CaseChange::upper ? LetterCase::upper : LetterCase::lower;
    if (change == CaseChange::capitalize && first) wanted = LetterCase::title;
    if (change == CaseChange::title && !after_letter) wanted = LetterCase::title;
    if (change == CaseChange::title_filter && begins) wanted = LetterCase::upper;
    mapped.clear();
    if (!c.valid) {
      mapped = bytes[at];
    } else if (c.code_point == 0x3A3 && wanted == LetterCase::lower && ends_word(bytes, at, after_letter)) {
      append_utf8(mapped, 0x3C2);
    } else {
      append_case(mapped, c.code_point, wanted);
    }
    out.append(mapped, text.control_at(at));
    first = false;
    after_letter = is_letter(c);
    begins = c.valid && (is_space_at(bytes, at) || std::string_view("-({[<").find(bytes[at]) != std::string_view::npos);
    at += c.length;
  }
  return std::move(out).finish();
}

bool has_case(std::string_view bytes, bool upper) {
  bool found = false;
  for (std::size_t at = 0; at < bytes.size(); at = next_character(bytes, at)) {
    const Utf8Char c = utf8_char_at(bytes, at);
    const unsigned kind = c.valid ? unicode_class(c.code_point) : 0;
    if ((kind & (kUnicodeLt | (upper ? kUnicodeLl : kUnicodeLu))) != 0) return false;
    if ((kind & (upper ? kUnicodeLu : kUnicodeLl)) != 0) found = true;
  }
  return found;
}

Result<Value> replaced(const Text& text, const Text& old, const Text& replacement, std::int64_t count, Heap& heap) {
  const std::string& bytes = text.bytes();
  TextBuilder out(heap.budget());
  std::size_t done = 0;
  if (old.bytes().empty()) {  // between all characters
    for (std::size_t at = 0; at <= bytes.size() && count > 0 && !heap.budget().exceeded(); --count) {
      out.append(text, done, at);
      out.append(replacement);
      done = at;
      at = at < bytes.size() ? next_character(bytes, at) : bytes.size() + 1;
    }
  } else {
    heap.budget().work(bytes.size());
    for (; count > 0 && !heap.budget().exceeded(); --count) {
      const std::size_t at = find_bytes(bytes, old.bytes(), done);
      if (at == std::string::npos) break;
      out.append(text, done, at);
      out.append(replacement);
      heap.budget().step();
      done = at + old.bytes().size();
    }
  }
  out.append(text, done, bytes.size());
  return std::move(out).finish();
}

Result<Value> split(const Text& text, const Text* separator, std::int64_t count, bool from_right, Heap& heap) {
  const std::string& bytes = text.bytes();
  if (count < 0) count = kNoLimit;
  heap.budget().work(bytes.size());
  MYRIAD_TRY_STATUS(heap.budget().status());
  Parts parts(text, heap);
  if (separator == nullptr) {
    if (from_right && count != kNoLimit) return fail(Code::unsupported, "rsplit at space with a limit");
    MYRIAD_TRY_STATUS(split_at_space(bytes, count, parts));
    return parts.list();
  }
  const std::string& cut = separator->bytes();
  if (cut.empty()) return fail(Code::invalid_argument, "a split at an empty separator");
  if (from_right) {
    std::vector<std::pair<std::size_t, std::size_t>> found;
    std::size_t end = bytes.size();
    heap.budget().work(bytes.size() * std::min<std::size_t>(cut.size(), 4096));
    for (; count > 0 && end >= cut.size() && !heap.budget().exceeded(); --count) {
      const std::size_t at = find_last_bytes(std::string_view(bytes).substr(0, end), cut);
      if (at == std::string::npos) break;
      heap.budget().work(2 * sizeof found[0]);
      found.emplace_back(at + cut.size(), end);
      end = at;
    }
    found.emplace_back(0, end);
    for (auto part = found.rbegin(); part != found.rend(); ++part) {
      MYRIAD_TRY_STATUS(parts.add(part->first, part->second));
    }
    return parts.list();
  }
  std::size_t from = 0;
  for (; count > 0; --count) {
    const std::size_t at = find_bytes(bytes, cut, from);
    if (at == std::string::npos) break;
    MYRIAD_TRY_STATUS(parts.add(from, at));
    from = at + cut.size();
  }
  MYRIAD_TRY_STATUS(parts.add(from, bytes.size()));
  return parts.list();
}

Result<Value> split_lines(const Text& text, bool keep_ends, Heap& heap) {
  Parts parts(text, heap);
  heap.budget().work(text.bytes().size());
  for (std::size_t at = 0; at < text.bytes().size();) {
    const Range end = line_end(text.bytes(), at);
    MYRIAD_TRY_STATUS(parts.add(at, keep_ends ? end.to : end.from));
    at = end.to;
  }
  return parts.list();
}

Result<Value> join(const List& items, const Text& between, bool strings_only, Heap& heap) {
  TextBuilder out(heap.budget());
  bool first = true;
  for (const Value& item : items.items) {
    if (strings_only && text_of(item) == nullptr) {
      return fail(Code::invalid_argument, "a join of values of which one is of type {}", type_name(item));
    }
    if (!std::exchange(first, false)) out.append(between);
    heap.budget().step();
    MYRIAD_TRY_STATUS(append_str(out, item, heap.budget()));
  }
  return std::move(out).finish();
}

}  // namespace myriad::jinja
