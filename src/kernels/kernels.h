// The one table of functions behind which every hot loop lives, one implementation an instruction set, and the making
// of the weight tiles that they stream (kernels/tile_format.h says how those lie in memory).
//
// Every function gives the same bits on every instruction set, byte order, batch and thread count: the scalar
// implementation (kernels_scalar.cc) is the definition, and its comments say in which order sums are made. The rules
// (docs/architecture.md, numerics contract):
//   * a dot product against weights is one chain per output: acc = 0; for k ascending: acc = fma(w[k], x[k], acc),
//   where w of
//     a quantised type is its value in f32 (quant/blocks.h);
//   * a quantised dot product: int8 activations q with a scale `as` for each 32 columns; groups of 32 columns (of q2_k,
//   q3_k,
//     q6_k: 16) in ascending order, for each
//         sum = Σ code·q, exact;   acc = fma(fl(ws·as), float(sum), acc)
//         types with minima:       acc = fma(−wm, fl(as·float(Σq)), acc)
//     where code is what code_value() says, ws and wm the scale and minimum of the group in f32 (q4_1, q5_1: wm = −m),
//     and of i4_zero code·q means (code − zero)·q;
//   * a reduction over one vector: 16 stripes (element i goes to stripe i mod 16, ascending, by fma or add), then the
//   fixed tree
//     s[i] += s[i+8], s[i] += s[i+4], s[i] += s[i+2], s[0] += s[1];
//   * exp, tanh, sigmoid, softplus, rsqrt, sine and cosine are those of kernels/math.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"
#include "kernels/table.h"
#include "kernels/tile_format.h"
#include "quant/formats.h"

namespace myriad {

constexpr std::size_t tiles_for(std::size_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}
// Bytes of one tile of `k` columns; fits_blocks(t, k).
constexpr std::size_t tile_bytes(DType t, std::size_t k) {
  switch (t) {
    case DType::f32:
      return 64 * k;
    case DType::bf16:
    case DType::f16:
      return 64 * ((k + 1) / 2);
    default:
      return k == 0 ? 0 : tile_format(t).bytes_of((k + kGroup - 1) / kGroup);
  }
}
constexpr std::size_t matrix_bytes(DType t, std::size_t rows, std::size_t k) {
  return tiles_for(rows) * tile_bytes(t, k);
}

enum class Isa : std::uint8_t { scalar, avx2, avx512, neon, neondot, altivec };
// Those of one processor from the least to the best.
inline constexpr Isa kAllIsas[] = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::neon, Isa::neondot, Isa::altivec};
std::string_view isa_name(Isa isa);

// The best set that this CPU has, or the one that MYRIAD_ISA names (an error if unknown or not there).
Result<const Kernels*> choose_kernels();
// nullptr if this CPU or this build does not have it.
const Kernels* kernels_for(Isa isa);
const Kernels& scalar_kernels();

// The integer product in one call: lays the activations out in memory of its own, then multiplies.
void multiply_i8(const Kernels& kernels, DType t, const std::byte* weights, std::size_t k, std::size_t tile0,
                 std::size_t tile1, Int8Rows x, std::size_t tokens, float* y, std::size_t ldy);

// ---- making tiles (at cut time). Tiles are in host order. `out` has matrix_bytes(…) bytes, zeroed or not.
// Rows as files store them (quant/formats.h), row_bytes(t, k) apart.
void pack_rows(DType t, const std::byte* storage, std::size_t rows, std::size_t k, std::span<std::byte> out);
// Row-major values of this host.
void pack_f32(const float* w, std::size_t rows, std::size_t k, std::span<std::byte> out);
void pack_bf16(const std::uint16_t* w, std::size_t rows, std::size_t k, std::span<std::byte> out);
// codes: [rows, k/2] as in safetensors (low nibble = even column), scales: [rows, k/32]
void pack_mxfp4(const std::uint8_t* codes, const std::uint8_t* scales, std::size_t rows, std::size_t k,
                std::span<std::byte> out);
// Swaps whole packed matrices of k columns between host order and little-endian storage (its own inverse; nothing on a
// little-endian host).
void swap_tiles(DType t, std::size_t k, std::span<std::byte> packed);

// ---- reading tiles back, in f32: what dequantize() gives for the rows that were packed.
// Row `row` of the matrix whose first tile is at `tiles`: [k].
void unpack_row(DType t, const std::byte* tiles, std::size_t k, std::size_t row, float* out);
// All rows of one tile: [16, k].
void unpack_tile(DType t, const std::byte* tile, std::size_t k, float* out);

// One group of 32 columns of a quantised tile.
struct TileGroup {
  std::int16_t q[kGroup][kTileRows];  // [column][row]: as code_value() says; i4_zero: less the zero point
  float scale[2][kTileRows];          // of columns 0–15, 16–31; types with groups of 32 have both the same
  float minimum[2][kTileRows];        // likewise; 0 for types without minima
};
void read_tile_group(DType t, const std::byte* tile, std::size_t k, std::size_t group, TileGroup& out);

}  // namespace myriad
