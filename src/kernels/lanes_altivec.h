// Sixteen f32 lanes as four AltiVec (VMX) registers on big-endian PowerPC. Included by kernels_altivec.cc alone; see
// kernels_lanes.h.
//
// Loads and stores of this set ignore the lower four bits of an address: what may begin anywhere is read as the aligned
// pieces around it and permuted. It has no multiplication (a fused multiply-add to −0 is one: its zero takes the sign
// of the product), no division and no conversion of half precision.
#pragma once

#include <altivec.h>

#include <cstddef>
#include <cstdint>

// g++ has names for the types that are no macros.
#undef vector
#undef pixel
#undef bool

#define MYRIAD_LANES [[gnu::always_inline]] inline

namespace myriad {
namespace {

using F4 = __vector float;
using I4 = __vector unsigned int;
using Bytes = __vector unsigned char;
using SignedBytes = __vector signed char;
using Signed4 = __vector signed int;
using Halves = __vector unsigned short;

// How many accumulators the blocks of kernels_lanes.h keep in registers (32 of them, four for each F).
constexpr int kTileBlock = 1;  // float products
constexpr int kTokenBlock = 4;
constexpr int kIntTiles = 1;  // integer products of many tokens
constexpr int kIntTokens = 3;
constexpr int kDirectTokens = 3;   // integer products of few tokens, on tiles as they lie
constexpr int kQueryBlock = 1;     // attention
constexpr int kTurnedQueries = 2;  // with keys in lanes
constexpr int kValueBlock = 4;
constexpr int kStateBlock = 2;  // KDA

MYRIAD_LANES Bytes piece(std::ptrdiff_t offset, const void* p) {
  return vec_ld(offset, static_cast<const unsigned char*>(p));
}
// Sixteen bytes from p on; nothing is read past the aligned pieces that hold them.
MYRIAD_LANES Bytes load_16(const void* p) {
  return vec_perm(piece(0, p), piece(15, p), vec_lvsl(0, static_cast<const unsigned char*>(p)));
}

// Lane n in every lane. (g++ makes of vec_splat a way by memory and general registers, on which loads wait for stores.)
template <unsigned n>
MYRIAD_LANES I4 lane(I4 v) {
  constexpr unsigned char b = 4 * n;
  constexpr Bytes order = {b, b + 1, b + 2, b + 3, b, b + 1, b + 2, b + 3,
                           b, b + 1, b + 2, b + 3, b, b + 1, b + 2, b + 3};
  return vec_perm(v, v, order);
}

MYRIAD_LANES F4 load4(const float* p) {
  return (F4)load_16(p);
}
MYRIAD_LANES I4 same4(std::uint32_t v) {
  return vec_splats(v);
}
MYRIAD_LANES F4 fma4(F4 a, F4 b, F4 c) {
  return vec_madd(a, b, c);
}
MYRIAD_LANES F4 float4(I4 v) {
  return (F4)v;
}
MYRIAD_LANES I4 bits4(F4 v) {
  return (I4)v;
}
// The set's own vnmsubfp negates after it has rounded, which makes −0 of a difference of equals.
MYRIAD_LANES F4 fnma4(F4 a, F4 b, F4 c) {
  return vec_madd(float4(bits4(a) ^ same4(0x80000000u)), b, c);
}
MYRIAD_LANES F4 mul4(F4 a, F4 b) {
  return vec_madd(a, b, float4(same4(0x80000000u)));
}
// One lane after the other: what divides is a small share of the work.
MYRIAD_LANES F4 div4(F4 a, F4 b) {
  alignas(16) float x[4], y[4];
  vec_st(a, 0, x);
  vec_st(b, 0, y);
  for (int i = 0; i < 4; ++i) x[i] /= y[i];
  return vec_ld(0, x);
}
MYRIAD_LANES F4 to_float4(I4 v) {
  return vec_ctf((Signed4)v, 0);
}
MYRIAD_LANES I4 greater4(F4 a, F4 b) {
  return (I4)vec_cmpgt(a, b);
}
MYRIAD_LANES I4 equal4(F4 a, F4 b) {
  return (I4)vec_cmpeq(a, b);
}
MYRIAD_LANES I4 below4(I4 a, I4 b) {
  return (I4)vec_cmplt(a, b);
}
MYRIAD_LANES F4 select4(I4 m, F4 yes, F4 no) {
  return vec_sel(no, yes, m);
}
MYRIAD_LANES I4 max4(I4 a, I4 b) {
  return vec_max(a, b);
}
template <int n>
MYRIAD_LANES I4 left4(I4 v) {
  return vec_sl(v, same4(n));
}
template <int n>
MYRIAD_LANES I4 right4(I4 v) {
  return vec_sr(v, same4(n));
}
MYRIAD_LANES F4 zip_low(F4 a, F4 b) {
  return vec_mergeh(a, b);
}
MYRIAD_LANES F4 zip_high(F4 a, F4 b) {
  return vec_mergel(a, b);
}

}  // namespace
}  // namespace myriad

