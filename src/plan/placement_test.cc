#include "plan/placement.h"

#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <set>

#include "plan/testing.h"

namespace myriad {
namespace {

using testing::cut;
using testing::fleet;
using testing::node;
using testing::small_config;

constexpr std::uint64_t kMiB = 1 << 20;

CostSheet sheet(const Manifest& manifest, const Graph& graph, Budget budget = {}) {
  return CostSheet::build(graph, manifest, Profile::fast, budget).value();
}

// Whatever the nodes: each part once, nobody over budget, stages that cover all halves and begin where the lead
// changes.
void check(const CostSheet& costs, const Placement& placement, std::span<const NodeOffer> offers) {
  ASSERT_EQ(placement.owner.size(), costs.parts().size());
  ASSERT_EQ(placement.nodes.size(), offers.size());
  for (std::size_t p = 0; p < placement.owner.size(); ++p)
    ASSERT_LT(placement.owner[p], offers.size()) << costs.part_name(p);
  for (const NodeAccount& account : account_of(costs, placement, offers))
    EXPECT_LE(account.total(), account.budget_bytes) << account.node.value;
  ASSERT_FALSE(placement.stages.empty());
  Half at = 0;
  for (std::size_t s = 0; s < placement.stages.size(); ++s) {
    const StageAssignment& stage = placement.stages[s];
    EXPECT_EQ(stage.first, at);
    EXPECT_LT(stage.first, stage.last);
    if (s > 0) {
      EXPECT_NE(stage.lead, placement.stages[s - 1].lead);
    }
    at = stage.last;
  }
  EXPECT_EQ(at, costs.halves());
  for (std::size_t p = 0; p < placement.owner.size(); ++p) {
    if (costs.parts()[p].role == OpRole::final_lead) {
      EXPECT_EQ(placement.owner[p], placement.stages.back().lead);
    }
  }
}

std::vector<std::uint64_t> bytes_by_node(const CostSheet& costs, const Placement& placement) {
  std::vector<std::uint64_t> bytes(placement.nodes.size());
  for (std::size_t p = 0; p < placement.owner.size(); ++p) bytes[placement.owner[p]] += costs.parts()[p].bytes();
  return bytes;
}

std::size_t used(const Placement& placement) {
  return std::set<std::uint32_t>(placement.owner.begin(), placement.owner.end()).size();
}

TEST(Placement, AnyNumberOfNodesFromOneToSixtyFour) {
  const Graph graph = Graph::build(small_config(8, 16)).value();
  const Manifest manifest = cut(graph, 1);
  const CostSheet costs = sheet(manifest, graph);
  for (std::size_t n = 1; n <= 64; ++n) {
    const auto offers = fleet(n, 64 * kMiB);
    const auto placement = place(costs, offers);
    ASSERT_TRUE(placement) << n << ": " << placement.error().message;
    check(costs, *placement, offers);
    EXPECT_GE(used(*placement), n <= 16 ? n : n * 2 / 3) << n;
    if (n == 1) {
      EXPECT_EQ(placement->stages.size(), 1U);
    }
  }
}

TEST(Placement, FortyNodesOnTheFiveLayerModel) {
  const Graph graph = Graph::build(small_config(5, 16)).value();
  const Manifest manifest = cut(graph, 1);
  const CostSheet costs = sheet(manifest, graph);
  const auto offers = fleet(40, 8 * kMiB);
  const auto placement = place(costs, offers);
  ASSERT_TRUE(placement) << placement.error().message;
  check(costs, *placement, offers);
  EXPECT_GE(used(*placement), 24U);
}

TEST(Placement, MoreNodesThanPartsLeavesSpares) {
  const Graph graph = Graph::build(small_config(1, 1, 1024)).value();
  const Manifest manifest = cut(graph, 100);
  const CostSheet costs = sheet(manifest, graph);
  const auto offers = fleet(200, 64 * kMiB);
  const auto placement = place(costs, offers);
  ASSERT_TRUE(placement) << placement.error().message;
  check(costs, *placement, offers);
  EXPECT_LE(used(*placement), manifest.parts.size());
}

TEST(Placement, FewNodesCutBetweenHalvesAndHoldNeighbours) {
  const Graph graph = Graph::build(small_config(12, 8)).value();
  const Manifest manifest = cut(graph, 4);
  const CostSheet costs = sheet(manifest, graph);
  for (std::size_t n = 1; n <= 6; ++n) {
    const auto offers = fleet(n, 256 * kMiB);
    const auto placement = place(costs, offers).value();
    check(costs, placement, offers);
    EXPECT_GE(placement.stages.size() + 1, n);  // the head may have a node of its own
    for (std::size_t p = 0; p < placement.owner.size(); ++p) {
      const PartCost& cost = costs.parts()[p];
      for (const StageAssignment& stage : placement.stages) {
        if (cost.half >= stage.first && cost.half < stage.last && cost.role != OpRole::head &&
            cost.role != OpRole::embed) {
          EXPECT_EQ(placement.owner[p], stage.lead) << n << " nodes, " << costs.part_name(p);
        }
      }
    }
  }
}

// Embedding rows are no work, but they are bytes: nobody holds more than an eighth of a model and a tenth of that.
TEST(Placement, AnEighthOfTheBytesIsAboutWhatOneOfEightHolds) {
  const Graph graph = Graph::build(small_config(22, 4, 16384)).value();
  const Manifest manifest = cut(graph, 1);
  const CostSheet costs = sheet(manifest, graph, {.sequences = 1, .context = 64, .step_rows = 8});
  const auto offers = fleet(8, 256 * kMiB);
  const auto placement = place(costs, offers).value();
  check(costs, placement, offers);
  std::uint64_t embedding = 0, all = 0;
  std::vector<std::uint64_t> held(8);
  for (std::size_t p = 0; p < placement.owner.size(); ++p) {
    const std::uint64_t bytes = costs.parts()[p].bytes();
    all += bytes;
    held[placement.owner[p]] += bytes;
    if (costs.parts()[p].role == OpRole::embed) embedding += bytes;
  }
  ASSERT_GT(embedding * 20, all) << "one that counts";
  EXPECT_LE(static_cast<double>(*std::max_element(held.begin(), held.end())), 1.1 / 8 * static_cast<double>(all));
}

TEST(Placement, SharesFollowSpeed) {
  const Graph graph = Graph::build(small_config(16, 64)).value();
  const Manifest manifest = cut(graph, 2);
  const CostSheet costs = sheet(manifest, graph);
  const std::vector<NodeOffer> offers = {node("a", 1024 * kMiB, 1'000'000), node("b", 1024 * kMiB, 3'000'000),
                                         node("c", 1024 * kMiB, 2'000'000)};
  const auto placement = place(costs, offers).value();
  check(costs, placement, offers);
  double total = 0;
  std::vector<double> work(3);
  for (std::size_t p = 0; p < placement.owner.size(); ++p) {
    work[placement.owner[p]] += costs.parts()[p].work;
    total += costs.parts()[p].work;
  }
  EXPECT_NEAR(work[0] / total, 1.0 / 6, 0.05);
  EXPECT_NEAR(work[1] / total, 3.0 / 6, 0.05);
  EXPECT_NEAR(work[2] / total, 2.0 / 6, 0.05);
}

TEST(Placement, UnequalMemoriesAreAllUsed) {
  const Graph graph = Graph::build(small_config(16, 64)).value();
  const Manifest manifest = cut(graph, 1);
  const CostSheet costs = sheet(manifest, graph, {.sequences = 2, .context = 512, .step_rows = 8});
  const std::uint64_t all = costs.part_bytes() + costs.state_bytes();
  // 1 : 2 : 5, together about 10 % more than is wanted.
  std::vector<NodeOffer> offers;
  for (const std::uint64_t eighths : {1, 2, 5})
    offers.push_back({.id = {"m" + std::to_string(eighths)},
                      .memory_bytes = all * eighths / 8 * 11 / 10 + costs.lead_work(),
                      .speed = 1});
  const auto placement = place(costs, offers);
  ASSERT_TRUE(placement) << placement.error().message;
  check(costs, *placement, offers);
  const auto bytes = bytes_by_node(costs, *placement);
  EXPECT_LT(bytes[0], bytes[1]);
  EXPECT_LT(bytes[1], bytes[2]);
}

TEST(Placement, IsTheSameEveryTimeAndReadsNumbersInNames) {
  const Graph graph = Graph::build(small_config(8, 16)).value();
  const Manifest manifest = cut(graph, 2);
  const CostSheet costs = sheet(manifest, graph);
  auto offers = fleet(12, 32 * kMiB);
  const auto a = place(costs, offers).value();
  const auto b = place(costs, offers).value();
  EXPECT_EQ(a.owner, b.owner);
  // The order in which nodes came does not matter either, and n2 stands before n10.
  auto shuffled = offers;
  std::reverse(shuffled.begin(), shuffled.end());
  const auto c = place(costs, shuffled).value();
  for (std::size_t p = 0; p < a.owner.size(); ++p) EXPECT_EQ(a.nodes[a.owner[p]], c.nodes[c.owner[p]]);
  for (std::size_t s = 1; s < a.stages.size(); ++s) EXPECT_LE(a.stages[s - 1].lead, a.stages[s].lead);
  EXPECT_TRUE(natural_less("n2", "n10"));
  EXPECT_FALSE(natural_less("n10", "n2"));
  EXPECT_TRUE(natural_less("n", "n1"));
  EXPECT_TRUE(natural_less("n01", "n1"));
  EXPECT_FALSE(natural_less("n1", "n1"));
}

TEST(Placement, AStartWithFullStoresGivesTheSamePartsAgain) {
  const Graph graph = Graph::build(small_config(8, 16)).value();
  const Manifest manifest = cut(graph, 2);
  const CostSheet costs = sheet(manifest, graph);
  auto offers = fleet(5, 64 * kMiB);
  const auto first = place(costs, offers).value();
  std::map<std::string, std::string> renamed = {{"n0", "e"}, {"n1", "d"}, {"n2", "c"}, {"n3", "b"}, {"n4", "a"}};
  for (std::size_t p = 0; p < first.owner.size(); ++p)
    offers[first.owner[p]].held.push_back(static_cast<std::uint32_t>(p));
  for (NodeOffer& offer : offers) offer.id.value = renamed[offer.id.value];
  const auto second = place(costs, offers).value();
  EXPECT_EQ(first.owner, second.owner);
}

TEST(Placement, RandomModelsCutsAndFleets) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Graph graph =
        Graph::build(small_config(1 + random() % 9, 4 + random() % 20, 1024 * (1 + random() % 6))).value();
    const Manifest manifest = cut(graph, 1 + static_cast<std::uint32_t>(random() % 8), &random);
    const CostSheet costs = sheet(manifest, graph,
                                  {.sequences = 1 + static_cast<std::uint32_t>(random() % 4),
                                   .context = 64 + static_cast<std::uint32_t>(random() % 4000),
                                   .step_rows = 1 + static_cast<std::uint32_t>(random() % 64)});
    std::vector<NodeOffer> offers;
    const std::size_t n = 1 + random() % 50;
    for (std::size_t i = 0; i < n; ++i)
      offers.push_back(node("x" + std::to_string(random() % 1000) + "-" + std::to_string(i), kMiB * (1 + random() % 40),
                            1 + random() % 1'000'000));
    const auto placement = place(costs, offers);
    const auto scattered = place_random(costs, offers, seed);
    std::uint64_t room = 0, largest = 0;
    for (const NodeOffer& offer : offers) {
      const std::uint64_t work = costs.lead_work() + offer.process_bytes;
      if (offer.memory_bytes > work) room += offer.memory_bytes - work;
    }
    for (const PartCost& cost : costs.parts()) largest = std::max(largest, cost.bytes());
    // With a gap as large as the largest part left on every node there is always a way.
    if (room >= costs.part_bytes() + costs.state_bytes() + n * 2 * largest) {
      EXPECT_TRUE(placement) << placement.error().message;
    }
    if (placement) {
      check(costs, *placement, offers);
    } else {
      EXPECT_EQ(placement.error().code, Code::does_not_fit);
      EXPECT_FALSE(scattered) << "chance found a way that the search did not: " << placement.error().message;
    }
    if (scattered) check(costs, *scattered, offers);
  }
}

