// The table of functions itself; kernels.h says what all of them promise and how weights are laid out. This header stands apart because the
// files of the vector instruction sets include nothing else: an inline function that they pulled in from elsewhere could be compiled
// with their instructions and then linked into code that runs on every CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace myriad {

// Activations of T rows quantised in groups of 32 from element 0 (the last group may be short): q [T, k], scale [T, ceil(k/32)].
struct Int8Rows {
  const std::int8_t* q;
  const float* scale;
};

enum class ActivationKind : std::uint8_t { silu = 0, situ = 1 };
struct ActivationSpec {
  ActivationKind kind = ActivationKind::silu;
  float beta = 0;         // SiTU: β
  float linear_beta = 0;  // SiTU: linear β
};

struct Kernels {
  std::string_view name;  // "scalar", "avx2", "avx512"

  // ---- products. Tiles `tile0 <= tile < tile1` of a matrix whose first tile is at `weights` (tile 0); y[t*ldy + 16*tile + r]
  // for r < 16, t < tokens: y must have room for whole tiles (ldy >= 16*tiles). x is [tokens, ldx] f32.
  void (*matmul_f32)(const float* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x, std::size_t ldx,
                     std::size_t tokens, float* y, std::size_t ldy);
  void (*matmul_bf16)(const std::uint16_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x, std::size_t ldx,
                      std::size_t tokens, float* y, std::size_t ldy);
  // f32 products: w = kE2M1[code] * 2^(e-127) (exact), then the chain.
  void (*matmul_mxfp4_f32)(const std::uint8_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x, std::size_t ldx,
                           std::size_t tokens, float* y, std::size_t ldy);
  // integer products: sum = Σ kE2M1Doubled[code]·q (exact), ws = 2^(e-128), acc = fma(fl(ws·as), float(sum), acc).
  // x.q is [tokens, k], x.scale [tokens, k/32], both dense.
  void (*matmul_mxfp4_i8)(const std::uint8_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, Int8Rows x, std::size_t tokens,
                          float* y, std::size_t ldy);

  // ---- reductions over one vector: 16 stripes and the fixed tree
  float (*dot)(const float* a, const float* b, std::size_t n);        // stripes by fma
  float (*sum_of_squares)(const float* a, std::size_t n);             // dot(a, a)

  // ---- elementwise (n values; in and out may be the same pointer)
  void (*sigmoid)(const float* in, float* out, std::size_t n);
  void (*glu)(ActivationSpec spec, const float* gate, const float* up, float* out, std::size_t n);  // SwiGLU or SiTU (spec §3.5)
  void (*round_bf16)(float* x, std::size_t n);
  // out[i] = fma(w, x[i], out[i])
  void (*axpy)(float w, const float* x, float* out, std::size_t n);
  // y[i] = fl(fl(x[i]·r)·w[i]), r = rsqrt(fl(sum_of_squares/n) + eps)
  void (*rms_norm)(const float* x, const float* w, float eps, float* y, std::size_t n);

  // ---- KDA (spec §3.2)
  // Causal depthwise convolution of one token over n channels, then SiLU. weights [n, taps] (tap taps-1 is the current token);
  // history [taps-1, n], oldest first, shifted by this call and given `in` [n] as its youngest row.
  // acc = 0; for j ascending: acc = fma(w[c,j], u_j[c], acc).
  void (*conv_silu)(const float* weights, std::size_t taps, float* history, const float* in, float* out, std::size_t n);
  // One token, one head: state [dk, dv] row-major (row = key channel), q, k, decay [dk] (decay = e^g already), v [dv], beta.
  // state[i,:] *= decay[i]; pred[j] = chain over i of fma(k[i], state[i,j], pred[j]); u[j] = beta·(v[j]−pred[j]);
  // state[i,j] = fma(k[i], u[j], state[i,j]); out[j] = chain over i of fma(q[i], state[i,j], out[j]).
  void (*kda_step)(float* state, std::size_t dk, std::size_t dv, const float* q, const float* k, const float* decay, float beta, const float* v,
                   float* out);

  // ---- attention over one block of at most 1,024 cached positions (MLA absorbed form, spec §3.3)
  // keys: `count` rows at stride `ld`, each [key_dims] f32 (bf16 caches: see attention_block_bf16); the first value_dims columns
  // are the values too. score_j = fl(dot(query, key_j)·scale); m = max; p_j = exp(score_j − m); sum = striped sum of p;
  // acc[c] = chain over j ascending of fma(p_j, key_j[c], acc[c]). Writes m, sum and acc [value_dims]. scratch has room for 1,024.
  void (*attention_block_f32)(const float* query, const float* keys, std::size_t ld, std::size_t count, std::size_t key_dims,
                              std::size_t value_dims, float scale, float* scratch, float* max, float* sum, float* acc);
  void (*attention_block_bf16)(const float* query, const std::uint16_t* keys, std::size_t ld, std::size_t count, std::size_t key_dims,
                               std::size_t value_dims, float scale, float* scratch, float* max, float* sum, float* acc);

  // Quantises one vector [n]: group scale = fl(amax/127), q = nearest-even(x/scale) (fl division, clamped to ±127), amax 0 gives
  // zeros and scale 0. Returns false (and writes nothing useful) if a value is not finite.
  bool (*quantize_i8)(const float* x, std::size_t n, std::int8_t* q, float* scale);
};

}  // namespace myriad
