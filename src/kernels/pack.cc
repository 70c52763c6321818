// Making tiles of rows and reading them back; the layouts are those of tile_format.h.
#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "kernels/kernels.h"
#include "quant/blocks.h"

namespace myriad {
namespace {

template <class T>
void put(std::byte* at, T v) {
  std::memcpy(at, &v, sizeof v);
}
template <class T>
T get(const std::byte* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

std::size_t groups_of(std::size_t k) {
  return (k + kGroup - 1) / kGroup;
}

// Where the parts of one group of a tile are.
struct Place {
  std::size_t codes, scales, block;

  Place(const TileFormat& f, std::size_t groups, std::size_t group) {
    const std::size_t record = group / f.record_groups, at = group % f.record_groups, begin = f.record_at(record);
    const std::size_t n = std::min(f.record_groups, groups - record * f.record_groups);
    codes = begin + at * f.code_bytes();
    scales = begin + n * f.code_bytes() + at * f.scale_bytes;
    block = f.tile_bytes > 0 ? groups * f.group_bytes() : begin + n * f.group_bytes();
  }
};

// The byte of a quad's vector that holds column `c` of a group, row `r`.
std::size_t byte_in_quad(std::size_t c, std::size_t r) {
  return r * 4 + c % 4;
}

// The 32 codes of a group of row `r`. Four bytes go at a time, each shifted by itself, so the byte order does not
// matter.
void put_codes(const TileFormat& f, std::byte* planes, std::size_t r, const std::uint8_t* codes) {
  std::uint32_t quads[8];
  std::memcpy(quads, codes, sizeof quads);
  const auto vector = [&](std::size_t i, std::uint32_t four) { put(planes + 64 * i + 4 * r, four); };
  if (f.bytes) {
    for (std::size_t c = 0; c < 8; ++c) vector(c, quads[c]);
    return;
  }
  if (f.nibbles) {
    for (std::size_t b = 0; b < 4; ++b) vector(b, (quads[2 * b] & 0x0f0f0f0fu) | (quads[2 * b + 1] & 0x0f0f0f0fu) << 4);
    planes += 256;
  }
  if (f.pairs) {
    for (std::size_t b = 0; b < 2; ++b) {
      std::uint32_t four = 0;
      for (std::size_t j = 0; j < 4; ++j) four |= (quads[4 * b + j] >> f.pairs_at() & 0x03030303u) << 2 * j;
      vector(b, four);
    }
    planes += 128;
  }
  if (f.bits) {
    std::uint32_t four = 0;
    for (std::size_t j = 0; j < 8; ++j) four |= (quads[j] >> f.bits_at() & 0x01010101u) << j;
    vector(0, four);
  }
}

unsigned get_code(const TileFormat& f, const std::byte* planes, std::size_t c, std::size_t r) {
  const std::size_t quad = c / 4, byte = byte_in_quad(c, r);
  if (f.bytes) return std::to_integer<unsigned>(planes[64 * quad + byte]);
  unsigned code = 0;
  if (f.nibbles) {
    code = std::to_integer<unsigned>(planes[64 * (quad / 2) + byte]) >> quad % 2 * 4 & 15u;
    planes += 256;
  }
  if (f.pairs) {
    code |= (std::to_integer<unsigned>(planes[64 * (quad / 4) + byte]) >> quad % 4 * 2 & 3u) << f.pairs_at();
    planes += 128;
  }
  if (f.bits) code |= (std::to_integer<unsigned>(planes[byte]) >> quad & 1u) << f.bits_at();
  return code;
}

// The scales of group `g` of a block, for row `r`.
void put_scales(DType t, const BlockFields& f, std::size_t g, std::size_t r, std::byte* scales, std::byte* block) {
  const auto byte = [](int v) { return static_cast<std::byte>(v); };
  switch (t) {
    case DType::mxfp4:
      scales[r] = byte(f.d);
      return;
    case DType::q4_1:
    case DType::q5_1:
      put(scales + 32 + 2 * r, f.m);
      break;
    case DType::i4_zero:
      scales[32 + r] = byte(f.m);
      break;
    case DType::q2_k:
      for (std::size_t half = 0; half < 2; ++half)
        scales[16 * half + r] = byte(f.scales[2 * g + half] | f.minima[2 * g + half] << 4);
      put(block + 32 + 2 * r, f.m);
      break;
    case DType::q3_k:
    case DType::q6_k:
      for (std::size_t half = 0; half < 2; ++half) scales[16 * half + r] = byte(f.scales[2 * g + half]);
      break;
    case DType::q4_k:
    case DType::q5_k:
      scales[r] = byte(f.scales[g]);
      scales[16 + r] = byte(f.minima[g]);
      put(block + 32 + 2 * r, f.m);
      break;
    case DType::q8_k:
      put(block + 4 * r, f.wide);
      return;
    case DType::iq4_xs:
      scales[r] = byte(f.scales[g]);
      break;
    default:
      break;
  }
  put((tile_format(t).block_bytes > 0 ? block : scales) + 2 * r, f.d);
}

// 2^(e-128). Byte 255 means NaN and never gets into a part; here it gives +inf.
float half_power(std::uint8_t e) {
  return std::bit_cast<float>(e == 0 ? 0x00400000u : static_cast<std::uint32_t>(e) << 23) * 0.5F;
}

void get_scales(DType t, std::size_t r, const std::byte* scales, const std::byte* block, TileGroup& out) {
  const auto number = [](const std::byte* at) { return static_cast<float>(std::to_integer<int>(*at)); };
  const auto signed_number = [](const std::byte* at) { return static_cast<float>(static_cast<std::int8_t>(*at)); };
  const auto half = [](const std::byte* at) { return f16_to_f32(get<std::uint16_t>(at)); };
  float(&scale)[2][kTileRows] = out.scale;
  float(&minimum)[2][kTileRows] = out.minimum;
  minimum[0][r] = minimum[1][r] = 0.0F;
  switch (t) {
    case DType::mxfp4:
      scale[0][r] = half_power(std::to_integer<std::uint8_t>(scales[r]));
      break;
    case DType::q4_1:
    case DType::q5_1:
      scale[0][r] = half(scales + 2 * r);
      minimum[0][r] = -half(scales + 32 + 2 * r);
      break;
    case DType::q2_k:
      for (std::size_t h = 0; h < 2; ++h) {
        const auto both = std::to_integer<unsigned>(scales[16 * h + r]);
        scale[h][r] = half(block + 2 * r) * static_cast<float>(both & 15u);
        minimum[h][r] = half(block + 32 + 2 * r) * static_cast<float>(both >> 4);
      }
      return;
    case DType::q3_k:
    case DType::q6_k:
      for (std::size_t h = 0; h < 2; ++h) scale[h][r] = half(block + 2 * r) * signed_number(scales + 16 * h + r);
      return;
    case DType::q4_k:
    case DType::q5_k:
      scale[0][r] = half(block + 2 * r) * number(scales + r);
      minimum[0][r] = half(block + 32 + 2 * r) * number(scales + 16 + r);
      break;
    case DType::q8_k:
    case DType::i8_row:
      scale[0][r] = get<float>(block + 4 * r);
      break;
    case DType::iq4_xs:
      scale[0][r] = half(block + 2 * r) * signed_number(scales + r);
      break;
    default:
      scale[0][r] = half(scales + 2 * r);
      break;
  }
  scale[1][r] = scale[0][r];
  minimum[1][r] = minimum[0][r];
}

void pack_i8_row(const std::byte* row, std::size_t k, std::size_t r, std::byte* tile) {
  const TileFormat f = tile_format(DType::i8_row);
  const std::size_t groups = groups_of(k);
  for (std::size_t a = 0; a < groups; ++a) {
    std::uint8_t codes[kGroup];
    for (std::size_t c = 0; c < kGroup; ++c) {
      const std::size_t column = a * kGroup + c;
      codes[c] = column < k ? std::to_integer<std::uint8_t>(row[kRowScaleBytes + column]) ^ 0x80 : 0x80;
    }
    put_codes(f, tile + f.record_at(a), r, codes);
  }
  put(tile + groups * f.group_bytes() + 4 * r, load_le<float>(row));
}

void pack_quantized(DType t, const std::byte* storage, std::size_t rows, std::size_t k, std::span<std::byte> out) {
  const TileFormat f = tile_format(t);
  const std::size_t groups = groups_of(k), bytes = tile_bytes(t, k), in_block = block_values(t) / kGroup;
  std::ranges::fill(out.first(tiles_for(rows) * bytes), std::byte{0});
  BlockFields fields;
  for (std::size_t row = 0; row < rows; ++row) {
    std::byte* tile = out.data() + row / kTileRows * bytes;
    const std::size_t r = row % kTileRows;
    const std::byte* from = storage + row * row_bytes(t, k);
    if (t == DType::i8_row) {
      pack_i8_row(from, k, r, tile);
      continue;
    }
    for (std::size_t a = 0; a < groups; ++a) {
      if (a % in_block == 0) read_block(t, from + a / in_block * block_bytes(t), fields);
      const Place place(f, groups, a);
      put_codes(f, tile + place.codes, r, fields.codes + a % in_block * kGroup);
      put_scales(t, fields, a % in_block, r, tile + place.scales, tile + place.block);
    }
  }
}

// Elements of a float tile: where row `r`, column `c` stands.
std::size_t element(DType t, std::size_t c, std::size_t r) {
  return t == DType::bf16 ? (c / 2 * kTileRows + r) * 2 + c % 2 : c * kTileRows + r;
}

float float_at(DType t, const std::byte* tile, std::size_t c, std::size_t r) {
  const std::size_t i = element(t, c, r);
  if (t == DType::f32) return get<float>(tile + 4 * i);
  const auto bits = get<std::uint16_t>(tile + 2 * i);
  return t == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

// value(row, column) gives the bits.
template <class T>
void pack_floats(DType t, std::size_t rows, std::size_t k, std::span<std::byte> out, const auto& value) {
  const std::size_t bytes = tile_bytes(t, k);
  std::ranges::fill(out.first(tiles_for(rows) * bytes), std::byte{0});
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t c = 0; c < k; ++c) {
      const T v = value(row, c);
      put(out.data() + row / kTileRows * bytes + sizeof(T) * element(t, c, row % kTileRows), v);
    }
}

}  // namespace

void pack_f32(const float* w, std::size_t rows, std::size_t k, std::span<std::byte> out) {
  pack_floats<float>(DType::f32, rows, k, out, [&](std::size_t row, std::size_t c) { return w[row * k + c]; });
}

void pack_bf16(const std::uint16_t* w, std::size_t rows, std::size_t k, std::span<std::byte> out) {
  pack_floats<std::uint16_t>(DType::bf16, rows, k, out, [&](std::size_t row, std::size_t c) { return w[row * k + c]; });
}

void pack_mxfp4(const std::uint8_t* codes, const std::uint8_t* scales, std::size_t rows, std::size_t k,
                std::span<std::byte> out) {
  const std::size_t groups = k / kGroup, bytes = tile_bytes(DType::mxfp4, k);
  const TileFormat f = tile_format(DType::mxfp4);
  std::ranges::fill(out.first(tiles_for(rows) * bytes), std::byte{0});
  for (std::size_t i = 0; i < rows; ++i) {
    std::byte* tile = out.data() + i / kTileRows * bytes;
    for (std::size_t a = 0; a < groups; ++a) {
      const Place place(f, groups, a);
      std::uint8_t group[kGroup];
      for (std::size_t c = 0; c < kGroup; ++c) group[c] = codes[i * (k / 2) + (a * kGroup + c) / 2] >> c % 2 * 4 & 15;
      put_codes(f, tile + place.codes, i % kTileRows, group);
      tile[place.scales + i % kTileRows] = static_cast<std::byte>(scales[i * groups + a]);
    }
  }
}

void pack_rows(DType t, const std::byte* storage, std::size_t rows, std::size_t k, std::span<std::byte> out) {
  const std::size_t stride = row_bytes(t, k);
  switch (t) {
    case DType::f32:
      pack_floats<float>(t, rows, k, out, [&](std::size_t row, std::size_t c) {
        return load_le<float>(storage + row * stride + 4 * c);
      });
      return;
    case DType::bf16:
    case DType::f16:
      pack_floats<std::uint16_t>(t, rows, k, out, [&](std::size_t row, std::size_t c) {
        return load_le<std::uint16_t>(storage + row * stride + 2 * c);
      });
      return;
    default:
      pack_quantized(t, storage, rows, k, out);
  }
}

void swap_tiles(DType t, std::size_t k, std::span<std::byte> packed) {
  if constexpr (std::endian::native == std::endian::little) return;
  const auto swap = [&](std::size_t at, std::size_t bytes, std::size_t width) {
    for (std::size_t i = at; i < at + bytes; i += width) std::reverse(packed.data() + i, packed.data() + i + width);
  };
  if (!is_quantized(t)) {
    const std::size_t width = t == DType::f32 ? 4 : 2;
    swap(0, packed.size() / width * width, width);
    return;
  }
  const TileFormat f = tile_format(t);
  const std::size_t groups = groups_of(k), bytes = tile_bytes(t, k);
  if (bytes == 0) return;
  // d and m of a group are f16 and stand first among its scales
  const std::size_t halves = t == DType::q4_1 || t == DType::q5_1      ? 64
                             : f.block_bytes > 0 || f.scale_bytes < 32 ? 0
                                                                       : 32;
  for (std::size_t tile = 0; tile + bytes <= packed.size(); tile += bytes) {
    for (std::size_t a = 0; a < groups; ++a) {
      const Place place(f, groups, a);
      swap(tile + place.scales, halves, 2);
      if (a % f.record_groups == 0) swap(tile + place.block, f.block_bytes, t == DType::q8_k ? 4 : 2);
    }
    swap(tile + groups * f.group_bytes(), f.tile_bytes, 4);
  }
}

void read_tile_group(DType t, const std::byte* tile, std::size_t k, std::size_t group, TileGroup& out) {
  const TileFormat f = tile_format(t);
  const Place place(f, groups_of(k), group);
  for (std::size_t r = 0; r < kTileRows; ++r) {
    const int zero = t == DType::i4_zero ? std::to_integer<int>(tile[place.scales + 32 + r]) : 0;
    for (std::size_t c = 0; c < kGroup; ++c)
      out.q[c][r] = static_cast<std::int16_t>(
          code_value(t, static_cast<std::uint8_t>(get_code(f, tile + place.codes, c, r))) - zero);
    get_scales(t, r, tile + place.scales, tile + place.block, out);
  }
}

void unpack_row(DType t, const std::byte* tiles, std::size_t k, std::size_t row, float* out) {
  const std::byte* tile = tiles + row / kTileRows * tile_bytes(t, k);
  const std::size_t r = row % kTileRows;
  if (!is_quantized(t)) {
    for (std::size_t c = 0; c < k; ++c) out[c] = float_at(t, tile, c, r);
    return;
  }
  const TileFormat f = tile_format(t);
  TileGroup scales;
  for (std::size_t a = 0; a < groups_of(k); ++a) {
    const Place place(f, groups_of(k), a);
    const int zero = t == DType::i4_zero ? std::to_integer<int>(tile[place.scales + 32 + r]) : 0;
    get_scales(t, r, tile + place.scales, tile + place.block, scales);
    for (std::size_t c = 0; c < kGroup && a * kGroup + c < k; ++c) {
      const int q = code_value(t, static_cast<std::uint8_t>(get_code(f, tile + place.codes, c, r))) - zero;
      out[a * kGroup + c] = scales.scale[c / 16][r] * static_cast<float>(q);
      if (has_minima(t)) out[a * kGroup + c] -= scales.minimum[c / 16][r];
    }
  }
}

void unpack_tile(DType t, const std::byte* tile, std::size_t k, float* out) {
  for (std::size_t r = 0; r < kTileRows; ++r) unpack_row(t, tile, k, r, out + r * k);
}

}  // namespace myriad
