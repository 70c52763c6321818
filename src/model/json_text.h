// JSON as the Kimi K3 prompt format needs it: members keep their order, numbers keep their value, and values are
// written the way Python's json module writes them, because that is the text that the model was trained on.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace myriad {

// Nesting that parse_json_text accepts and json_text writes.
inline constexpr std::size_t kMaxJsonDepth = 200;

// Parses foreign text, in time linear in its length. Follows Python's json.loads: of equal keys the last value counts
// at the first one's place; NaN, Infinity and -Infinity are numbers; half of a surrogate pair becomes U+FFFD. An
// integer that no 64-bit type holds is kept exactly, as a `binary` value of its digits (json_text writes it back as a
// number). Errors: corrupt with the byte position and what was found there; limit when nested deeper than kMaxJsonDepth
// or when a number has more than 4,300 digits.
Result<nlohmann::ordered_json> parse_json_text(std::string_view text);

enum class JsonStyle {
  spaced,          // {"a": 1, "b": [2, 3]}
  compact,         // {"a":1,"b":[2,3]}
  compact_sorted,  // the same with every object's members in ascending order of their keys' code points
};
// Writes a value as Python's json.dumps(value, ensure_ascii=False) does. Errors: limit, as above.
Result<std::string> json_text(const nlohmann::ordered_json& value, JsonStyle style);
// A number as Python writes it: the shortest digits that read back as the same, always with a point or an exponent.
std::string json_number(double value);
// A string with its quotes.
std::string json_quoted(std::string_view text);

}  // namespace myriad