#include "kernels/lanes_quarters.h"

namespace myriad {
namespace {

MYRIAD_LANES F zero() {
  const F4 x = float4(same4(0));
  return {x, x, x, x};
}

// Four bytes at an address that is a multiple of 4, in every lane.
MYRIAD_LANES I4 splat_at(const void* p) {
  const I4 v = (I4)piece(0, p);
  return vec_perm(v, v, (Bytes)lane<0>((I4)vec_lvsl(0, static_cast<const unsigned char*>(p))));
}
MYRIAD_LANES F set1_at(const unsigned char* p) {
  const F4 x = float4(splat_at(p));
  return {x, x, x, x};
}
MYRIAD_LANES I set1_bits_at(const unsigned char* p) {
  const I4 x = splat_at(p);
  return {x, x, x, x};
}
// Of what lies in memory, and of other values.
MYRIAD_LANES F set1(const float& v) {
  const F4 x = __builtin_constant_p(v) ? vec_splats(v) : float4(splat_at(&v));
  return {x, x, x, x};
}
MYRIAD_LANES F set1(float&& v) {
  const F4 x = vec_splats(v);
  return {x, x, x, x};
}

MYRIAD_LANES I load_bits(const void* p) {
  const Bytes order = vec_lvsl(0, static_cast<const unsigned char*>(p));
  const Bytes v[5] = {piece(0, p), piece(16, p), piece(32, p), piece(48, p), piece(63, p)};
  return {(I4)vec_perm(v[0], v[1], order), (I4)vec_perm(v[1], v[2], order), (I4)vec_perm(v[2], v[3], order),
          (I4)vec_perm(v[3], v[4], order)};
}
MYRIAD_LANES F load(const float* p) {
  return from_bits(load_bits(p));
}
MYRIAD_LANES bool is_aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}
MYRIAD_LANES void store_words(float* p, F4 v) {
  vec_ste(v, 0, p);
  vec_ste(v, 4, p);
  vec_ste(v, 8, p);
  vec_ste(v, 12, p);
}
MYRIAD_LANES void store(float* p, F v) {
  if (is_aligned(p)) {
    vec_st(v.a, 0, p);
    vec_st(v.b, 16, p);
    vec_st(v.c, 32, p);
    vec_st(v.d, 48, p);
    return;
  }
  // a word is stored from the place in the register that its address has in an aligned piece
  const Bytes order = vec_lvsr(0, reinterpret_cast<unsigned char*>(p));
  store_words(p, vec_perm(v.a, v.a, order));
  store_words(p + 4, vec_perm(v.b, v.b, order));
  store_words(p + 8, vec_perm(v.c, v.c, order));
  store_words(p + 12, vec_perm(v.d, v.d, order));
}
// The first n < 16 lanes; the others read as zero and are not written.
MYRIAD_LANES F load_part(const float* p, std::size_t n) {
  alignas(16) float whole[16] = {};
  __builtin_memcpy(whole, p, n * sizeof *p);
  return load(whole);
}
MYRIAD_LANES void store_part(float* p, F v, std::size_t n) {
  alignas(16) float whole[16];
  store(whole, v);
  __builtin_memcpy(p, whole, n * sizeof *p);
}

// Sixteen values of other formats, and the first n < 16.
MYRIAD_LANES F load_bf16(const std::uint16_t* p) {
  const Halves low = (Halves)load_16(p), high = (Halves)load_16(p + 8), none = vec_splat_u16(0);
  return {(F4)vec_mergeh(low, none), (F4)vec_mergel(low, none), (F4)vec_mergeh(high, none), (F4)vec_mergel(high, none)};
}
MYRIAD_LANES F load_bf16_part(const std::uint16_t* p, std::size_t n) {
  alignas(16) std::uint16_t whole[16] = {};
  __builtin_memcpy(whole, p, n * sizeof *p);
  return load_bf16(whole);
}
// Of four half-precision numbers in the lower halves of lanes.
MYRIAD_LANES F4 widen_f16(I4 v) {
  const I4 magnitude = v & same4(0x7fffu), exponents = same4(112u << 23);
  const I4 normal = left4<13>(magnitude) + exponents;
  const I4 infinite = (I4)vec_cmpgt(magnitude, same4(0x7bffu));  // and NaNs
  const I4 small = (I4)vec_cmpgt(same4(0x0400u), magnitude);
  const I4 subnormal = bits4(vec_ctf(magnitude, 24));  // in units of 2^-24
  const I4 value = vec_sel(normal + (exponents & infinite), subnormal, small);
  return float4(value | left4<16>(v & same4(0x8000u)));
}
MYRIAD_LANES F load_f16(const void* p) {
  const auto* q = static_cast<const unsigned char*>(p);
  const Halves low = (Halves)load_16(q), high = (Halves)load_16(q + 16), none = vec_splat_u16(0);
  return {widen_f16((I4)vec_mergeh(none, low)), widen_f16((I4)vec_mergel(none, low)),
          widen_f16((I4)vec_mergeh(none, high)), widen_f16((I4)vec_mergel(none, high))};
}
MYRIAD_LANES F load_f16_part(const void* p, std::size_t n) {
  alignas(16) std::uint16_t whole[16] = {};
  __builtin_memcpy(whole, p, n * sizeof *whole);
  return load_f16(whole);
}
MYRIAD_LANES F load_i8(const void* p) {
  const SignedBytes v = (SignedBytes)load_16(p);
  const __vector signed short low = vec_unpackh(v), high = vec_unpackl(v);
  return {vec_ctf(vec_unpackh(low), 0), vec_ctf(vec_unpackl(low), 0), vec_ctf(vec_unpackh(high), 0),
          vec_ctf(vec_unpackl(high), 0)};
}
MYRIAD_LANES F load_i8_part(const void* p, std::size_t n) {
  alignas(16) std::int8_t whole[16] = {};
  __builtin_memcpy(whole, p, n);
  return load_i8(whole);
}
// 16 bytes, each widened to 32 bits
MYRIAD_LANES I load_bytes(const void* p) {
  const Bytes v = load_16(p), none = vec_splat_u8(0);
  const Halves low = (Halves)vec_mergeh(none, v), high = (Halves)vec_mergel(none, v), nothing = (Halves)none;
  return {(I4)vec_mergeh(nothing, low), (I4)vec_mergel(nothing, low), (I4)vec_mergeh(nothing, high),
          (I4)vec_mergel(nothing, high)};
}
// p is a multiple of 16.
MYRIAD_LANES void store_bits(void* p, I v) {
  auto* q = static_cast<unsigned char*>(p);
  vec_st((Bytes)v.a, 0, q);
  vec_st((Bytes)v.b, 16, q);
  vec_st((Bytes)v.c, 32, q);
  vec_st((Bytes)v.d, 48, q);
}

// Weights are read from memory once: asked for shortly before, into both caches.
MYRIAD_LANES void prefetch_soon(const void* p) {
  __builtin_prefetch(p);
}
MYRIAD_LANES void prefetch_later(const void*) {}

// ---- bytes: four in each lane
MYRIAD_LANES I set1_bytes(int v) {
  const I4 x = (I4)vec_splats(static_cast<unsigned char>(v));
  return {x, x, x, x};
}
// in 16-bit halves
MYRIAD_LANES I left_halves(I v, int n) {
  const Halves by = vec_splats(static_cast<unsigned short>(n));
  return {(I4)vec_sl((Halves)v.a, by), (I4)vec_sl((Halves)v.b, by), (I4)vec_sl((Halves)v.c, by),
          (I4)vec_sl((Halves)v.d, by)};
}
MYRIAD_LANES I right_halves(I v, int n) {
  const Halves by = vec_splats(static_cast<unsigned short>(n));
  return {(I4)vec_sr((Halves)v.a, by), (I4)vec_sr((Halves)v.b, by), (I4)vec_sr((Halves)v.c, by),
          (I4)vec_sr((Halves)v.d, by)};
}
// Sixteen bytes to look up by the low four bits of each byte, whose upper bits are zero.
using Table = Bytes;
MYRIAD_LANES Table table(const std::uint8_t (&values)[16]) {
  return load_16(values);
}
MYRIAD_LANES I4 look_up4(Table t, I4 codes) {
  return (I4)vec_perm(t, t, (Bytes)codes);
}
MYRIAD_LANES I look_up(Table t, I codes) {
  return {look_up4(t, codes.a), look_up4(t, codes.b), look_up4(t, codes.c), look_up4(t, codes.d)};
}

// The fixed tree over 16 stripes.
MYRIAD_LANES float tree(F v) {
  const F4 four = tree_of_four(v), two = four + vec_sld(four, four, 8), one = two + vec_sld(two, two, 4);
  alignas(16) float out[4];
  vec_st(one, 0, out);
  return out[0];
}
// Four trees at once: out[i] is that of v[i].
MYRIAD_LANES void trees(const F (&v)[4], float* out) {
  alignas(16) float whole[4];
  vec_st(four_trees(v), 0, whole);
  __builtin_memcpy(out, whole, sizeof whole);
}
MYRIAD_LANES std::uint32_t largest_bits(I v) {
  const I4 four = max4(max4(v.a, v.b), max4(v.c, v.d)), two = max4(four, vec_sld(four, four, 8));
  alignas(16) std::uint32_t out[4];
  vec_st(max4(two, vec_sld(two, two, 4)), 0, out);
  return out[0];
}

// Rounds to nearest even and stores n <= 16 bytes; |v| <= 127.
MYRIAD_LANES void store_int8(std::int8_t* p, F v, std::size_t n) {
  const auto whole = [](F4 x) { return vec_cts(vec_round(x), 0); };
  alignas(16) std::int8_t out[16];
  vec_st(vec_packs(vec_packs(whole(v.a), whole(v.b)), vec_packs(whole(v.c), whole(v.d))), 0, out);
  __builtin_memcpy(p, out, n);
}

MYRIAD_LANES std::int32_t sum_of_16(const std::int8_t* p) {
  const Signed4 none = vec_splat_s32(0);
  alignas(16) std::int32_t out[4];
  vec_st(vec_sums(vec_sum4s((SignedBytes)load_16(p), none), none), 0, out);
  return out[3];
}

// ---- integer dot products: sums over quads of codes times four activations

// Codes are 0 … kMax as they lie; kOffset of each is too much. Signed bytes times unsigned ones, four products added in
// each lane.
template <int kMax, int kOffset>
struct Dot {
  static_assert(kMax <= 255);
  static constexpr int kCorrection = kOffset;  // codes are multiplied with their offset, which is taken off again
  static constexpr std::size_t kWeightBytes = 512, kInputBytes = 32;  // of a group, expanded and laid out
  using Weights = I;
  using Input = SignedBytes;  // the four activations in every lane

