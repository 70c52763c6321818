#include "model/pretokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
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

struct NamedRule {
  const char* name;
  PieceRule rule;
};
constexpr NamedRule kRules[]{
    {"llama3_piece", llama3_piece},
    {"qwen2_piece", qwen2_piece},
    {"gpt2_piece", gpt2_piece},
    {"o200k_piece", o200k_piece},
    {"tekken_piece", tekken_piece},
    {"one_number", one_number},
    {"three_numbers", three_numbers},
    {"all_numbers", all_numbers},
    {"three_ascii_digits", three_ascii_digits},
    {"one_line_end", one_line_end},
    {"space_at_end", space_at_end},
    {"punctuation_run", punctuation_run},
    {"deepseek_v3_cjk", deepseek_v3_cjk},
    {"deepseek_v3_words", deepseek_v3_words},
    {"deepseek_cjk", deepseek_cjk},
    {"deepseek_coder_letters", deepseek_coder_letters},
    {"deepseek_coder_punctuation", deepseek_coder_punctuation},
    {"deepseek_llm_punctuation", deepseek_llm_punctuation},
};

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Made by tools/make_piece_cases.py, which runs the expressions themselves.
TEST(PieceRules, CutAsTheirRegularExpressionsDo) {
  std::ifstream file(MYRIAD_SOURCE_DIR "/tests/data/piece_cases.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases["rules"].size(), std::size(kRules));
  for (const auto& [name, rule] : kRules) {
    const auto& lengths = cases["rules"][name];
    ASSERT_EQ(lengths.size(), cases["texts"].size());
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto text = cases["texts"][i].get<std::string>();
      std::vector<std::size_t> got;
      for (const std::string_view piece : pretokenize({rule}, text)) got.push_back(characters(piece));
      EXPECT_EQ(got, lengths[i].get<std::vector<std::size_t>>()) << name << " " << cases["texts"][i];
    }
  }
}

TEST(PieceRules, CutSentencePieceTextAtSpaces) {
  using Views = std::vector<std::string_view>;
  EXPECT_EQ(pretokenize({space_first_piece}, " a  b "), (Views{" a", " ", " b", " "}));
  EXPECT_EQ(pretokenize({space_run_first_piece}, " a  b "), (Views{" a", "  b", " "}));
  EXPECT_EQ(pretokenize({space_run_first_piece}, "ab"), Views{"ab"});
}

TEST(PieceRules, KnowTheLettersThatDeepSeekLists) {
  using Views = std::vector<std::string_view>;
  EXPECT_EQ(pretokenize({deepseek_llm_letters}, "ab \u00E9\u4E2D\u02B0"), (Views{"ab", " \u00E9", "\u4E2D\u02B0"}));
  EXPECT_EQ(pretokenize({deepseek_llm_letters}, "\uAB70\uAB30"),
            (Views{"\uAB70", "\uAB30"}));  // the second is not listed
}

TEST(PieceRules, StepsCutThePiecesOfTheStepBefore) {
  using Views = std::vector<std::string_view>;
  EXPECT_EQ(pretokenize({three_numbers, deepseek_v3_cjk, deepseek_v3_words}, "ab1234\u4E2Dc, d"),
            (Views{"ab", "123", "4", "\u4E2D", "c", ",", " d"}));
  // The end of a piece is the end of the text for the next step's look-ahead.
  EXPECT_EQ(pretokenize({one_number, gpt2_piece}, "a  1"), (Views{"a", "  ", "1"}));
  EXPECT_EQ(pretokenize({}, "a b"), Views{"a b"});
  EXPECT_EQ(pretokenize({}, ""), Views{});
}

// Whatever the order of the steps: the pieces cover any bytes, and none is empty.
TEST(PieceRules, CoverAnyBytesInAnyOrder) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 3000; ++round) {
    Pretokenizer pretokenizer;
    for (unsigned n = 1 + rng() % Pretokenizer::kMaxRules; n > 0; --n) {
      ASSERT_TRUE(pretokenizer.add(kRules[rng() % std::size(kRules)].rule));
    }
    std::string text;
    for (unsigned n = rng() % 40; n > 0; --n) {
      text += round % 2 == 0 ? static_cast<char>(rng() % 256) : " \n\r\t'19aZ.$<"[rng() % 13];
    }
    std::string joined;
    for (const std::string_view piece : pretokenize(pretokenizer, text)) {
      ASSERT_FALSE(piece.empty());
      joined += piece;
    }
    EXPECT_EQ(joined, text);
  }
}

TEST(PieceRules, AreLinearOnLongRuns) {
  std::string controls, mixed;
  for (int i = 0; i < 100'000; ++i) {
    controls += std::string("\x01\x02", 2);
    mixed += "1 a.";
  }
  for (const auto& [name, rule] : kRules) {
    for (const std::string& text : {std::string(300'000, 'A'), std::string(300'000, ' '), std::string(300'000, '\n'),
                                    std::string(300'000, '1'), std::string(300'000, '.'), controls, mixed}) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_FALSE(pretokenize({rule}, text).empty());
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << name;
    }
  }
}

TEST(PieceRules, AreFoundByNameAndByExpression) {
  EXPECT_TRUE(pretokenizer_by_name("llama-bpe"));
  EXPECT_EQ(pretokenizer_by_name("")->size(), 4U);
  EXPECT_FALSE(pretokenizer_by_name("no-such"));
  EXPECT_EQ(piece_rule_of_pattern(R"(\p{N})"), one_number);
  EXPECT_EQ(piece_rule_of_pattern(R"(\p{N} )"), nullptr);
  EXPECT_EQ(piece_rule_of_pattern(""), nullptr);
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
