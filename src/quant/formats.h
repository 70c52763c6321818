// Number formats as they are stored, and their exact conversions. Nothing here depends on the instruction set or byte order.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"

namespace myriad {

// Storage types of weights. The numbers stand in part files: never renumber.
enum class DType : std::uint8_t { f32 = 0, bf16 = 1, mxfp4 = 2 };

std::string_view dtype_name(DType t);

// bf16 is the upper half of an f32.
constexpr float bf16_to_f32(std::uint16_t v) { return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16); }
// Round to nearest, ties to even; NaN stays NaN, infinities stay.
constexpr std::uint16_t f32_to_bf16(float v) {
  const auto u = std::bit_cast<std::uint32_t>(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(u >> 16 | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
constexpr float round_to_bf16(float v) { return bf16_to_f32(f32_to_bf16(v)); }

// E8M0: byte b is 2^(b-127); 0 is 2^-127 (an f32 subnormal), 255 is NaN (an error for weights; checked when a part is cut).
constexpr float e8m0_to_f32(std::uint8_t b) {
  return b == 0 ? std::bit_cast<float>(0x00400000u) : b == 255 ? std::bit_cast<float>(0x7fc00000u) : std::bit_cast<float>(static_cast<std::uint32_t>(b) << 23);
}

// E2M1 codes: bit 3 is the sign, bits 0–2 index {0, .5, 1, 1.5, 2, 3, 4, 6} (OCP Microscaling Formats 1.0; spec §2.3).
inline constexpr std::array<float, 16> kE2M1 = {0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};
// The same, doubled, as integers: what the integer kernels multiply; the scale is halved for it.
inline constexpr std::array<std::int8_t, 16> kE2M1Doubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline constexpr std::size_t kGroup = 32;  // elements a scale covers, in MXFP4 weights and in int8 activations

}  // namespace myriad
