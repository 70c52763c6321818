// The definition of every kernel: plain loops, one rounding where std::fma or an operator stands. Whatever another
// instruction set computes must have these bits. (The bits of a NaN, as opposed to its being one, are left open: which
// operand's payload survives is decided by the compiler's order of operands.)
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"
#include "kernels/math.h"
#include "quant/blocks.h"

namespace myriad {

namespace {

constexpr std::size_t kStripes = 16;

// s[i] += s[i+8], s[i] += s[i+4], s[i] += s[i+2], s[0] += s[1]
float tree(float (&s)[kStripes]) {
  for (std::size_t half = kStripes / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) s[i] += s[i + half];
  return s[0];
}

void store_tile(const float (&acc)[kTileRows], float* y) {
  for (std::size_t r = 0; r < kTileRows; ++r) y[r] = acc[r];
}

// ---- products

void matmul_f32(const float* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
                std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  for (std::size_t tile = tile0; tile < tile1; ++tile)
    for (std::size_t t = 0; t < tokens; ++t) {
      const float* w = weights + tile * k * kTileRows;
      float acc[kTileRows] = {};
      for (std::size_t j = 0; j < k; ++j)
        for (std::size_t r = 0; r < kTileRows; ++r) acc[r] = std::fma(w[j * kTileRows + r], x[t * ldx + j], acc[r]);
      store_tile(acc, y + t * ldy + tile * kTileRows);
    }
}

void matmul_bf16(const std::uint16_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
                 std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  for (std::size_t tile = tile0; tile < tile1; ++tile)
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::uint16_t* w = weights + tile * ((k + 1) / 2) * 2 * kTileRows;
      float acc[kTileRows] = {};
      // the padding of an odd k takes no part: fma(0, 0, -0) would be +0
      for (std::size_t j = 0; j < k; ++j)
        for (std::size_t r = 0; r < kTileRows; ++r)
          acc[r] = std::fma(bf16_to_f32(w[(j / 2 * kTileRows + r) * 2 + j % 2]), x[t * ldx + j], acc[r]);
      store_tile(acc, y + t * ldy + tile * kTileRows);
    }
}

void matmul_f16(const std::uint16_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
                std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  for (std::size_t tile = tile0; tile < tile1; ++tile)
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::uint16_t* w = weights + tile * ((k + 1) / 2) * 2 * kTileRows;
      float acc[kTileRows] = {};
      for (std::size_t j = 0; j < k; ++j)
        for (std::size_t r = 0; r < kTileRows; ++r)
          acc[r] = std::fma(f16_to_f32(w[j * kTileRows + r]), x[t * ldx + j], acc[r]);
      store_tile(acc, y + t * ldy + tile * kTileRows);
    }
}

void matmul_quantized(DType type, const std::byte* weights, std::size_t k, std::size_t tile0, std::size_t tile1,
                      const float* x, std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  TileGroup group;
  for (std::size_t tile = tile0; tile < tile1; ++tile) {
    for (std::size_t t = 0; t < tokens; ++t) std::fill_n(y + t * ldy + tile * kTileRows, kTileRows, 0.0F);
    for (std::size_t begin = 0; begin < k; begin += kGroup) {
      read_tile_group(type, weights + tile * tile_bytes(type, k), k, begin / kGroup, group);
      for (std::size_t c = 0; c < kGroup && begin + c < k; ++c)
        for (std::size_t r = 0; r < kTileRows; ++r) {
          float w = group.scale[c / 16][r] * static_cast<float>(group.q[c][r]);
          if (has_minima(type)) w -= group.minimum[c / 16][r];
          for (std::size_t t = 0; t < tokens; ++t) {
            float& acc = y[t * ldy + tile * kTileRows + r];
            acc = std::fma(w, x[t * ldx + begin + c], acc);
          }
        }
    }
  }
}

void matmul(DType type, const std::byte* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
            std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  const auto* halves = reinterpret_cast<const std::uint16_t*>(weights);
  switch (type) {
    case DType::f32:
      matmul_f32(reinterpret_cast<const float*>(weights), k, tile0, tile1, x, ldx, tokens, y, ldy);
      break;
    case DType::bf16:
      matmul_bf16(halves, k, tile0, tile1, x, ldx, tokens, y, ldy);
      break;
    case DType::f16:
      matmul_f16(halves, k, tile0, tile1, x, ldx, tokens, y, ldy);
      break;
    default:
      matmul_quantized(type, weights, k, tile0, tile1, x, ldx, tokens, y, ldy);
  }
}

// Activations as integer products read them: [tokens][groups].
struct LaidOut {
  std::int8_t q[kGroup];  // the last group filled up with zeros
  float scale;
};

std::size_t laid_out_bytes(DType, std::size_t k, std::size_t tokens) {
  return tokens * ((k + kGroup - 1) / kGroup) * sizeof(LaidOut);
}

