// Storage types of weights. This header stands apart for the kernels of the vector instruction sets, which must not see
// inline functions (kernels/table.h says why).
#pragma once

#include <cstddef>
#include <cstdint>

namespace myriad {

// The numbers stand in part files: never renumber. The names from q8_0 to iq4_xs are ggml's and mean what they mean
// there; i8_row is int8 with one f32 scale a row; i4_zero is 4-bit codes in groups of 32 with an f16 scale and a zero
// point each.
enum class DType : std::uint8_t {
  f32 = 0,
  bf16 = 1,
  mxfp4 = 2,
  f16 = 3,
  q8_0 = 4,
  q4_0 = 5,
  q4_1 = 6,
  q5_0 = 7,
  q5_1 = 8,
  q2_k = 9,
  q3_k = 10,
  q4_k = 11,
  q5_k = 12,
  q6_k = 13,
  q8_k = 14,
  iq4_nl = 15,
  iq4_xs = 16,
  i8_row = 17,
  i4_zero = 18,
};
inline constexpr std::size_t kDTypes = 19;

}  // namespace myriad
