#include "model/inspect.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace myriad {
namespace {

// The configuration of the released Kimi K3 with as many layers (spec §1.1).
ModelConfig kimi_k3() {
  ModelConfig c;
  c.hidden = 7168;
  c.vocab = 163840;
  for (std::size_t layer = 1; layer <= 93; ++layer)
    c.attention.push_back(layer % 4 == 0 || layer == 93 ? AttentionKind::mla : AttentionKind::kda);
  c.kda = {.heads = 96, .head_dim = 128, .conv_taps = 4, .gate_lower_bound = -5.0F, .full_rank_gate = true};
  c.mla = {.heads = 96,
           .q_lora_rank = 1536,
           .kv_lora_rank = 512,
           .qk_nope_dim = 128,
           .qk_rope_dim = 64,
           .v_dim = 128,
           .output_gate = true};
  c.max_positions = 1048576;
  return c;
}

TEST(Inspect, StateOfOneSequence) {  // spec §4
  ModelConfig c = kimi_k3();
  StateBytes s = state_bytes(c);
  EXPECT_EQ(s.kda_state, 434110464U);
  EXPECT_EQ(s.conv_history, 30523392U);
  EXPECT_EQ(s.fixed(), 464633856U);
  EXPECT_EQ(s.mla_bytes_per_token, 27648U);
  c.attention.resize(27, AttentionKind::mla);
  for (std::size_t layer = 1; layer <= 27; ++layer)
    c.attention[layer - 1] = layer % 4 == 0 || layer == 27 ? AttentionKind::mla : AttentionKind::kda;
  c.kda.heads = 32;
  s = state_bytes(c);
  EXPECT_EQ(s.kda_state, 41943040U);
  EXPECT_EQ(s.conv_history, 2949120U);
  EXPECT_EQ(s.mla_bytes_per_token, 8064U);
}

TEST(Inspect, Categories) {
  const ModelConfig c = kimi_k3();
  const auto category = [&](std::string_view name) { return category_name(category_of(name, c)); };
  EXPECT_EQ(category("model.layers.0.self_attn.g_proj.weight"), "KDA attention");
  EXPECT_EQ(category("model.layers.3.self_attn.g_proj.weight"), "MLA attention");
  EXPECT_EQ(category("model.layers.91.self_attn.o_proj.weight"), "MLA attention");
  EXPECT_EQ(category("model.layers.92.self_attn.o_proj.weight"), "MLA attention");
  EXPECT_EQ(category("model.layers.5.input_layernorm.weight"), "layer norms");
  EXPECT_EQ(category("model.layers.5.mlp_res_proj.weight"), "AttnRes per layer");
  EXPECT_EQ(category("model.layers.5.self_attention_res_norm.weight"), "AttnRes per layer");
  EXPECT_EQ(category("model.layers.5.block_sparse_moe.gate.e_score_correction_bias"), "router + bias");
  EXPECT_EQ(category("model.layers.5.block_sparse_moe.routed_expert_norm.weight"), "latent down/up + norm");
  EXPECT_EQ(category("model.layers.5.block_sparse_moe.shared_experts.up_proj.weight"), "shared experts");
  EXPECT_EQ(category("model.layers.5.block_sparse_moe.experts.895.w2.weight_scale"), "routed experts");
  EXPECT_EQ(category("model.layers.0.mlp.up_proj.weight"), "dense FFN");
  EXPECT_EQ(category("model.embed_tokens.weight"), "embed_tokens");
  EXPECT_EQ(category("lm_head.weight"), "lm_head");
  EXPECT_EQ(category("model.norm.weight"), "final norm, output AttnRes");
  EXPECT_EQ(category("model.output_attn_res_proj.weight"), "final norm, output AttnRes");
  EXPECT_EQ(category("vision_tower.encoder.blocks.0.wo.weight"), "vision tower");
  EXPECT_EQ(category("mm_projector.proj.0.weight"), "projector");
  for (const char* name :
       {"", "model.layers.", "model.layers.93.self_attn.q_proj.weight", "model.layers.x", "model.layers.1",
        "model.layers.99999999999999999999999.mlp.x", "model.layers.1.mystery", "model.layers.1.block_sparse_moe."})
    EXPECT_EQ(category(name), "other") << name;
}

TEST(Inspect, SmallModel) {
  const auto checkpoint = Checkpoint::open(std::string(MYRIAD_SOURCE_DIR) + "/tests/data/random-k3");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const Inventory inventory = take_inventory(*checkpoint);
  const Tally total = inventory.total();
  EXPECT_EQ(total.tensors, 618U);
  EXPECT_EQ(total.bytes, 902272U);
  const auto of = [&](Category c) { return inventory.categories[static_cast<std::size_t>(c)]; };
  EXPECT_EQ(of(Category::routed_experts).tensors, 8U * 8 * 6);
  EXPECT_EQ(of(Category::routed_experts).parameters, 8U * 8 * 3 * 32 * 32);
  EXPECT_EQ(of(Category::routed_experts).bytes, 8U * 8 * 3 * 32 * 17);
  EXPECT_EQ(of(Category::kda_attention).tensors, 6U * 14);
  EXPECT_EQ(of(Category::mla_attention).tensors, 3U * 8);
  EXPECT_EQ(of(Category::embedding).bytes, 256U * 64 * 2);
  EXPECT_EQ(of(Category::other).tensors, 0U);
  EXPECT_EQ(inventory.trunk().tensors + 8 * 8 * 6 + 5, total.tensors);
  EXPECT_EQ(inventory.active_parameters(), total.parameters - 256 * 64 - 8 * 5 * 3 * 32 * 32);

  const std::string text = inventory_text(inventory);
  EXPECT_NE(text.find("902,272"), std::string::npos) << text;
  EXPECT_NE(text.find("KimiK3ForConditionalGeneration"), std::string::npos);
  const auto json = nlohmann::json::parse(inventory_json(inventory));
  EXPECT_EQ(json["total"]["tensors"], 618);
  EXPECT_EQ(json["total"]["bytes"], 902272);
  EXPECT_EQ(json["types"]["U8"]["tensors"], 384);
  EXPECT_EQ(json["categories"]["routed_experts"]["parameters"], 8 * 8 * 3 * 32 * 32);
  EXPECT_EQ(json["state"]["fixed"], inventory.state.fixed());
  EXPECT_EQ(json["attention"].size(), 9U);
}

}  // namespace
}  // namespace myriad
