// UTF-8 as it arrives: decoding one character of foreign bytes, and a stream that never lets half a character out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace myriad {

// One character of a byte string. Bytes that are not well-formed UTF-8 (Unicode §3.9: no overlong forms, no surrogates,
// nothing past U+10FFFF) count one by one, as `valid == false`, `length == 1`.
struct Utf8Char {
  char32_t code_point = 0;
  std::size_t length = 0;
  bool valid = false;
};
// The character that begins at `at`, which must be inside `text`.
Utf8Char utf8_char_at(std::string_view text, std::size_t at);
// Appends a code point (a Unicode scalar value) as UTF-8.
void append_utf8(std::string& out, char32_t code_point);
// Whether all of the text is well-formed.
bool is_valid_utf8(std::string_view text);

// Turns the byte pieces of tokens into text that can be shown at once: push() returns the complete characters that are
// known so far and keeps an incomplete one (at most 3 bytes) for the next call. Ill-formed bytes become U+FFFD, one for
// each maximal part of a character, as web browsers and Python's errors="replace" do.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  // The end of the text: U+FFFD if an incomplete character is pending, else nothing. The stream may be used again.
  std::string flush();
  [[nodiscard]] bool pending() const { return !held_.empty(); }

 private:
  std::string held_;
};

}  // namespace myriad
