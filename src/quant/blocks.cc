#include "quant/blocks.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"

namespace myriad {
namespace {

std::uint8_t byte_at(const std::byte* p, std::size_t i) {
  return std::to_integer<std::uint8_t>(p[i]);
}

// 16 bytes: values 0–15 in the low nibbles, 16–31 in the high ones.
void read_nibbles(const std::byte* p, std::uint8_t* codes) {
  for (std::size_t i = 0; i < 16; ++i) {
    codes[i] = byte_at(p, i) & 15;
    codes[16 + i] = byte_at(p, i) >> 4;
  }
}

// 32 bytes for 64 values.
void read_wide_nibbles(const std::byte* p, std::uint8_t* codes) {
  for (std::size_t i = 0; i < 32; ++i) {
    codes[i] = byte_at(p, i) & 15;
    codes[32 + i] = byte_at(p, i) >> 4;
  }
}

void read_fifth_bits(const std::byte* p, std::uint8_t* codes) {
  const auto bits = load_le<std::uint32_t>(p);
  for (std::size_t i = 0; i < 32; ++i) codes[i] |= static_cast<std::uint8_t>((bits >> i & 1u) << 4);
}

void read_signed(const std::byte* p, std::size_t n, std::uint8_t* codes) {
  for (std::size_t i = 0; i < n; ++i) codes[i] = byte_at(p, i) ^ 0x80;
}

// 8 scales and 8 minima of 6 bits in 12 bytes: the first four of each whole, the upper bits of the others above them.
void read_six_bit_pairs(const std::byte* p, BlockFields& f) {
  for (std::size_t j = 0; j < 4; ++j) {
    f.scales[j] = byte_at(p, j) & 63;
    f.minima[j] = byte_at(p, j + 4) & 63;
    f.scales[j + 4] = static_cast<std::int16_t>((byte_at(p, j + 8) & 15) | byte_at(p, j) >> 6 << 4);
    f.minima[j + 4] = static_cast<std::uint8_t>(byte_at(p, j + 8) >> 4 | byte_at(p, j + 4) >> 6 << 4);
  }
}

// Two bits a value: 128 values in 32 bytes, value 32·j + i at bits 2j of byte i.
void read_two_bits(const std::byte* p, unsigned to_bit, std::uint8_t* codes) {
  for (std::size_t half = 0; half < 2; ++half)
    for (std::size_t j = 0; j < 4; ++j)
      for (std::size_t i = 0; i < 32; ++i)
        codes[128 * half + 32 * j + i] |= static_cast<std::uint8_t>((byte_at(p, 32 * half + i) >> 2 * j & 3) << to_bit);
}

// One bit a value: value 32·j + i at bit j of byte i.
void read_one_bit(const std::byte* p, unsigned to_bit, std::uint8_t* codes) {
  for (std::size_t j = 0; j < 8; ++j)
    for (std::size_t i = 0; i < 32; ++i)
      codes[32 * j + i] |= static_cast<std::uint8_t>((byte_at(p, i) >> j & 1) << to_bit);
}

bool finite_f16(std::uint16_t v) {
  return (v & 0x7c00u) != 0x7c00u;
}

// What a group's codes are multiplied with.
float group_scale(DType t, const BlockFields& f, std::size_t g) {
  switch (t) {
    case DType::mxfp4:
      return e8m0_to_f32(static_cast<std::uint8_t>(f.d)) * 0.5F;
    case DType::q8_k:
      return f.wide;
    case DType::q2_k:
    case DType::q3_k:
    case DType::q4_k:
    case DType::q5_k:
    case DType::q6_k:
    case DType::iq4_xs:
      return f16_to_f32(f.d) * static_cast<float>(f.scales[g]);
    default:
      return f16_to_f32(f.d);
  }
}

float group_minimum(DType t, const BlockFields& f, std::size_t g) {
  if (t == DType::q4_1 || t == DType::q5_1) return -f16_to_f32(f.m);
  return f16_to_f32(f.m) * static_cast<float>(f.minima[g]);
}

}  // namespace

void read_block(DType t, const std::byte* block, BlockFields& f) {
  const auto half = [&](std::size_t at) { return load_le<std::uint16_t>(block + at); };
  std::uint8_t* q = f.codes;
  switch (t) {
    case DType::mxfp4:
      f.d = byte_at(block, 0);
      read_nibbles(block + 1, q);
      break;
    case DType::q4_0:
    case DType::iq4_nl:
      f.d = half(0);
      read_nibbles(block + 2, q);
      break;
    case DType::q4_1:
      f.d = half(0);
      f.m = half(2);
      read_nibbles(block + 4, q);
      break;
    case DType::q5_0:
      f.d = half(0);
      read_nibbles(block + 6, q);
      read_fifth_bits(block + 2, q);
      break;
    case DType::q5_1:
      f.d = half(0);
      f.m = half(2);
      read_nibbles(block + 8, q);
      read_fifth_bits(block + 4, q);
      break;
    case DType::i4_zero:
      f.d = half(0);
      f.m = byte_at(block, 2);
      read_nibbles(block + 3, q);
      break;
    case DType::q8_0:
      f.d = half(0);
      read_signed(block + 2, 32, q);
      break;
    case DType::q2_k:
      for (std::size_t g = 0; g < 16; ++g) {
        f.scales[g] = byte_at(block, g) & 15;
        f.minima[g] = byte_at(block, g) >> 4;
      }
      std::fill_n(q, 256, std::uint8_t{0});
      read_two_bits(block + 16, 0, q);
      f.d = half(80);
      f.m = half(82);
      break;
    case DType::q3_k:
      std::fill_n(q, 256, std::uint8_t{0});
      read_one_bit(block, 2, q);
      read_two_bits(block + 32, 0, q);
      for (std::size_t g = 0; g < 16; ++g) {  // lower four bits in 8 bytes, upper two in 4
        const int low = byte_at(block, 96 + g % 8) >> (g < 8 ? 0 : 4) & 15;
        const int high = byte_at(block, 104 + g % 4) >> 2 * (g / 4) & 3;
        f.scales[g] = static_cast<std::int16_t>((low | high << 4) - 32);
      }
      f.d = half(108);
      break;
    case DType::q4_k:
    case DType::q5_k: {
      f.d = half(0);
      f.m = half(2);
      read_six_bit_pairs(block + 4, f);
      const std::byte* nibbles = block + (t == DType::q4_k ? 16 : 48);
      for (std::size_t j = 0; j < 4; ++j) read_wide_nibbles(nibbles + 32 * j, q + 64 * j);
      if (t == DType::q5_k) read_one_bit(block + 16, 4, q);
      break;
    }
    case DType::q6_k:
      // two halves of 128 values, each with 64 bytes of nibbles: low ones first
      for (std::size_t h = 0; h < 2; ++h)
        for (std::size_t i = 0; i < 64; ++i) {
          q[128 * h + i] = byte_at(block, 64 * h + i) & 15;
          q[128 * h + 64 + i] = byte_at(block, 64 * h + i) >> 4;
        }
      read_two_bits(block + 128, 4, q);
      for (std::size_t g = 0; g < 16; ++g) f.scales[g] = static_cast<std::int8_t>(byte_at(block, 192 + g));
      f.d = half(208);
      break;
    case DType::q8_k:
      f.wide = load_le<float>(block);
      read_signed(block + 4, 256, q);
      break;
    case DType::iq4_xs: {
      f.d = half(0);
      const unsigned high = half(2);
      for (std::size_t g = 0; g < 8; ++g) {
        const unsigned low = byte_at(block, 4 + g / 2) >> (g % 2 * 4) & 15u;
        f.scales[g] = static_cast<std::int16_t>(static_cast<int>(low | (high >> 2 * g & 3u) << 4) - 32);
        read_nibbles(block + 8 + 16 * g, q + 32 * g);
      }
      break;
    }
    case DType::f32:
    case DType::bf16:
    case DType::f16:
    case DType::i8_row:
      break;
  }
}

int code_value(DType t, std::uint8_t code) {
  switch (t) {
    case DType::mxfp4:
      return kE2M1Doubled[code & 15];
    case DType::iq4_nl:
    case DType::iq4_xs:
      return kIq4Values[code & 15];
    case DType::q4_0:
      return code - 8;
    case DType::q5_0:
      return code - 16;
    case DType::q3_k:
      return code - 4;
    case DType::q6_k:
      return code - 32;
    case DType::q8_0:
    case DType::q8_k:
    case DType::i8_row:
      return code - 128;
    default:
      return code;
  }
}

void read_grouped_row(DType t, const std::byte* row, std::size_t k, const GroupedRow& out) {
  if (t == DType::i8_row) {
    std::ranges::fill(out.scale.first((k + kGroup - 1) / kGroup), load_le<float>(row));
    for (std::size_t i = 0; i < k; ++i) out.q[i] = static_cast<std::int8_t>(byte_at(row, kRowScaleBytes + i));
    return;
  }
  const std::size_t values = block_values(t), group = scale_group(t);
  BlockFields f;
  for (std::size_t b = 0; b < k / values; ++b) {
    read_block(t, row + b * block_bytes(t), f);
    const int zero = t == DType::i4_zero ? f.m : 0;
    for (std::size_t i = 0; i < values; ++i)
      out.q[b * values + i] = static_cast<std::int16_t>(code_value(t, f.codes[i]) - zero);
    for (std::size_t g = 0; g < values / group; ++g) {
      out.scale[b * (values / group) + g] = group_scale(t, f, g);
      if (has_minima(t)) out.minimum[b * (values / group) + g] = group_minimum(t, f, g);
    }
  }
}

void dequantize(DType t, const std::byte* blocks, std::size_t values, float* out) {
  switch (t) {
    case DType::f32:
      for (std::size_t i = 0; i < values; ++i) out[i] = load_le<float>(blocks + 4 * i);
      return;
    case DType::bf16:
      for (std::size_t i = 0; i < values; ++i) out[i] = bf16_to_f32(load_le<std::uint16_t>(blocks + 2 * i));
      return;
    case DType::f16:
      for (std::size_t i = 0; i < values; ++i) out[i] = f16_to_f32(load_le<std::uint16_t>(blocks + 2 * i));
      return;
    case DType::i8_row: {
      if (values == 0) return;
      const auto d = load_le<float>(blocks);
      for (std::size_t i = 0; i < values; ++i)
        out[i] = d * static_cast<float>(static_cast<std::int8_t>(byte_at(blocks, kRowScaleBytes + i)));
      return;
    }
    default:
      break;
  }
  const std::size_t in_block = block_values(t), group = scale_group(t);
  if (in_block == 0) return;
  BlockFields f;
  for (std::size_t b = 0; b < values / in_block; ++b, blocks += block_bytes(t), out += in_block) {
    read_block(t, blocks, f);
    const int zero = t == DType::i4_zero ? f.m : 0;
    for (std::size_t g = 0; g < in_block / group; ++g) {
      const float scale = group_scale(t, f, g);
      for (std::size_t i = g * group; i < (g + 1) * group; ++i)
        out[i] = scale * static_cast<float>(code_value(t, f.codes[i]) - zero);
      if (!has_minima(t)) continue;
      const float minimum = group_minimum(t, f, g);
      for (std::size_t i = g * group; i < (g + 1) * group; ++i) out[i] -= minimum;
    }
  }
}

namespace {

// Whether an exponent is all ones among n values of `Word`, as in numbers that are none or infinite.
template <class Word>
bool any_not_finite(const std::byte* values, std::size_t n, Word exponent) {
  bool any = false;
  for (std::size_t i = 0; i < n; ++i) any |= (load_le<Word>(values + i * sizeof(Word)) & exponent) == exponent;
  return any;
}

}  // namespace

std::optional<std::size_t> find_not_finite(DType t, std::span<const std::byte> storage, std::size_t rows,
                                           std::size_t k) {
  if (k == 0) return std::nullopt;
  const std::size_t stride = row_bytes(t, k);
  if (!is_quantized(t)) {
    for (std::size_t r = 0; r < rows; ++r) {
      const std::byte* row = storage.data() + r * stride;
      if (t == DType::f32   ? any_not_finite<std::uint32_t>(row, k, 0x7f800000U)
          : t == DType::f16 ? any_not_finite<std::uint16_t>(row, k, 0x7c00U)
                            : any_not_finite<std::uint16_t>(row, k, 0x7f80U))
        return r;
    }
    return std::nullopt;
  }
  const auto good_block = [t](const std::byte* block) {
    const auto half = [block](std::size_t at) { return load_le<std::uint16_t>(block + at); };
    switch (t) {
      case DType::mxfp4:
        return byte_at(block, 0) != 255;
      case DType::q2_k:
        return finite_f16(half(80)) && finite_f16(half(82));
      case DType::q3_k:
        return finite_f16(half(108));
      case DType::q6_k:
        return finite_f16(half(208));
      case DType::q8_k:
        return std::isfinite(load_le<float>(block) * 128.0F);
      case DType::q4_1:
      case DType::q5_1:
      case DType::q4_k:
      case DType::q5_k:
        return finite_f16(half(0)) && finite_f16(half(2));
      default:
        return finite_f16(half(0));
    }
  };
  for (std::size_t r = 0; r < rows; ++r) {
    const std::byte* row = storage.data() + r * stride;
    if (t == DType::i8_row) {
      if (!std::isfinite(load_le<float>(row) * 128.0F)) return r;
      continue;
    }
    for (std::size_t b = 0; b < k / block_values(t); ++b)
      if (!good_block(row + b * block_bytes(t))) return r;
  }
  return std::nullopt;
}

}  // namespace myriad
