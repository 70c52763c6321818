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

void BlockAttention::attend(const Kernels& kernels, const float* query, AttentionCache cache, std::size_t count,
                            float scale, float* out) {
  const std::size_t stride = cache.stride != 0 ? cache.stride : key_dims_;
  float max = 0, sum = 0;
  for (std::size_t first = 0; first < count; first += kAttentionBlock) {
    const std::size_t n = std::min(kAttentionBlock, count - first);
    float block_max = 0, block_sum = 0;
    std::vector<float>& acc = first == 0 ? acc_ : block_;
    const std::size_t bytes = cache.bf16 ? sizeof(std::uint16_t) : sizeof(float);
    const std::byte* keys = cache.data + first * stride * bytes;
    const auto count_here = static_cast<std::uint32_t>(n);
    kernels.attention({.queries = query,
                       .query_ld = key_dims_,
                       .query_count = 1,
                       .counts = &count_here,
                       .type = cache.bf16 ? CacheType::bf16 : CacheType::f32,
                       .keys = {keys, stride},
                       .values = {keys + cache.values_at * bytes, stride},
                       .key_dims = key_dims_,
                       .value_dims = value_dims_,
                       .scale = scale,
                       .scratch = scratch_.data(),
                       .max = &block_max,
                       .sum = &block_sum,
                       .acc = acc.data(),
                       .acc_ld = value_dims_});
    if (first == 0) {
      max = block_max;
      sum = block_sum;
      continue;
    }
    const float top = std::max(max, block_max);
    const float before = exact_exp(max - top), now = exact_exp(block_max - top);
    sum = std::fma(block_sum, now, sum * before);
    for (std::size_t c = 0; c < value_dims_; ++c) acc_[c] = std::fma(block_[c], now, acc_[c] * before);
    max = top;
  }
  for (std::size_t c = 0; c < value_dims_; ++c) out[c] = acc_[c] / sum;
}

MlaHead::MlaHead(const ModelConfig& config)
    : query_(tiles_for(config.mla.kv_lora_rank) * kTileRows + config.mla.qk_rope_dim),
      context_(config.mla.kv_lora_rank),
      value_(tiles_for(config.mla.v_dim) * kTileRows),
      sigmoid_(config.mla.v_dim),
      blocks_(config.mla.cache_dim(), config.mla.kv_lora_rank) {}

void MlaHead::attend(const ModelConfig& config, const Kernels& kernels, Profile profile, const float* q,
                     const HeadMatrix& k_b, const HeadMatrix& v_b, AttentionCache cache, std::size_t positions,
                     const float* gate, float* out) {
  const MlaConfig& mla = config.mla;
  multiply_one(kernels, k_b.dtype, k_b.tiles, k_b.rows, k_b.k, profile, q, query_.data());
  std::copy_n(q + mla.qk_nope_dim, mla.qk_rope_dim,
              query_.data() + mla.kv_lora_rank);  // over the padding of the last tile, if any
  blocks_.attend(kernels, query_.data(), cache, positions, attention_scale(config, mla.qk_dim()), context_.data());
  multiply_one(kernels, v_b.dtype, v_b.tiles, v_b.rows, v_b.k, profile, context_.data(), value_.data());
  if (gate == nullptr) {
    std::copy_n(value_.data(), mla.v_dim, out);
    return;
  }
  kernels.sigmoid(gate, sigmoid_.data(), mla.v_dim);
  for (std::size_t i = 0; i < mla.v_dim; ++i) out[i] = value_[i] * sigmoid_[i];
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