TEST(Placement, RandomPlacementsDifferBySeedAlone) {
  const Graph graph = Graph::build(small_config(6, 8)).value();
  const Manifest manifest = cut(graph, 2);
  const CostSheet costs = sheet(manifest, graph);
  const auto offers = fleet(7, 64 * kMiB);
  EXPECT_EQ(place_random(costs, offers, 1)->owner, place_random(costs, offers, 1)->owner);
  EXPECT_NE(place_random(costs, offers, 1)->owner, place_random(costs, offers, 2)->owner);
  EXPECT_GT(place_random(costs, offers, 1)->stages.size(), 3U);
}

TEST(Placement, SaysWhatWouldFit) {
  const Graph graph = Graph::build(small_config(8, 64)).value();
  const Manifest manifest = cut(graph, 2);
  const Budget budget{.sequences = 8, .context = 8192, .step_rows = 16};
  const CostSheet costs = sheet(manifest, graph, budget);
  const auto offers = fleet(2, 24 * kMiB);
  const auto placement = place(costs, offers);
  ASSERT_FALSE(placement);
  EXPECT_EQ(placement.error().code, Code::does_not_fit);
  const std::string& text = placement.error().message;
  SCOPED_TRACE(text);
  EXPECT_NE(text.find("2 nodes offer 47.0 MiB"), std::string::npos);
  EXPECT_NE(text.find("8 sequences of 8192 positions"), std::string::npos);
  EXPECT_NE(text.find("are missing"), std::string::npos);
  // Each suggestion is true.
  const auto number_after = [&](std::string_view words) -> std::uint64_t {
    const std::size_t at = text.find(words);
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + words.size()));
  };
  const std::uint64_t more = number_after("; add "), memory = number_after("raise --node-memory to "),
                      context = number_after("lower --context to "), sequences = number_after("lower --sequences to ");
  ASSERT_GT(more, 0U);
  EXPECT_TRUE(place(costs, fleet(2 + more, 24 * kMiB)));
  ASSERT_GT(memory, 24U);
  EXPECT_TRUE(place(costs, fleet(2, memory * kMiB)));
  Budget lower = budget;
  ASSERT_GT(context, 0U);
  lower.context = static_cast<std::uint32_t>(context);
  EXPECT_TRUE(place(sheet(manifest, graph, lower), offers));
  lower = budget;
  ASSERT_GT(sequences, 0U);
  lower.sequences = static_cast<std::uint32_t>(sequences);
  EXPECT_TRUE(place(sheet(manifest, graph, lower), offers));
}

