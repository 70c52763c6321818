#include "model/utf8_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace myriad {
namespace {

constexpr std::string_view kBad = "\xEF\xBF\xBD";

std::string through(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.push(bytes);
  return out + stream.flush();
}

TEST(Utf8Stream, KeepsAnIncompleteCharacterBack) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xE2"), "a");
  EXPECT_TRUE(stream.pending());
  EXPECT_EQ(stream.push("\x82"), "");
  EXPECT_EQ(stream.push("\xAC\xF0\x9F"), "\xE2\x82\xAC");
  EXPECT_EQ(stream.push("\x98\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_FALSE(stream.pending());
  EXPECT_EQ(stream.flush(), "");
}

TEST(Utf8Stream, EndsAnIncompleteTailWithOneReplacement) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("x\xF0\x9F\x98"), "x");
  EXPECT_EQ(stream.flush(), kBad);
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.push("y"), "y");
}

// The example of the Unicode standard, §3.9, table 3-11 (and what Python's errors="replace" gives).
TEST(Utf8Stream, ReplacesEachMaximalPartOnce) {
  const std::string bad(kBad);
  EXPECT_EQ(through("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + bad + bad + bad + "b" + bad + "c" + bad + bad + "d");
  EXPECT_EQ(through("\xC0\xAF"), bad + bad);                      // overlong
  EXPECT_EQ(through("\xE0\x80\xAF"), bad + bad + bad);            // overlong
  EXPECT_EQ(through("\xED\xA0\x80"), bad + bad + bad);            // a surrogate
  EXPECT_EQ(through("\xF4\x90\x80\x80"), bad + bad + bad + bad);  // past U+10FFFF
  EXPECT_EQ(through("\xFF"), bad);
}

TEST(Utf8Stream, GivesTheSameTextWhateverThePieces) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const std::vector<std::string> atoms{"a",        "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xE2", "\x80",
                                       "\xF0\x9F", "\xC3",     "\xFF"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (unsigned n = rng() % 12; n > 0; --n) text += atoms[rng() % atoms.size()];
    Utf8Stream stream;
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = 1 + rng() % 3;
      const std::string piece = stream.push(std::string_view(text).substr(at, n));
      EXPECT_TRUE(is_valid_utf8(piece));
      out += piece;
      at += n;
    }
    out += stream.flush();
    EXPECT_EQ(out, through(text));
    if (is_valid_utf8(text)) {
      EXPECT_EQ(out, text);
    }
  }
}

TEST(Utf8Char, CountsIllFormedBytesOneByOne) {
  EXPECT_EQ(utf8_char_at("\xE2\x82", 0).length, 1U);
  EXPECT_FALSE(utf8_char_at("\xE2\x82", 0).valid);
  const Utf8Char c = utf8_char_at("x\xF4\x8F\xBF\xBF", 1);
  EXPECT_TRUE(c.valid);
  EXPECT_EQ(c.code_point, 0x10FFFFU);
  EXPECT_EQ(c.length, 4U);
}

TEST(Utf8Char, DecodesWhatAppendWrote) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Char read = utf8_char_at(text, 0);
    ASSERT_TRUE(read.valid && read.code_point == c && read.length == text.size()) << static_cast<unsigned>(c);
  }
}

}  // namespace
}  // namespace myriad
