// Rotary position embedding: frequencies from a model's settings, and the rotation itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace myriad {

enum class RopeScaling : std::uint8_t { none, linear, yarn, llama3 };

// Settings as configs give them.
struct RopeSettings {
  std::size_t dims = 0;  // channels that turn, even
  double base = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;                     // linear, yarn, llama3: how far the context is stretched
  double original_context = 0;           // yarn, llama3: positions that the model was trained with
  double beta_fast = 32, beta_slow = 1;  // yarn
  bool whole_pairs = true;               // yarn: the ramp goes from a whole pair to a whole pair
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  std::span<const float> divisors;  // of each frequency (a GGUF's rope_freqs tensor), or none
};
// Radians a position for each pair, [dims/2]. YaRN: Peng et al. 2023, arXiv 2309.00071, §3.2 ("NTK-by-parts"); Llama 3:
// frequencies below low_frequency_factor turns in the original context are divided by `factor`, those above
// high_frequency_factor stay, linear between.
std::vector<float> rope_frequencies(const RopeSettings& settings);
// What a config.json says about rotation, for who writes it down elsewhere: of the model's RopeConfig and softmax_scale
// only what came of it is left.
struct RopeDescription {
  RopeSettings settings;       // dims 0: nothing turns
  double magnitude = 1;        // of cosine and sine
  double score_magnitude = 1;  // its square multiplies the scores (DeepSeek)
};
// Of a Hugging Face config.json; nothing of what config_to_json wrote, which only has what came of it. Errors: as
// parse_config.
Result<std::optional<RopeDescription>> describe_rope(std::string_view config_json);
// YaRN's factor on cosine and sine: 0.1·multiplier·ln(factor) + 1, or 1 when nothing is stretched.
float yarn_magnitude(double factor, double multiplier = 1);

// The turn of one position, for all heads: made once, applied to many.
class Rotation {
 public:
  explicit Rotation(const RopeConfig& rope)
      : rope_(rope), sines_(rope.frequencies.size()), cosines_(rope.frequencies.size()) {}
  void at(std::size_t position);
  // Turns the first rope.dims() channels of x.
  void apply(const Kernels& kernels, float* x) const {
    kernels.rope(x, cosines_.data(), sines_.data(), rope_.dims(), rope_.order);
  }

 private:
  const RopeConfig& rope_;
  std::vector<float> sines_, cosines_;
};

}  // namespace myriad
