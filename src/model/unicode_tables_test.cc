#include "model/unicode_tables.h"

#include <gtest/gtest.h>

#include <bit>
#include <string_view>

namespace myriad {
namespace {

// Counts over all code points, as the Unicode Character Database's DerivedGeneralCategory.txt, PropList.txt and
// Scripts.txt of version 15.0.0 state them themselves ("Total code points").
TEST(UnicodeTables, HaveTheDatabasesOwnTotals) {
  ASSERT_EQ(std::string_view(kUnicodeVersion), "15.0.0");
  int lu = 0, ll = 0, lt = 0, lm = 0, lo = 0, mark = 0, number = 0, space = 0, han = 0, punctuation = 0, symbol = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    const auto flags = unicode_class(c);
    ASSERT_LE(std::popcount(static_cast<unsigned>(flags & ~(kUnicodeSpace | kUnicodeHan))), 1)
        << static_cast<unsigned>(c);
    lu += (flags & kUnicodeLu) != 0;
    ll += (flags & kUnicodeLl) != 0;
    lt += (flags & kUnicodeLt) != 0;
    lm += (flags & kUnicodeLm) != 0;
    lo += (flags & kUnicodeLo) != 0;
    mark += (flags & kUnicodeMark) != 0;
    number += (flags & kUnicodeNumber) != 0;
    space += (flags & kUnicodeSpace) != 0;
    han += (flags & kUnicodeHan) != 0;
    punctuation += (flags & kUnicodePunctuation) != 0;
    symbol += (flags & kUnicodeSymbol) != 0;
  }
  EXPECT_EQ(lu, 1831);
  EXPECT_EQ(ll, 2233);
  EXPECT_EQ(lt, 31);
  EXPECT_EQ(lm, 397);
  EXPECT_EQ(lo, 131612);
  EXPECT_EQ(mark, 1985 + 452 + 13);
  EXPECT_EQ(number, 680 + 236 + 915);
  EXPECT_EQ(space, 25);
  EXPECT_EQ(han, 98408);
  EXPECT_EQ(punctuation, 10 + 26 + 79 + 77 + 12 + 10 + 628);
  EXPECT_EQ(symbol, 948 + 63 + 125 + 6634);
}

TEST(UnicodeTables, KnowParticularCharacters) {
  EXPECT_EQ(unicode_class('A'), kUnicodeLu);
  EXPECT_EQ(unicode_class('z'), kUnicodeLl);
  EXPECT_EQ(unicode_class('\n'), kUnicodeSpace);
  EXPECT_EQ(unicode_class(0x1C), 0);    // Python counts it as space, White_Space has it not
  EXPECT_EQ(unicode_class(0x180E), 0);  // was a space until Unicode 6.3
  EXPECT_EQ(unicode_class('_'), kUnicodePunctuation);
  EXPECT_EQ(unicode_class('$'), kUnicodeSymbol);
  EXPECT_EQ(unicode_class(0x2E80), kUnicodeSymbol | kUnicodeHan);
  EXPECT_EQ(unicode_class(0x3005), kUnicodeLm | kUnicodeHan);
  EXPECT_EQ(unicode_class(0x3007), kUnicodeNumber | kUnicodeHan);
  EXPECT_EQ(unicode_class(0x4E2D), kUnicodeLo | kUnicodeHan);
  EXPECT_EQ(unicode_class(0x16FF0), kUnicodeMark | kUnicodeHan);
  EXPECT_EQ(unicode_class(0xD800), 0);
  EXPECT_EQ(unicode_class(0x10FFFF), 0);
  EXPECT_EQ(unicode_class(0xFFFFFFFF), 0);
}

}  // namespace
}  // namespace myriad
