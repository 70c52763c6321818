#include "plan/account.h"

#include <gtest/gtest.h>

#include "plan/testing.h"

namespace myriad {
namespace {

using testing::cut;
using testing::small_config;

TEST(Account, StateOfAttentionByHand) {
  const Graph graph = Graph::build(small_config(4, 8)).value();
  const Budget budget{.sequences = 3, .context = 1000, .step_rows = 1};
  // KDA: a head keeps a 64x64 f32 state and three columns of three convolutions of 64 channels.
  const Operator* kda = graph.find({0, OpRole::attn, 0});
  ASSERT_NE(kda, nullptr);
  EXPECT_EQ(attention_state_bytes(*kda, 2, Profile::fast, budget), 3U * 2 * (64 * 64 * 4 + 3 * 3 * 64 * 4));
  // MLA: 64 + 16 values a position, held once whatever the heads; bf16 in fast, f32 in exact.
  const Operator* mla = graph.find({3, OpRole::attn, 0});
  ASSERT_NE(mla, nullptr);
  EXPECT_EQ(attention_state_bytes(*mla, 1, Profile::fast, budget), 3U * 1000 * 80 * 2);
  EXPECT_EQ(attention_state_bytes(*mla, 3, Profile::exact, budget), 3U * 1000 * 80 * 4);
  const Operator* expert = graph.find({1, OpRole::expert, 3});
  ASSERT_NE(expert, nullptr);
  EXPECT_EQ(attention_state_bytes(*expert, 1, Profile::fast, budget), 0U);
}

// What a config of some hundred bytes may claim must not become gigabytes of operators.
TEST(Account, AGraphHasAMostOfOperators) {
  const auto graph_of = [](std::size_t layers, std::size_t experts) {
    ModelConfig config = small_config(4, experts);
    config.attention.assign(layers, config.attention.back());
    return Graph::build(config);
  };
  EXPECT_EQ(graph_of(4096, 60000).error().code, Code::limit);
  const auto most = graph_of(100, 1000);
  ASSERT_TRUE(most) << most.error().to_string();
  EXPECT_GT(most->operators().size(), 90000U);
}

TEST(Account, BuffersGrowWithRowsAndStayModest) {
  const ModelConfig config = small_config(8, 16);
  std::uint64_t before = 0;
  for (const std::uint32_t rows : {1, 8, 64, 512}) {
    const Budget budget{.step_rows = rows};
    const std::uint64_t helper = work_bytes(config, budget, false), lead = work_bytes(config, budget, true);
    EXPECT_LT(before, helper);
    EXPECT_LT(helper, lead);
    before = helper;
    EXPECT_LE(work_terms(config, budget, true).frames, 2 * kMaxFrameBytes);
  }
  // One row of a small model: the two frames' fixed parts, a block of scores, and little else.
  EXPECT_LT(work_bytes(config, {.step_rows = 1}, true), 128U << 10);
  // By hand: 8 rows, hidden 192, widest 512 (the dense FFN), 8 layers in blocks of 2.
  const WorkTerms terms = work_terms(config, {.step_rows = 8}, true);
  EXPECT_EQ(terms.activations, 8U * 4 * 2 * 512);
  EXPECT_EQ(terms.attention, 8U * 4 * 6 * 192 + 1024 * 3 * 4);
  EXPECT_EQ(terms.stream, 8U * 4 * 192 * (5 + 3));
  EXPECT_EQ(terms.experts, 8U * 4 * (4 * 96 + 16));
  EXPECT_EQ(terms.frames, 2U * (4096 + 8 * 4 * 192 * (5 + 1)));
}

TEST(Account, CostsAddUp) {
  const Graph graph = Graph::build(small_config(4, 8)).value();
  const Manifest manifest = cut(graph, 1);
  const auto costs =
      CostSheet::build(graph, manifest, Profile::fast, {.sequences = 2, .context = 100, .step_rows = 4}).value();
  std::uint64_t parts = 0, state = 0;
  for (std::size_t p = 0; p < manifest.parts.size(); ++p) {
    const ManifestPart& part = manifest.parts[p];
    const PartCost& cost = costs.parts()[p];
    EXPECT_EQ(cost.part_bytes, part.bytes);
    EXPECT_EQ(cost.state_bytes,
              attention_state_bytes(*graph.find(part.spec.op), part.spec.units(), Profile::fast, costs.budget()));
    EXPECT_EQ(cost.lead, part.spec.op.role == OpRole::attn_lead || part.spec.op.role == OpRole::ffn_lead ||
                             part.spec.op.role == OpRole::final_lead);
    if (part.spec.op.role == OpRole::expert) {
      EXPECT_NEAR(cost.work / static_cast<double>(part.bytes), 0.75, 1e-12);  // half of the experts, two sequences
    }
    parts += cost.part_bytes;
    state += cost.state_bytes;
  }
  EXPECT_EQ(costs.part_bytes(), parts);
  EXPECT_EQ(costs.state_bytes(), state);
  const CostSheet twice = costs.with_budget({.sequences = 4, .context = 100, .step_rows = 4});
  EXPECT_EQ(twice.state_bytes(), 2 * state);
  EXPECT_EQ(twice.part_bytes(), parts);
}

TEST(Account, AbsurdBudgetsSaturate) {
  EXPECT_EQ(add_saturating(~0ULL, 1), ~0ULL);
  EXPECT_EQ(multiply_saturating(1ULL << 40, 1ULL << 40), ~0ULL);
  Operator op;
  op.state_per_unit = 1ULL << 60;
  EXPECT_EQ(attention_state_bytes(op, 15, Profile::fast, {.sequences = 4096}), ~0ULL);
}

TEST(Account, TableNamesEveryTerm) {
  const std::vector<NodeAccount> accounts = {
      {.node = {"n1"},
       .parts = 3,
       .lead = true,
       .part_bytes = 10 << 20,
       .state_bytes = 2 << 20,
       .work_bytes = 1 << 20,
       .process_bytes = 3 << 20,
       .budget_bytes = 20 << 20},
      {.node = {"a-longer-name"}, .parts = 1, .part_bytes = 1 << 20, .budget_bytes = 20 << 20}};
  const std::string table = account_table(accounts);
  SCOPED_TRACE(table);
  for (const char* word : {"node", "parts", "weights", "state", "buffers", "process", "total", "budget", "n1",
                           "a-longer-name", "lead", "all"})
    EXPECT_NE(table.find(word), std::string::npos) << word;
  EXPECT_NE(table.find("16.0"), std::string::npos);  // total of n1
  EXPECT_NE(table.find("17.0"), std::string::npos);  // of both
}

}  // namespace
}  // namespace myriad
