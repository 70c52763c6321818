// Sixteen f32 lanes as four NEON registers of AArch64; with the dot products of bytes where the compiler may use them.
// Included by kernels_neon.cc and kernels_neondot.cc alone; see kernels_lanes.h.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#define MYRIAD_LANES [[gnu::always_inline]] inline

namespace myriad {
namespace {

using F4 = float32x4_t;
using I4 = uint32x4_t;

// How many accumulators the blocks of kernels_lanes.h keep in registers (32 of them, four for each F).
constexpr int kTileBlock = 1;  // float products
constexpr int kTokenBlock = 4;
constexpr int kIntTiles = 1;  // integer products of many tokens
#if defined(__ARM_FEATURE_DOTPROD)
constexpr int kIntTokens = 3;
constexpr int kDirectTokens = 3;  // integer products of few tokens, on tiles as they lie
#else
constexpr int kIntTokens = 2;
constexpr int kDirectTokens = 2;
#endif
constexpr int kQueryBlock = 1;     // attention
constexpr int kTurnedQueries = 2;  // with keys in lanes
constexpr int kValueBlock = 4;
constexpr int kStateBlock = 2;  // KDA

MYRIAD_LANES F4 load4(const float* p) {
  return vld1q_f32(p);
}
MYRIAD_LANES I4 same4(std::uint32_t v) {
  return vdupq_n_u32(v);
}
MYRIAD_LANES F4 fma4(F4 a, F4 b, F4 c) {
  return vfmaq_f32(c, a, b);
}
MYRIAD_LANES F4 fnma4(F4 a, F4 b, F4 c) {
  return vfmsq_f32(c, a, b);
}
MYRIAD_LANES F4 mul4(F4 a, F4 b) {
  return vmulq_f32(a, b);
}
MYRIAD_LANES F4 div4(F4 a, F4 b) {
  return vdivq_f32(a, b);
}
MYRIAD_LANES F4 to_float4(I4 v) {
  return vcvtq_f32_s32(vreinterpretq_s32_u32(v));
}
MYRIAD_LANES I4 greater4(F4 a, F4 b) {
  return vcgtq_f32(a, b);
}
MYRIAD_LANES I4 equal4(F4 a, F4 b) {
  return vceqq_f32(a, b);
}
MYRIAD_LANES I4 below4(I4 a, I4 b) {
  return vcltq_u32(a, b);
}
MYRIAD_LANES F4 select4(I4 m, F4 yes, F4 no) {
  return vbslq_f32(m, yes, no);
}
MYRIAD_LANES I4 max4(I4 a, I4 b) {
  return vmaxq_u32(a, b);
}
template <int n>
MYRIAD_LANES I4 left4(I4 v) {
  return vshlq_n_u32(v, n);
}
template <int n>
MYRIAD_LANES I4 right4(I4 v) {
  return vshrq_n_u32(v, n);
}
MYRIAD_LANES F4 float4(I4 v) {
  return vreinterpretq_f32_u32(v);
}
MYRIAD_LANES I4 bits4(F4 v) {
  return vreinterpretq_u32_f32(v);
}
MYRIAD_LANES F4 zip_low(F4 a, F4 b) {
  return vzip1q_f32(a, b);
}
MYRIAD_LANES F4 zip_high(F4 a, F4 b) {
  return vzip2q_f32(a, b);
}

}  // namespace
}  // namespace myriad

#include "kernels/lanes_quarters.h"

