// How weights lie in memory: tiles of 16 output rows, the same for every instruction set and in part files.
//
// A matrix [rows, k] (row-major meaning: y = W x) is stored as ceil(rows/16) tiles; missing rows of the last tile are
// zero bytes. Multi-byte values are little-endian in files and in host order in memory. A tile is read from its first
// byte to its last, so that one stream of memory feeds a product. Tiles follow each other; each is a multiple of 64
// bytes.
//
//   f32    [k][16] f32
//   bf16   [ceil(k/2)][16][2] u16: element (j, r, i) is W[r, 2j+i]; k odd pads with 0
//   f16    [k][16] u16; k odd pads with 32 bytes of 0
//
// Quantised tiles. The columns are cut into groups of 32; G groups make a record, the last record of a tile may have
// fewer:
//
//   record of n groups = codes [n][code bytes], scales [n][scale bytes], block scales
//
// Codes are bit planes in *quads*: a vector of [16 rows][4 bytes] holds four columns of sixteen rows. Quad c (0 ≤ c <
// 8) of a group is its columns 4c … 4c+3.
//   bytes    8 vectors: vector c is quad c; signed values plus 128
//   nibbles  4 vectors: vector b holds quad 2b in the low nibbles and quad 2b+1 in the high ones
//   pairs    2 vectors: vector b holds quad 4b+j at bits 2j, 2j+1
//   bits     1 vector: quad j at bit j
// Their value is the code of quant/blocks.h: nibbles are its low four bits, pairs the two above them (or the lowest),
// bits the one above those.
//
//   type             G   planes          code   scales of a group, each [16 rows]           block scales, each [16]
//   mxfp4            4   nibbles         256    e u8                                        –
//   q4_0, iq4_nl     2   nibbles         256    d f16                                       –
//   q4_1             1   nibbles         256    d f16, m f16                                –
//   q5_0             2   nibbles, bits   320    d f16                                       –
//   q5_1             1   nibbles, bits   320    d f16, m f16                                –
//   q8_0             2   bytes           512    d f16                                       –
//   i4_zero          4   nibbles         256    d f16, zero u8                              –
//   q2_k             8   pairs           128    s | t << 4 u8 of columns 0–15, of 16–31     d f16, dmin f16
//   q3_k             8   pairs, bits     192    s i8 of columns 0–15, of 16–31              d f16
//   q4_k             8   nibbles         256    s u8, t u8                                  d f16, dmin f16
//   q5_k             8   nibbles, bits   320    s u8, t u8                                  d f16, dmin f16
//   q6_k             8   nibbles, pairs  384    s i8 of columns 0–15, of 16–31              d f16
//   q8_k             8   bytes           512    –                                           d f32
//   iq4_xs           8   nibbles         256    s i8                                        d f16
//   i8_row           1   bytes           512    – (the tile ends with d f32 [16])           –
// The last group of an i8_row tile may be short: what is missing is zero.
#pragma once

#include <cstddef>

#include "quant/dtype.h"

namespace myriad {

inline constexpr std::size_t kTileRows = 16;

struct TileFormat {
  // planes, and the bit of the code at which pairs and bits begin
  bool bytes = false, nibbles = false, pairs = false, bits = false;
  std::size_t record_groups = 1;
  std::size_t scale_bytes = 0;  // of a group
  std::size_t block_bytes = 0;  // of a record
  std::size_t tile_bytes = 0;   // at the end of the tile

  [[nodiscard]] constexpr std::size_t code_bytes() const {
    return (bytes ? 512 : 0) + (nibbles ? 256 : 0) + (pairs ? 128 : 0) + (bits ? 64 : 0);
  }
  [[nodiscard]] constexpr unsigned pairs_at() const { return nibbles ? 4 : 0; }
  [[nodiscard]] constexpr unsigned bits_at() const { return nibbles ? 4 : 2; }
  [[nodiscard]] constexpr std::size_t group_bytes() const { return code_bytes() + scale_bytes; }
  // Where record `r` begins.
  [[nodiscard]] constexpr std::size_t record_at(std::size_t r) const {
    return r * (record_groups * group_bytes() + block_bytes);
  }
  // Bytes of a tile of so many groups.
  [[nodiscard]] constexpr std::size_t bytes_of(std::size_t groups) const {
    const std::size_t records = (groups + record_groups - 1) / record_groups;
    return (groups * group_bytes() + records * block_bytes + tile_bytes + 63) / 64 * 64;
  }
};

// Of the quantised types.
constexpr TileFormat tile_format(DType t) {
  switch (t) {
    case DType::mxfp4:
      return {.nibbles = true, .record_groups = 4, .scale_bytes = 16};
    case DType::q4_0:
    case DType::iq4_nl:
      return {.nibbles = true, .record_groups = 2, .scale_bytes = 32};
    case DType::q4_1:
      return {.nibbles = true, .scale_bytes = 64};
    case DType::q5_0:
      return {.nibbles = true, .bits = true, .record_groups = 2, .scale_bytes = 32};
    case DType::q5_1:
      return {.nibbles = true, .bits = true, .scale_bytes = 64};
    case DType::q8_0:
      return {.bytes = true, .record_groups = 2, .scale_bytes = 32};
    case DType::i4_zero:
      return {.nibbles = true, .record_groups = 4, .scale_bytes = 48};
    case DType::q2_k:
      return {.pairs = true, .record_groups = 8, .scale_bytes = 32, .block_bytes = 64};
    case DType::q3_k:
      return {.pairs = true, .bits = true, .record_groups = 8, .scale_bytes = 32, .block_bytes = 32};
    case DType::q4_k:
      return {.nibbles = true, .record_groups = 8, .scale_bytes = 32, .block_bytes = 64};
    case DType::q5_k:
      return {.nibbles = true, .bits = true, .record_groups = 8, .scale_bytes = 32, .block_bytes = 64};
    case DType::q6_k:
      return {.nibbles = true, .pairs = true, .record_groups = 8, .scale_bytes = 32, .block_bytes = 32};
    case DType::q8_k:
      return {.bytes = true, .record_groups = 8, .block_bytes = 64};
    case DType::iq4_xs:
      return {.nibbles = true, .record_groups = 8, .scale_bytes = 16, .block_bytes = 32};
    case DType::i8_row:
      return {.bytes = true, .tile_bytes = 64};
    case DType::f32:
    case DType::bf16:
    case DType::f16:
      break;
  }
  return {};
}

}  // namespace myriad
