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
#include "kernels/table.h"
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
