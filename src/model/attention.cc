#include "model/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/math.h"

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
  float max = 0, sum = 0;
  for (std::size_t first = 0; first < count; first += kAttentionBlock) {
    const std::size_t n = std::min(kAttentionBlock, count - first);
    float block_max = 0, block_sum = 0;
    std::vector<float>& acc = first == 0 ? acc_ : block_;
    if (cache.bf16)
      kernels.attention_block_bf16(query, reinterpret_cast<const std::uint16_t*>(cache.data) + first * key_dims_,
                                   key_dims_, n, key_dims_, value_dims_, scale, scratch_.data(), &block_max, &block_sum,
                                   acc.data());
    else
      kernels.attention_block_f32(query, reinterpret_cast<const float*>(cache.data) + first * key_dims_, key_dims_, n,
                                  key_dims_, value_dims_, scale, scratch_.data(), &block_max, &block_sum, acc.data());
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

MlaHead::MlaHead(const MlaConfig& mla)
    : query_(tiles_for(mla.kv_lora_rank) * kTileRows + mla.qk_rope_dim),
      context_(mla.kv_lora_rank),
      value_(tiles_for(mla.v_dim) * kTileRows),
      sigmoid_(mla.v_dim),
      blocks_(mla.cache_dim(), mla.kv_lora_rank) {}

void MlaHead::attend(const MlaConfig& mla, const Kernels& kernels, const float* q, const std::uint16_t* k_b,
                     const std::uint16_t* v_b, DType dtype, AttentionCache cache, std::size_t positions,
                     const float* gate, float* out) {
  const auto product = [&](const std::uint16_t* tiles, std::size_t rows, std::size_t k, const float* x, float* y) {
    if (dtype == DType::f32)
      kernels.matmul_f32(reinterpret_cast<const float*>(tiles), k, 0, tiles_for(rows), x, k, 1, y,
                         tiles_for(rows) * kTileRows);
    else
      kernels.matmul_bf16(tiles, k, 0, tiles_for(rows), x, k, 1, y, tiles_for(rows) * kTileRows);
  };
  product(k_b, mla.kv_lora_rank, mla.qk_nope_dim, q, query_.data());
  std::copy_n(q + mla.qk_nope_dim, mla.qk_rope_dim,
              query_.data() + mla.kv_lora_rank);  // over the padding of the last tile, if any
  blocks_.attend(kernels, query_.data(), cache, positions, inverse_root(mla.qk_dim()), context_.data());
  product(v_b, mla.v_dim, mla.kv_lora_rank, context_.data(), value_.data());
  if (gate == nullptr) {
    std::copy_n(value_.data(), mla.v_dim, out);
    return;
  }
  kernels.sigmoid(gate, sigmoid_.data(), mla.v_dim);
  for (std::size_t i = 0; i < mla.v_dim; ++i) out[i] = value_[i] * sigmoid_[i];
}

}  // namespace myriad
