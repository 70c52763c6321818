#include "quant/formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace myriad {
namespace {

TEST(Formats, EveryBf16SurvivesTheWayThroughF32) {
  for (std::uint32_t u = 0; u < 0x10000; ++u) {
    const auto v = static_cast<std::uint16_t>(u);
    const float f = bf16_to_f32(v);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(round_to_bf16(f))) << u;
    } else {
      EXPECT_EQ(f32_to_bf16(f), v);
    }
  }
}

// Against a search for the nearest neighbour in double precision.
TEST(Formats, Bf16RoundsToNearestTiesToEven) {
  std::uint32_t state = 12345;
  for (int n = 0; n < 200000; ++n) {
    state = state * 1664525u + 1013904223u;
    std::uint32_t bits = state ^ state >> 13;
    if (n % 3 == 0) bits = (bits & 0xffff0000u) | 0x8000u;  // exact ties
    if ((bits & 0x7f800000u) == 0x7f800000u || (bits & 0x7fffffffu) > 0x7f7f0000u) continue;
    const float f = std::bit_cast<float>(bits);
    const auto below = static_cast<std::uint16_t>(bits >> 16);  // towards zero
    const auto above = static_cast<std::uint16_t>(below + 1);
    const double down = std::fabs(static_cast<double>(f) - bf16_to_f32(below));
    const double up = std::fabs(static_cast<double>(bf16_to_f32(above)) - f);
    const std::uint16_t expected = down < up ? below : up < down ? above : (below & 1) == 0 ? below : above;
    ASSERT_EQ(f32_to_bf16(f), expected) << std::hex << bits;
  }
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f32_to_bf16(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7f800001u))));
}

TEST(Formats, E8M0IsAPowerOfTwo) {
  for (int b = 0; b < 255; ++b) EXPECT_EQ(e8m0_to_f32(static_cast<std::uint8_t>(b)), std::ldexp(1.0, b - 127)) << b;
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

TEST(Formats, DoubledCodesAreTwiceTheCodes) {
  for (std::size_t c = 0; c < 16; ++c) EXPECT_EQ(static_cast<float>(kE2M1Doubled[c]), 2 * kE2M1[c]) << c;
  EXPECT_TRUE(std::signbit(kE2M1[8]));
}

TEST(Formats, EveryF16SurvivesTheWayThroughF32) {
  for (std::uint32_t u = 0; u < 0x10000; ++u) {
    const auto v = static_cast<std::uint16_t>(u);
    const float f = f16_to_f32(v);
    const int exponent = v >> 10 & 31, fraction = v & 1023;
    if (exponent == 31 && fraction != 0) {
      EXPECT_TRUE(std::isnan(f)) << u;
      EXPECT_EQ(f32_to_f16(f), v | 0x200) << u;
      continue;
    }
    EXPECT_EQ(f32_to_f16(f), v) << u;
    const double want = exponent == 31  ? std::numeric_limits<double>::infinity()
                        : exponent == 0 ? std::ldexp(fraction, -24)
                                        : std::ldexp(1024 + fraction, exponent - 25);
    EXPECT_EQ(f, v >> 15 ? -want : want) << u;
    EXPECT_EQ(std::signbit(f), v >> 15 != 0) << u;
  }
}

// Against both neighbours, halfway and one f32 step to either side of it.
TEST(Formats, F16RoundsToNearestTiesToEven) {
  for (std::uint32_t u = 0; u < 0x7c00; ++u) {
    const auto low = static_cast<std::uint16_t>(u), high = static_cast<std::uint16_t>(u + 1);
    const double above = high == 0x7c00 ? 65536.0 : static_cast<double>(f16_to_f32(high));
    const auto middle = static_cast<float>((f16_to_f32(low) + above) / 2);  // exact
    EXPECT_EQ(f32_to_f16(middle), u % 2 == 0 ? low : high) << u;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0F)), low) << u;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 1e30F)), high) << u;
    EXPECT_EQ(f32_to_f16(-middle), 0x8000 | (u % 2 == 0 ? low : high)) << u;
  }
  EXPECT_EQ(f32_to_f16(1e30F), 0x7c00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::bit_cast<float>(0x7f800001U)))));
}

TEST(Formats, NamesOfTypes) {
  EXPECT_EQ(dtype_name(DType::f32), "f32");
  EXPECT_EQ(dtype_name(DType::bf16), "bf16");
  EXPECT_EQ(dtype_name(DType::mxfp4), "mxfp4");
  EXPECT_EQ(dtype_name(DType::i4_zero), "i4_zero");
  EXPECT_EQ(dtype_name(static_cast<DType>(77)), "unknown");
  EXPECT_FALSE(is_quantized(DType::f16));
  EXPECT_TRUE(is_quantized(DType::mxfp4));
  EXPECT_FALSE(is_quantized(static_cast<DType>(77)));
  EXPECT_FALSE(fits_blocks(static_cast<DType>(77), 0));
}

}  // namespace
}  // namespace myriad
