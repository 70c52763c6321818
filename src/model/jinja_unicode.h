// Strings as sequences of characters, the way Python counts them. A byte that is no well-formed UTF-8 is one character.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "model/utf8_stream.h"

namespace myriad::jinja {

std::size_t count_characters(std::string_view text);
// Where the character after the one that begins at `at` begins; `at` is inside the text.
std::size_t next_character(std::string_view text, std::size_t at);
// The offset of the character number `index`, at most the text's end.
std::size_t offset_of_character(std::string_view text, std::size_t index);
// The offset of the first occurrence at or after `from`, npos if there is none; in linear time.
std::size_t find_bytes(std::string_view text, std::string_view wanted, std::size_t from = 0);
// The same for the last occurrence; in time proportional to the product of the lengths at worst.
std::size_t find_last_bytes(std::string_view text, std::string_view wanted);

bool is_space_at(std::string_view text, std::size_t at);
// The part [from, to) of the text that is left when space is taken off its ends.
struct Range {
  std::size_t from, to;
};
Range strip_space(std::string_view text, bool left, bool right);
// The same for any of the characters of `set`.
Range strip_set(std::string_view text, std::string_view set, bool left, bool right);
// Where the line that begins at `at` ends, and where the next begins, by Python's splitlines.
Range line_end(std::string_view text, std::size_t at);

}  // namespace myriad::jinja