TEST(Placement, NamesThePartThatNoNodeCanTake) {
  const Graph graph = Graph::build(small_config(4, 8, 16384)).value();
  const Manifest manifest = cut(graph, 1000);
  const CostSheet costs = sheet(manifest, graph, {.sequences = 1, .context = 64, .step_rows = 1});
  const auto offers = fleet(64, 2 * kMiB);
  const auto placement = place(costs, offers);
  ASSERT_FALSE(placement);
  EXPECT_NE(placement.error().message.find("cut the model into smaller parts"), std::string::npos)
      << placement.error().message;
  EXPECT_EQ(placement.error().part, "embed[r0:16384)");
}

TEST(Placement, RefusesNonsense) {
  const Graph graph = Graph::build(small_config(2, 4)).value();
  Manifest manifest = cut(graph, 8);
  const CostSheet costs = sheet(manifest, graph);
  EXPECT_EQ(place(costs, {}).error().code, Code::invalid_argument);
  const std::vector<NodeOffer> twins = {node("a", kMiB), node("a", kMiB)};
  EXPECT_EQ(place(costs, twins).error().code, Code::invalid_argument);
  EXPECT_EQ(CostSheet::build(graph, manifest, Profile::fast, {.sequences = 0}).error().code, Code::invalid_argument);
  EXPECT_EQ(CostSheet::build(graph, manifest, Profile::fast, {.context = 0}).error().code, Code::invalid_argument);
  EXPECT_EQ(CostSheet::build(graph, manifest, Profile::fast, {.step_rows = 5000}).error().code, Code::invalid_argument);
  manifest.parts.back().spec.op.layer = 77;
  EXPECT_EQ(CostSheet::build(graph, manifest, Profile::fast, {}).error().code, Code::corrupt);
}

