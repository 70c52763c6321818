#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/kernels.h"

namespace myriad {
namespace {

using Json = nlohmann::json;

void expect_near(const std::vector<float>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 3e-7 * expected[i]) << i;
}

// The numbers are those of the formulas as transformers has them (modeling_rope_utils), evaluated apart from this code:
// interpolated and extrapolated frequencies mixed by YaRN's ramp between floor and ceiling of its two dimensions;
// Llama 3's by wave length.
const std::vector<double> kYarn = {1,
                                   0.749894209,
                                   0.562341325,
                                   0.421696503,
                                   0.316227766,
                                   0.237137371,
                                   0.177827941,
                                   0.133352143,
                                   0.1,
                                   0.0749894209,
                                   0.0562341325,
                                   0.0390069266,
                                   0.0268793601,
                                   0.0183781462,
                                   0.0124479559,
                                   0.00833450895,
                                   0.0055,
                                   0.00356199749,
                                   0.0022493653,
                                   0.00137051364,
                                   0.000790569415,
                                   0.000414990398,
                                   0.000177827941,
                                   3.33380358e-05,
                                   2.5e-05,
                                   1.87473552e-05,
                                   1.40585331e-05,
                                   1.05424126e-05,
                                   7.90569415e-06,
                                   5.92843426e-06,
                                   4.44569853e-06,
                                   3.33380358e-06};
const std::vector<double> kLlama3 = {1,
                                     0.440366603,
                                     0.193922745,
                                     0.0853971003,
                                     0.0376060309,
                                     0.0165604401,
                                     0.00729266474,
                                     0.00321144599,
                                     0.000524846161,
                                     7.78465527e-05,
                                     3.4281022e-05,
                                     1.50962172e-05,
                                     6.64786987e-06,
                                     2.92749987e-06,
                                     1.28917317e-06,
                                     5.6770881e-07};

TEST(Rope, FrequenciesOfEveryScaling) {
  expect_near(rope_frequencies({.dims = 8, .base = 10000}), {1, 0.1, 0.01, 0.001});
  expect_near(rope_frequencies({.dims = 8, .base = 10000, .scaling = RopeScaling::linear, .factor = 4}),
              {0.25, 0.025, 0.0025, 0.00025});
  expect_near(rope_frequencies({.dims = 64,
                                .base = 10000,
                                .scaling = RopeScaling::yarn,
                                .factor = 40,
                                .original_context = 4096,
                                .beta_fast = 32,
                                .beta_slow = 1}),
              kYarn);
  expect_near(rope_frequencies({.dims = 32,
                                .base = 500000,
                                .scaling = RopeScaling::llama3,
                                .factor = 8,
                                .original_context = 8192,
                                .low_frequency_factor = 1,
                                .high_frequency_factor = 4}),
              kLlama3);
  const std::vector<float> divisors = {1, 2, 4, 8};
  expect_near(rope_frequencies({.dims = 8, .base = 10000, .divisors = divisors}), {1, 0.05, 0.0025, 0.000125});
  EXPECT_FLOAT_EQ(yarn_magnitude(40), 1.3688879F);
  EXPECT_FLOAT_EQ(yarn_magnitude(40, 0.707), 1.2608038F);
  EXPECT_EQ(yarn_magnitude(1), 1.0F);
}

Json llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 32},
          {"vocab_size", 100},
          {"rms_norm_eps", 1e-5},
          {"max_position_embeddings", 131072},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", false},
          {"rope_theta", 500000.0}};
}

TEST(Rope, ScalingsAsHuggingFaceConfigsHaveThem) {
  Json config = llama();
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  auto parsed = parse_config(config.dump());
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  expect_near(parsed->rope.frequencies, kLlama3);
  EXPECT_EQ(parsed->rope.magnitude, 1.0F);

  config["rope_theta"] = 10000.0;
  config["head_dim"] = 64;
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 40.0}, {"original_max_position_embeddings", 4096}};
  parsed = parse_config(config.dump());
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  expect_near(parsed->rope.frequencies, kYarn);
  EXPECT_FLOAT_EQ(parsed->rope.magnitude, 1.3688879F);
  config["rope_scaling"]["attention_factor"] = 1.25;
  EXPECT_FLOAT_EQ(parse_config(config.dump())->rope.magnitude, 1.25F);

  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  parsed = parse_config(config.dump());
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_FLOAT_EQ(parsed->rope.frequencies.front(), 0.5F);
  config["rope_scaling"] = {{"type", "spiral"}, {"factor", 2.0}};
  parsed = parse_config(config.dump());
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message.find("spiral"), std::string::npos) << parsed.error().message;
}

TEST(Rope, WhatConfigsSayOfFormAndExtent) {
  Json config = llama();
  config["rope_theta"] = 10000.0;
  config["head_dim"] = 16;
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0},    {"original_max_position_embeddings", 2048},
                            {"beta_fast", 8.0},    {"beta_slow", 2.0}, {"truncate", false}};
  auto parsed = parse_config(config.dump());
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  // 8 turns in the original context at pair 3.2201202 of the 8, two at 4.4242402: so only pair 4 is between.
  expect_near(parsed->rope.frequencies,
              {1, 0.316227766, 0.1, 0.0316227766, 0.0051424288, 0.00316227766 / 4, 0.001 / 4, 0.000316227766 / 4});
  config["rope_scaling"].erase("truncate");  // from pair 3 to pair 5
  parsed = parse_config(config.dump());
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_NEAR(parsed->rope.frequencies[4], 0.01 * (0.5 + 0.5 / 4), 1e-8);

  for (const bool inside : {false, true}) {
    Json partial = config;
    (inside ? partial["rope_scaling"] : partial)["partial_rotary_factor"] = 0.5;
    const auto refused = parse_config(partial.dump());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::unsupported);
    EXPECT_NE(refused.error().message.find("partial_rotary_factor is 0.5"), std::string::npos)
        << refused.error().message;
  }
  config["partial_rotary_factor"] = 1.0;
  EXPECT_TRUE(parse_config(config.dump()));
}

// A turn keeps lengths and depends, between two vectors, only on how far they are apart.
TEST(Rope, PairsTurnByPosition) {
  for (const RopeOrder order : {RopeOrder::halves, RopeOrder::pairs}) {
    RopeConfig rope;
    rope.order = order;
    rope.frequencies = {1, 0.1F};
    Rotation rotation(rope);
    const auto turned = [&](std::vector<float> x, std::size_t position) {
      rotation.at(position);
      rotation.apply(scalar_kernels(), x.data());
      return x;
    };
    const auto first = turned({1, 0, 0, 0}, 3);
    const std::size_t partner = order == RopeOrder::halves ? 2 : 1;
    EXPECT_NEAR(first[0], std::cos(3.0), 1e-6);
    EXPECT_NEAR(first[partner], std::sin(3.0), 1e-6);
    const std::vector<float> q = {0.3F, -1, 2, 0.5F}, k = {1, 0.7F, -0.2F, 0.1F};
    const auto score = [&](std::size_t i, std::size_t j) {
      const auto a = turned(q, i), b = turned(k, j);
      return static_cast<double>(a[0]) * b[0] + static_cast<double>(a[1]) * b[1] + static_cast<double>(a[2]) * b[2] +
             static_cast<double>(a[3]) * b[3];
    };
    EXPECT_NEAR(score(7, 2), score(1005, 1000), 1e-4);
    EXPECT_GT(std::abs(score(7, 2) - score(7, 3)), 1e-3);
  }
}

}  // namespace
}  // namespace myriad