namespace myriad {
namespace {

MYRIAD_LANES F zero() {
  const F4 x = vdupq_n_f32(0);
  return {x, x, x, x};
}
MYRIAD_LANES F set1(float v) {
  const F4 x = vdupq_n_f32(v);
  return {x, x, x, x};
}
// Of four bytes in memory.
MYRIAD_LANES F set1_at(const unsigned char* p) {
  float v;
  __builtin_memcpy(&v, p, 4);
  return set1(v);
}
MYRIAD_LANES I set1_bits_at(const unsigned char* p) {
  std::uint32_t v;
  __builtin_memcpy(&v, p, 4);
  return set1_bits(v);
}
MYRIAD_LANES F load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
MYRIAD_LANES I4 load_bits4(const unsigned char* p) {
  return vreinterpretq_u32_u8(vld1q_u8(p));
}
MYRIAD_LANES I load_bits(const void* p) {
  const auto* q = static_cast<const unsigned char*>(p);
  return {load_bits4(q), load_bits4(q + 16), load_bits4(q + 32), load_bits4(q + 48)};
}
MYRIAD_LANES void store(float* p, F v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
  vst1q_f32(p + 8, v.c);
  vst1q_f32(p + 12, v.d);
}
// The first n < 16 lanes; the others read as zero and are not written.
MYRIAD_LANES F load_part(const float* p, std::size_t n) {
  float whole[16] = {};
  __builtin_memcpy(whole, p, n * sizeof *p);
  return load(whole);
}
MYRIAD_LANES void store_part(float* p, F v, std::size_t n) {
  float whole[16];
  store(whole, v);
  __builtin_memcpy(p, whole, n * sizeof *p);
}
// Sixteen values of other formats, and the first n < 16.
MYRIAD_LANES F load_bf16(const std::uint16_t* p) {
  const uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8), none = vdupq_n_u16(0);
  return {vreinterpretq_f32_u16(vzip1q_u16(none, low)), vreinterpretq_f32_u16(vzip2q_u16(none, low)),
          vreinterpretq_f32_u16(vzip1q_u16(none, high)), vreinterpretq_f32_u16(vzip2q_u16(none, high))};
}
MYRIAD_LANES F load_bf16_part(const std::uint16_t* p, std::size_t n) {
  std::uint16_t whole[16] = {};
  __builtin_memcpy(whole, p, n * sizeof *p);
  return load_bf16(whole);
}
MYRIAD_LANES F load_f16(const void* p) {
  const auto* q = static_cast<const unsigned char*>(p);
  const float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(q)), high = vreinterpretq_f16_u8(vld1q_u8(q + 16));
  return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
          vcvt_high_f32_f16(high)};
}
MYRIAD_LANES F load_f16_part(const void* p, std::size_t n) {
  std::uint16_t whole[16] = {};
  __builtin_memcpy(whole, p, n * sizeof *whole);
  return load_f16(whole);
}
MYRIAD_LANES F load_i8(const void* p) {
  const int8x16_t v = vld1q_s8(static_cast<const std::int8_t*>(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_high_s8(v);
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
          vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
}
MYRIAD_LANES F load_i8_part(const void* p, std::size_t n) {
  std::int8_t whole[16] = {};
  __builtin_memcpy(whole, p, n);
  return load_i8(whole);
}
// 16 bytes, each widened to 32 bits
MYRIAD_LANES I load_bytes(const void* p) {
  const uint8x16_t v = vld1q_u8(static_cast<const std::uint8_t*>(p));
  const uint16x8_t low = vmovl_u8(vget_low_u8(v)), high = vmovl_high_u8(v);
  return {vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)};
}
MYRIAD_LANES void store_bits(void* p, I v) {
  auto* q = static_cast<unsigned char*>(p);
  vst1q_u8(q, vreinterpretq_u8_u32(v.a));
  vst1q_u8(q + 16, vreinterpretq_u8_u32(v.b));
  vst1q_u8(q + 32, vreinterpretq_u8_u32(v.c));
  vst1q_u8(q + 48, vreinterpretq_u8_u32(v.d));
}

// Weights are read from memory once. From the second-level cache the processor fetches ahead by itself.
MYRIAD_LANES void prefetch_soon(const void*) {}
MYRIAD_LANES void prefetch_later(const void* p) {
  __builtin_prefetch(p, 0, 2);
}

// ---- bytes: four in each lane
MYRIAD_LANES I set1_bytes(int v) {
  const I4 x = vreinterpretq_u32_u8(vdupq_n_u8(static_cast<std::uint8_t>(v)));
  return {x, x, x, x};
}
// in 16-bit halves
MYRIAD_LANES I4 left_halves4(I4 v, int n) {
  return vreinterpretq_u32_u16(vreinterpretq_u16_u32(v) << n);
}
MYRIAD_LANES I4 right_halves4(I4 v, int n) {
  return vreinterpretq_u32_u16(vreinterpretq_u16_u32(v) >> n);
}
MYRIAD_LANES I left_halves(I v, int n) {
  return {left_halves4(v.a, n), left_halves4(v.b, n), left_halves4(v.c, n), left_halves4(v.d, n)};
}
MYRIAD_LANES I right_halves(I v, int n) {
  return {right_halves4(v.a, n), right_halves4(v.b, n), right_halves4(v.c, n), right_halves4(v.d, n)};
}
// Sixteen bytes to look up by the low four bits of each byte, whose upper bits are zero.
using Table = uint8x16_t;
MYRIAD_LANES Table table(const std::uint8_t (&values)[16]) {
  return vld1q_u8(values);
}
MYRIAD_LANES I4 look_up4(Table t, I4 codes) {
  return vreinterpretq_u32_u8(vqtbl1q_u8(t, vreinterpretq_u8_u32(codes)));
}
MYRIAD_LANES I look_up(Table t, I codes) {
  return {look_up4(t, codes.a), look_up4(t, codes.b), look_up4(t, codes.c), look_up4(t, codes.d)};
}

// The fixed tree over 16 stripes.
MYRIAD_LANES float tree(F v) {
  const F4 four = tree_of_four(v);
  return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}
// Four trees at once: out[i] is that of v[i].
MYRIAD_LANES void trees(const F (&v)[4], float* out) {
  vst1q_f32(out, four_trees(v));
}
MYRIAD_LANES std::uint32_t largest_bits(I v) {
  return vmaxvq_u32(max4(max4(v.a, v.b), max4(v.c, v.d)));
}

// Rounds to nearest even and stores n <= 16 bytes; |v| <= 127.
MYRIAD_LANES void store_int8(std::int8_t* p, F v, std::size_t n) {
  const int16x8_t low = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(v.a)), vmovn_s32(vcvtnq_s32_f32(v.b)));
  const int16x8_t high = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(v.c)), vmovn_s32(vcvtnq_s32_f32(v.d)));
  const int8x16_t all = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
  if (n == 16)
    vst1q_s8(p, all);
  else
    __builtin_memcpy(p, &all, n);
}

