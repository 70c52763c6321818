#include "gateway/stop_strings.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

namespace myriad {
namespace {

// The definition: the shortest beginning of the text that ends with a stop string, without the longest one it ends
// with.
std::optional<std::string> cut(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t n = 1; n <= text.size(); ++n) {
    std::size_t longest = 0;
    for (const auto& s : stops) {
      if (text.substr(0, n).ends_with(s)) longest = std::max(longest, s.size());
    }
    if (longest > 0) return text.substr(0, n - longest);
  }
  return std::nullopt;
}

// Bytes at the end of the text that could still become a stop string.
std::size_t must_be_held(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t n = text.size(); n > 0; --n) {
    for (const auto& s : stops) {
      if (n < s.size() && s.starts_with(text.substr(text.size() - n))) return n;
    }
  }
  return 0;
}

TEST(StopStrings, AgreesWithTheDefinitionHoweverTheTextIsCut) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::vector<std::string> letters = {"a", "b", "é", "日"};
  const auto word = [&](std::size_t most) {
    std::string out;
    for (std::size_t n = 1 + random() % most; n > 0; --n) out += letters[random() % letters.size()];
    return out;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(1 + random() % 4);
    for (auto& s : stops) s = word(4);
    StopStrings matcher(stops);
    std::string text, shown;
    for (int piece = 0; piece < 12 && !matcher.stopped(); ++piece) {
      const std::string next = word(3);
      text += next;
      shown += matcher.push(next);
      const auto expected = cut(text, stops);
      ASSERT_EQ(matcher.stopped(), expected.has_value()) << text;
      // Not less and not more is held back than could still become a stop string.
      ASSERT_EQ(shown, expected ? *expected : text.substr(0, text.size() - must_be_held(text, stops))) << text;
    }
    if (matcher.stopped()) {
      EXPECT_EQ(matcher.push("a") + matcher.flush(), "");
    } else {
      EXPECT_EQ(shown + matcher.flush(), text);
    }
  }
}

TEST(StopStrings, WithoutStopStringsNothingIsHeld) {
  StopStrings none({});
  EXPECT_EQ(none.push("abc"), "abc");
  EXPECT_EQ(none.flush(), "");
}

TEST(StopStrings, FlushForgetsWhatWasMatched) {
  StopStrings stops({"ab"});
  EXPECT_EQ(stops.push("a"), "");
  EXPECT_EQ(stops.flush(), "a");
  EXPECT_EQ(stops.push("b"), "b");
  EXPECT_FALSE(stops.stopped());
}

}  // namespace
}  // namespace myriad
