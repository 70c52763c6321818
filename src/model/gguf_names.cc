#include "model/gguf_names.h"

#include <fmt/core.h>

namespace myriad {
namespace {

using Names = std::vector<std::string>;

std::string block(OpRef op, std::string_view rest) {
  return fmt::format("blk.{}.{}", op.layer, rest);
}

}  // namespace

Names gguf_matrix_names(const ModelConfig& config, OpRef op, MatrixRole role) {
  const auto in_block = [&](std::string_view stem) { return Names{block(op, fmt::format("{}.weight", stem))}; };
  const bool gate = role == MatrixRole::gate;
  switch (op.role) {
    case OpRole::embed:
      return {"token_embd.weight"};
    case OpRole::head:
      return {config.tied_embeddings ? "token_embd.weight" : "output.weight"};
    case OpRole::attn_q_a:
      return in_block("attn_q_a");
    case OpRole::attn_kv_a:
      return in_block("attn_kv_a_mqa");
    case OpRole::attn_o:
      return in_block("attn_output");
    case OpRole::router:
      return in_block("ffn_gate_inp");
    case OpRole::latent_down:
      return {block(op, "ffn_routed_down.weight"), block(op, "ffn_latent_down.weight")};
    case OpRole::latent_up:
      return {block(op, "ffn_routed_up.weight"), block(op, "ffn_latent_up.weight")};
    case OpRole::shared_up:
      return in_block(gate ? "ffn_gate_shexp" : "ffn_up_shexp");
    case OpRole::shared_down:
      return in_block("ffn_down_shexp");
    case OpRole::dense_up:
      return in_block(gate ? "ffn_gate" : "ffn_up");
    case OpRole::dense_down:
      return in_block("ffn_down");
    case OpRole::expert:
      return in_block(gate ? "ffn_gate_exps" : role == MatrixRole::up ? "ffn_up_exps" : "ffn_down_exps");
    default:
      break;
  }
  const bool mla = op.role == OpRole::attn && config.attention[op.layer] == AttentionKind::mla;
  switch (role) {
    case MatrixRole::q:
      return in_block(mla && config.mla.q_lora_rank != 0 ? "attn_q_b" : "attn_q");
    case MatrixRole::k:
      return in_block("attn_k");
    case MatrixRole::v:
      return in_block("attn_v");
    case MatrixRole::f_a:
      return in_block("ssm_f_a");
    case MatrixRole::f_b:
      return in_block("ssm_f_b");
    case MatrixRole::b:
      return in_block("ssm_beta");
    case MatrixRole::g:
      return in_block(mla ? "attn_gate" : "ssm_g");
    case MatrixRole::g_a:
      return in_block("ssm_g_a");
    case MatrixRole::g_b:
      return in_block("ssm_g_b");
    case MatrixRole::k_b:
      return in_block("attn_k_b");
    case MatrixRole::v_b:
      return in_block("attn_v_b");
    default:
      return {};
  }
}

Names gguf_vector_names(OpRef op, VectorRole role) {
  const auto in_block = [&](std::string_view rest) { return Names{block(op, rest)}; };
  switch (role) {
    case VectorRole::norm:
      if (op.role == OpRole::final_lead) return {"output_norm.weight"};
      return in_block(op.role == OpRole::attn_lead ? "attn_norm.weight" : "ffn_norm.weight");
    case VectorRole::res_score:
      if (op.role == OpRole::final_lead) return {"output_res_score.weight"};
      return in_block(op.role == OpRole::attn_lead ? "attn_res_score.weight" : "ffn_res_score.weight");
    case VectorRole::q_a_norm:
      return in_block("attn_q_a_norm.weight");
    case VectorRole::kv_a_norm:
      return in_block("attn_kv_a_norm.weight");
    case VectorRole::latent_norm:
      return {block(op, "ffn_routed_norm.weight"), block(op, "ffn_norm_exps.weight")};
    case VectorRole::router_bias:
      return {block(op, "exp_probs_b.bias"), block(op, "exp_probs_b")};
    case VectorRole::conv_q:
      return in_block("ssm_conv1d_q.weight");
    case VectorRole::conv_k:
      return in_block("ssm_conv1d_k.weight");
    case VectorRole::conv_v:
      return in_block("ssm_conv1d_v.weight");
    case VectorRole::a_log:
      return {block(op, "ssm_a"), block(op, "ssm_a.weight")};
    case VectorRole::dt_bias:
      return in_block("ssm_dt.bias");
    case VectorRole::o_norm:
      return in_block("ssm_norm.weight");
    case VectorRole::q_bias:
      return in_block("attn_q.bias");
    case VectorRole::k_bias:
      return in_block("attn_k.bias");
    case VectorRole::v_bias:
      return in_block("attn_v.bias");
    case VectorRole::q_norm:
      return in_block("attn_q_norm.weight");
    case VectorRole::k_norm:
      return in_block("attn_k_norm.weight");
  }
  return {};
}

}  // namespace myriad
