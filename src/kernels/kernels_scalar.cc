// The definition of every kernel: plain loops, one rounding where std::fma or an operator stands. Whatever another
// instruction set computes must have these bits. (The bits of a NaN, as opposed to its being one, are left open: which
// operand's payload survives is decided by the compiler's order of operands.)
#include <bit>
#include <cmath>

#include "kernels/kernels.h"
#include "kernels/math.h"

namespace myriad {

namespace {

constexpr std::size_t kStripes = 16;

// s[i] += s[i+8], s[i] += s[i+4], s[i] += s[i+2], s[0] += s[1]
float tree(float (&s)[kStripes]) {
  for (std::size_t half = kStripes / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) s[i] += s[i + half];
  return s[0];
}

// 2^(e-127). Byte 255 means NaN and never gets into a part; here it is 2^128, that is +inf, as its neighbours suggest.
float weight_scale(std::uint8_t e) {
  return std::bit_cast<float>(e == 0 ? 0x00400000u : static_cast<std::uint32_t>(e) << 23);
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

// The code of row r, column 32a+c of a tile.
std::uint32_t code_at(const std::uint8_t* tile, std::size_t a, std::size_t c, std::size_t r) {
  const std::uint8_t byte = tile[((a * 4 + c / 8) * kTileRows + r) * 4 + c % 4];
  return c % 8 < 4 ? byte & 15u : byte >> 4u;
}

void matmul_mxfp4_f32(const std::uint8_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
                      std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  const std::size_t groups = k / kGroup, bytes = tile_bytes(DType::mxfp4, k);
  for (std::size_t tile = tile0; tile < tile1; ++tile)
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::uint8_t* w = weights + tile * bytes;
      const std::uint8_t* scales = w + 256 * groups;
      float acc[kTileRows] = {};
      for (std::size_t a = 0; a < groups; ++a)
        for (std::size_t c = 0; c < kGroup; ++c)
          for (std::size_t r = 0; r < kTileRows; ++r)
            acc[r] = std::fma(kE2M1[code_at(w, a, c, r)] * weight_scale(scales[a * kTileRows + r]),
                              x[t * ldx + a * kGroup + c], acc[r]);
      store_tile(acc, y + t * ldy + tile * kTileRows);
    }
}

void matmul_mxfp4_i8(const std::uint8_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, Int8Rows x,
                     std::size_t tokens, float* y, std::size_t ldy) {
  const std::size_t groups = k / kGroup, bytes = tile_bytes(DType::mxfp4, k);
  for (std::size_t tile = tile0; tile < tile1; ++tile)
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::uint8_t* w = weights + tile * bytes;
      const std::uint8_t* scales = w + 256 * groups;
      const std::int8_t* q = x.q + t * k;
      float acc[kTileRows] = {};
      for (std::size_t a = 0; a < groups; ++a) {
        std::int32_t sum[kTileRows] = {};
        for (std::size_t c = 0; c < kGroup; ++c)
          for (std::size_t r = 0; r < kTileRows; ++r) sum[r] += kE2M1Doubled[code_at(w, a, c, r)] * q[a * kGroup + c];
        for (std::size_t r = 0; r < kTileRows; ++r) {
          const float ws = weight_scale(scales[a * kTileRows + r]) * 0.5f;  // halved, for the codes are doubled
          acc[r] = std::fma(ws * x.scale[t * groups + a], static_cast<float>(sum[r]), acc[r]);
        }
      }
      store_tile(acc, y + t * ldy + tile * kTileRows);
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

float key_value(float v) {
  return v;
}
float key_value(std::uint16_t v) {
  return bf16_to_f32(v);
}

template <class Key>
void attention_block(const float* query, const Key* keys, std::size_t ld, std::size_t count, std::size_t key_dims,
                     std::size_t value_dims, float scale, float* scratch, float* max, float* sum, float* acc) {
  float m = -std::bit_cast<float>(0x7f800000u);
  for (std::size_t j = 0; j < count; ++j) {
    float s[kStripes] = {};
    for (std::size_t i = 0; i < key_dims; ++i)
      s[i % kStripes] = std::fma(query[i], key_value(keys[j * ld + i]), s[i % kStripes]);
    scratch[j] = tree(s) * scale;
    if (scratch[j] > m) m = scratch[j];
  }
  m += 0.0f;  // a maximum of zero is +0, in whatever order it was found
  float stripes[kStripes] = {};
  for (std::size_t j = 0; j < count; ++j) {
    scratch[j] = exact_exp(scratch[j] - m);
    stripes[j % kStripes] += scratch[j];
  }
  *max = m;
  *sum = tree(stripes);
  for (std::size_t c = 0; c < value_dims; ++c) acc[c] = 0.0f;
  for (std::size_t j = 0; j < count; ++j)
    for (std::size_t c = 0; c < value_dims; ++c) acc[c] = std::fma(scratch[j], key_value(keys[j * ld + c]), acc[c]);
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
    .matmul_mxfp4_f32 = matmul_mxfp4_f32,
    .matmul_mxfp4_i8 = matmul_mxfp4_i8,
    .dot = dot,
    .sum_of_squares = sum_of_squares,
    .sigmoid = sigmoid,
    .glu = glu,
    .round_bf16 = round_bf16,
    .axpy = axpy,
    .rms_norm = rms_norm,
    .conv_silu = conv_silu,
    .kda_step = kda_step,
    .attention_block_f32 = attention_block<float>,
    .attention_block_bf16 = attention_block<std::uint16_t>,
    .quantize_i8 = quantize_i8,
};

}  // namespace

const Kernels& scalar_kernels() {
  return kScalar;
}

}  // namespace myriad
