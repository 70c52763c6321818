// Attention over a block of cached positions: the scalar definition against double precision, every instruction set
// against it, and many queries at once against one alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/testing.h"

namespace myriad {
namespace {

using namespace kernels_testing;  // NOLINT

constexpr CacheType kCacheTypes[] = {CacheType::f32, CacheType::bf16, CacheType::f16, CacheType::i8};

// `rows` rows of `dims` values at stride ld, in every form, of exactly their size.
struct Cache {
  std::size_t rows, dims, ld, scale_ld;
  std::vector<float> wide;
  std::vector<std::uint16_t> bf16, f16;
  std::vector<std::int8_t> small;
  std::vector<float> scales;

  Cache(Random& random, std::size_t rows_, std::size_t dims_, std::size_t ld_, Values kind)
      : rows(rows_), dims(dims_), ld(ld_), scale_ld((dims + 31) / 32 + random.below(2)) {
    const std::size_t n = (rows - 1) * ld + dims;
    wide = draw(random, n, kind);
    for (const float v : wide) {
      bf16.push_back(f32_to_bf16(v));
      f16.push_back(f32_to_f16(v));
      small.push_back(static_cast<std::int8_t>(random.bits()));
    }
    scales = draw(random, rows * scale_ld, kind);
    for (float& s : scales) s *= 0x1p-7F;
  }
  [[nodiscard]] CacheRows in(CacheType type) const {
    switch (type) {
      case CacheType::f32:
        return {wide.data(), ld};
      case CacheType::bf16:
        return {bf16.data(), ld};
      case CacheType::f16:
        return {f16.data(), ld};
      case CacheType::i8:
        return {small.data(), ld, scales.data(), scale_ld};
    }
    return {};
  }
  [[nodiscard]] double value(CacheType type, std::size_t j, std::size_t i) const {
    const std::size_t at = j * ld + i;
    switch (type) {
      case CacheType::f32:
        return wide[at];
      case CacheType::bf16:
        return bf16_to_f32(bf16[at]);
      case CacheType::f16:
        return f16_to_f32(f16[at]);
      case CacheType::i8:
        return static_cast<double>(small[at]) * scales[j * scale_ld + i / 32];
    }
    return 0;
  }
};

struct Case {
  std::vector<float> queries;
  std::size_t query_ld, acc_ld, key_dims, value_dims;
  std::vector<std::uint32_t> counts;
  Cache keys, values;
  bool shared;  // values are the first columns of the keys

