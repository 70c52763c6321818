#include "convert/budget.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace myriad {
namespace {

using Groups = std::vector<std::vector<Choice>>;

struct Sum {
  std::uint64_t bytes = 0;
  double effect = 0;
};
Sum sum_of(const Groups& groups, const std::vector<std::size_t>& chosen) {
  Sum s;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    s.bytes += groups[g][chosen[g]].bytes;
    s.effect += groups[g][chosen[g]].effect;
  }
  return s;
}

// The least effect within the budget, by trying everything.
double best_of_all(const Groups& groups, std::uint64_t budget, std::size_t g = 0, std::uint64_t bytes = 0,
                   double effect = 0) {
  if (bytes > budget) return INFINITY;
  if (g == groups.size()) return effect;
  double best = INFINITY;
  for (const Choice& c : groups[g])
    best = std::min(best, best_of_all(groups, budget, g + 1, bytes + c.bytes, effect + c.effect));
  return best;
}

Groups random_groups(CounterRandom& random, std::size_t groups, bool noisy) {
  Groups out(groups);
  for (auto& g : out) {
    const std::uint64_t size = 1 + random.below(100);
    const double weight = 1 + static_cast<double>(random.below(1000));
    for (const std::uint64_t bits : {4, 5, 6, 8, 16}) {
      const double noise = noisy ? 0.5 + static_cast<double>(random.below(1000)) / 1000 : 1;
      g.push_back({size * bits, bits == 16 ? 0 : noise * weight * std::pow(4.0, -static_cast<double>(bits))});
    }
  }
  return out;
}

TEST(Budget, NearTheBestThatThereIs) {
  CounterRandom random(1);
  double ratio = 0;
  int cases = 0;
  for (int i = 0; i < 60; ++i) {
    const Groups groups = random_groups(random, 6, i % 2 == 1);
    std::uint64_t least = 0, most = 0;
    for (const auto& g : groups) {
      least += g.front().bytes;
      most += g.back().bytes;
    }
    const std::uint64_t budget = least + random.below(most - least + 1);
    const auto chosen = choose_within(groups, budget);
    ASSERT_TRUE(chosen);
    const Sum s = sum_of(groups, *chosen);
    EXPECT_LE(s.bytes, budget);
    const double best = best_of_all(groups, budget);
    if (best == 0) {
      EXPECT_EQ(s.effect, 0);
      continue;
    }
    EXPECT_LE(s.effect, 2 * best) << "case " << i;
    ratio += s.effect / best;
    ++cases;
  }
  EXPECT_LT(ratio / cases, 1.05);
}

TEST(Budget, TheBudgetIsUsed) {
  CounterRandom random(2);
  for (int i = 0; i < 20; ++i) {
    const Groups groups = random_groups(random, 60, true);
    std::uint64_t least = 0;
    for (const auto& g : groups) least += g.front().bytes;
    const std::uint64_t budget = least + least / 4;
    const auto chosen = choose_within(groups, budget);
    ASSERT_TRUE(chosen);
    const Sum s = sum_of(groups, *chosen);
    EXPECT_LE(s.bytes, budget);
    EXPECT_GE(static_cast<double>(s.bytes), 0.99 * static_cast<double>(budget));
  }
}

TEST(Budget, NothingThatCostsMoreForNothing) {
  // The second choice is larger and no better; the third is.
  const Groups groups = {{{10, 1.0}, {20, 1.0}, {30, 0.5}}, {{10, 0.1}}};
  EXPECT_EQ((*choose_within(groups, 30))[0], 0U);
  EXPECT_EQ((*choose_within(groups, 39))[0], 0U);
  EXPECT_EQ((*choose_within(groups, 40))[0], 2U);
}

TEST(Budget, TooSmall) {
  const Groups groups = {{{10, 1.0}, {20, 0.5}}, {{1000, 0.1}}};
  const auto chosen = choose_within(groups, 1009);
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().code, Code::does_not_fit);
  EXPECT_NE(chosen.error().message.find("1,010"), std::string::npos) << chosen.error().message;
  EXPECT_EQ(choose_within(Groups{{}}, 5).error().code, Code::invalid_argument);
  EXPECT_TRUE(choose_within({}, 0)->empty());
}

}  // namespace
}  // namespace myriad
