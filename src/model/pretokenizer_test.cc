#include "model/pretokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace myriad {
namespace {

std::vector<std::string> strings(std::string_view text) {
  const auto pieces = pretokenize({kimi_piece}, text);
  return {pieces.begin(), pieces.end()};
}

// Made by tools/make_pretokenizer_cases.py, which runs the expression itself.
TEST(Pretokenizer, CutsAsTheRegularExpressionDoes) {
  std::ifstream file(MYRIAD_SOURCE_DIR "/tests/data/pretokenizer_cases.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 1000U);
  for (const auto& pieces : cases) {
    std::string text;
    for (const auto& piece : pieces) text += piece.get<std::string>();
    EXPECT_EQ(strings(text), pieces.get<std::vector<std::string>>()) << pieces;
  }
}

TEST(Pretokenizer, TakesIllFormedBytesAsSymbols) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(strings("a\xFF\xFE b"), (Strings{"a", "\xFF\xFE", " b"}));
  EXPECT_EQ(strings(" \xFF\n"), (Strings{" \xFF\n"}));
  EXPECT_EQ(strings("\xFFword"), (Strings{"\xFFword"}));  // the optional first character
  EXPECT_EQ(strings("\xE4\xB8"), (Strings{"\xE4\xB8"}));  // half of a Han character is not Han
}

TEST(Pretokenizer, CoversAnyBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (unsigned n = rng() % 40; n > 0; --n) text += static_cast<char>(rng() % (round % 2 ? 256 : 128));
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t end = kimi_piece(text, at);
      ASSERT_GT(end, at);
      at = end;
    }
    EXPECT_EQ(at, text.size());
  }
}

// Rescanning from every piece's start would be quadratic on these.
TEST(Pretokenizer, IsLinearOnLongRuns) {
  std::string mixed;
  for (int i = 0; i < 200'000; ++i) mixed += "A\xCA\xB0";
  for (const std::string& text : {std::string(1 << 20, 'A'), std::string(1 << 20, ' '), std::string(1 << 20, '\n'),
                                  mixed, std::string(1 << 20, '\''), std::string(1 << 20, '9')}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(pretokenize({kimi_piece}, text).empty());
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
}

std::vector<std::size_t> parts(std::string_view text) {
  std::vector<std::size_t> sizes;
  LongTextCutter cutter(text);
  for (std::string_view part; cutter.next(part);) sizes.push_back(part.size());
  return sizes;
}

TEST(LongTextCutter, CutsRunsAndTotals) {
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(parts(""), Sizes{});
  EXPECT_EQ(parts("abc"), Sizes{3});
  EXPECT_EQ(parts(std::string(25'000, 'a')), Sizes{25'000});
  EXPECT_EQ(parts(std::string(25'001, 'a')), (Sizes{25'000, 1}));
  EXPECT_EQ(parts(std::string(60'000, ' ')), (Sizes{25'000, 25'000, 10'000}));
  // A run that ended before the limit does not count.
  EXPECT_EQ(parts(std::string(20'000, 'a') + " " + std::string(25'000, 'b')), Sizes{45'001});
  EXPECT_EQ(parts("x" + std::string(25'001, ' ') + "y"), (Sizes{25'001, 2}));
  // U+001C is a space here.
  EXPECT_EQ(parts(std::string(20'000, 'a') + "\x1C" + std::string(20'000, 'b')), Sizes{40'001});
  // Characters count, not bytes; ill-formed bytes are characters.
  std::string letters;
  for (int i = 0; i < 25'001; ++i) letters += "\xC3\xA9";
  EXPECT_EQ(parts(letters), (Sizes{50'000, 2}));
  EXPECT_EQ(parts(std::string(25'001, '\xFF')), (Sizes{25'000, 1}));
  // The cut by total length starts the count of a run again.
  std::string words;
  while (words.size() < 390'000) words += "abcd ";
  EXPECT_EQ(parts(words + std::string(30'000, 'x')), (Sizes{400'000, 20'000}));
  EXPECT_EQ(parts(std::string(400'000, 'x') + "y"),
            (Sizes{25'000, 25'000, 25'000, 25'000, 25'000, 25'000, 25'000, 25'000, 25'000, 25'000, 25'000, 25'000,
                   25'000, 25'000, 25'000, 25'000, 1}));
}

}  // namespace
}  // namespace myriad
