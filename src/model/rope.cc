#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/math.h"

namespace myriad {
namespace {

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
        const double first = pair_of(s.beta_fast), last = pair_of(s.beta_slow);
        const double low = std::max(0.0, s.whole_pairs ? std::floor(first) : first);
        const double high = std::min(dims - 1, s.whole_pairs ? std::ceil(last) : last);
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

void Rotation::at(std::size_t position) {
  for (std::size_t i = 0; i < sines_.size(); ++i) {
    const auto [sine, cosine] = exact_sincos(static_cast<double>(position) * static_cast<double>(rope_.frequencies[i]));
    sines_[i] = sine * rope_.magnitude;
    cosines_[i] = cosine * rope_.magnitude;
  }
}

}  // namespace myriad
