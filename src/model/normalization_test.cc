#include "model/normalization.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "model/utf8_stream.h"

namespace myriad {
namespace {

// Made by tools/make_nfc_cases.py.
TEST(Normalization, ComposesAsPythonDoes) {
  std::ifstream file(MYRIAD_SOURCE_DIR "/tests/data/nfc_cases.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 500U);
  std::size_t changed = 0;
  for (const auto& one : cases) {
    const auto text = one[0].get<std::string>(), expected = one[1].get<std::string>();
    EXPECT_EQ(normalized_nfc(text), expected) << one;
    EXPECT_EQ(normalized_nfc(expected), expected) << one;
    changed += text != expected;
    EXPECT_TRUE(!surely_nfc(text) || text == expected) << one;
  }
  EXPECT_GT(changed, 150U);
}

TEST(Normalization, KnowsTheRulesByExample) {
  EXPECT_EQ(normalized_nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(normalized_nfc("q\u0307\u0323"), "q\u0323\u0307");             // marks by class
  EXPECT_EQ(normalized_nfc("a\u0328\u0301"), "\u0105\u0301");              // the first that composes
  EXPECT_EQ(normalized_nfc("a\u0334\u0301"), "\u00E1\u0334");              // not blocked by another class
  EXPECT_EQ(normalized_nfc("a\u0308\u0308\u0301"), "\u00E4\u0308\u0301");  // blocked by the same class
  EXPECT_EQ(normalized_nfc("\u0344"), "\u0308\u0301");                     // decomposes, and never composes again
  EXPECT_EQ(normalized_nfc("\u212B"), "\u00C5");                           // a singleton
  EXPECT_EQ(normalized_nfc("\u1100\u1161\u11A8"), "\uAC01");               // Hangul
  EXPECT_EQ(normalized_nfc("\uAC00\u11A7"), "\uAC00\u11A7");               // no trailing consonant
  EXPECT_EQ(normalized_nfc("\u0958"), "\u0915\u093C");                     // excluded from composition
  EXPECT_EQ(normalized_nfc(""), "");
  EXPECT_FALSE(surely_nfc("e\u0301"));
  EXPECT_TRUE(surely_nfc("na\u00EFve caf\u00E9"));
}

TEST(Normalization, LeavesIllFormedBytesWhereTheyAre) {
  EXPECT_EQ(normalized_nfc("e\xFF\u0301"), "e\xFF\u0301");
  EXPECT_EQ(normalized_nfc("\x80\xCC"), "\x80\xCC");
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (unsigned n = rng() % 30; n > 0; --n) text += static_cast<char>(rng() % 256);
    const std::string once = normalized_nfc(text);
    EXPECT_EQ(normalized_nfc(once), once);
    const auto bad = [](std::string_view t) {
      std::size_t count = 0;
      for (std::size_t at = 0; at < t.size();) {
        const Utf8Char c = utf8_char_at(t, at);
        count += !c.valid;
        at += c.length;
      }
      return count;
    };
    EXPECT_EQ(bad(once), bad(text));
  }
}

TEST(Normalization, ManyMarksTakeNoQuadraticTime) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0323" : "\u0301";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(normalized_nfc(text).empty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace myriad