void lay_out_i8(DType, Int8Rows x, std::size_t k, std::size_t tokens, std::size_t group0, std::size_t group1,
                std::byte* out) {
  const std::size_t groups = (k + kGroup - 1) / kGroup;
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t a = group0; a < group1; ++a) {
      LaidOut group{{}, x.scale[t * groups + a]};
      std::copy_n(x.q + t * k + a * kGroup, std::min(kGroup, k - a * kGroup), group.q);
      std::memcpy(out + (t * groups + a) * sizeof group, &group, sizeof group);
    }
}

void matmul_i8(DType type, const std::byte* weights, std::size_t k, std::size_t tile0, std::size_t tile1,
               const std::byte* laid_out, std::size_t tokens, float* y, std::size_t ldy) {
  const std::size_t groups = (k + kGroup - 1) / kGroup, span = scale_group(type);
  TileGroup w;
  for (std::size_t tile = tile0; tile < tile1; ++tile) {
    for (std::size_t t = 0; t < tokens; ++t) std::fill_n(y + t * ldy + tile * kTileRows, kTileRows, 0.0F);
    for (std::size_t a = 0; a < groups; ++a) {
      read_tile_group(type, weights + tile * tile_bytes(type, k), k, a, w);
      for (std::size_t t = 0; t < tokens; ++t) {
        LaidOut x;
        std::memcpy(&x, laid_out + (t * groups + a) * sizeof x, sizeof x);
        float* acc = y + t * ldy + tile * kTileRows;
        for (std::size_t begin = 0; begin < kGroup; begin += span) {
          std::int32_t sum[kTileRows] = {}, activations = 0;
          for (std::size_t c = begin; c < begin + span; ++c) {
            activations += x.q[c];
            for (std::size_t r = 0; r < kTileRows; ++r) sum[r] += w.q[c][r] * x.q[c];
          }
          for (std::size_t r = 0; r < kTileRows; ++r) {
            acc[r] = std::fma(w.scale[begin / 16][r] * x.scale, static_cast<float>(sum[r]), acc[r]);
            if (has_minima(type))
              acc[r] = std::fma(-w.minimum[begin / 16][r], x.scale * static_cast<float>(activations), acc[r]);
          }
        }
      }
    }
  }
}

// ---- reductions

float dot(const float* a, const float* b, std::size_t n) {
  float s[kStripes] = {};
  for (std::size_t i = 0; i < n; ++i) s[i % kStripes] = std::fma(a[i], b[i], s[i % kStripes]);
  return tree(s);
}

float sum_of_squares(const float* a, std::size_t n) {
  return dot(a, a, n);
}

// ---- elementwise

void exponentials(const float* in, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = exact_exp(in[i]);
}

void sigmoid(const float* in, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = exact_sigmoid(in[i]);
}

void glu(ActivationSpec spec, const float* gate, const float* up, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gate[i];
    float u = up[i];
    float h;
    if (spec.kind == ActivationKind::situ) {
      h = spec.beta * exact_tanh(g / spec.beta) * exact_sigmoid(g);
      if (spec.linear_beta != 0.0f) u = spec.linear_beta * exact_tanh(u / spec.linear_beta);
    } else {
      h = exact_silu(g);
    }
    out[i] = h * u;
  }
}

void round_bf16(float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = round_to_bf16(x[i]);
}

void axpy(float w, const float* x, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = std::fma(w, x[i], out[i]);
}

void rms_norm(const float* x, const float* w, float eps, float* y, std::size_t n) {
  if (n == 0) return;
  const float r = exact_rsqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps);
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * r * w[i];
}

void rope(float* x, const float* cos, const float* sin, std::size_t dims, RopeOrder order) {
  const std::size_t half = dims / 2;
  for (std::size_t i = 0; i < half; ++i) {
    float& first = order == RopeOrder::halves ? x[i] : x[2 * i];
    float& second = order == RopeOrder::halves ? x[half + i] : x[2 * i + 1];
    const float a = first, b = second;
    first = std::fma(a, cos[i], -(b * sin[i]));
    second = std::fma(b, cos[i], a * sin[i]);
  }
}

// ---- KDA

void conv_silu(const float* weights, std::size_t taps, float* history, const float* in, float* out, std::size_t n) {
  if (taps == 0) return;
  for (std::size_t c = 0; c < n; ++c) {
    const float now = in[c];
    float acc = 0.0f;
    for (std::size_t j = 0; j + 1 < taps; ++j) acc = std::fma(weights[c * taps + j], history[j * n + c], acc);
    acc = std::fma(weights[c * taps + taps - 1], now, acc);
    for (std::size_t j = 0; j + 2 < taps; ++j) history[j * n + c] = history[(j + 1) * n + c];
    if (taps > 1) history[(taps - 2) * n + c] = now;
    out[c] = exact_silu(acc);
  }
}

