#include "quant/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "quant/blocks.h"
#include "quant/error_metrics.h"

namespace myriad {
namespace {

constexpr DType kAll[] = {DType::mxfp4, DType::q8_0, DType::q4_0, DType::q4_1,   DType::q5_0,   DType::q5_1,
                          DType::q4_k,  DType::q5_k, DType::q6_k, DType::iq4_nl, DType::i8_row, DType::i4_zero};

// Sums of twelve uniform numbers: near enough to normal ones, deviation `scale`.
std::vector<float> bell(std::size_t n, float scale, std::uint64_t seed) {
  CounterRandom random(seed);
  std::vector<float> out(n);
  for (float& v : out) {
    float sum = 0;
    for (int i = 0; i < 12; ++i) sum += random.symmetric();
    v = sum * 0.5F * scale;
  }
  return out;
}

std::vector<std::byte> quantized(DType t, std::span<const float> x, std::size_t k) {
  std::vector<std::byte> out(x.size() / k * row_bytes(t, k));
  const Status status = quantize_rows(t, x, k, out);
  EXPECT_TRUE(status) << dtype_name(t) << ": " << status.error().message;
  EXPECT_FALSE(find_not_finite(t, out, x.size() / k, k));
  return out;
}

std::vector<float> restored(DType t, std::span<const std::byte> rows, std::size_t n, std::size_t k) {
  std::vector<float> out(n * k);
  for (std::size_t r = 0; r < n; ++r) dequantize(t, rows.data() + r * row_bytes(t, k), k, out.data() + r * k);
  return out;
}

ErrorSums errors(DType t, std::span<const float> x, std::size_t k) {
  ErrorSums sums;
  sums.add(x, restored(t, quantized(t, x, k), x.size() / k, k));
  return sums;
}

// What the plainest rule loses: the scale is the largest value over the largest code, nothing is searched.
double plain_error(std::span<const float> x, std::size_t group, float codes) {
  double sum = 0;
  for (std::size_t b = 0; b < x.size(); b += group) {
    float amax = 0;
    for (std::size_t i = b; i < b + group; ++i) amax = std::max(amax, std::abs(x[i]));
    const float d = f16_to_f32(f32_to_f16(amax / codes));
    for (std::size_t i = b; i < b + group; ++i) {
      const double e = x[i] - d * std::clamp(std::nearbyint(x[i] / d), -codes, codes);
      sum += e * e;
    }
  }
  return sum;
}

TEST(Quantize, WhatATypeLosesOfANormalMatrix) {
  const struct {
    DType type;
    double least_db;
  } kCases[] = {{DType::mxfp4, 18.8}, {DType::q8_0, 46.0},   {DType::q4_0, 21.6},   {DType::q4_1, 23.0},
                {DType::q5_0, 27.8},  {DType::q5_1, 29.0},   {DType::q4_k, 22.7},   {DType::q5_k, 28.8},
                {DType::q6_k, 35.3},  {DType::iq4_nl, 22.4}, {DType::i8_row, 42.5}, {DType::i4_zero, 22.0}};
  const auto x = bell(64 * 1024, 0.02F, 7);
  for (const auto& c : kCases) {
    const ErrorSums e = errors(c.type, x, 1024);
    EXPECT_GT(e.sqnr_db(), c.least_db) << dtype_name(c.type) << " gives " << e.sqnr_db();
    // The same for any scale that is no extreme.
    auto larger = x;
    for (float& v : larger) v *= 4096;
    EXPECT_NEAR(errors(c.type, larger, 1024).sqnr_db(), e.sqnr_db(), 0.05) << dtype_name(c.type);
  }
}

TEST(Quantize, SearchedScalesBeatTheLargestValue) {
  const auto x = bell(64 * 1024, 0.02F, 8);
  EXPECT_LT(errors(DType::q8_0, x, 1024).squared_error, plain_error(x, 32, 127));
  EXPECT_LT(errors(DType::q4_0, x, 1024).squared_error, 0.8 * plain_error(x, 32, 7));
  EXPECT_LT(errors(DType::q5_0, x, 1024).squared_error, 0.9 * plain_error(x, 32, 15));
}

// What a type can hold comes back exactly, if its groups use their codes to the full.
TEST(Quantize, RowsThatATypeHoldsComeBack) {
  constexpr std::size_t kRow = 512;
  for (const DType t : kAll) {
    CounterRandom random(static_cast<std::uint64_t>(t) + 100);
    std::vector<float> x(kRow);
    const int low = t == DType::q4_0     ? -8
                    : t == DType::q5_0   ? -16
                    : t == DType::q6_k   ? -32
                    : t == DType::q8_0   ? -127
                    : t == DType::i8_row ? -127
                                         : 0;
    const int high = t == DType::q4_0                         ? 7
                     : t == DType::q5_0                       ? 15
                     : t == DType::q5_1 || t == DType::q5_k   ? 31
                     : t == DType::q6_k                       ? 31
                     : t == DType::q8_0 || t == DType::i8_row ? 127
                                                              : 15;
    const std::size_t group = scale_group(t);
    for (std::size_t g = 0; g < kRow; g += group) {
      // every scale a power of two, so that products and sums are exact; super-blocks have the widest in each
      const float d = t == DType::i8_row ? 0.5F : std::ldexp(1.0F, -static_cast<int>(random.below(3)));
      const float minimum = t == DType::q4_1 || t == DType::q5_1 ? -d * 5 : t == DType::i4_zero ? -d * 6 : 0;
      for (std::size_t i = 0; i < group; ++i) {
        const int q = i == 0   ? low
                      : i == 1 ? high
                               : low + static_cast<int>(random.below(static_cast<std::uint64_t>(high - low + 1)));
        x[g + i] = t == DType::mxfp4    ? d * kE2M1[i < 2 ? 7 : static_cast<std::size_t>(random.below(16))]
                   : t == DType::iq4_nl ? d * static_cast<float>(kIq4Values[i == 0   ? 0
                                                                            : i == 1 ? 15
                                                                                     : static_cast<std::size_t>(q)])
                                        : d * static_cast<float>(q) + minimum;
      }
    }
    if (t == DType::q4_k || t == DType::q5_k || t == DType::q6_k) {
      // scales of 6 or 8 bits on a shared one: the largest must be 63 or 127 of them
      const float widest = t == DType::q6_k ? 127 : 63;
      for (std::size_t g = 0; g < kRow; g += group) {
        const float s =
            g % 256 == 0 ? widest : 1 + static_cast<float>(random.below(static_cast<std::uint64_t>(widest)));
        float most = 0;
        for (std::size_t i = g; i < g + group; ++i) most = std::max(most, std::abs(x[i]));
        for (std::size_t i = g; i < g + group; ++i)
          x[i] = std::round(x[i] / most * static_cast<float>(-low > high ? -low : high)) * s * 0.25F;
      }
    }
    const auto back = restored(t, quantized(t, x, kRow), 1, kRow);
    for (std::size_t i = 0; i < kRow; ++i) ASSERT_EQ(back[i], x[i]) << dtype_name(t) << " value " << i;
  }
}

TEST(Quantize, ZerosStayZeros) {
  const std::vector<float> x(1024, 0.0F);
  for (const DType t : kAll)
    for (const float v : restored(t, quantized(t, x, 512), 2, 512)) ASSERT_EQ(v, 0.0F) << dtype_name(t);
}

TEST(Quantize, ExtremesNeitherOverflowNorVanish) {
  for (const DType t : kAll) {
    // one large value among small ones, all alike, all of one sign
    std::vector<float> x(256, 1e-3F);
    x[77] = -300;
    const auto back = restored(t, quantized(t, x, 256), 1, 256);
    EXPECT_NEAR(back[77], -300, 300 * 0.15) << dtype_name(t);
    std::vector<float> alike(256, 0.7F);
    for (const float v : restored(t, quantized(t, alike, 256), 1, 256)) EXPECT_NEAR(v, 0.7, 0.06) << dtype_name(t);
    for (float& v : alike) v = -0.7F;
    for (const float v : restored(t, quantized(t, alike, 256), 1, 256)) EXPECT_NEAR(v, -0.7, 0.06) << dtype_name(t);
    std::vector<float> tiny(256, 1e-30F);
    for (const float v : restored(t, quantized(t, tiny, 256), 1, 256)) EXPECT_NEAR(v, 0, 2e-30) << dtype_name(t);
  }
}

TEST(Quantize, WhatIsNoNumberIsNamed) {
  for (const DType t : kAll)
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      auto x = bell(1024, 1, 9);
      x[512 + 37] = bad;
      std::vector<std::byte> out(2 * row_bytes(t, 512));
      const Status status = quantize_rows(t, x, 512, out, 40);
      ASSERT_FALSE(status) << dtype_name(t);
      EXPECT_EQ(status.error().code, Code::invalid_argument);
      EXPECT_NE(status.error().message.find("row 41 column 37"), std::string::npos) << status.error().message;
    }
  // beyond what an f16 scale reaches
  std::vector<float> x(32, 1e7F);
  std::vector<std::byte> out(row_bytes(DType::q4_0, 32));
  EXPECT_FALSE(quantize_rows(DType::q4_0, x, 32, out));
  std::vector<std::byte> wide(row_bytes(DType::i8_row, 32));
  EXPECT_TRUE(quantize_rows(DType::i8_row, x, 32, wide));
}

TEST(Quantize, SizesThatDoNotFitAreRefused) {
  const std::vector<float> x(96, 1.0F);
  std::vector<std::byte> out(1000);
  EXPECT_FALSE(quantize_rows(DType::q4_0, x, 96, std::span(out).first(10)));
  EXPECT_FALSE(quantize_rows(DType::q4_k, x, 96, out));
  EXPECT_FALSE(quantize_rows(DType::q4_0, x, 0, {}));
  EXPECT_FALSE(quantize_rows(DType::q2_k, x, 96, out));
  EXPECT_FALSE(quantize_rows(DType::q4_0, x, 96, std::span(out).first(row_bytes(DType::q4_0, 96)), 0, 1.0F));
}

TEST(Quantize, RowsDoNotDependOnTheirNeighbours) {
  const auto x = bell(8 * 256, 0.1F, 10);
  for (const DType t : kAll) {
    const auto all = quantized(t, x, 256);
    for (std::size_t r = 0; r < 8; ++r) {
      const auto one = quantized(t, std::span(x).subspan(r * 256, 256), 256);
      EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(r * one.size())))
          << dtype_name(t);
    }
  }
}

