#include "model/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/math.h"
#include "model/product.h"
#include "model/rope.h"

namespace myriad {
namespace {

// x ← x / sqrt(Σx² + ε) · scale
void l2_normalise(const Kernels& kernels, std::span<float> x, float eps, float scale) {
  const float r = exact_rsqrt(kernels.sum_of_squares(x.data(), x.size()) + eps);
  for (float& v : x) v = v * r * scale;
}

}  // namespace

std::size_t cached_value_bytes(CacheType type) {
  return type == CacheType::f32 ? 4 : type == CacheType::i8 ? 1 : 2;
}

bool store_in_cache(const Kernels& kernels, CacheType type, const float* values, std::size_t n, void* to,
                    float* scales) {
  switch (type) {
    case CacheType::f32:
      std::copy_n(values, n, static_cast<float*>(to));
      return true;
    case CacheType::bf16:
      std::transform(values, values + n, static_cast<std::uint16_t*>(to), f32_to_bf16);
      return true;
    case CacheType::f16: {
      bool fits = true;  // in f16's range
      std::transform(values, values + n, static_cast<std::uint16_t*>(to), [&](float v) {
        const std::uint16_t h = f32_to_f16(v);
        fits = fits && (h & 0x7c00U) != 0x7c00U;
        return h;
      });
      return fits;
    }
    case CacheType::i8:
      return kernels.quantize_i8(values, n, static_cast<std::int8_t*>(to), scales);
  }
  return false;
}

bool round_as_cached(const Kernels& kernels, CacheType type, std::span<float> values) {
  if (type == CacheType::bf16) std::ranges::transform(values, values.begin(), round_to_bf16);
  if (type == CacheType::f16) {
    std::ranges::transform(values, values.begin(), [](float v) { return f16_to_f32(f32_to_f16(v)); });
    return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
  }
  if (type != CacheType::i8) return true;
  std::vector<std::int8_t> q(values.size());
  std::vector<float> scales((values.size() + kGroup - 1) / kGroup);
  if (!kernels.quantize_i8(values.data(), values.size(), q.data(), scales.data())) return false;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(q[i]) * scales[i / kGroup];
  return true;
}

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
  l2_normalise(kernels, q_, config.kda.l2_norm_eps, inverse_root(dim_));
  l2_normalise(kernels, k_, config.kda.l2_norm_eps, 1.0F);

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
  const auto rows_of = [&](const std::byte* page, std::size_t value, std::size_t first_scale) {
    CacheRows rows{page + cache.rows_at + cached_value_bytes(cache.type) * value, stride};
    if (cache.type == CacheType::i8) {
      rows.scales = reinterpret_cast<const float*>(page + cache.scales_at) + first_scale;
      rows.scale_ld = cache.scale_stride;
    }
    return rows;
  };
  std::size_t begun = 0;  // the queries before see nothing of this block
  for (std::size_t first = 0; begun < counts.size(); first += kAttentionBlock) {
    while (begun < counts.size() && counts[begun] <= first) ++begun;
    const std::size_t n = counts.size() - begun;
    if (n == 0) break;
    for (std::size_t i = 0; i < n; ++i)
      here_[i] = static_cast<std::uint32_t>(std::min<std::size_t>(kAttentionBlock, counts[begun + i] - first));
    const std::byte* page = cache.pages[first / kAttentionBlock];
    float* acc = first == 0 ? out : block_.data();
    kernels.attention({.queries = queries + begun * key_dims_,
                       .query_ld = key_dims_,
                       .query_count = n,
                       .counts = here_.data(),
                       .type = cache.type,
                       .keys = rows_of(page, 0, 0),
                       .values = rows_of(page, cache.values_at, cache.value_scales_at),
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
