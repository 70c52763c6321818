// Number formats as they are stored, and their exact conversions. Nothing here depends on the instruction set or byte
// order. What the bytes of a quantised row mean stands in quant/blocks.h.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"
#include "quant/dtype.h"

namespace myriad {

// "unknown" for a number that is none of them.
std::string_view dtype_name(DType t);

// Whether weights of this type are multiplied as integers with int8 activations in the `fast` profile.
constexpr bool is_quantized(DType t) {
  return t != DType::f32 && t != DType::bf16 && t != DType::f16 && static_cast<std::size_t>(t) < kDTypes;
}

// ---- the storage of one row, as checkpoint files have it: blocks of `block_values` values in `block_bytes` bytes, one
// after the other. An i8_row row begins with kRowScaleBytes bytes of scale; its blocks are single values.

inline constexpr std::size_t kRowScaleBytes = 4;

constexpr std::size_t block_values(DType t) {
  switch (t) {
    case DType::f32:
    case DType::bf16:
    case DType::f16:
    case DType::i8_row:
      return 1;
    case DType::mxfp4:
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q5_1:
    case DType::iq4_nl:
    case DType::i4_zero:
      return 32;
    case DType::q2_k:
    case DType::q3_k:
    case DType::q4_k:
    case DType::q5_k:
    case DType::q6_k:
    case DType::q8_k:
    case DType::iq4_xs:
      return 256;
  }
  return 0;
}

constexpr std::size_t block_bytes(DType t) {
  switch (t) {
    case DType::f32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::i8_row:
      return 1;
    case DType::mxfp4:
      return 17;
    case DType::q8_0:
      return 34;
    case DType::q4_0:
    case DType::iq4_nl:
      return 18;
    case DType::q4_1:
      return 20;
    case DType::q5_0:
      return 22;
    case DType::q5_1:
      return 24;
    case DType::i4_zero:
      return 19;
    case DType::q2_k:
      return 84;
    case DType::q3_k:
      return 110;
    case DType::q4_k:
      return 144;
    case DType::q5_k:
      return 176;
    case DType::q6_k:
      return 210;
    case DType::q8_k:
      return 292;
    case DType::iq4_xs:
      return 136;
  }
  return 0;
}

// Whether a row can have k values: whole blocks.
constexpr bool fits_blocks(DType t, std::size_t k) {
  return block_values(t) != 0 && k % block_values(t) == 0;
}

// Bytes of a row of k values; fits_blocks(t, k).
constexpr std::size_t row_bytes(DType t, std::size_t k) {
  return k == 0 ? 0 : k / block_values(t) * block_bytes(t) + (t == DType::i8_row ? kRowScaleBytes : 0);
}

// ---- conversions

// bf16 is the upper half of an f32.
constexpr float bf16_to_f32(std::uint16_t v) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
}
// Round to nearest, ties to even; NaN stays NaN, infinities stay.
constexpr std::uint16_t f32_to_bf16(float v) {
  const auto u = std::bit_cast<std::uint32_t>(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(u >> 16 | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
constexpr float round_to_bf16(float v) {
  return bf16_to_f32(f32_to_bf16(v));
}

// IEEE binary16. Every value, subnormals too, is an f32; a NaN keeps its sign and payload and turns quiet.
constexpr float f16_to_f32(std::uint16_t v) {
  const std::uint32_t sign = static_cast<std::uint32_t>(v & 0x8000u) << 16, rest = v & 0x7fffu;
  if (rest >= 0x7c00u)
    return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13 | (rest > 0x7c00u ? 0x00400000u : 0u));
  if (rest >= 0x0400u) return std::bit_cast<float>(sign | ((rest << 13) + (112u << 23)));
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;  // exact
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}
// Round to nearest, ties to even; what is too large becomes an infinity, NaN stays NaN.
constexpr std::uint16_t f32_to_f16(float v) {
  const auto u = std::bit_cast<std::uint32_t>(v);
  const std::uint32_t sign = u >> 16 & 0x8000u, rest = u & 0x7fffffffu;
  if (rest > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
  if (rest >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 2^16 and above
  if (rest >= 0x38800000u)  // normal; rounding may carry up to infinity
    return static_cast<std::uint16_t>(sign | ((rest - (112u << 23) + 0xfffu + (rest >> 13 & 1u)) >> 13));
  if (rest < 0x33000000u) return static_cast<std::uint16_t>(sign);  // below half of the smallest subnormal
  const std::uint32_t significand = (rest & 0x7fffffu) | 0x800000u, shift = 126u - (rest >> 23);  // 14 … 24
  const std::uint32_t whole = significand >> shift, left = significand & ((1u << shift) - 1u),
                      half = 1u << (shift - 1u);
  return static_cast<std::uint16_t>(sign | (whole + (left > half || (left == half && (whole & 1u)) ? 1u : 0u)));
}

// E8M0: byte b is 2^(b-127); 0 is 2^-127 (an f32 subnormal), 255 is NaN (an error for weights; checked when a part is
// cut).
constexpr float e8m0_to_f32(std::uint8_t b) {
  return b == 0     ? std::bit_cast<float>(0x00400000u)
         : b == 255 ? std::bit_cast<float>(0x7fc00000u)
                    : std::bit_cast<float>(static_cast<std::uint32_t>(b) << 23);
}

// E2M1 codes: bit 3 is the sign, bits 0–2 index {0, .5, 1, 1.5, 2, 3, 4, 6} (OCP Microscaling Formats 1.0; spec §2.3).
inline constexpr std::array<float, 16> kE2M1 = {0.f,  .5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                                -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};
// The same, doubled, as integers: what the integer kernels multiply; the scale is halved for it.
inline constexpr std::array<std::int8_t, 16> kE2M1Doubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// The codebook of IQ4_NL and IQ4_XS: steps that widen away from zero.
inline constexpr std::array<std::int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                           1,    13,   25,  38,  53,  69,  89,  113};

inline constexpr std::size_t kGroup = 32;  // elements a scale covers in int8 activations, and in most weights

}  // namespace myriad
