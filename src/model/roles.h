// Names of what a model is made of: operators, and the matrices and vectors that they hold.
#pragma once

#include <compare>
#include <cstdint>

namespace myriad {

// The operators of an architecture, in execution order inside a layer. The numbers stand in part files: never renumber.
enum class OpRole : std::uint8_t {
  embed = 0,         // vocabulary rows
  attn_lead = 1,     // small vectors of the attention half: residual mix, norm, lora norms; held by the stage's lead
  attn_q_a = 2,      // MLA: rows of q_a
  attn_kv_a = 3,     // MLA: rows of kv_a
  attn = 4,          // heads of KDA, MLA or GQA (there: key/value heads with their queries), with their state
  attn_o = 5,        // rows of o_proj
  ffn_lead = 6,      // small vectors of the FFN half: residual mix, norm, latent norm, router bias
  router = 7,        // rows of the router
  latent_down = 8,   // rows
  shared_up = 9,     // rows of shared gate and up, with the activation
  shared_down = 10,  // rows
  expert = 11,       // one routed expert, whole
  latent_up = 12,    // rows
  dense_up = 13,     // rows of gate and up, with the activation
  dense_down = 14,   // rows
  final_lead = 15,   // output mix and norm
  head = 16,         // vocabulary rows
};

// One operator of one layer. embed, final_lead and head have layer 0.
struct OpRef {
  std::uint16_t layer = 0;
  OpRole role = OpRole::embed;
  std::uint16_t index = 0;  // the expert's number, else 0
  friend auto operator<=>(const OpRef&, const OpRef&) = default;
};

// The matrices and f32 vectors of a part. The numbers stand in part files: never renumber.
enum class MatrixRole : std::uint8_t {
  weight = 0,  // of embed, linear, head
  gate = 1,
  up = 2,
  down = 3,  // of gated_up and expert (w1, w3, w2)
  q = 4,
  k = 5,
  v = 6,  // KDA and GQA; q also MLA's q_b (or q_proj)
  f_a = 7,
  f_b = 8,
  b = 9,
  g = 10,  // output gate, full rank
  g_a = 11,
  g_b = 12,  // or low rank
  k_b = 13,  // MLA: the key half of kv_b, transposed: per head [kv_lora_rank, qk_nope]
  v_b = 14,  // MLA: the value half of kv_b: per head [v_dim, kv_lora_rank]
};
enum class VectorRole : std::uint8_t {
  norm = 0,       // of the half's input, or the final one [hidden]
  res_score = 1,  // AttnRes: norm ⊙ proj [hidden]
  q_a_norm = 2,
  kv_a_norm = 3,
  latent_norm = 4,
  router_bias = 5,
  conv_q = 6,
  conv_k = 7,
  conv_v = 8,    // [channels, taps]
  a_log = 9,     // one a head
  dt_bias = 10,  // one a channel
  o_norm = 11,   // [head_dim]
  q_bias = 12,
  k_bias = 13,
  v_bias = 14,  // GQA: one a channel
  q_norm = 15,
  k_norm = 16,  // GQA: [head_dim], of every head
};

}  // namespace myriad
