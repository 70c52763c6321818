#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace myriad {
namespace {

// Taylor coefficients of sin(r)/r and cos(r) in r², good to 1e-17 for |r| <= π/4.
constexpr double kSine[] = {-1.0 / 6,          1.0 / 120,          -1.0 / 5040,           1.0 / 362880,
                            -1.0 / 39916800.0, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
constexpr double kCosine[] = {-1.0 / 2,         1.0 / 24,          -1.0 / 720,           1.0 / 40320,
                              -1.0 / 3628800.0, 1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
// π/2 in two doubles.
constexpr double kHalfPi = 0x1.921fb54442d18p+0, kHalfPiRest = 0x1.1a62633145c07p-54;
constexpr double kToInteger = 0x1.8p+52;  // adding and taking it away rounds to the nearest integer

double ramp(double low, double high, double i) {
  return std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
}

}  // namespace

std::vector<float> rope_frequencies(const RopeSettings& s) {
  const double dims = static_cast<double>(s.dims);
  // The pair that makes `turns` turns in the original context (YaRN).
  const auto pair_of = [&](double turns) {
    return dims * std::log(s.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(s.base));
  };
  std::vector<float> out(s.dims / 2);
  for (std::size_t i = 0; i < out.size(); ++i) {
    double f = std::pow(s.base, -2.0 * static_cast<double>(i) / dims);
    if (i < s.divisors.size()) f /= s.divisors[i];
    switch (s.scaling) {
      case RopeScaling::none:
        break;
      case RopeScaling::linear:
        f /= s.factor;
        break;
      case RopeScaling::yarn: {
        const double low = std::max(0.0, std::floor(pair_of(s.beta_fast)));
        const double high = std::min(dims - 1, std::ceil(pair_of(s.beta_slow)));
        const double stretched = ramp(low, high, static_cast<double>(i));
        f = f / s.factor * stretched + f * (1 - stretched);
        break;
      }
      case RopeScaling::llama3: {
        const double turns = s.original_context * f / (2 * std::numbers::pi);
        const double kept =
            std::clamp((turns - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor), 0.0, 1.0);
        f = f / s.factor * (1 - kept) + f * kept;
        break;
      }
    }
    out[i] = static_cast<float>(f);
  }
  return out;
}

float yarn_magnitude(double factor, double multiplier) {
  return factor <= 1 ? 1.0F : static_cast<float>(0.1 * multiplier * std::log(factor) + 1);
}

SineCosine exact_sine_cosine(double angle) {
  const double quarter = (std::fma(angle, 1 / kHalfPi, kToInteger)) - kToInteger;
  const double r = std::fma(-quarter, kHalfPiRest, std::fma(-quarter, kHalfPi, angle));
  const double z = r * r;
  double sine = kSine[6], cosine = kCosine[7];
  for (int i = 5; i >= 0; --i) sine = std::fma(sine, z, kSine[i]);
  for (int i = 6; i >= 0; --i) cosine = std::fma(cosine, z, kCosine[i]);
  sine = std::fma(sine * z, r, r);
  cosine = std::fma(cosine, z, 1.0);
  switch (static_cast<std::int64_t>(quarter) & 3) {
    case 0:
      return {static_cast<float>(sine), static_cast<float>(cosine)};
    case 1:
      return {static_cast<float>(cosine), static_cast<float>(-sine)};
    case 2:
      return {static_cast<float>(-sine), static_cast<float>(-cosine)};
    default:
      return {static_cast<float>(-cosine), static_cast<float>(sine)};
  }
}

void Rotation::at(std::size_t position) {
  for (std::size_t i = 0; i < sines_.size(); ++i) {
    const auto [sine, cosine] =
        exact_sine_cosine(static_cast<double>(position) * static_cast<double>(rope_.frequencies[i]));
    sines_[i] = sine * rope_.magnitude;
    cosines_[i] = cosine * rope_.magnitude;
  }
}

}  // namespace myriad
