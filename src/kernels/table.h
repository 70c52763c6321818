// The table of functions itself; kernels.h says what all of them promise, tile_format.h how weights are laid out. This
// header stands apart because the files of the vector instruction sets include nothing else: an inline function that
// they pulled in from elsewhere could be compiled with their instructions and then linked into code that runs on every
// CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quant/dtype.h"

namespace myriad {

// Activations of T rows quantised in groups of 32 from element 0 (the last group may be short): q [T, k], scale [T,
// ceil(k/32)].
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

// Which values of a head RoPE turns together: i and i + dims/2 (NeoX), or 2i and 2i + 1.
enum class RopeOrder : std::uint8_t { halves = 0, pairs = 1 };

// How keys and values lie in a cache. i8: int8 in groups of 32 from element 0 of a row, with an f32 scale each; the
// value is fl(q·scale).
enum class CacheType : std::uint8_t { f32 = 0, bf16 = 1, f16 = 2, i8 = 3 };

// Rows of a cache: row j begins at element j·ld of `data` (float, uint16_t or int8_t), its scales at scales +
// j·scale_ld.
struct CacheRows {
  const void* data = nullptr;
  std::size_t ld = 0;
  const float* scales = nullptr;  // i8 only
  std::size_t scale_ld = 0;
};

inline constexpr std::size_t kAttentionKeys = 1024;  // of one block at most

// Several queries against one block of cached positions. Query i sees the first counts[i] keys; its results are those
// of a call with it alone.
struct AttentionBlock {
  const float* queries = nullptr;  // query i at queries + i·query_ld: [key_dims]
  std::size_t query_ld = 0;
  std::size_t query_count = 0;
  const std::uint32_t* counts = nullptr;  // [query_count], each at most kAttentionKeys
  CacheType type = CacheType::f32;        // of both
  CacheRows keys, values;                 // MLA: both the same
  std::size_t key_dims = 0, value_dims = 0;
  float scale = 1;
  float* scratch = nullptr;  // [query_count · kAttentionKeys]
  float* max = nullptr;      // [query_count]; −inf without keys
  float* sum = nullptr;      // [query_count]
  float* acc = nullptr;      // query i at acc + i·acc_ld: [value_dims]
  std::size_t acc_ld = 0;
};

// How far ahead of its use memory is asked for, in bytes: far enough to hide its latency, into the second cache, and
// again shortly before. Set for this CPU before main (kernels.cc).
struct PrefetchDistances {
  std::size_t later, soon;  // later 0: once is enough
};
extern const PrefetchDistances kPrefetch;

struct Kernels {
  std::string_view name;  // isa_name()

  // ---- products. Tiles `tile0 <= tile < tile1` of a matrix whose first tile is at `weights` (tile 0); y[t*ldy +
  // 16*tile + r] for r < 16, t < tokens: y must have room for whole tiles (ldy >= 16*tiles). x is [tokens, ldx] f32.
  void (*matmul_f32)(const float* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
                     std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy);
  void (*matmul_bf16)(const std::uint16_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
                      std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy);
  void (*matmul_f16)(const std::uint16_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
                     std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy);
  // The same for every type: weights in f32, then the chain.
  void (*matmul)(DType type, const std::byte* weights, std::size_t k, std::size_t tile0, std::size_t tile1,
                 const float* x, std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy);

  // Integer products with quantised weights: the activations are first brought into the order in which this instruction
  // set reads them, once for all tiles. lay_out_i8 does so for groups group0 <= g < group1 of the columns (g counts 32
  // columns), for weights of one type; ranges may be done by several threads. `out` has laid_out_bytes(…) bytes,
  // aligned to 4.
  std::size_t (*laid_out_bytes)(DType type, std::size_t k, std::size_t tokens);
  void (*lay_out_i8)(DType type, Int8Rows x, std::size_t k, std::size_t tokens, std::size_t group0, std::size_t group1,
                     std::byte* out);
  void (*matmul_i8)(DType type, const std::byte* weights, std::size_t k, std::size_t tile0, std::size_t tile1,
                    const std::byte* laid_out, std::size_t tokens, float* y, std::size_t ldy);

  // ---- reductions over one vector: 16 stripes and the fixed tree
  float (*dot)(const float* a, const float* b, std::size_t n);  // stripes by fma
  float (*sum_of_squares)(const float* a, std::size_t n);       // dot(a, a)

  // ---- elementwise (n values; in and out may be the same pointer)
  void (*exp)(const float* in, float* out, std::size_t n);
  void (*sigmoid)(const float* in, float* out, std::size_t n);
  void (*glu)(ActivationSpec spec, const float* gate, const float* up, float* out,
              std::size_t n);  // SwiGLU or SiTU (spec §3.5)
  void (*round_bf16)(float* x, std::size_t n);
  // out[i] = fma(w, x[i], out[i])
  void (*axpy)(float w, const float* x, float* out, std::size_t n);
  // y[i] = fl(fl(x[i]·r)·w[i]), r = rsqrt(fl(sum_of_squares/n) + eps)
  void (*rms_norm)(const float* x, const float* w, float eps, float* y, std::size_t n);
  // Turns each pair (a, b) of x [dims] (dims even) by its angle: a' = fma(a, cos, −fl(b·sin)), b' = fma(b, cos,
  // fl(a·sin)). cos, sin [dims/2].
  void (*rope)(float* x, const float* cos, const float* sin, std::size_t dims, RopeOrder order);

  // ---- KDA (spec §3.2)
  // Causal depthwise convolution of one token over n channels, then SiLU. weights [n, taps] (tap taps-1 is the current
  // token); history [taps-1, n], oldest first, shifted by this call and given `in` [n] as its youngest row. acc = 0;
  // for j ascending: acc = fma(w[c,j], u_j[c], acc).
  void (*conv_silu)(const float* weights, std::size_t taps, float* history, const float* in, float* out, std::size_t n);
  // One token, one head: state [dk, dv] row-major (row = key channel), q, k, decay [dk] (decay = e^g already), v [dv],
  // beta. state[i,:] *= decay[i]; pred[j] = chain over i of fma(k[i], state[i,j], pred[j]); u[j] = beta·(v[j]−pred[j]);
  // state[i,j] = fma(k[i], u[j], state[i,j]); out[j] = chain over i of fma(q[i], state[i,j], out[j]).
  void (*kda_step)(float* state, std::size_t dk, std::size_t dv, const float* q, const float* k, const float* decay,
                   float beta, const float* v, float* out);

  // ---- attention over one block of at most 1,024 cached positions (GQA, and MLA in its absorbed form, spec §3.3)
  // For each query: score_j = fl(dot(query, key_j)·scale); max = the largest; p_j = exp(score_j − max); sum = striped
  // sum of p; acc[c] = chain over j ascending of fma(p_j, value_j[c], acc[c]).
  void (*attention)(const AttentionBlock& block);

  // Quantises one vector [n]: group scale = fl(amax/127), q = nearest-even(x/scale) (fl division, clamped to ±127),
  // amax 0 gives zeros and scale 0. Returns false (and writes nothing useful) if a value is not finite.
  bool (*quantize_i8)(const float* x, std::size_t n, std::int8_t* q, float* scale);
};

}  // namespace myriad