  MYRIAD_LANES static Weights weights(I codes) { return codes; }
  MYRIAD_LANES static void store_weights(unsigned char* group, int quad, Weights w) {
    store_bits(group + 64 * quad, w);
  }
  MYRIAD_LANES static Weights load_weights(const unsigned char* group, int quad) {
    const unsigned char* p = group + 64 * quad;  // a multiple of 16
    return {(I4)piece(0, p), (I4)piece(16, p), (I4)piece(32, p), (I4)piece(48, p)};
  }
  MYRIAD_LANES static void lay_out(const std::int8_t* q, unsigned char* out) { __builtin_memcpy(out, q, 32); }
  MYRIAD_LANES static Input input(const unsigned char* x, int quad) {
    const I4 quads = (I4)load_16(x + quad / 4 * 16);
    switch (quad % 4) {
      case 0:
        return (SignedBytes)lane<0>(quads);
      case 1:
        return (SignedBytes)lane<1>(quads);
      case 2:
        return (SignedBytes)lane<2>(quads);
      default:
        return (SignedBytes)lane<3>(quads);
    }
  }

  MYRIAD_LANES static void add_to(I& sum, const Weights& w, Input x) {
    const auto one = [x](I4 s, I4 codes) __attribute__((always_inline)) {
      return (I4)vec_msum(x, (Bytes)codes, (Signed4)s);
    };
    sum = {one(sum.a, w.a), one(sum.b, w.b), one(sum.c, w.c), one(sum.d, w.d)};
  }

