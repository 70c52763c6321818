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

inline constexpr std::size_t kAttentionBlock = 1024;  // absolute blocks of positions, merged in ascending order

// Positions 0 … n−1 of one sequence, in pages of kAttentionBlock positions: rows that hold a position's keys, and its
// values either among them (MLA) or behind them (GQA).
struct AttentionCache {
  std::span<const std::byte* const> pages;
  CacheType type = CacheType::f32;
  std::size_t rows_at = 0;          // byte of a page where its rows begin
  std::size_t stride = 0;           // values from one position to the next; 0: key_dims
  std::size_t values_at = 0;        // of a row: where its values begin
  std::size_t scales_at = 0;        // i8: byte of a page where its scales begin; at a multiple of 4
  std::size_t scale_stride = 0;     // scales from one position to the next
  std::size_t value_scales_at = 0;  // of a position's scales
};

std::size_t cached_value_bytes(CacheType type);  // of one value, without scales

// Writes a vector [n] as a cache holds it: n values at `to`, and for i8 ⌈n/32⌉ scales at `scales`. false if a value is
// not finite, or too large, and the type cannot hold that (i8, f16).
bool store_in_cache(const Kernels& kernels, CacheType type, const float* values, std::size_t n, void* to,
                    float* scales);
// The same vector as it will be read back.
bool round_as_cached(const Kernels& kernels, CacheType type, std::span<float> values);

inline constexpr std::size_t kMostQueries = 32;  // that share one reading of the cache

// Softmax over the cache in absolute blocks: query [key_dims], result [value_dims] = Σ p_j value_j / Σ p_j.
class BlockAttention {
 public:
  // Room for `queries` (at most kMostQueries) at once.
  BlockAttention(std::size_t key_dims, std::size_t value_dims, std::size_t queries = 1);
  // Query i sees positions [0, counts[i]), counts ascending and at least 1; each result is that of the query alone.
  // queries [n, key_dims], out [n, value_dims], n = counts.size().
  void attend(const Kernels& kernels, const float* queries, AttentionCache cache, std::span<const std::uint32_t> counts,
              float scale, float* out);
  void attend(const Kernels& kernels, const float* query, AttentionCache cache, std::size_t count, float scale,
              float* out) {
    const auto one = static_cast<std::uint32_t>(count);
    attend(kernels, query, cache, {&one, 1}, scale, out);
  }

 private:
  std::size_t key_dims_, value_dims_;
  std::vector<float> scratch_, block_;                // [queries, kAttentionBlock], [queries, value_dims]
  std::vector<float> max_, sum_, now_max_, now_sum_;  // [queries]
  std::vector<std::uint32_t> here_;                   // keys of this block that a query sees
};

// A matrix of one head in tiles.
struct HeadMatrix {
  DType dtype;
  const std::byte* tiles;
  std::size_t rows, k;
};

// Scratch of one MLA head: what comes before and after attention in the absorbed form, spec §3.3.
class MlaHead {
 public:
  explicit MlaHead(const ModelConfig& config);
  // q [qk_dim] (nope, then pe, turned already) to the cache's space, query [cache_dim]; k_b [kv_lora_rank, qk_nope].
  void absorb(const ModelConfig& config, const Kernels& kernels, Profile profile, const float* q, const HeadMatrix& k_b,
              float* query);
  // The latent context [kv_lora_rank] to out [v_dim]; v_b [v_dim, kv_lora_rank]; gate [v_dim] logits or nullptr.
  void finish(const ModelConfig& config, const Kernels& kernels, Profile profile, const float* context,
              const HeadMatrix& v_b, const float* gate, float* out);

 private:
  std::vector<float> query_, value_, sigmoid_;
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
