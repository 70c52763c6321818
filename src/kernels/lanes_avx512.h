// Sixteen f32 lanes as one AVX-512 register. Included by kernels_avx512.cc alone; see kernels_lanes.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define MYRIAD_LANES [[gnu::always_inline]] inline

namespace myriad {
namespace {

using F = __m512;
using I = __m512i;
using Mask = __mmask16;

// How many accumulators the blocks of kernels_lanes.h keep in registers (32 of them).
constexpr int kTileBlock = 2;  // float products
constexpr int kTokenBlock = 8;
constexpr int kIntTiles = 2;  // integer products of many tokens
constexpr int kIntTokens = 5;
constexpr int kDirectTokens = 8;   // integer products of few tokens, on tiles as they lie
constexpr int kQueryBlock = 4;     // attention
constexpr int kTurnedQueries = 4;  // with keys in lanes
constexpr int kValueBlock = 4;
constexpr int kStateBlock = 4;  // KDA

MYRIAD_LANES Mask first(std::size_t n) {
  return static_cast<Mask>((1u << n) - 1);
}

MYRIAD_LANES F zero() {
  return _mm512_setzero_ps();
}
MYRIAD_LANES F set1(float v) {
  return _mm512_set1_ps(v);
}
MYRIAD_LANES I set1_bits(std::uint32_t v) {
  return _mm512_set1_epi32(static_cast<int>(v));
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
  return _mm512_loadu_ps(p);
}
MYRIAD_LANES I load_bits(const void* p) {
  return _mm512_loadu_si512(p);
}
MYRIAD_LANES void store(float* p, F v) {
  _mm512_storeu_ps(p, v);
}
// The first n < 16 lanes; the others read as zero and are not written.
MYRIAD_LANES F load_part(const float* p, std::size_t n) {
  return _mm512_maskz_loadu_ps(first(n), p);
}
MYRIAD_LANES void store_part(float* p, F v, std::size_t n) {
  _mm512_mask_storeu_ps(p, first(n), v);
}
// Sixteen values of other formats, and the first n < 16.
MYRIAD_LANES F widen_bf16(__m256i v) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
MYRIAD_LANES F load_bf16(const std::uint16_t* p) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
MYRIAD_LANES F load_bf16_part(const std::uint16_t* p, std::size_t n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(first(n), p));
}
MYRIAD_LANES F load_f16(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
MYRIAD_LANES F load_f16_part(const void* p, std::size_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
}
MYRIAD_LANES F load_i8(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
MYRIAD_LANES F load_i8_part(const void* p, std::size_t n) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first(n), p)));
}
// 16 bytes, each widened to 32 bits
MYRIAD_LANES I load_bytes(const void* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
MYRIAD_LANES void store_bits(void* p, I v) {
  _mm512_storeu_si512(p, v);
}

// Weights are read from memory once: what comes soon into the nearest cache, what comes later into the next.
MYRIAD_LANES void prefetch_soon(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
MYRIAD_LANES void prefetch_later(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

MYRIAD_LANES F fma(F a, F b, F c) {
  return _mm512_fmadd_ps(a, b, c);
}
// −(a·b) + c
MYRIAD_LANES F fnma(F a, F b, F c) {
  return _mm512_fnmadd_ps(a, b, c);
}
MYRIAD_LANES F add(F a, F b) {
  return _mm512_add_ps(a, b);
}
MYRIAD_LANES F sub(F a, F b) {
  return _mm512_sub_ps(a, b);
}
MYRIAD_LANES F mul(F a, F b) {
  return _mm512_mul_ps(a, b);
}
MYRIAD_LANES F div(F a, F b) {
  return _mm512_div_ps(a, b);
}

MYRIAD_LANES I bits(F v) {
  return _mm512_castps_si512(v);
}
MYRIAD_LANES F from_bits(I v) {
  return _mm512_castsi512_ps(v);
}
MYRIAD_LANES I bit_and(I a, I b) {
  return _mm512_and_si512(a, b);
}
MYRIAD_LANES I bit_or(I a, I b) {
  return _mm512_or_si512(a, b);
}
MYRIAD_LANES I bit_xor(I a, I b) {
  return _mm512_xor_si512(a, b);
}
MYRIAD_LANES I add_bits(I a, I b) {
  return _mm512_add_epi32(a, b);
}
MYRIAD_LANES I max_bits(I a, I b) {
  return _mm512_max_epu32(a, b);
}
template <int n>
MYRIAD_LANES I left(I v) {
  return _mm512_slli_epi32(v, n);
}
template <int n>
MYRIAD_LANES I right(I v) {
  return _mm512_srli_epi32(v, n);
}

MYRIAD_LANES F to_float(I v) {
  return _mm512_cvtepi32_ps(v);
}

// ---- bytes: four in each lane
MYRIAD_LANES I set1_bytes(int v) {
  return _mm512_set1_epi8(static_cast<char>(v));
}
// in 16-bit halves
MYRIAD_LANES I left_halves(I v, int n) {
  return _mm512_slli_epi16(v, static_cast<unsigned>(n));
}
MYRIAD_LANES I right_halves(I v, int n) {
  return _mm512_srli_epi16(v, static_cast<unsigned>(n));
}
// a | (b & mask)
MYRIAD_LANES I merge(I a, I b, I mask) {
  return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}
// Sixteen bytes to look up by the low four bits of each byte, whose upper bits are zero.
using Table = I;
MYRIAD_LANES Table table(const std::uint8_t (&values)[16]) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
}
MYRIAD_LANES I look_up(Table t, I codes) {
  return _mm512_shuffle_epi8(t, codes);
}

MYRIAD_LANES Mask greater(F a, F b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
MYRIAD_LANES Mask less(F a, F b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
MYRIAD_LANES Mask not_a_number(F a) {
  return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
MYRIAD_LANES F select(Mask m, F yes, F no) {
  return _mm512_mask_blend_ps(m, no, yes);
}

// The fixed tree over 16 stripes.
MYRIAD_LANES float tree(F v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
MYRIAD_LANES std::uint32_t largest_bits(I v) {
  return _mm512_reduce_max_epu32(v);
}

// Rounds to nearest even and stores n <= 16 bytes; |v| <= 127.
MYRIAD_LANES void store_int8(std::int8_t* p, F v, std::size_t n) {
  _mm512_mask_cvtepi32_storeu_epi8(p, first(n), _mm512_cvtps_epi32(v));
}

MYRIAD_LANES std::int32_t sum_of_16(const std::int8_t* p) {
  // as unsigned bytes, 128 more each
  const __m128i v = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(-128));
  const __m128i two = _mm_sad_epu8(v, _mm_setzero_si128());
  return _mm_cvtsi128_si32(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two))) - 16 * 128;
}

// Four trees at once: out[i] is that of v[i].
MYRIAD_LANES void trees(const F (&v)[4], float* out) {
  // 128-bit quarters: a0 a1 b0 b1 (+) a2 a3 b2 b3, then a b c d
  const F ab = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xee));
  const F cd = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xee));
  const F four = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  const F two = _mm512_add_ps(four, _mm512_permute_ps(four, 0xee));
  const F one = _mm512_add_ps(two, _mm512_permute_ps(two, 0x55));
  const I order = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(order, one)));
}