TEST(Replace, MovesOnlyOrphans) {
  const Graph graph = Graph::build(small_config(8, 16)).value();
  const Manifest manifest = cut(graph, 2);
  const CostSheet costs = sheet(manifest, graph);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    auto offers = fleet(4 + random() % 12, 64 * kMiB);
    const auto old = (seed % 2 == 0 ? place(costs, offers) : place_random(costs, offers, seed)).value();
    const NodeId lost = offers[random() % offers.size()].id;
    std::erase_if(offers, [&](const NodeOffer& o) { return o.id == lost; });
    if (random() % 2 == 0) offers.push_back(node("new", 64 * kMiB));
    const auto now = replace(costs, old, offers, {}, {});
    ASSERT_TRUE(now) << now.error().message;
    check(costs, *now, offers);
    std::uint32_t last_lead = 0;
    for (std::size_t p = 0; p < old.owner.size(); ++p)
      if (costs.parts()[p].role == OpRole::ffn_lead) last_lead = old.owner[p];
    for (std::size_t p = 0; p < old.owner.size(); ++p) {
      if (old.nodes[old.owner[p]] == lost) continue;
      if (costs.parts()[p].role == OpRole::final_lead && old.nodes[last_lead] == lost) continue;
      EXPECT_EQ(old.nodes[old.owner[p]], now->nodes[now->owner[p]]);
    }
    // A node that held nothing and has room for all of it gets all of it.
    if (offers.back().id.value == "new") {
      std::set<std::uint32_t> heirs;
      for (std::size_t p = 0; p < old.owner.size(); ++p)
        if (old.nodes[old.owner[p]] == lost) heirs.insert(now->owner[p]);
      EXPECT_LE(heirs.size(), 1U);
      for (const std::uint32_t heir : heirs)
        for (std::size_t p = 0; p < old.owner.size(); ++p) EXPECT_NE(old.nodes[old.owner[p]], now->nodes[heir]);
    }
  }
}

