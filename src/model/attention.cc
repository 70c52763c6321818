#include "model/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/math.h"
#include "model/product.h"
#include "model/rope.h"

namespace myriad {
namespace {

constexpr float kL2Epsilon = 1e-6F;  // added under the root (spec §3.0)

// x ← x / sqrt(Σx² + ε) · scale
void l2_normalise(const Kernels& kernels, std::span<float> x, float scale) {
  const float r = exact_rsqrt(kernels.sum_of_squares(x.data(), x.size()) + kL2Epsilon);
  for (float& v : x) v = v * r * scale;
}

}  // namespace

float inverse_root(std::size_t n) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
}

KdaHead::KdaHead(std::size_t dim, std::size_t taps)
    : dim_(dim), taps_(taps), q_(dim), k_(dim), v_(dim), decay_(dim), o_(dim), gate_(dim) {}

void KdaHead::step(const ModelConfig& config, const Kernels& kernels, const KdaHeadWeights& w, const KdaHeadInput& in,
                   float* state, float* history, float* out) {
  const std::size_t past = (taps_ - 1) * dim_;
  kernels.conv_silu(w.conv_q.data(), taps_, history, in.q, q_.data(), dim_);
  kernels.conv_silu(w.conv_k.data(), taps_, history + past, in.k, k_.data(), dim_);
  kernels.conv_silu(w.conv_v.data(), taps_, history + 2 * past, in.v, v_.data(), dim_);
  l2_normalise(kernels, q_, inverse_root(dim_));
  l2_normalise(kernels, k_, 1.0F);

  const float rate = exact_exp(w.a_log);
  for (std::size_t i = 0; i < dim_; ++i) {
    const float z = in.z[i] + w.dt_bias[i];
    const float g = config.kda.gate_lower_bound ? *config.kda.gate_lower_bound * exact_sigmoid(rate * z)
                                                : -(rate * exact_softplus(z));
    decay_[i] = exact_exp(g);
  }
  kernels.kda_step(state, dim_, dim_, q_.data(), k_.data(), decay_.data(), exact_sigmoid(in.beta_logit), v_.data(),
                   o_.data());

  kernels.rms_norm(o_.data(), w.o_norm.data(), config.rms_norm_eps, out, dim_);
  kernels.sigmoid(in.gate, gate_.data(), dim_);
  for (std::size_t i = 0; i < dim_; ++i) out[i] *= gate_[i];
}

BlockAttention::BlockAttention(std::size_t key_dims, std::size_t value_dims, std::size_t queries)
    : key_dims_(key_dims),
      value_dims_(value_dims),
      scratch_(queries * kAttentionBlock),
      block_(queries * value_dims),
      max_(queries),
      sum_(queries),
      now_max_(queries),
      now_sum_(queries),
      here_(queries) {}

void BlockAttention::attend(const Kernels& kernels, const float* queries, AttentionCache cache,
                            std::span<const std::uint32_t> counts, float scale, float* out) {
  const std::size_t stride = cache.stride != 0 ? cache.stride : key_dims_;
  const std::size_t bytes = cache.bf16 ? sizeof(std::uint16_t) : sizeof(float);
  std::size_t begun = 0;  // the queries before see nothing of this block
  for (std::size_t first = 0; begun < counts.size(); first += kAttentionBlock) {
    while (begun < counts.size() && counts[begun] <= first) ++begun;
    const std::size_t n = counts.size() - begun;
    if (n == 0) break;
    for (std::size_t i = 0; i < n; ++i)
      here_[i] = static_cast<std::uint32_t>(std::min<std::size_t>(kAttentionBlock, counts[begun + i] - first));
    const std::byte* keys = cache.data + first * stride * bytes;
    float* acc = first == 0 ? out : block_.data();
    kernels.attention({.queries = queries + begun * key_dims_,
                       .query_ld = key_dims_,
                       .query_count = n,
                       .counts = here_.data(),
                       .type = cache.bf16 ? CacheType::bf16 : CacheType::f32,
                       .keys = {keys, stride},
                       .values = {keys + cache.values_at * bytes, stride},
                       .key_dims = key_dims_,
                       .value_dims = value_dims_,
                       .scale = scale,
                       .scratch = scratch_.data(),
                       .max = first == 0 ? max_.data() : now_max_.data(),
                       .sum = first == 0 ? sum_.data() : now_sum_.data(),
                       .acc = acc,
                       .acc_ld = value_dims_});
    if (first == 0) continue;
    for (std::size_t i = 0; i < n; ++i) {
      float &max = max_[begun + i], &sum = sum_[begun + i];
      const float top = std::max(max, now_max_[i]);
      const float before = exact_exp(max - top), now = exact_exp(now_max_[i] - top);
      sum = std::fma(now_sum_[i], now, sum * before);
      float* to = out + (begun + i) * value_dims_;
      const float* from = block_.data() + i * value_dims_;
      for (std::size_t c = 0; c < value_dims_; ++c) to[c] = std::fma(from[c], now, to[c] * before);
      max = top;
    }
  }
  for (std::size_t i = 0; i < counts.size(); ++i)
    for (std::size_t c = 0; c < value_dims_; ++c) out[i * value_dims_ + c] /= sum_[i];
}

MlaHead::MlaHead(const ModelConfig& config)
    : query_(tiles_for(config.mla.kv_lora_rank) * kTileRows),
      value_(tiles_for(config.mla.v_dim) * kTileRows),
      sigmoid_(config.mla.v_dim) {}

void MlaHead::absorb(const ModelConfig& config, const Kernels& kernels, Profile profile, const float* q,
                     const HeadMatrix& k_b, float* query) {
  multiply_one(kernels, k_b.dtype, k_b.tiles, k_b.rows, k_b.k, profile, q, query_.data());
  std::copy_n(query_.data(), config.mla.kv_lora_rank, query);
  std::copy_n(q + config.mla.qk_nope_dim, config.mla.qk_rope_dim, query + config.mla.kv_lora_rank);
}

void MlaHead::finish(const ModelConfig& config, const Kernels& kernels, Profile profile, const float* context,
                     const HeadMatrix& v_b, const float* gate, float* out) {
  const std::size_t dim = config.mla.v_dim;
  multiply_one(kernels, v_b.dtype, v_b.tiles, v_b.rows, v_b.k, profile, context, value_.data());
  std::copy_n(value_.data(), dim, out);
  if (gate == nullptr) return;
  kernels.sigmoid(gate, sigmoid_.data(), dim);
  for (std::size_t i = 0; i < dim; ++i) out[i] *= sigmoid_[i];
}

void prepare_gqa_head(const ModelConfig& config, const Kernels& kernels, const float* norm, const Rotation& rotation,
                      float* head) {
  if (norm != nullptr) kernels.rms_norm(head, norm, config.rms_norm_eps, head, config.gqa.head_dim);
  rotation.apply(kernels, head);
}

float attention_scale(const ModelConfig& config, std::size_t channels) {
  return config.softmax_scale != 0 ? config.softmax_scale : inverse_root(channels);
}

}  // namespace myriad