// Rows become columns.
MYRIAD_LANES void transpose(F (&v)[16]) {
  F a[16], c[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // each quarter a 4x4 transposition
    c[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
    c[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
    c[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    c[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {  // column i of each quarter: quarters of rows 0–3, 4–7, 8–11, 12–15 side by side
    const F low = _mm512_shuffle_f32x4(c[i], c[i + 4], 0x44), high = _mm512_shuffle_f32x4(c[i], c[i + 4], 0xee);
    const F low2 = _mm512_shuffle_f32x4(c[i + 8], c[i + 12], 0x44),
            high2 = _mm512_shuffle_f32x4(c[i + 8], c[i + 12], 0xee);
    v[i] = _mm512_shuffle_f32x4(low, low2, 0x88);
    v[i + 4] = _mm512_shuffle_f32x4(low, low2, 0xdd);
    v[i + 8] = _mm512_shuffle_f32x4(high, high2, 0x88);
    v[i + 12] = _mm512_shuffle_f32x4(high, high2, 0xdd);
  }
}

// ---- integer dot products: sums over quads of codes times four activations

// Four bytes as they lie in memory.
using FourBytes [[gnu::may_alias, gnu::aligned(1)]] = std::int32_t;

// Codes are 0 … kMax as they lie; kOffset of each is too much.
template <int kMax, int kOffset>
struct Dot {
  static_assert(kMax <= 255);
  static constexpr int kCorrection = kOffset;  // codes are multiplied with their offset, which is taken off again
  static constexpr std::size_t kWeightBytes = 512, kInputBytes = 32;  // of a group, expanded and laid out
  using Weights = I;
  using Input = I;

  MYRIAD_LANES static Weights weights(I codes) { return codes; }
  MYRIAD_LANES static void store_weights(unsigned char* group, int quad, Weights w) {
    store_bits(group + 64 * quad, w);
  }
  MYRIAD_LANES static Weights load_weights(const unsigned char* group, int quad) {
    return load_bits(group + 64 * quad);
  }
  MYRIAD_LANES static void lay_out(const std::int8_t* q, unsigned char* out) { __builtin_memcpy(out, q, 32); }
  MYRIAD_LANES static Input input(const unsigned char* x, int quad) {
    return _mm512_set1_epi32(*reinterpret_cast<const FourBytes*>(x + 4 * quad));
  }

  // Over kQuads quads, counted from 0. kAlone: little else is in flight, so that two chains pay.
  template <int kQuads, bool kAlone>
  struct Sum {
    I even, odd;
    MYRIAD_LANES void start(I v) {
      even = v;
      odd = _mm512_setzero_si512();
    }
    MYRIAD_LANES void add(Weights w, Input x, int quad) {
      if (kAlone && quad % 2 == 1)
        odd = _mm512_dpbusd_epi32(odd, w, x);
      else
        even = _mm512_dpbusd_epi32(even, w, x);
    }
    MYRIAD_LANES I total() const { return kAlone ? _mm512_add_epi32(even, odd) : even; }
  };
};

// How the functions of the table are entered.
template <auto kFunction>
constexpr auto entered = kFunction;

// p[4·lane + j] for j < 4: 16 channels of 4 taps.
MYRIAD_LANES void load_by_four(const float* p, F (&out)[4]) {
  const F a = load(p), b = load(p + 16), c = load(p + 32), d = load(p + 48);
  // rows of a 4x4 transposition in each 128-bit lane, then the lanes put in order
  const F ab_low = _mm512_unpacklo_ps(a, b), ab_high = _mm512_unpackhi_ps(a, b);
  const F cd_low = _mm512_unpacklo_ps(c, d), cd_high = _mm512_unpackhi_ps(c, d);
  const F mixed[4] = {_mm512_shuffle_ps(ab_low, cd_low, 0x44), _mm512_shuffle_ps(ab_low, cd_low, 0xee),
                      _mm512_shuffle_ps(ab_high, cd_high, 0x44), _mm512_shuffle_ps(ab_high, cd_high, 0xee)};
  const I order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int j = 0; j < 4; ++j) out[j] = _mm512_permutexvar_ps(order, mixed[j]);
}

}  // namespace
}  // namespace myriad
