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
constexpr int kTileBlock = 2;
constexpr int kTokenBlock = 8;
constexpr int kKeyBlock = 8;
constexpr int kValueBlock = 8;
constexpr int kStateBlock = 4;

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
// 16 bf16 values
MYRIAD_LANES F load(const std::uint16_t* p) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
MYRIAD_LANES F load_part(const std::uint16_t* p, std::size_t n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), p)), 16));
}
// 16 bytes, each widened to 32 bits
MYRIAD_LANES I load_bytes(const std::uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

MYRIAD_LANES F fma(F a, F b, F c) {
  return _mm512_fmadd_ps(a, b, c);
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

MYRIAD_LANES std::int32_t sum_of_32(const std::int8_t* p) {
  // as unsigned bytes, 128 more each
  const __m256i v = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_set1_epi8(-128));
  const __m256i four = _mm256_sad_epu8(v, _mm256_setzero_si256());
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
  return _mm_cvtsi128_si32(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two))) - 32 * 128;
}

// The sixteen E2M1 values, chosen by bits 0–3 of each lane (the bits above are not looked at).
struct E2M1 {
  F table = _mm512_setr_ps(0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f);
  MYRIAD_LANES F operator()(I codes) const { return _mm512_permutexvar_ps(codes, table); }
};

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
