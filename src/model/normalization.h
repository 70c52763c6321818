// Unicode normalization form C (Unicode Standard Annex #15), version 15.0.
#pragma once

#include <string>
#include <string_view>

namespace myriad {

// Text in normalization form C. Bytes that are not well-formed UTF-8 stay as they are, and nothing composes across
// them. Time n log n at most in the length.
std::string normalized_nfc(std::string_view text);
// True only if the text is in form C already; false may be wrong. Fast.
bool surely_nfc(std::string_view text);

}  // namespace myriad
