#include "model/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

namespace myriad {
namespace {

using Json = nlohmann::json;

Json load(const std::string& directory) {
  std::ifstream in(std::string(MYRIAD_SOURCE_DIR) + "/" + directory + "/config.json");
  return Json::parse(in);
}

TEST(Config, KimiK3) {
  const auto config = parse_config(load("tests/data/random-k3").dump());
  ASSERT_TRUE(config) << config.error().message;
  const ModelConfig& c = *config;
  EXPECT_EQ(c.architecture, "KimiK3ForConditionalGeneration");
  EXPECT_EQ(c.hidden, 64U);
  EXPECT_EQ(c.vocab, 256U);
  ASSERT_EQ(c.layers(), 9U);
  using enum AttentionKind;
  EXPECT_EQ(c.attention, (std::vector{kda, kda, kda, mla, kda, kda, kda, mla, mla}));
  EXPECT_EQ(c.layers_of(kda), 6U);
  EXPECT_EQ(c.kda.heads, 4U);
  EXPECT_EQ(c.kda.head_dim, 16U);
  EXPECT_EQ(c.kda.width(), 64U);
  EXPECT_EQ(c.kda.conv_taps, 4U);
  EXPECT_EQ(c.kda.gate_lower_bound, -5.0F);
  EXPECT_TRUE(c.kda.full_rank_gate);
  EXPECT_EQ(c.mla.q_lora_rank, 32U);
  EXPECT_EQ(c.mla.qk_dim(), 24U);
  EXPECT_EQ(c.mla.cache_dim(), 40U);
  EXPECT_EQ(c.mla.value_width(), 64U);
  EXPECT_TRUE(c.mla.output_gate);
  EXPECT_EQ(c.dense_layers, 1U);
  EXPECT_FALSE(c.is_moe(0));
  EXPECT_TRUE(c.is_moe(1));
  EXPECT_EQ(c.intermediate, 96U);
  EXPECT_EQ(c.moe.experts, 8U);
  EXPECT_EQ(c.moe.top_k, 3U);
  EXPECT_EQ(c.moe.shared_intermediate(), 64U);
  EXPECT_EQ(c.moe.latent, 32U);
  EXPECT_EQ(c.expert_width(), 32U);
  EXPECT_TRUE(c.moe.latent_norm);
  EXPECT_TRUE(c.moe.renormalize);
  EXPECT_EQ(c.moe.scaling_factor, 1.0F);
  EXPECT_EQ(c.expert_format, ExpertFormat::mxfp4);
  EXPECT_EQ(c.trunk_dtype, DType::bf16);
  EXPECT_EQ(c.activation.kind, ActivationKind::situ);
  EXPECT_EQ(c.activation.beta, 4.0F);
  EXPECT_EQ(c.activation.linear_beta, 25.0F);
  EXPECT_EQ(c.attn_res_block_size, 4U);
  EXPECT_EQ(c.rms_norm_eps, 1e-5F);
  EXPECT_EQ(c.lora_norm_eps, 1e-6F);
  EXPECT_EQ(c.max_positions, 4096U);
  EXPECT_EQ(c.bos_token, 1U);
  EXPECT_EQ(c.eos_tokens, std::vector<std::uint32_t>{2});
  EXPECT_EQ(c.pad_token, 0U);
}

TEST(Config, KimiLinear) {
  const auto config = parse_config(load("tests/data/random-kimi-linear").dump());
  ASSERT_TRUE(config) << config.error().message;
  const ModelConfig& c = *config;
  EXPECT_EQ(c.architecture, "KimiLinearForCausalLM");
  EXPECT_EQ(c.layers_of(AttentionKind::mla), 2U);
  EXPECT_FALSE(c.kda.gate_lower_bound.has_value());
  EXPECT_FALSE(c.kda.full_rank_gate);
  EXPECT_EQ(c.mla.q_lora_rank, 0U);
  EXPECT_FALSE(c.mla.output_gate);
  EXPECT_EQ(c.moe.latent, 0U);
  EXPECT_FALSE(c.moe.latent_norm);
  EXPECT_EQ(c.expert_width(), c.hidden);
  EXPECT_EQ(c.expert_format, ExpertFormat::plain);
  EXPECT_EQ(c.activation.kind, ActivationKind::silu);
  EXPECT_EQ(c.attn_res_block_size, 0U);
  EXPECT_FLOAT_EQ(c.moe.scaling_factor, 2.446F);
  EXPECT_EQ(c.max_positions, 4096U);  // from model_max_length
}

// One change to a good K3 config each; the error has this code and names these words.
struct Bad {
  const char* what;
  std::function<void(Json& top, Json& text)> change;
  Code code;
  std::vector<const char*> words;
};

TEST(Config, EveryFaultIsNamed) {
  const std::vector<Bad> cases = {
      {"missing",
       [](Json&, Json& t) { t.erase("hidden_size"); },
       Code::corrupt,
       {"text_config.hidden_size", "missing"}},
      {"null", [](Json&, Json& t) { t["vocab_size"] = nullptr; }, Code::corrupt, {"vocab_size", "null"}},
      {"string", [](Json&, Json& t) { t["hidden_size"] = "64"; }, Code::corrupt, {"hidden_size", "\"64\""}},
      {"float", [](Json&, Json& t) { t["hidden_size"] = 64.5; }, Code::corrupt, {"hidden_size", "64.5"}},
      {"zero", [](Json&, Json& t) { t["hidden_size"] = 0; }, Code::corrupt, {"hidden_size is 0", "from 1"}},
      {"negative", [](Json&, Json& t) { t["vocab_size"] = -1; }, Code::corrupt, {"vocab_size is -1"}},
      {"huge", [](Json&, Json& t) { t["hidden_size"] = std::uint64_t{1} << 40; }, Code::limit, {"hidden_size"}},
      {"2^64-1",
       [](Json&, Json& t) { t["num_experts"] = std::numeric_limits<std::uint64_t>::max(); },
       Code::limit,
       {"num_experts"}},
      {"many layers", [](Json&, Json& t) { t["num_hidden_layers"] = 1000000000; }, Code::limit, {"num_hidden_layers"}},
      {"wide heads",
       [](Json&, Json& t) {
         t["linear_attn_config"]["num_heads"] = 16384;
         t["linear_attn_config"]["head_dim"] = 16384;
       },
       Code::limit,
       {"num_heads", "head_dim"}},
      {"wide MLA heads",
       [](Json&, Json& t) {
         t["num_attention_heads"] = t["num_key_value_heads"] = 16384;
         t["v_head_dim"] = 16384;
       },
       Code::limit,
       {"num_attention_heads"}},
      {"too many parameters",
       [](Json&, Json& t) {
         t["num_experts"] = 65535;
         t["moe_intermediate_size"] = 524288;
         t["routed_expert_hidden_size"] = 1048576;
         t["num_shared_experts"] = 1;
       },
       Code::limit,
       {"parameters"}},
      {"layer in both",
       [](Json&, Json& t) { t["linear_attn_config"]["kda_layers"].push_back(4); },
       Code::corrupt,
       {"layer 4", "twice"}},
      {"layer in none",
       [](Json&, Json& t) {
         t["linear_attn_config"]["kda_layers"] = {1, 2, 3, 5, 6};
       },
       Code::corrupt,
       {"layer 7", "neither"}},
      {"layer 0",
       [](Json&, Json& t) { t["linear_attn_config"]["kda_layers"][0] = 0; },
       Code::corrupt,
       {"kda_layers holds 0"}},
      {"layer 10",
       [](Json&, Json& t) { t["linear_attn_config"]["full_attn_layers"][2] = 10; },
       Code::corrupt,
       {"full_attn_layers holds 10"}},
      {"no linear attention",
       [](Json&, Json& t) { t.erase("linear_attn_config"); },
       Code::corrupt,
       {"linear_attn_config"}},
      {"top_k",
       [](Json&, Json& t) { t["num_experts_per_token"] = 9; },
       Code::corrupt,
       {"num_experts_per_token is 9", "num_experts = 8"}},
      {"dense layers",
       [](Json&, Json& t) { t["first_k_dense_replace"] = 10; },
       Code::limit,
       {"first_k_dense_replace is 10"}},
      {"epsilon", [](Json&, Json& t) { t["rms_norm_eps"] = 0; }, Code::corrupt, {"rms_norm_eps"}},
      {"scaling", [](Json&, Json& t) { t["routed_scaling_factor"] = -1; }, Code::corrupt, {"routed_scaling_factor"}},
      {"decay bound",
       [](Json&, Json& t) { t["linear_attn_config"]["gate_lower_bound"] = 0; },
       Code::corrupt,
       {"gate_lower_bound"}},
      {"flag",
       [](Json&, Json& t) { t["mla_use_output_gate"] = 1; },
       Code::corrupt,
       {"mla_use_output_gate", "true or false"}},
      {"eos", [](Json&, Json& t) { t["eos_token_id"] = 256; }, Code::corrupt, {"eos_token_id", "vocab_size = 256"}},
      {"MXFP4 width",
       [](Json&, Json& t) { t["routed_expert_hidden_size"] = 48; },
       Code::corrupt,
       {"routed_expert_hidden_size is 48", "32"}},
      {"situ without beta",
       [](Json&, Json& t) { t.erase("activation_situ_beta"); },
       Code::corrupt,
       {"activation_situ_beta"}},
      // features refused by name
      {"model type",
       [](Json& top, Json&) { top["model_type"] = "gpt_neox"; },
       Code::unsupported,
       {"gpt_neox", "Kimi K3", "Kimi Linear"}},
      {"no model type",
       [](Json& top, Json&) { top.erase("model_type"); },
       Code::unsupported,
       {"model_type", "Kimi K3"}},
      {"inner type",
       [](Json&, Json& t) { t["model_type"] = "deepseek"; },
       Code::unsupported,
       {"text_config.model_type", "deepseek"}},
      {"no text config", [](Json& top, Json&) { top.erase("text_config"); }, Code::corrupt, {"text_config"}},
      {"router",
       [](Json&, Json& t) { t["moe_router_activation_func"] = "softmax"; },
       Code::unsupported,
       {"moe_router_activation_func", "softmax"}},
      {"layer freq", [](Json&, Json& t) { t["moe_layer_freq"] = 2; }, Code::unsupported, {"moe_layer_freq is 2"}},
      {"RoPE", [](Json&, Json& t) { t["mla_use_nope"] = false; }, Code::unsupported, {"mla_use_nope"}},
      {"RoPE by default", [](Json&, Json& t) { t.erase("mla_use_nope"); }, Code::unsupported, {"mla_use_nope"}},
      {"groups", [](Json&, Json& t) { t["num_expert_group"] = 4; }, Code::unsupported, {"num_expert_group is 4"}},
      {"method", [](Json&, Json& t) { t["topk_method"] = "greedy"; }, Code::unsupported, {"topk_method", "greedy"}},
      {"tied", [](Json&, Json& t) { t["tie_word_embeddings"] = true; }, Code::unsupported, {"tie_word_embeddings"}},
      {"tied at the top",
       [](Json& top, Json&) { top["tie_word_embeddings"] = true; },
       Code::unsupported,
       {"tie_word_embeddings"}},
      {"kv heads",
       [](Json&, Json& t) { t["num_key_value_heads"] = 2; },
       Code::unsupported,
       {"num_key_value_heads is 2"}},
      {"eight bits",
       [](Json&, Json& t) { t["dtype"] = "float8"; },
       Code::unsupported,
       {"text_config.dtype", "float8", "bfloat16"}},
      {"activation", [](Json&, Json& t) { t["hidden_act"] = "gelu"; }, Code::unsupported, {"hidden_act", "gelu"}},
      {"quantisation",
       [](Json&, Json& t) { t["quantization_config"]["format"] = "nvfp4-pack-quantized"; },
       Code::unsupported,
       {"format", "nvfp4", "mxfp4"}},
      {"group size",
       [](Json&, Json& t) { t["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 16; },
       Code::unsupported,
       {"group_size is 16"}},
  };
  const Json good = load("tests/data/random-k3");
  for (const Bad& bad : cases) {
    Json top = good;
    Json text = top["text_config"];
    bad.change(top, text);
    if (top.contains("text_config")) top["text_config"] = text;
    const auto config = parse_config(top.dump());
    ASSERT_FALSE(config) << bad.what;
    EXPECT_EQ(config.error().code, bad.code) << bad.what << ": " << config.error().message;
    for (const char* word : bad.words)
      EXPECT_NE(config.error().message.find(word), std::string::npos) << bad.what << ": " << config.error().message;
  }
}

TEST(Config, OptionalFields) {
  Json top = load("tests/data/random-k3");
  Json& text = top["text_config"];
  text["num_nextn_predict_layers"] = 1;
  text["eos_token_id"] = {2, 5};
  text["dtype"] = "float32";
  text["linear_attn_config"]["gate_lower_bound"] = nullptr;
  text["q_lora_rank"] = nullptr;
  text["attn_res_block_size"] = nullptr;
  text.erase("bos_token_id");
  top["bos_token_id"] = 7;
  top["quantization_config"] = text["quantization_config"];
  text.erase("quantization_config");
  const auto config = parse_config(top.dump());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->nextn_predict_layers, 1U);
  EXPECT_EQ(config->trunk_dtype, DType::f32);
  EXPECT_EQ(config->eos_tokens, (std::vector<std::uint32_t>{2, 5}));
  EXPECT_FALSE(config->kda.gate_lower_bound.has_value());
  EXPECT_EQ(config->mla.q_lora_rank, 0U);
  EXPECT_EQ(config->attn_res_block_size, 0U);
  EXPECT_EQ(config->bos_token, 7U);
  EXPECT_EQ(config->expert_format, ExpertFormat::mxfp4);
}

TEST(Config, SlidingWindowsThatAreInUse) {
  const Json mistral = {
      {"model_type", "mistral"},  {"hidden_size", 64}, {"intermediate_size", 128}, {"num_hidden_layers", 2},
      {"num_attention_heads", 2}, {"vocab_size", 100}, {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 32768},
      {"sliding_window", 4096}};
  const auto window = [](Json json, const char* name, const Json& value) {
    if (name != nullptr) json[name] = value;
    const auto config = parse_config(json.dump());
    EXPECT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->max_positions, 32768U);
    EXPECT_EQ(parse_config(config_to_json(*config))->attention_window, config->attention_window);
    return config->attention_window;
  };
  EXPECT_EQ(window(mistral, nullptr, {}), 4096U);
  EXPECT_EQ(window(mistral, "sliding_window", nullptr), 0U);
  EXPECT_EQ(window(mistral, "model_type", "llama"), 0U);
  Json qwen2 = mistral;
  qwen2["model_type"] = "qwen2";
  EXPECT_EQ(window(qwen2, nullptr, {}), 0U);
  EXPECT_EQ(window(qwen2, "use_sliding_window", true), 4096U);
  EXPECT_EQ(window(mistral, "use_sliding_window", false), 0U);

  const ModelConfig config = parse_config(mistral.dump()).value();
  EXPECT_TRUE(check_window(config, 4096));
  const Status beyond = check_window(config, 4097);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Code::invalid_argument);
  for (const char* word : {"4097", "mistral", "sliding window of 4096", "--context"})
    EXPECT_NE(beyond.error().message.find(word), std::string::npos) << beyond.error().message;
}

TEST(Config, HostileText) {
  const auto code = [](std::string_view text) {
    const auto config = parse_config(text);
    return config ? Code::internal : config.error().code;
  };
  EXPECT_EQ(code(""), Code::corrupt);
  EXPECT_EQ(code("[]"), Code::corrupt);
  EXPECT_EQ(code("null"), Code::corrupt);
  EXPECT_EQ(code("{\"model_type\": \"kimi_k3\""), Code::corrupt);
  EXPECT_EQ(code("{\"model_type\": \"kimi_k3\", \"text_config\": [1]}"), Code::corrupt);
  EXPECT_EQ(code("{} {}"), Code::corrupt);
  EXPECT_EQ(code("{\"a\": \"\xff\"}"), Code::corrupt);
  EXPECT_EQ(code("{\"model_type\": 1e999}"), Code::corrupt);
  EXPECT_EQ(code(std::string(1000000, '[')), Code::limit);
  EXPECT_EQ(code(std::string(kMaxConfigBytes + 1, ' ')), Code::limit);
  // Cut anywhere, a config is refused, never half read.
  const std::string good = load("tests/data/random-k3").dump();
  for (std::size_t n = 0; n < good.size(); n += 7)
    EXPECT_EQ(code(std::string_view(good).substr(0, n)), Code::corrupt) << n;
}

}  // namespace
}  // namespace myriad