  // [query]: acc, max, sum
  [[nodiscard]] std::vector<float> run(const Kernels& kernels, CacheType type, std::size_t first, std::size_t n) const {
    std::vector<float> scratch(n * kAttentionKeys), acc(n * acc_ld, 77.0F), max(n), sum(n);
    kernels.attention({.queries = queries.data() + first * query_ld,
                       .query_ld = query_ld,
                       .query_count = n,
                       .counts = counts.data() + first,
                       .type = type,
                       .keys = keys.in(type),
                       .values = shared ? keys.in(type) : values.in(type),
                       .key_dims = key_dims,
                       .value_dims = value_dims,
                       .scale = 0.4F,
                       .scratch = scratch.data(),
                       .max = max.data(),
                       .sum = sum.data(),
                       .acc = acc.data(),
                       .acc_ld = acc_ld});
    acc.insert(acc.end(), max.begin(), max.end());
    acc.insert(acc.end(), sum.begin(), sum.end());
    return acc;
  }
};

Case draw_case(Random& random, int round) {
  std::size_t count = round == 0 ? kAttentionKeys : random.between(1, 90), dims = random.between(1, 200);
  if (round % 3 == 2) dims = 64 << random.below(2);
  const bool shared = round % 2 == 1;
  if (round == 1) count = 70, dims = 576;
  const std::size_t value_dims = round == 1 ? 512 : shared ? random.between(1, dims) : random.between(1, 160);
  const std::size_t n = round == 0       ? 2
                        : round % 4 == 3 ? random.between(8, 33)
                                         : random.between(1, 11),
                    query_ld = dims + random.below(4);
  const Values kind = round % 5 == 4 ? Values::tiny : Values::ordinary;
  Case c{draw(random, (n - 1) * query_ld + dims, Values::ordinary),
         query_ld,
         value_dims + random.below(3),
         dims,
         value_dims,
         {},
         Cache(random, count, dims, dims + random.below(9), kind),
         Cache(random, count, value_dims, value_dims + random.below(9), kind),
         shared};
  const std::size_t how = random.below(3);
  for (std::size_t i = 0; i < n; ++i)  // all alike, as in a prompt, or anything
    c.counts.push_back(static_cast<std::uint32_t>(how == 0 ? count
                                                  : how == 1
                                                      ? std::max<std::size_t>(count - std::min(count, n - 1 - i), 1)
                                                      : random.between(0, count)));
  return c;
}

TEST(ScalarAttention, AgainstDoublePrecision) {
  for (int round = 0; round < 12; ++round) {
    Random random(12000 + static_cast<std::uint64_t>(round));
    Case c = draw_case(random, 3 * round + 3);
    for (const CacheType type : kCacheTypes) {
      const std::size_t n = c.counts.size();
      const auto got = c.run(scalar_kernels(), type, 0, n);
      for (std::size_t q = 0; q < n; ++q) {
        std::vector<double> score(c.counts[q]);
        double size = 1e-30;
        for (std::size_t j = 0; j < score.size(); ++j) {
          double one = 0;
          for (std::size_t i = 0; i < c.key_dims; ++i) {
            const double product = c.queries[q * c.query_ld + i] * c.keys.value(type, j, i);
            score[j] += product;
            one += std::fabs(product);
          }
          score[j] *= static_cast<double>(0.4F);
          size = std::max(size, one);
        }
        const double error = size * static_cast<double>(c.key_dims) * 0x1p-24 + 1e-6;
        if (score.empty()) {
          EXPECT_EQ(got[n * c.acc_ld + q], -std::numeric_limits<float>::infinity());
          EXPECT_EQ(got[n * c.acc_ld + n + q], 0.0F);
          continue;
        }
        const double m = *std::ranges::max_element(score);
        EXPECT_NEAR(got[n * c.acc_ld + q], m, error);
        double total = 0;
        for (const double v : score) total += std::exp(v - m);
        EXPECT_NEAR(got[n * c.acc_ld + n + q], total, total * 4 * error);
        for (std::size_t i = 0; i < c.value_dims; ++i) {
          double acc = 0, largest = 0;
          for (std::size_t j = 0; j < score.size(); ++j) {
            const double v = (c.shared ? c.keys : c.values).value(type, j, i);
            acc += std::exp(score[j] - m) * v;
            largest = std::max(largest, std::fabs(v));
          }
          EXPECT_NEAR(got[q * c.acc_ld + i], acc, total * largest * 4 * error);
        }
      }
    }
  }
}

TEST_F(VectorKernels, Attention) {
  for (int round = 0; round < 80; ++round) {
    Random random(9000 + static_cast<std::uint64_t>(round));
    const Case c = draw_case(random, round);
    for (const CacheType type : kCacheTypes) {
      const auto want = c.run(scalar_kernels(), type, 0, c.counts.size());
      for (const Kernels* kernels : vector_kernels())
        EXPECT_TRUE(same_bits(c.run(*kernels, type, 0, c.counts.size()), want))
            << kernels->name << ", round " << round << ", " << c.counts.size() << " queries, " << c.key_dims << " and "
            << c.value_dims << " values, cache " << static_cast<int>(type);
    }
  }
}

TEST_F(VectorKernels, QueriesTogetherAreQueriesAlone) {
  Random random(13);
  const Case c = draw_case(random, 0);
  for (const Kernels* kernels : vector_kernels()) {
    const auto together = c.run(*kernels, CacheType::f16, 0, 2);
    for (std::size_t q = 0; q < 2; ++q) {
      const auto alone = c.run(*kernels, CacheType::f16, q, 1);
      EXPECT_EQ(alone[c.acc_ld], together[2 * c.acc_ld + q]);
      EXPECT_EQ(alone[c.acc_ld + 1], together[2 * c.acc_ld + 2 + q]);
      for (std::size_t i = 0; i < c.value_dims; ++i) EXPECT_EQ(alone[i], together[q * c.acc_ld + i]);
    }
  }
}

}  // namespace
}  // namespace myriad