TEST(Quantize, OneScaleForAllRows) {
  const auto x = bell(4 * 64, 0.1F, 11);
  std::vector<std::byte> out(4 * row_bytes(DType::i8_row, 64));
  ASSERT_TRUE(quantize_rows(DType::i8_row, x, 64, out, 0, int8_scale(1.27F)));
  const auto back = restored(DType::i8_row, out, 4, 64);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(back[i], x[i], 0.005001);
}

TEST(ErrorSums, AgreeWithTheirDefinitions) {
  const std::vector<float> x = {1, -2, 3, 0}, y = {1, -2.5F, 2, 0};
  ErrorSums a;
  a.add(x, y);
  EXPECT_DOUBLE_EQ(a.mse(), (0.25 + 1) / 4);
  EXPECT_DOUBLE_EQ(a.largest_error, 1);
  EXPECT_DOUBLE_EQ(a.sqnr_db(), 10 * std::log10(14 / 1.25));
  ErrorSums halves;
  halves.add(std::span(x).first(2), std::span(y).first(2));
  ErrorSums rest;
  rest.add(std::span(x).subspan(2), std::span(y).subspan(2));
  halves += rest;
  EXPECT_EQ(halves.values, a.values);
  EXPECT_DOUBLE_EQ(halves.squared_error, a.squared_error);
  EXPECT_DOUBLE_EQ(halves.largest_error, a.largest_error);
  EXPECT_TRUE(std::isinf(ErrorSums{}.sqnr_db()));
  EXPECT_EQ(ErrorSums{}.mse(), 0);
}

}  // namespace
}  // namespace myriad
