#include "model/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "kernels/kernels.h"
#include "kernels/math.h"

namespace myriad {
namespace {

const Kernels& best() {
  static const Kernels& kernels = *choose_kernels().value();
  return kernels;
}

// Few values, so that many are equal, or any.
std::vector<float> random_logits(std::mt19937& random, std::size_t n, bool ties) {
  std::vector<float> v(n);
  std::normal_distribution<float> normal(0, 3);
  for (float& x : v) x = ties ? static_cast<float>(random() % 7) : normal(random);
  return v;
}

std::vector<TokenLogprob> in_order(std::span<const float> logits, std::int32_t first) {
  std::vector<TokenLogprob> all;
  for (std::size_t i = 0; i < logits.size(); ++i) all.push_back({first + static_cast<std::int32_t>(i), logits[i]});
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
  return all;
}

TEST(Sampler, CandidatesAreTheLargestInOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::size_t n = round < 40 ? static_cast<std::size_t>(round) + 1 : 1 + random() % kVocabularyBlock;
    const auto logits = random_logits(random, n, round % 2 == 0);
    const auto want = in_order(logits, 5000);
    const BlockCandidates b = block_candidates(best(), logits, 5000),
                          scalar = block_candidates(scalar_kernels(), logits, 5000);
    ASSERT_EQ(b.best.size(), std::min(n, kCandidatesPerBlock));
    for (std::size_t i = 0; i < b.best.size(); ++i) {
      EXPECT_EQ(b.best[i].token, want[i].token) << round << " " << i;
      EXPECT_EQ(b.best[i].logprob, want[i].logprob);
    }
    EXPECT_EQ(b.max, want[0].logprob);
    EXPECT_EQ(b.sum, scalar.sum);
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x) - static_cast<double>(b.max));
    EXPECT_NEAR(b.sum, sum, 1e-5 * sum);
  }
}

TEST(Sampler, AValueThatIsNoNumberIsNoticed) {
  for (const std::size_t at : {std::size_t{0}, std::size_t{30}, std::size_t{99}}) {
    std::vector<float> logits(100, 1.0F), packed(kPackedCandidates);
    logits[at] = std::nanf("");
    pack_candidates(block_candidates(best(), logits, 0), packed);
    EXPECT_EQ(unpack_candidates(packed, 100).error().code, Code::corrupt) << at;
  }
}

TEST(Sampler, CandidatesDecideWhatAllLogitsDo) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    const std::size_t n = 1 + random() % 5000;
    const auto logits = random_logits(random, n, round % 2 == 0);
    SampleSpec spec;
    spec.top_logprobs = static_cast<std::uint8_t>(random() % (kMaxTopLogprobs + 1));
    std::vector<BlockCandidates> blocks;
    for (std::size_t first = 0; first < n; first += kVocabularyBlock)
      blocks.push_back(block_candidates(best(), std::span(logits).subspan(first, std::min(kVocabularyBlock, n - first)),
                                        static_cast<std::uint32_t>(first)));
    const Sample a = sample(spec, blocks), b = sample(best(), spec, logits);
    const auto want = in_order(logits, 0);
    EXPECT_EQ(a.token, want[0].token);
    EXPECT_EQ(b.token, want[0].token);
    EXPECT_EQ(a.logprob, b.logprob);
    ASSERT_EQ(a.top.size(), std::min<std::size_t>(spec.top_logprobs, n));
    ASSERT_EQ(b.top.size(), a.top.size());
    for (std::size_t i = 0; i < a.top.size(); ++i) {
      EXPECT_EQ(a.top[i].token, want[i].token);
      EXPECT_EQ(a.top[i].logprob, b.top[i].logprob);
    }
  }
}

// The definition: everything sorted, the shortest prefix that reaches top_p among the top_k likeliest.
struct Allowed {
  std::map<std::int32_t, double> probability;
};
Allowed allowed(const SampleSpec& spec, std::span<const float> logits) {
  const auto order = in_order(logits, 0);
  std::vector<double> weight;
  double total = 0;
  for (const auto& t : order) {
    if (spec.top_k != 0 && weight.size() == spec.top_k) break;
    weight.push_back(std::exp((static_cast<double>(t.logprob) - static_cast<double>(order[0].logprob)) /
                              static_cast<double>(spec.temperature)));
    total += weight.back();
  }
  double kept = 0;
  std::size_t n = 0;
  while (n < weight.size() && (n == 0 || kept < static_cast<double>(spec.top_p) * total)) kept += weight[n++];
  Allowed a;
  for (std::size_t i = 0; i < n; ++i) a.probability[order[i].token] = weight[i] / kept;
  return a;
}

TEST(Sampler, DrawsHaveTheirProbabilities) {
  std::mt19937 random(3);
  const auto logits = random_logits(random, 2000, false);
  for (const auto& [temperature, top_p, top_k] : std::vector<std::tuple<float, float, std::uint32_t>>{
           {1.0F, 1.0F, 0}, {0.5F, 0.9F, 0}, {1.3F, 1.0F, 5}, {2.0F, 0.55F, 300}}) {
    SampleSpec spec;
    spec.temperature = temperature;
    spec.top_p = top_p;
    spec.top_k = top_k;
    spec.seed = 77;
    const Allowed want = allowed(spec, logits);
    constexpr int kDraws = 4000;
    std::map<std::int32_t, int> counts;
    for (int i = 0; i < kDraws; ++i) {
      spec.position = static_cast<std::uint32_t>(i);
      const std::int32_t token = sample(best(), spec, logits).token;
      ASSERT_TRUE(want.probability.contains(token)) << token;
      ++counts[token];
    }
    for (const auto& [token, p] : want.probability)
      EXPECT_NEAR(counts[token], p * kDraws, 5 * std::sqrt(p * kDraws) + 5) << token;
  }
}

TEST(Sampler, TheSameOnEveryInstructionSet) {
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    const auto logits = random_logits(random, 1 + random() % 3000, round % 3 == 0);
    SampleSpec spec;
    spec.temperature = 0.1F + static_cast<float>(random() % 30) / 10;
    spec.top_p = round % 2 == 0 ? 1.0F : 0.8F;
    spec.top_k = static_cast<std::uint32_t>(random() % 4 * 50);
    spec.seed = random();
    const Sample a = sample(best(), spec, logits), b = sample(scalar_kernels(), spec, logits);
    EXPECT_EQ(a.token, b.token);
    EXPECT_EQ(a.logprob, b.logprob);
  }
}

}  // namespace
}  // namespace myriad
