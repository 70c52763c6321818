// kernels/math.h in each of sixteen lanes, operation by operation. Part of kernels_lanes.h.
#pragma once

#include "kernels/math_constants.h"

namespace myriad {
namespace {

constexpr std::size_t kLanes = 16;

MYRIAD_LANES F exp_lanes(F x) {
  using namespace math_constants;
  const F shifted = fma(x, set1(kLog2E), set1(kShifter));
  const F n = sub(shifted, set1(kShifter));
  const F r = fma(n, set1(-kLn2Low), fma(n, set1(-kLn2High), x));
  F q = fma(set1(kExp[5]), r, set1(kExp[4]));
  for (int i = 3; i >= 0; --i) q = fma(q, r, set1(kExp[i]));
  const F p = add(fma(q, mul(r, r), r), set1(1.0f));
  F result = from_bits(add_bits(bits(p), left<23>(bits(shifted))));
  result = select(greater(x, set1(kExpHigh)), from_bits(set1_bits(0x7f800000u)), result);
  result = select(less(x, set1(kExpLow)), zero(), result);
  return select(not_a_number(x), from_bits(set1_bits(0x7fc00000u)), result);
}

// What comes first in memory of the two halves of a lane, in its upper half and zeros below, and what comes second.
constexpr bool kLittleEndian = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
MYRIAD_LANES I first_half_on_top(I v) {
  return kLittleEndian ? left<16>(v) : bit_and(v, set1_bits(0xffff0000u));
}
MYRIAD_LANES I second_half_on_top(I v) {
  return kLittleEndian ? bit_and(v, set1_bits(0xffff0000u)) : left<16>(v);
}
// The byte of a lane that comes first in memory, and the others in the places of those before them.
MYRIAD_LANES I first_byte(I v) {
  return kLittleEndian ? bit_and(v, set1_bits(255)) : right<24>(v);
}
MYRIAD_LANES I drop_first_byte(I v) {
  return kLittleEndian ? right<8>(v) : left<8>(v);
}

MYRIAD_LANES F negative(F x) {
  return from_bits(bit_xor(bits(x), set1_bits(0x80000000u)));
}

MYRIAD_LANES F sigmoid_lanes(F x) {
  return div(set1(1.0f), add(set1(1.0f), exp_lanes(negative(x))));
}

MYRIAD_LANES F silu_lanes(F x) {
  return mul(x, sigmoid_lanes(x));
}

MYRIAD_LANES F tanh_lanes(F x) {
  using namespace math_constants;
  const I sign = bit_and(bits(x), set1_bits(0x80000000u));
  const F a = from_bits(bit_xor(bits(x), sign));
  const F z = mul(a, a);
  F p = fma(set1(kTanh[4]), z, set1(kTanh[3]));
  for (int i = 2; i >= 0; --i) p = fma(p, z, set1(kTanh[i]));
  const F small = fma(p, mul(z, a), a);
  const F large = sub(set1(1.0f), div(set1(2.0f), add(exp_lanes(add(a, a)), set1(1.0f))));
  const F magnitude = select(less(a, set1(kTanhSmall)), small, large);
  return select(not_a_number(x), from_bits(set1_bits(0x7fc00000u)), from_bits(bit_or(bits(magnitude), sign)));
}

// Calls body(i, load, store) for each sixteen of n elements, the last perhaps short.
template <class Body>
MYRIAD_LANES void for_lanes(std::size_t n, Body body) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    body(
        i, [](const float* p) { return load(p); }, [](float* p, F v) { store(p, v); });
  if (const std::size_t rest = n - i; rest > 0)
    body(
        i, [rest](const float* p) { return load_part(p, rest); }, [rest](float* p, F v) { store_part(p, v, rest); });
}

}  // namespace
}  // namespace myriad
