// How vocabulary files spell the bytes of tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace myriad {

// GPT-2's spelling: each byte is one character, itself if it is printable Latin-1 other than space and soft hyphen,
// else U+0100, U+0101 … in the order of the bytes (so a space is Ġ). None if a character stands for no byte.
std::optional<std::string> from_byte_level(std::string_view text);
std::string to_byte_level(std::string_view bytes);

// SentencePiece's: ▁ (U+2581) is a space.
std::string from_space_marks(std::string_view text);
// The byte of "<0x00>" … "<0xFF>"; −1 for any other text.
int byte_of_name(std::string_view text);

// Whether a name looks like that of a special token although its file calls it an ordinary added one (DeepSeek's
// <｜User｜>): <|…|>, <｜…｜>, <unused…>, <pad>, <mask>. llama.cpp's converter has the same rule.
bool looks_special(std::string_view name);

}  // namespace myriad
