// Operations on strings that both methods and filters are made of. All carry the marks of where bytes came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "model/jinja_value.h"

namespace myriad::jinja {

inline constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// Bytes [from, to).
Result<Value> part_of(const Text& text, std::size_t from, std::size_t to, Heap& heap);

// Without space, or the characters of `set` if it is not null, at its ends.
Result<Value> stripped(const Text& text, const Text* set, bool left, bool right, Heap& heap);

enum class CaseChange {
  upper,
  lower,
  capitalize,    // the first letter large, all others small
  title,         // the first of each run of letters large, as str.title
  title_filter,  // the first after space, - or an opening bracket large, as the filter
};
Result<Value> with_case(const Text& text, CaseChange change, Heap& heap);

// str.isupper or str.islower: there are letters that have a case, and all of them have this one.
bool has_case(std::string_view bytes, bool upper);

// The first `count` occurrences of `old` replaced.
Result<Value> replaced(const Text& text, const Text& old, const Text& replacement, std::int64_t count, Heap& heap);

// The list of parts between separators, or between runs of space if `separator` is null; at most `count` cuts, from the
// right if `from_right`. Errors: invalid_argument for an empty separator.
Result<Value> split(const Text& text, const Text* separator, std::int64_t count, bool from_right, Heap& heap);
Result<Value> split_lines(const Text& text, bool keep_ends, Heap& heap);

// The elements as text with `between` between them. Errors: invalid_argument, if `strings_only`, for one that is none.
Result<Value> join(const List& items, const Text& between, bool strings_only, Heap& heap);

// `format % values`: %s, %d, %i, %u, %x, %X, %o, %f, %e, %g and %% with flags, width and precision. Errors:
// invalid_argument; unsupported for other letters.
Result<Value> format_percent(const Text& format, const Value& values, Heap& heap);

}  // namespace myriad::jinja
