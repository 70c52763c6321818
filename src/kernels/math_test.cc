#include "kernels/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace myriad {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Distance from the true value in units of the last place of the result's binade (normal results).
double ulps(float got, double want) {
  if (static_cast<double>(got) == want) return 0;
  int exponent = 0;
  std::frexp(want, &exponent);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 24);
}

#if defined(__x86_64__)
constexpr std::uint32_t kCoarser = 1;
#else
constexpr std::uint32_t kCoarser = 31;  // usually emulated
#endif

struct Worst {
  double ulp = 0;
  float at = 0;
};

// Every `step`-th float of [low, high], both finite; steps are primes so that all low bits occur.
template <class F, class Reference>
Worst sweep(float low, float high, std::uint32_t step, F f, Reference reference) {
  const auto ordered = [](float v) {
    const auto bits = std::bit_cast<std::int32_t>(v);
    return bits < 0 ? -static_cast<std::int64_t>(bits & 0x7fffffff) : static_cast<std::int64_t>(bits);
  };
  Worst worst;
  for (std::int64_t i = ordered(low), end = ordered(high); i <= end; i += step * kCoarser) {
    const float x =
        std::bit_cast<float>(i < 0 ? static_cast<std::uint32_t>(-i) | 0x80000000u : static_cast<std::uint32_t>(i));
    const double u = ulps(f(x), reference(static_cast<double>(x)));
    if (!(u <= worst.ulp)) worst = {u, x};
  }
  return worst;
}

#define EXPECT_WITHIN(limit, ...)                                            \
  do {                                                                       \
    const Worst worst_ = __VA_ARGS__;                                        \
    EXPECT_LT(worst_.ulp, limit) << "at x = " << std::hexfloat << worst_.at; \
  } while (false)

TEST(ExactMath, ExpIsCloseEverywhere) {
  const auto reference = [](double x) { return std::exp(x); };
  EXPECT_WITHIN(1.2, sweep(-87.3f, 88.7f, 1009, exact_exp, reference));
  EXPECT_WITHIN(1.2, sweep(0.01f, 88.7f, 97, exact_exp, reference));
  EXPECT_WITHIN(1.2, sweep(-87.3f, -0.01f, 97, exact_exp, reference));
}

TEST(ExactMath, ExpAtTheEdges) {
  EXPECT_EQ(exact_exp(0.0f), 1.0f);
  EXPECT_EQ(exact_exp(-0.0f), 1.0f);
  EXPECT_EQ(exact_exp(std::numeric_limits<float>::denorm_min()), 1.0f);
  EXPECT_EQ(exact_exp(kInf), kInf);
  EXPECT_EQ(exact_exp(-kInf), 0.0f);
  EXPECT_FALSE(std::signbit(exact_exp(-kInf)));
  EXPECT_TRUE(std::isfinite(exact_exp(88.7f)));
  EXPECT_EQ(exact_exp(std::nextafter(88.7f, 100.0f)), kInf);
  EXPECT_GE(exact_exp(-87.3f), std::numeric_limits<float>::min());
  EXPECT_EQ(exact_exp(std::nextafter(-87.3f, -100.0f)), 0.0f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(exact_exp(std::bit_cast<float>(0xffc12345u))), 0x7fc00000u);
}

TEST(ExactMath, Sigmoid) {
  const auto reference = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_WITHIN(3.0, sweep(-87.3f, 100.0f, 1009, exact_sigmoid, reference));
  EXPECT_WITHIN(3.0, sweep(-87.3f, -0.01f, 97, exact_sigmoid, reference));
  EXPECT_EQ(exact_sigmoid(0.0f), 0.5f);
  EXPECT_EQ(exact_sigmoid(kInf), 1.0f);
  EXPECT_EQ(exact_sigmoid(-kInf), 0.0f);
  EXPECT_EQ(exact_sigmoid(-1000.0f), 0.0f);
  EXPECT_TRUE(std::isnan(exact_sigmoid(std::nanf(""))));
  EXPECT_EQ(exact_silu(0.0f), 0.0f);
  EXPECT_FLOAT_EQ(exact_silu(1.0f), 0.731058579f);
}

