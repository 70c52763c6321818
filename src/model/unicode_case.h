// Upper, lower and title case of characters, from the same version of the Unicode Character Database as
// model/unicode_tables.h (tools/make_unicode_case.py makes the tables). Full mappings: one character can become
// several.
#pragma once

#include <cstdint>
#include <string>

namespace myriad {

enum class LetterCase { upper, lower, title };

// Appends the character in the wanted case as UTF-8; itself if it has no other case. Conditions on the characters
// around it (the small sigma at a word's end) are the caller's.
void append_case(std::string& out, char32_t code_point, LetterCase wanted);

}  // namespace myriad
