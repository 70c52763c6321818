// One head of KDA, of MLA and of GQA for one token. Everything inside is f32, whatever the profile; used by parts (on
// tiles) and, for the recurrence and the block-wise softmax, by the interpreter too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "model/graph.h"

namespace myriad {

struct KdaHeadWeights {
  std::span<const float> conv_q, conv_k, conv_v;  // [dim, taps]
  std::span<const float> dt_bias;                 // [dim]
  std::span<const float> o_norm;                  // [dim]
  float a_log;
};
// The projections of one token for one head, each [dim]; beta_logit is b_proj's.
struct KdaHeadInput {
  const float *q, *k, *v, *z, *gate;
  float beta_logit;
};

// Scratch of one head; step() is spec §3.2 items 2 to 7 (without o_proj).
class KdaHead {
 public:
  KdaHead(std::size_t dim, std::size_t taps);
  // state [dim, dim], history [3][taps-1][dim] (streams q, k, v; oldest first), both advanced by one token. out [dim].
  void step(const ModelConfig& config, const Kernels& kernels, const KdaHeadWeights& w, const KdaHeadInput& in,
            float* state, float* history, float* out);

 private:
  std::size_t dim_, taps_;
  std::vector<float> q_, k_, v_, decay_, o_, gate_;
};

// Positions 0 … n−1 of one sequence: keys, and values either among them (MLA) or behind them.
struct AttentionCache {
  const std::byte* data;
  bool bf16;                  // else f32
  std::size_t stride = 0;     // values from one position to the next; 0: key_dims
  std::size_t values_at = 0;  // where a position's values begin
};

inline constexpr std::size_t kAttentionBlock = 1024;  // absolute blocks of positions, merged in ascending order

// Softmax over the cache in absolute blocks: query [key_dims], result [value_dims] = Σ p_j value_j / Σ p_j.
class BlockAttention {
 public:
  BlockAttention(std::size_t key_dims, std::size_t value_dims)
      : key_dims_(key_dims), value_dims_(value_dims), scratch_(kAttentionBlock), acc_(value_dims), block_(value_dims) {}
  // positions [0, count). out [value_dims].
  void attend(const Kernels& kernels, const float* query, AttentionCache cache, std::size_t count, float scale,
              float* out);

 private:
  std::size_t key_dims_, value_dims_;
  std::vector<float> scratch_, acc_, block_;
};

// A matrix of one head in tiles.
struct HeadMatrix {
  DType dtype;
  const std::byte* tiles;
  std::size_t rows, k;
};

// Scratch of one MLA head; attend() is spec §3.3 from the query on, absorbed.
class MlaHead {
 public:
  explicit MlaHead(const ModelConfig& config);
  // q [qk_dim] (nope, then pe, turned already); k_b [kv_lora_rank, qk_nope], v_b [v_dim, kv_lora_rank]; gate [v_dim]
  // logits or nullptr; out [v_dim].
  void attend(const ModelConfig& config, const Kernels& kernels, Profile profile, const float* q, const HeadMatrix& k_b,
              const HeadMatrix& v_b, AttentionCache cache, std::size_t positions, const float* gate, float* out);

 private:
  std::vector<float> query_, context_, value_, sigmoid_;
  BlockAttention blocks_;
};

// A query or key head of GQA as it enters the scores: RMSNorm if there is a weight [head_dim], then the turn.
class Rotation;
void prepare_gqa_head(const ModelConfig& config, const Kernels& kernels, const float* norm, const Rotation& rotation,
                      float* head);

// What scores are multiplied by: the config's, or channels^-1/2.
float attention_scale(const ModelConfig& config, std::size_t channels);

// n^-1/2 in f32: rounded once from double, where both operations are IEEE.
float inverse_root(std::size_t n);

}  // namespace myriad