  // Over kQuads quads, counted from 0. kAlone: little else is in flight, so that two chains pay.
  template <int kQuads, bool kAlone>
  struct Sum {
    I even, odd;
    MYRIAD_LANES void start(I v) {
      even = v;
      odd = set1_bits(0);
    }
    MYRIAD_LANES void add(const Weights& w, Input x, int quad) { add_to(kAlone && quad % 2 == 1 ? odd : even, w, x); }
    MYRIAD_LANES I total() const { return kAlone ? add_bits(even, odd) : even; }
  };
};

// How the functions of the table are entered. Linux starts programs with non-Java mode on (VSCR[NJ]), in which this set
// takes subnormal numbers for zeros; threads inherit the mode of the one that starts them. So it is turned off at every
// entry, and left off: nothing depends on its being on.
template <auto kFunction>
struct InJavaMode;
template <class Result, class... Parameters, Result (*kFunction)(Parameters...)>
struct InJavaMode<kFunction> {
  static Result call(Parameters... parameters) {
    auto function = kFunction;
    // the compiler does not see which function it is, so nothing of it is moved before this
    asm volatile("mtvscr %1" : "+r"(function) : "v"(vec_splat_u32(0)) : "memory");
    return function(parameters...);
  }
};
template <auto kFunction>
constexpr auto entered = InJavaMode<kFunction>::call;

}  // namespace
}  // namespace myriad
