#include "plan/pace.h"

#include <gtest/gtest.h>

#include "plan/testing.h"

namespace myriad {
namespace {

using testing::cut;
using testing::fleet;
using testing::small_config;

class PaceTest : public ::testing::Test {
 protected:
  Graph graph_ = Graph::build(small_config(8, 16)).value();
  Manifest manifest_ = cut(graph_, 1);
  CostSheet costs_ =
      CostSheet::build(graph_, manifest_, Profile::fast, {.sequences = 1, .context = 256, .step_rows = 8}).value();
};

TEST_F(PaceTest, OneNodeComputesAndNeedsNoNetwork) {
  auto offers = fleet(1, 256 << 20);
  const Pace pace = pace_of(costs_, place(costs_, offers).value(), offers);
  EXPECT_EQ(pace.hops, 0U);
  EXPECT_EQ(pace.rounds, 0U);
  double work = 0;
  for (const PartCost& cost : costs_.parts()) work += cost.single_work;
  EXPECT_NEAR(pace.compute_seconds, work / 1e9, 1e-12);
  offers[0].speed /= 2;
  EXPECT_NEAR(pace_of(costs_, place(costs_, offers).value(), offers).compute_seconds, work / 5e8, 1e-12);
}

TEST_F(PaceTest, APipelineHopsAndHelpersAddRounds) {
  const auto offers = fleet(4, 256 << 20);
  const Placement pipeline = place(costs_, offers).value();
  const Pace pace = pace_of(costs_, pipeline, offers);
  EXPECT_EQ(pace.hops, pipeline.stages.size() - 1);
  EXPECT_LE(pace.rounds, 2U);
  const Pace scattered = pace_of(costs_, place_random(costs_, offers, 3).value(), offers);
  EXPECT_GT(scattered.rounds, 30U);
  EXPECT_GT(scattered.seconds(), pace.seconds());
}

TEST_F(PaceTest, SaysThatFewerNodesAreFasterWhenTheyAre) {
  auto many = fleet(16, 256 << 20);
  for (NodeOffer& offer : many) offer.speed = 20'000'000'000;
  const auto sentence = fewer_would_be_faster(costs_, place(costs_, many).value(), many);
  ASSERT_TRUE(sentence);
  EXPECT_EQ(sentence->rfind("1 node would do", 0), 0U) << *sentence;
  // Slow nodes gain more by sharing the work than the network costs.
  for (NodeOffer& offer : many) offer.speed = 10'000'000;
  EXPECT_FALSE(fewer_would_be_faster(costs_, place_random(costs_, many, 1).value(), many));
  // Where no node holds it alone, there is nothing to say.
  const auto one = fleet(1, 256 << 20);
  EXPECT_FALSE(fewer_would_be_faster(costs_, place(costs_, one).value(), one));
  const std::uint64_t half = (costs_.part_bytes() + costs_.state_bytes()) * 6 / 10 + costs_.lead_work();
  const auto needed = fleet(2, half);
  EXPECT_FALSE(fewer_would_be_faster(costs_, place(costs_, needed).value(), needed));
}

}  // namespace
}  // namespace myriad
