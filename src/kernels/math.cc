#include "kernels/math.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/math_constants.h"

namespace myriad {

namespace {

constexpr float kNaN = std::bit_cast<float>(0x7fc00000u);
constexpr float kInfinity = std::bit_cast<float>(0x7f800000u);

}  // namespace

float exact_exp(float x) {
  using namespace math_constants;
  if (x != x) return kNaN;
  if (x > kExpHigh) return kInfinity;
  if (x < kExpLow) return 0.0f;
  // x = n·ln 2 + r, |r| <= ln 2 / 2; adding the shifter leaves n in the low bits of the significand
  const float shifted = std::fma(x, kLog2E, kShifter);
  const float n = shifted - kShifter;
  const float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
  float q = std::fma(kExp[5], r, kExp[4]);
  q = std::fma(q, r, kExp[3]);
  q = std::fma(q, r, kExp[2]);
  q = std::fma(q, r, kExp[1]);
  q = std::fma(q, r, kExp[0]);
  const float p = std::fma(q, r * r, r) + 1.0f;
  // times 2^n by adding n to the exponent: the limits on x keep the result normal
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
}

float exact_sigmoid(float x) {
  return 1.0f / (1.0f + exact_exp(-x));
}

float exact_tanh(float x) {
  using namespace math_constants;
  if (x != x) return kNaN;
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) & 0x80000000u;
  const float a = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ sign);
  float result;
  if (a < kTanhSmall) {
    const float z = a * a;
    float p = std::fma(kTanh[4], z, kTanh[3]);
    p = std::fma(p, z, kTanh[2]);
    p = std::fma(p, z, kTanh[1]);
    p = std::fma(p, z, kTanh[0]);
    result = std::fma(p, z * a, a);
  } else {
    result = 1.0f - 2.0f / (exact_exp(a + a) + 1.0f);
  }
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(result) | sign);
}

float exact_softplus(float x) {
  using namespace math_constants;
  if (x != x) return kNaN;
  // log(1 + e^x) = max(x, 0) + log1p(y), y = e^-|x| in [0, 1]; log1p(y) = 2·atanh(s), s = y / (2 + y) <= 1/3
  const float y = exact_exp(x > 0.0f ? -x : x);
  const float twice_s = (y + y) / (2.0f + y);
  const float s = 0.5f * twice_s;
  const float z = s * s;
  float p = std::fma(kAtanh[4], z, kAtanh[3]);
  p = std::fma(p, z, kAtanh[2]);
  p = std::fma(p, z, kAtanh[1]);
  p = std::fma(p, z, kAtanh[0]);
  const float log1p = std::fma(p, z * twice_s, twice_s);
  return x > 0.0f ? x + log1p : log1p;
}

float exact_rsqrt(float x) {
  if (!(x >= 0.0f)) return kNaN;
  if (x < 0x1p-126f) return kInfinity;
  if (x > 0x1.fffffep127f) return 0.0f;
  float y = std::bit_cast<float>(0x5f3759dfu - (std::bit_cast<std::uint32_t>(x) >> 1));
  // Newton: y += y/2·(1 − x·y²); 3.5 % → 0.2 % → 5e-6 → rounding
  for (int step = 0; step < 3; ++step) {
    const float error = std::fma(-(x * y), y, 1.0f);
    y = std::fma(0.5f * error, y, y);
  }
  return y;
}

SineCosine exact_sincos(double angle) {
  using namespace math_constants;
  if (!(std::fabs(angle) <= 0x1p40)) return {kNaN, kNaN};
  // angle = n·π/2 + r; adding the shifter leaves n in the low bits of the significand. n·kHalfPi[0] is taken off
  // without any rounding, what is left of π/2 with roundings that are small even beside the smallest r.
  const double shifted = angle * kTwoOverPi + 0x1.8p52, n = shifted - 0x1.8p52;
  double r = std::fma(-n, kHalfPi[0], angle);
  r = std::fma(-n, kHalfPi[1], r);
  r = std::fma(-n, kHalfPi[2], r);
  const double z = r * r;
  double s = kSine[5], c = kCosine[6];
  for (int i = 4; i >= 0; --i) s = std::fma(s, z, kSine[i]);
  for (int i = 5; i >= 0; --i) c = std::fma(c, z, kCosine[i]);
  const auto sine = static_cast<float>(std::fma(s * z, r, r)), cosine = static_cast<float>(std::fma(c, z, 1.0));
  switch (std::bit_cast<std::uint64_t>(shifted) & 3U) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace myriad
