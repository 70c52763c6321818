#include "model/hf_names.h"

#include <fmt/core.h>

namespace myriad {
namespace {

std::string layer_name(OpRef op, std::string_view rest) {
  return fmt::format("model.layers.{}.{}", op.layer, rest);
}

std::string attention(OpRef op, std::string_view rest) {
  return layer_name(op, fmt::format("self_attn.{}", rest));
}

std::string moe(OpRef op, std::string_view rest, const HfNaming& naming) {
  return layer_name(op, fmt::format("{}.{}", naming.sparse_moe ? "block_sparse_moe" : "mlp", rest));
}

std::string expert_name(OpRef op, MatrixRole role, const HfNaming& naming) {
  const std::string stem = moe(op, fmt::format("experts.{}.", op.index), naming);
  switch (role) {
    case MatrixRole::gate:
      return stem + (naming.long_expert_names ? "gate_proj" : "w1");
    case MatrixRole::up:
      return stem + (naming.long_expert_names ? "up_proj" : "w3");
    default:
      return stem + (naming.long_expert_names ? "down_proj" : "w2");
  }
}

}  // namespace

std::string hf_matrix_name(const ModelConfig& config, OpRef op, MatrixRole role, const HfNaming& naming) {
  const auto below = [&](std::string_view rest) {
    return config.is_moe(op.layer) ? moe(op, rest, naming) : layer_name(op, fmt::format("mlp.{}", rest));
  };
  const bool gate = role == MatrixRole::gate;
  switch (op.role) {
    case OpRole::embed:
      return "model.embed_tokens";
    case OpRole::head:
      return config.tied_embeddings ? "model.embed_tokens" : "lm_head";
    case OpRole::attn_q_a:
      return attention(op, "q_a_proj");
    case OpRole::attn_kv_a:
      return attention(op, "kv_a_proj_with_mqa");
    case OpRole::attn_o:
      return attention(op, "o_proj");
    case OpRole::router:
      return below("gate");
    case OpRole::latent_down:
      return below("routed_expert_down_proj");
    case OpRole::latent_up:
      return below("routed_expert_up_proj");
    case OpRole::shared_up:
      return below(gate ? "shared_experts.gate_proj" : "shared_experts.up_proj");
    case OpRole::shared_down:
      return below("shared_experts.down_proj");
    case OpRole::dense_up:
      return below(gate ? "gate_proj" : "up_proj");
    case OpRole::dense_down:
      return below("down_proj");
    case OpRole::expert:
      return expert_name(op, role, naming);
    default:
      break;
  }
  switch (role) {
    case MatrixRole::q:
      return attention(
          op, config.attention[op.layer] == AttentionKind::mla && config.mla.q_lora_rank != 0 ? "q_b_proj" : "q_proj");
    case MatrixRole::k:
      return attention(op, "k_proj");
    case MatrixRole::v:
      return attention(op, "v_proj");
    case MatrixRole::f_a:
      return attention(op, "f_a_proj");
    case MatrixRole::f_b:
      return attention(op, "f_b_proj");
    case MatrixRole::b:
      return attention(op, "b_proj");
    case MatrixRole::g:
      return attention(op, "g_proj");
    case MatrixRole::g_a:
      return attention(op, "g_a_proj");
    case MatrixRole::g_b:
      return attention(op, "g_b_proj");
    default:
      return attention(op, "kv_b_proj");
  }
}

std::string hf_vector_name(OpRef op, VectorRole role, const HfNaming& naming) {
  switch (role) {
    case VectorRole::norm:
      if (op.role == OpRole::final_lead) return "model.norm.weight";
      return layer_name(op,
                        op.role == OpRole::attn_lead ? "input_layernorm.weight" : "post_attention_layernorm.weight");
    case VectorRole::res_score:
      if (op.role == OpRole::final_lead) return "model.output_attn_res";
      return layer_name(op, op.role == OpRole::attn_lead ? "self_attention_res" : "mlp_res");
    case VectorRole::q_a_norm:
      return attention(op, "q_a_layernorm.weight");
    case VectorRole::kv_a_norm:
      return attention(op, "kv_a_layernorm.weight");
    case VectorRole::latent_norm:
      return moe(op, "routed_expert_norm.weight", naming);
    case VectorRole::router_bias:
      return moe(op, "gate.e_score_correction_bias", naming);
    case VectorRole::conv_q:
      return attention(op, "q_conv1d.weight");
    case VectorRole::conv_k:
      return attention(op, "k_conv1d.weight");
    case VectorRole::conv_v:
      return attention(op, "v_conv1d.weight");
    case VectorRole::a_log:
      return attention(op, "A_log");
    case VectorRole::dt_bias:
      return attention(op, "dt_bias");
    case VectorRole::o_norm:
      return attention(op, "o_norm.weight");
    case VectorRole::q_bias:
      return attention(op, "q_proj.bias");
    case VectorRole::k_bias:
      return attention(op, "k_proj.bias");
    case VectorRole::v_bias:
      return attention(op, "v_proj.bias");
    case VectorRole::q_norm:
      return attention(op, "q_norm.weight");
    case VectorRole::k_norm:
      return attention(op, "k_norm.weight");
  }
  return {};
}

}  // namespace myriad