void kda_step(float* state, std::size_t dk, std::size_t dv, const float* q, const float* k, const float* decay,
              float beta, const float* v, float* out) {
  for (std::size_t j0 = 0; j0 < dv; j0 += kStripes) {  // a few columns at a time: one pass over all rows, then another
    const std::size_t columns = dv - j0 < kStripes ? dv - j0 : kStripes;
    float* s = state + j0;
    float predicted[kStripes] = {}, u[kStripes], read[kStripes] = {};
    for (std::size_t i = 0; i < dk; ++i)
      for (std::size_t j = 0; j < columns; ++j) {
        s[i * dv + j] *= decay[i];
        predicted[j] = std::fma(k[i], s[i * dv + j], predicted[j]);
      }
    for (std::size_t j = 0; j < columns; ++j) u[j] = beta * (v[j0 + j] - predicted[j]);
    for (std::size_t i = 0; i < dk; ++i)
      for (std::size_t j = 0; j < columns; ++j) {
        s[i * dv + j] = std::fma(k[i], u[j], s[i * dv + j]);
        read[j] = std::fma(q[i], s[i * dv + j], read[j]);
      }
    for (std::size_t j = 0; j < columns; ++j) out[j0 + j] = read[j];
  }
}

// ---- attention

// Element `i` of row `j`.
float cached(CacheType type, const CacheRows& rows, std::size_t j, std::size_t i) {
  const std::size_t at = j * rows.ld + i;
  switch (type) {
    case CacheType::f32:
      return static_cast<const float*>(rows.data)[at];
    case CacheType::bf16:
      return bf16_to_f32(static_cast<const std::uint16_t*>(rows.data)[at]);
    case CacheType::f16:
      return f16_to_f32(static_cast<const std::uint16_t*>(rows.data)[at]);
    case CacheType::i8:
      return static_cast<float>(static_cast<const std::int8_t*>(rows.data)[at]) *
             rows.scales[j * rows.scale_ld + i / kGroup];
  }
  return 0;
}

void attention(const AttentionBlock& b) {
  for (std::size_t n = 0; n < b.query_count; ++n) {
    const float* query = b.queries + n * b.query_ld;
    float *p = b.scratch + n * kAttentionKeys, *acc = b.acc + n * b.acc_ld;
    const std::size_t count = b.counts[n];
    float m = -std::bit_cast<float>(0x7f800000u);
    for (std::size_t j = 0; j < count; ++j) {
      float s[kStripes] = {};
      for (std::size_t i = 0; i < b.key_dims; ++i)
        s[i % kStripes] = std::fma(query[i], cached(b.type, b.keys, j, i), s[i % kStripes]);
      p[j] = tree(s) * b.scale;
      if (p[j] > m) m = p[j];
    }
    m += 0.0f;  // a maximum of zero is +0, in whatever order it was found
    float stripes[kStripes] = {};
    for (std::size_t j = 0; j < count; ++j) {
      p[j] = exact_exp(p[j] - m);
      stripes[j % kStripes] += p[j];
    }
    b.max[n] = m;
    b.sum[n] = tree(stripes);
    for (std::size_t c = 0; c < b.value_dims; ++c) acc[c] = 0.0f;
    for (std::size_t j = 0; j < count; ++j)
      for (std::size_t c = 0; c < b.value_dims; ++c) acc[c] = std::fma(p[j], cached(b.type, b.values, j, c), acc[c]);
  }
}

// ---- quantisation

bool quantize_i8(const float* x, std::size_t n, std::int8_t* q, float* scale) {
  for (std::size_t begin = 0; begin < n; begin += kGroup) {
    const std::size_t end = n - begin < kGroup ? n : begin + kGroup;
    std::uint32_t largest = 0;  // magnitudes order as their bits do, infinities and NaNs above all numbers
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu;
      if (magnitude > largest) largest = magnitude;
    }
    if (largest >= 0x7f800000u) return false;
    const float s = std::bit_cast<float>(largest) / 127.0f;  // may underflow to 0: then the group is zeros too
    scale[begin / kGroup] = s;
    for (std::size_t i = begin; i < end; ++i) {
      float v = s == 0.0f ? 0.0f : x[i] / s;
      v = v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v;
      v = (v + 0x1.8p23f) - 0x1.8p23f;  // to nearest, ties to even
      q[i] = static_cast<std::int8_t>(v);
    }
  }
  return true;
}

constexpr Kernels kScalar = {
    .name = "scalar",
    .matmul_f32 = matmul_f32,
    .matmul_bf16 = matmul_bf16,
    .matmul_f16 = matmul_f16,
    .matmul = matmul,
    .laid_out_bytes = laid_out_bytes,
    .lay_out_i8 = lay_out_i8,
    .matmul_i8 = matmul_i8,
    .dot = dot,
    .sum_of_squares = sum_of_squares,
    .exp = exponentials,
    .sigmoid = sigmoid,
    .glu = glu,
    .round_bf16 = round_bf16,
    .axpy = axpy,
    .rms_norm = rms_norm,
    .rope = rope,
    .conv_silu = conv_silu,
    .kda_step = kda_step,
    .attention = attention,
    .quantize_i8 = quantize_i8,
};

}  // namespace

const Kernels& scalar_kernels() {
  return kScalar;
}

}  // namespace myriad