TEST(ExactMath, TanhKeepsRelativePrecision) {
  const auto reference = [](double x) { return std::tanh(x); };
  EXPECT_WITHIN(2.0, sweep(0.0f, 20.0f, 1009, exact_tanh, reference));
  EXPECT_WITHIN(2.0, sweep(0.01f, 12.0f, 97, exact_tanh, reference));
  EXPECT_WITHIN(2.0, sweep(-12.0f, -0.01f, 97, exact_tanh, reference));
  for (float x = 1e-42f; x < 100; x *= 1.7f) EXPECT_EQ(exact_tanh(-x), -exact_tanh(x)) << x;
  EXPECT_EQ(exact_tanh(std::numeric_limits<float>::denorm_min()), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(exact_tanh(1e-30f), 1e-30f);
  EXPECT_TRUE(std::signbit(exact_tanh(-0.0f)));
  EXPECT_FALSE(std::signbit(exact_tanh(0.0f)));
  EXPECT_EQ(exact_tanh(kInf), 1.0f);
  EXPECT_EQ(exact_tanh(-kInf), -1.0f);
  EXPECT_TRUE(std::isnan(exact_tanh(std::nanf(""))));
}

TEST(ExactMath, SoftplusKeepsRelativePrecisionOnBothSides) {
  const auto reference = [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); };
  EXPECT_WITHIN(4.0, sweep(-87.3f, 1e30f, 1009, exact_softplus, reference));
  EXPECT_WITHIN(4.0, sweep(-87.3f, -0.01f, 97, exact_softplus, reference));
  EXPECT_WITHIN(4.0, sweep(0.01f, 100.0f, 97, exact_softplus, reference));
  EXPECT_EQ(exact_softplus(kInf), kInf);
  EXPECT_EQ(exact_softplus(-kInf), 0.0f);
  EXPECT_EQ(exact_softplus(-1e30f), 0.0f);
  EXPECT_EQ(exact_softplus(1e30f), 1e30f);
  EXPECT_FLOAT_EQ(exact_softplus(0.0f), 0.693147181f);
  EXPECT_EQ(exact_softplus(-0.0f), exact_softplus(0.0f));
  EXPECT_TRUE(std::isnan(exact_softplus(std::nanf(""))));
}

TEST(ExactMath, Rsqrt) {
  const auto reference = [](double x) { return 1 / std::sqrt(x); };
  EXPECT_WITHIN(
      1.6, sweep(std::numeric_limits<float>::min(), std::numeric_limits<float>::max(), 1009, exact_rsqrt, reference));
  EXPECT_WITHIN(1.6, sweep(0.5f, 4.0f, 31, exact_rsqrt, reference));
  EXPECT_EQ(exact_rsqrt(0.0f), kInf);
  EXPECT_EQ(exact_rsqrt(std::numeric_limits<float>::denorm_min()), kInf);
  EXPECT_EQ(exact_rsqrt(kInf), 0.0f);
  EXPECT_TRUE(std::isnan(exact_rsqrt(-1.0f)));
  EXPECT_TRUE(std::isnan(exact_rsqrt(std::nanf(""))));
}

TEST(ExactMath, SineAndCosine) {
  std::uint64_t state = 1;
  const auto check = [](double angle) {
    const SineCosine got = exact_sincos(angle);
#if defined(__x86_64__)  // elsewhere the bits below must do: libm's sine stops emulated processors
    EXPECT_LT(ulps(got.sine, std::sin(angle)), 0.51) << std::hexfloat << angle;
    EXPECT_LT(ulps(got.cosine, std::cos(angle)), 0.51) << std::hexfloat << angle;
#endif
    EXPECT_NEAR(static_cast<double>(got.sine) * got.sine + static_cast<double>(got.cosine) * got.cosine, 1.0, 1e-6);
  };
  for (int i = 0; i < 100000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double unit = static_cast<double>(static_cast<std::int64_t>(state)) * 0x1p-63;
    check(std::ldexp(unit, static_cast<int>(state >> 32 & 31) - 10));  // up to 2^21
  }
  constexpr double kQuarterTurn = 1.5707963267948966;
  for (int n = 0; n < 1 << 20; n += 257)  // where one of them is nearly zero
    for (const double off : {-1e-3, -1e-9, 0.0, 1e-12, 1e-6}) {
      check(n * kQuarterTurn + off);
      check(-n * kQuarterTurn + off);
    }
  for (int position = 0; position < 1 << 20; position += 997)  // as RoPE asks
    for (int i = 0; i < 64; i += 7) check(position * std::pow(10000.0, -i / 64.0));
  EXPECT_EQ(exact_sincos(0.0).sine, 0.0F);
  EXPECT_EQ(exact_sincos(0.0).cosine, 1.0F);
  check(0x1p40);
  EXPECT_TRUE(std::isnan(exact_sincos(0x1.1p40).sine));
  EXPECT_TRUE(std::isnan(exact_sincos(std::numeric_limits<double>::quiet_NaN()).cosine));
  std::uint64_t hash = 14695981039346656037u;
  for (int i = 0; i < 20000; ++i) {
    const SineCosine v = exact_sincos(i * 53.75 + i * 0x1p-20);
    hash = (hash ^ std::bit_cast<std::uint32_t>(v.sine)) * 1099511628211u;
    hash = (hash ^ std::bit_cast<std::uint32_t>(v.cosine)) * 1099511628211u;
  }
  EXPECT_EQ(hash, 2767806033867673884u);
}

// The bits themselves: a change of any of them changes the tokens that old and new nodes compute together.
TEST(ExactMath, BitsAreFixed) {
  std::uint64_t hash = 14695981039346656037u;
  const auto mix = [&hash](float v) { hash = (hash ^ std::bit_cast<std::uint32_t>(v)) * 1099511628211u; };
  for (std::uint32_t bits = 1; bits < 0x7f800000u; bits += 1000003) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const float x = std::bit_cast<float>(bits | sign);
      mix(exact_exp(x));
      mix(exact_sigmoid(x));
      mix(exact_tanh(x));
      mix(exact_softplus(x));
    }
    mix(exact_rsqrt(std::bit_cast<float>(bits)));
  }
  EXPECT_EQ(hash, 16383401766139875711u);
}

}  // namespace
}  // namespace myriad
