// The one table of functions behind which every hot loop lives, one implementation an instruction set.
//
// Every function gives the same bits on every instruction set, byte order, batch and thread count: the scalar implementation
// (kernels_scalar.cc) is the definition, and its comments say in which order sums are made. The rules (docs/architecture.md,
// numerics contract):
//   * a dot product against weights is one chain per output: acc = 0; for k ascending: acc = fma(w[k], x[k], acc);
//   * a quantised dot product: integers exact inside a group of 32, then acc = fma(fl(ws*as), float(sum), acc) over ascending groups;
//   * a reduction over one vector: 16 stripes (element i goes to stripe i mod 16, ascending, by fma or add), then the fixed tree
//     s[i] += s[i+8], s[i] += s[i+4], s[i] += s[i+2], s[0] += s[1];
//   * exp, tanh, sigmoid, softplus, rsqrt are those of kernels/math.h.
//
// Weight tiles. A matrix [rows, k] (row-major meaning: y = W x) is stored as ceil(rows/16) tiles of 16 output rows; missing rows
// of the last tile are zero. All values little-endian in files; in memory multi-byte values are in host order.
//   f32    tile: [k][16] f32                                       16·k·4 bytes
//   bf16   tile: [ceil(k/2)][16][2] u16: element (j, r, i) is W[r, 2j+i]; k odd pads with 0     16·2·ceil(k/2)·2 bytes
//   mxfp4  tile: k is a multiple of 32, g = k/32 groups.
//          codes  [g][4][16][4] bytes: byte (a, b, r, i): low nibble W[r, 32a+8b+i], high nibble W[r, 32a+8b+4+i]   256·g bytes
//          then scales [g][16] bytes: E8M0 of row r, group a                                                         16·g bytes
//          one tile = 272·g bytes, padded with zeros to a multiple of 64.
// Tiles follow each other without further padding (f32 and bf16 tiles are multiples of 64 bytes by themselves).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"
#include "quant/formats.h"

namespace myriad {

inline constexpr std::size_t kTileRows = 16;

constexpr std::size_t tiles_for(std::size_t rows) { return (rows + kTileRows - 1) / kTileRows; }
// Bytes of one tile of `k` columns.
constexpr std::size_t tile_bytes(DType t, std::size_t k) {
  switch (t) {
    case DType::f32: return 64 * k;
    case DType::bf16: return 64 * ((k + 1) / 2);
    case DType::mxfp4: return (272 * (k / kGroup) + 63) / 64 * 64;
  }
  return 0;
}
constexpr std::size_t matrix_bytes(DType t, std::size_t rows, std::size_t k) { return tiles_for(rows) * tile_bytes(t, k); }

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

enum class Isa : std::uint8_t { scalar, avx2, avx512 };

// The best set that this CPU has, or the one that MYRIAD_ISA names (an error if unknown or not there).
Result<const Kernels*> choose_kernels();
// nullptr if this CPU or this build does not have it.
const Kernels* kernels_for(Isa isa);
const Kernels& scalar_kernels();

// ---- making tiles (at cut time)
// Row-major values -> tiles in host order. Pads rows to 16 with zeros. `out` has matrix_bytes(…) bytes, zeroed or not.
void pack_f32(const float* w, std::size_t rows, std::size_t k, std::span<std::byte> out);
void pack_bf16(const std::uint16_t* w, std::size_t rows, std::size_t k, std::span<std::byte> out);
// codes: [rows, k/2] as in safetensors (low nibble = even column), scales: [rows, k/32]
void pack_mxfp4(const std::uint8_t* codes, const std::uint8_t* scales, std::size_t rows, std::size_t k, std::span<std::byte> out);
// Swaps a packed matrix between host order and little-endian storage (its own inverse; nothing on a little-endian host).
void swap_tiles(DType t, std::span<std::byte> packed);

}  // namespace myriad
