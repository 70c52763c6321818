// The list of everything that a config demands of a checkpoint (spec §2.2, §2.5).
#include <array>
#include <vector>

#include "model/checkpoint.h"

namespace myriad {
namespace {

std::string layer_name(std::size_t layer, std::string_view rest) {
  return fmt::format("model.layers.{}.{}", layer, rest);
}

}  // namespace

Status Checkpoint::verify_complete() const {
  const ModelConfig& c = config_;
  const auto vector = [&](const std::string& name, std::size_t n) -> Status {
    MYRIAD_TRY_STATUS(require_vector(name, n));
    return {};
  };
  const auto weight = [&](const std::string& name, std::size_t rows, std::size_t cols) -> Status {
    MYRIAD_TRY_STATUS(matrix(name, rows, cols));
    return {};
  };
  const auto ffn = [&](const std::string& name, std::size_t width, std::size_t inner,
                       std::array<const char*, 3> gate_up_down) -> Status {
    MYRIAD_TRY_STATUS(weight(name + gate_up_down[0], inner, width));
    MYRIAD_TRY_STATUS(weight(name + gate_up_down[1], inner, width));
    return weight(name + gate_up_down[2], width, inner);
  };
  const auto kda = [&](std::size_t layer) -> Status {
    const std::string p = layer_name(layer, "self_attn.");
    for (const char* name : {"q_proj", "k_proj", "v_proj"})
      MYRIAD_TRY_STATUS(weight(p + name, c.kda.width(), c.hidden));
    for (const char stream : {'q', 'k', 'v'}) MYRIAD_TRY_STATUS(require_conv(layer, stream));
    MYRIAD_TRY_STATUS(require_a_log(layer));
    MYRIAD_TRY_STATUS(vector(p + "dt_bias", c.kda.width()));
    MYRIAD_TRY_STATUS(vector(p + "o_norm.weight", c.kda.head_dim));
    MYRIAD_TRY_STATUS(weight(p + "f_a_proj", c.kda.head_dim, c.hidden));
    MYRIAD_TRY_STATUS(weight(p + "f_b_proj", c.kda.width(), c.kda.head_dim));
    MYRIAD_TRY_STATUS(weight(p + "b_proj", c.kda.heads, c.hidden));
    if (c.kda.full_rank_gate) {
      MYRIAD_TRY_STATUS(weight(p + "g_proj", c.kda.width(), c.hidden));
    } else {
      MYRIAD_TRY_STATUS(weight(p + "g_a_proj", c.kda.head_dim, c.hidden));
      MYRIAD_TRY_STATUS(weight(p + "g_b_proj", c.kda.width(), c.kda.head_dim));
    }
    return weight(p + "o_proj", c.hidden, c.kda.width());
  };
  const auto mla = [&](std::size_t layer) -> Status {
    const std::string p = layer_name(layer, "self_attn.");
    if (c.mla.q_lora_rank != 0) {
      MYRIAD_TRY_STATUS(weight(p + "q_a_proj", c.mla.q_lora_rank, c.hidden));
      MYRIAD_TRY_STATUS(vector(p + "q_a_layernorm.weight", c.mla.q_lora_rank));
      MYRIAD_TRY_STATUS(weight(p + "q_b_proj", c.mla.heads * c.mla.qk_dim(), c.mla.q_lora_rank));
    } else {
      MYRIAD_TRY_STATUS(weight(p + "q_proj", c.mla.heads * c.mla.qk_dim(), c.hidden));
    }
    MYRIAD_TRY_STATUS(weight(p + "kv_a_proj_with_mqa", c.mla.cache_dim(), c.hidden));
    MYRIAD_TRY_STATUS(vector(p + "kv_a_layernorm.weight", c.mla.kv_lora_rank));
    MYRIAD_TRY_STATUS(weight(p + "kv_b_proj", c.mla.heads * (c.mla.qk_nope_dim + c.mla.v_dim), c.mla.kv_lora_rank));
    if (c.mla.output_gate) MYRIAD_TRY_STATUS(weight(p + "g_proj", c.mla.value_width(), c.hidden));
    return weight(p + "o_proj", c.hidden, c.mla.value_width());
  };
  const auto moe = [&](std::size_t layer) -> Status {
    const std::string p = layer_name(layer, "block_sparse_moe.");
    MYRIAD_TRY_STATUS(weight(p + "gate", c.moe.experts, c.hidden));
    MYRIAD_TRY_STATUS(vector(p + "gate.e_score_correction_bias", c.moe.experts));
    if (c.moe.latent != 0) {
      MYRIAD_TRY_STATUS(weight(p + "routed_expert_down_proj", c.moe.latent, c.hidden));
      MYRIAD_TRY_STATUS(weight(p + "routed_expert_up_proj", c.hidden, c.moe.latent));
      if (c.moe.latent_norm) MYRIAD_TRY_STATUS(vector(p + "routed_expert_norm.weight", c.moe.latent));
    }
    if (c.moe.shared_experts != 0)
      MYRIAD_TRY_STATUS(
          ffn(p + "shared_experts.", c.hidden, c.moe.shared_intermediate(), {"gate_proj", "up_proj", "down_proj"}));
    for (std::size_t e = 0; e < c.moe.experts; ++e)
      MYRIAD_TRY_STATUS(
          ffn(fmt::format("{}experts.{}.", p, e), c.expert_width(), c.moe.intermediate, {"w1", "w3", "w2"}));
    return {};
  };

  MYRIAD_TRY_STATUS(weight("model.embed_tokens", c.vocab, c.hidden));
  MYRIAD_TRY_STATUS(weight("lm_head", c.vocab, c.hidden));
  MYRIAD_TRY_STATUS(vector("model.norm.weight", c.hidden));
  std::vector<const char*> layer_vectors = {"input_layernorm.weight", "post_attention_layernorm.weight"};
  if (c.attn_res_block_size != 0) {
    MYRIAD_TRY_STATUS(vector("model.output_attn_res_norm.weight", c.hidden));
    MYRIAD_TRY_STATUS(vector("model.output_attn_res_proj.weight", c.hidden));
    layer_vectors.insert(layer_vectors.end(), {"self_attention_res_norm.weight", "self_attention_res_proj.weight",
                                               "mlp_res_norm.weight", "mlp_res_proj.weight"});
  }
  for (std::size_t layer = 0; layer < c.layers(); ++layer) {
    for (const char* name : layer_vectors) MYRIAD_TRY_STATUS(vector(layer_name(layer, name), c.hidden));
    MYRIAD_TRY_STATUS(c.attention[layer] == AttentionKind::kda ? kda(layer) : mla(layer));
    if (c.is_moe(layer)) {
      MYRIAD_TRY_STATUS(moe(layer));
    } else {
      MYRIAD_TRY_STATUS(
          ffn(layer_name(layer, "mlp."), c.hidden, c.intermediate, {"gate_proj", "up_proj", "down_proj"}));
    }
  }
  return {};
}

}  // namespace myriad