MYRIAD_LANES std::int32_t sum_of_16(const std::int8_t* p) {
  return vaddlvq_s8(vld1q_s8(p));
}

// ---- integer dot products: sums over quads of codes times four activations
//
// Codes are 0 … kMax as they lie; kOffset of each is too much. Both factors are signed bytes: large codes lose their
// offset first, smaller ones keep it.
template <int kMax, int kOffset>
struct Dot {
  static_assert(kMax <= 255);
  static constexpr bool kLarge = kMax > 127;
  static_assert(!kLarge || (kOffset <= 128 && kMax - kOffset <= 127));
  static constexpr int kCorrection = kLarge ? 0 : kOffset;  // codes that keep their offset: it is taken off again
  static constexpr std::size_t kWeightBytes = 512, kInputBytes = 32;  // of a group, expanded and laid out
  using Weights = I;
  using Input = int8x16_t;  // the four activations in every lane

  MYRIAD_LANES static I4 signed_bytes(I4 codes) {
    return vreinterpretq_u32_u8(vsubq_u8(vreinterpretq_u8_u32(codes), vdupq_n_u8(kOffset)));
  }
  MYRIAD_LANES static Weights weights(I codes) {
    if constexpr (!kLarge) return codes;
    return {signed_bytes(codes.a), signed_bytes(codes.b), signed_bytes(codes.c), signed_bytes(codes.d)};
  }
  MYRIAD_LANES static void store_weights(unsigned char* group, int quad, Weights w) {
    store_bits(group + 64 * quad, w);
  }
  MYRIAD_LANES static Weights load_weights(const unsigned char* group, int quad) {
    return load_bits(group + 64 * quad);
  }
  MYRIAD_LANES static void lay_out(const std::int8_t* q, unsigned char* out) { __builtin_memcpy(out, q, 32); }
  MYRIAD_LANES static Input input(const unsigned char* x, int quad) {
    std::uint32_t four;
    __builtin_memcpy(&four, x + 4 * quad, 4);
    return vreinterpretq_s8_u32(vdupq_n_u32(four));
  }

#if defined(__ARM_FEATURE_DOTPROD)
  MYRIAD_LANES static void add_to(I& sum, const Weights& w, Input x) {
    const auto one = [x](I4 s, I4 codes) __attribute__((always_inline)) {
      return vreinterpretq_u32_s32(vdotq_s32(vreinterpretq_s32_u32(s), vreinterpretq_s8_u32(codes), x));
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
#else
  // As many products are added in 16 bits as cannot overflow there, then pairs of them in 32 bits, which leaves two
  // numbers of 32 bits for each lane.
  static constexpr int kLargest = !kLarge ? kMax : kOffset > kMax - kOffset ? kOffset : kMax - kOffset;
  static constexpr int kFit = 32767 / (128 * kLargest), kRun = kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;

  template <int kQuads, bool kAlone>
  struct Sum {
    static constexpr int kTogether = kRun < kQuads ? kRun : kQuads;
    I sum;
    int16x8_t part[4][2];
    int32x4_t pairs[4][2];

    MYRIAD_LANES void start(I v) { sum = v; }
    MYRIAD_LANES void add_four(int i, I4 codes, Input x, int quad) {
      const int8x16_t w = vreinterpretq_s8_u32(codes);
      if (quad % kTogether == 0) {
        part[i][0] = vmull_s8(vget_low_s8(w), vget_low_s8(x));
        part[i][1] = vmull_high_s8(w, x);
      } else {
        part[i][0] = vmlal_s8(part[i][0], vget_low_s8(w), vget_low_s8(x));
        part[i][1] = vmlal_high_s8(part[i][1], w, x);
      }
      if (quad % kTogether != kTogether - 1) return;
      for (int h = 0; h < 2; ++h)
        pairs[i][h] = quad < kTogether ? vpaddlq_s16(part[i][h]) : vpadalq_s16(pairs[i][h], part[i][h]);
    }
    MYRIAD_LANES void add(const Weights& w, Input x, int quad) {
      add_four(0, w.a, x, quad);
      add_four(1, w.b, x, quad);
      add_four(2, w.c, x, quad);
      add_four(3, w.d, x, quad);
    }
    MYRIAD_LANES I4 total_of(int i, I4 begin) const {
      return begin + vreinterpretq_u32_s32(vpaddq_s32(pairs[i][0], pairs[i][1]));
    }
    MYRIAD_LANES I total() const {
      return {total_of(0, sum.a), total_of(1, sum.b), total_of(2, sum.c), total_of(3, sum.d)};
    }
  };
#endif
};

// How the functions of the table are entered.
template <auto kFunction>
constexpr auto entered = kFunction;

}  // namespace
}  // namespace myriad