TEST(Replace, ARestartedNodeGetsItsPartsBackEvenIfASpareIsThere) {
  const Graph graph = Graph::build(small_config(8, 16)).value();
  const Manifest manifest = cut(graph, 2);
  const CostSheet costs = sheet(manifest, graph);
  auto offers = fleet(6, 64 * kMiB);
  const auto old = place(costs, offers).value();
  offers.push_back(node("a-spare", 128 * kMiB));
  const std::vector<NodeId> restarted = {{"n3"}};
  const auto now = replace(costs, old, offers, restarted, {}).value();
  for (std::size_t p = 0; p < old.owner.size(); ++p) EXPECT_EQ(old.owner[p], now.owner[p]);
}

TEST(Replace, SurvivorsAreLeftAloneWhenAsked) {
  const Graph graph = Graph::build(small_config(8, 16)).value();
  const Manifest manifest = cut(graph, 2);
  const CostSheet costs = sheet(manifest, graph);
  auto offers = fleet(6, 64 * kMiB);
  const auto old = place(costs, offers).value();
  offers.erase(offers.begin() + 2);
  EXPECT_EQ(replace(costs, old, offers, {}, {.use_survivors = false}).error().code, Code::does_not_fit);
  EXPECT_TRUE(replace(costs, old, offers, {}, {.use_survivors = true}));
}

TEST(Placement, AHundredThousandPartsOnTenThousandNodes) {
  // 110 layers of 900 experts and some.
  const Graph graph = Graph::build(small_config(110, 900)).value();
  const Manifest manifest = cut(graph, 1);
  ASSERT_GT(manifest.parts.size(), 100'000U);
  const CostSheet costs = sheet(manifest, graph, {.sequences = 1, .context = 256, .step_rows = 1});
  std::vector<NodeOffer> offers;
  std::mt19937_64 random(7);
  const std::uint64_t mean = (costs.part_bytes() + costs.state_bytes()) / 10'000 + costs.lead_work();
  for (std::size_t i = 0; i < 10'000; ++i)
    offers.push_back(node("n" + std::to_string(i), mean * 3 / 2 + random() % mean, 1000 + random() % 1000));
  const std::clock_t begin = std::clock();  // of this process, so that a busy machine does not count
  const auto placement = place(costs, offers);
  const double took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  ASSERT_TRUE(placement) << placement.error().message;
  check(costs, *placement, offers);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(took, 2.0);
#endif
  RecordProperty("milliseconds", static_cast<int>(took * 1000));
}

}  // namespace
}  // namespace myriad
