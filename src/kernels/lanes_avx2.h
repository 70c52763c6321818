// Sixteen f32 lanes as two AVX2 registers. Included by kernels_avx2.cc alone; see kernels_lanes.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define MYRIAD_LANES [[gnu::always_inline]] inline

namespace myriad {
namespace {

struct F {
  __m256 lo, hi;
};
struct I {
  __m256i lo, hi;
};
using Mask = F;  // all bits of a lane, or none

// How many accumulators the blocks of kernels_lanes.h keep in registers (16 of them, two for each F).
constexpr int kTileBlock = 1;
constexpr int kTokenBlock = 4;
constexpr int kKeyBlock = 4;
constexpr int kValueBlock = 4;
constexpr int kStateBlock = 2;

MYRIAD_LANES I first_bits(std::size_t n) {
  const __m256i count = _mm256_set1_epi32(static_cast<int>(n));
  return {_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
          _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
MYRIAD_LANES Mask first(std::size_t n) {
  const I m = first_bits(n);
  return {_mm256_castsi256_ps(m.lo), _mm256_castsi256_ps(m.hi)};
}

MYRIAD_LANES F zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
MYRIAD_LANES F set1(float v) {
  const __m256 x = _mm256_set1_ps(v);
  return {x, x};
}
MYRIAD_LANES I set1_bits(std::uint32_t v) {
  const __m256i x = _mm256_set1_epi32(static_cast<int>(v));
  return {x, x};
}
MYRIAD_LANES F load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
MYRIAD_LANES I load_bits(const void* p) {
  const auto* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
MYRIAD_LANES void store(float* p, F v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
// The first n < 16 lanes; the others read as zero and are not written.
MYRIAD_LANES F load_part(const float* p, std::size_t n) {
  const I m = first_bits(n);
  return {_mm256_maskload_ps(p, m.lo), _mm256_maskload_ps(p + 8, m.hi)};
}
MYRIAD_LANES void store_part(float* p, F v, std::size_t n) {
  const I m = first_bits(n);
  _mm256_maskstore_ps(p, m.lo, v.lo);
  _mm256_maskstore_ps(p + 8, m.hi, v.hi);
}
// 16 bf16 values
MYRIAD_LANES __m256 widen_bf16(__m128i v) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
MYRIAD_LANES F load(const std::uint16_t* p) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  return {widen_bf16(_mm_loadu_si128(q)), widen_bf16(_mm_loadu_si128(q + 1))};
}
MYRIAD_LANES F load_part(const std::uint16_t* p, std::size_t n) {
  std::uint16_t whole[16] = {};
  __builtin_memcpy(whole, p, n * sizeof *p);
  return load(whole);
}
// 16 bytes, each widened to 32 bits
MYRIAD_LANES I load_bytes(const std::uint8_t* p) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(v, v))};
}

MYRIAD_LANES F fma(F a, F b, F c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
MYRIAD_LANES F add(F a, F b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
MYRIAD_LANES F sub(F a, F b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
MYRIAD_LANES F mul(F a, F b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
MYRIAD_LANES F div(F a, F b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}

MYRIAD_LANES I bits(F v) {
  return {_mm256_castps_si256(v.lo), _mm256_castps_si256(v.hi)};
}
MYRIAD_LANES F from_bits(I v) {
  return {_mm256_castsi256_ps(v.lo), _mm256_castsi256_ps(v.hi)};
}
MYRIAD_LANES I bit_and(I a, I b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
MYRIAD_LANES I bit_or(I a, I b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
MYRIAD_LANES I bit_xor(I a, I b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
MYRIAD_LANES I add_bits(I a, I b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
MYRIAD_LANES I max_bits(I a, I b) {
  return {_mm256_max_epu32(a.lo, b.lo), _mm256_max_epu32(a.hi, b.hi)};
}
template <int n>
MYRIAD_LANES I left(I v) {
  return {_mm256_slli_epi32(v.lo, n), _mm256_slli_epi32(v.hi, n)};
}
template <int n>
MYRIAD_LANES I right(I v) {
  return {_mm256_srli_epi32(v.lo, n), _mm256_srli_epi32(v.hi, n)};
}

MYRIAD_LANES Mask greater(F a, F b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ)};
}
MYRIAD_LANES Mask less(F a, F b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
MYRIAD_LANES Mask not_a_number(F a) {
  return {_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
}
MYRIAD_LANES F select(Mask m, F yes, F no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}

// The fixed tree over 16 stripes.
MYRIAD_LANES float tree(F v) {
  const __m256 eight = _mm256_add_ps(v.lo, v.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
MYRIAD_LANES std::uint32_t largest_bits(I v) {
  const __m256i eight = _mm256_max_epu32(v.lo, v.hi);
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
}

// Rounds to nearest even and stores n <= 16 bytes; |v| <= 127.
MYRIAD_LANES void store_int8(std::int8_t* p, F v, std::size_t n) {
  const __m256i lo = _mm256_cvtps_epi32(v.lo), hi = _mm256_cvtps_epi32(v.hi);
  const __m128i low = _mm_packs_epi32(_mm256_castsi256_si128(lo), _mm256_extracti128_si256(lo, 1));
  const __m128i high = _mm_packs_epi32(_mm256_castsi256_si128(hi), _mm256_extracti128_si256(hi, 1));
  const __m128i all = _mm_packs_epi16(low, high);
  if (n == 16)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), all);
  else
    __builtin_memcpy(p, &all, n);
}

MYRIAD_LANES std::int32_t sum_of_32(const std::int8_t* p) {
  // as unsigned bytes, 128 more each
  const __m256i v = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_set1_epi8(-128));
  const __m256i four = _mm256_sad_epu8(v, _mm256_setzero_si256());
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
  return _mm_cvtsi128_si32(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two))) - 32 * 128;
}

// The sixteen E2M1 values, chosen by bits 0–3 of each lane (the bits above are not looked at).
struct E2M1 {
  __m256 magnitudes = _mm256_setr_ps(0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f);
  __m256i sign = _mm256_set1_epi32(8);
  MYRIAD_LANES __m256 eight(__m256i codes) const {
    const __m256i signs = _mm256_slli_epi32(_mm256_and_si256(codes, sign), 28);
    return _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitudes, codes), _mm256_castsi256_ps(signs));
  }
  MYRIAD_LANES F operator()(I codes) const { return {eight(codes.lo), eight(codes.hi)}; }
};

// p[4·lane + j] for j < 4: 16 channels of 4 taps.
MYRIAD_LANES void load_by_four(const float* p, F (&out)[4]) {
  __m256 half[2][4];
  for (int h = 0; h < 2; ++h) {
    // two 4x4 transpositions side by side: channels c…c+3 in the lower 128 bits, c+4…c+7 in the upper
    __m256 rows[4];
    for (int i = 0; i < 4; ++i)
      rows[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 32 * h + 4 * i)),
                                     _mm_loadu_ps(p + 32 * h + 16 + 4 * i), 1);
    const __m256 ab_low = _mm256_unpacklo_ps(rows[0], rows[1]), ab_high = _mm256_unpackhi_ps(rows[0], rows[1]);
    const __m256 cd_low = _mm256_unpacklo_ps(rows[2], rows[3]), cd_high = _mm256_unpackhi_ps(rows[2], rows[3]);
    half[h][0] = _mm256_shuffle_ps(ab_low, cd_low, 0x44);
    half[h][1] = _mm256_shuffle_ps(ab_low, cd_low, 0xee);
    half[h][2] = _mm256_shuffle_ps(ab_high, cd_high, 0x44);
    half[h][3] = _mm256_shuffle_ps(ab_high, cd_high, 0xee);
  }
  for (int j = 0; j < 4; ++j) out[j] = {half[0][j], half[1][j]};
}

}  // namespace
}  // namespace myriad
