#include "model/unicode_case.h"

#include <gtest/gtest.h>

#include "model/utf8_stream.h"

namespace myriad {
namespace {

std::string cased(std::string_view text, LetterCase wanted) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    append_case(out, c.code_point, wanted);
    at += c.length;
  }
  return out;
}

TEST(UnicodeCase, MapsLettersOfAllScripts) {
  EXPECT_EQ(cased("abz xyz 09 äÿßŉŀžǆ αωϐ жя ա ⅰ ⓐ 𐐨 ﬁ 中", LetterCase::upper),
            "ABZ XYZ 09 ÄŸSSʼNĿŽǄ ΑΩΒ ЖЯ Ա Ⅰ Ⓐ 𐐀 FI 中");
  EXPECT_EQ(cased("ABZ ÄŸẞĿŽǄǅ ΑΩΣ ЖЯ Ա Ⅰ 𐐀 İ K", LetterCase::lower), "abz äÿßŀžǆǆ αωσ жя ա ⅰ 𐐨 i̇ k");
  EXPECT_EQ(cased("aǆßﬁ", LetterCase::title), "AǅSsFi");
}

// The tables are made of runs, some of every second character: each must end where it should.
TEST(UnicodeCase, UpperAndLowerUndoEachOther) {
  int pairs = 0;
  for (char32_t c = 0; c < 0x1E944; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string self, upper, back;
    append_utf8(self, c);
    append_case(upper, c, LetterCase::upper);
    if (upper == self) continue;
    const Utf8Char mapped = utf8_char_at(upper, 0);
    if (mapped.length != upper.size()) continue;
    append_case(back, mapped.code_point, LetterCase::lower);
    pairs += back == self ? 1 : 0;
  }
  EXPECT_EQ(pairs, 1396);  // of Unicode 15.0, counted by Python's str.upper and str.lower
}

}  // namespace
}  // namespace myriad
