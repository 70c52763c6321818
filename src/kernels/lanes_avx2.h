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
constexpr int kTileBlock = 1;  // float products
constexpr int kTokenBlock = 4;
constexpr int kIntTiles = 1;  // integer products of many tokens
constexpr int kIntTokens = 3;
constexpr int kDirectTokens = 3;   // integer products of few tokens, on tiles as they lie
constexpr int kQueryBlock = 1;     // attention
constexpr int kTurnedQueries = 2;  // with keys in lanes
constexpr int kValueBlock = 4;
constexpr int kStateBlock = 2;  // KDA

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
// Sixteen values of other formats, and the first n < 16.
MYRIAD_LANES __m256 widen_bf16(__m128i v) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
MYRIAD_LANES F load_bf16(const std::uint16_t* p) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  return {widen_bf16(_mm_loadu_si128(q)), widen_bf16(_mm_loadu_si128(q + 1))};
}
MYRIAD_LANES F load_bf16_part(const std::uint16_t* p, std::size_t n) {
  std::uint16_t whole[16] = {};
  __builtin_memcpy(whole, p, n * sizeof *p);
  return load_bf16(whole);
}
MYRIAD_LANES F load_f16(const void* p) {
  const auto* q = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
MYRIAD_LANES F load_f16_part(const void* p, std::size_t n) {
  std::uint16_t whole[16] = {};
  __builtin_memcpy(whole, p, n * sizeof *whole);
  return load_f16(whole);
}
MYRIAD_LANES F load_i8(const void* p) {
  const __m128i v = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)))};
}
MYRIAD_LANES F load_i8_part(const void* p, std::size_t n) {
  std::int8_t whole[16] = {};
  __builtin_memcpy(whole, p, n);
  return load_i8(whole);
}
// 16 bytes, each widened to 32 bits
MYRIAD_LANES I load_bytes(const void* p) {
  const __m128i v = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(v, v))};
}
MYRIAD_LANES void store_bits(void* p, I v) {
  auto* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, v.lo);
  _mm256_storeu_si256(q + 1, v.hi);
}

// Weights are read from memory once: what comes soon into the nearest cache, what comes later into the next.
MYRIAD_LANES void prefetch_soon(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
MYRIAD_LANES void prefetch_later(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

MYRIAD_LANES F fma(F a, F b, F c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
// −(a·b) + c
MYRIAD_LANES F fnma(F a, F b, F c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
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

MYRIAD_LANES F to_float(I v) {
  return {_mm256_cvtepi32_ps(v.lo), _mm256_cvtepi32_ps(v.hi)};
}

// ---- bytes: four in each lane
MYRIAD_LANES I set1_bytes(int v) {
  const __m256i x = _mm256_set1_epi8(static_cast<char>(v));
  return {x, x};
}
// in 16-bit halves
MYRIAD_LANES I left_halves(I v, int n) {
  return {_mm256_slli_epi16(v.lo, n), _mm256_slli_epi16(v.hi, n)};
}
MYRIAD_LANES I right_halves(I v, int n) {
  return {_mm256_srli_epi16(v.lo, n), _mm256_srli_epi16(v.hi, n)};
}
// a | (b & mask)
MYRIAD_LANES I merge(I a, I b, I mask) {
  return bit_or(a, bit_and(b, mask));
}
// Sixteen bytes to look up by the low four bits of each byte, whose upper bits are zero.
using Table = __m256i;
MYRIAD_LANES Table table(const std::uint8_t (&values)[16]) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
}
MYRIAD_LANES I look_up(Table t, I codes) {
  return {_mm256_shuffle_epi8(t, codes.lo), _mm256_shuffle_epi8(t, codes.hi)};
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

MYRIAD_LANES std::int32_t sum_of_16(const std::int8_t* p) {
  // as unsigned bytes, 128 more each
  const __m128i v = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(-128));
  const __m128i two = _mm_sad_epu8(v, _mm_setzero_si128());
  return _mm_cvtsi128_si32(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two))) - 16 * 128;
}

// Four trees at once: out[i] is that of v[i].
MYRIAD_LANES void trees(const F (&v)[4], float* out) {
  const auto eight = [](F x) { return _mm256_add_ps(x.lo, x.hi); };
  const __m256 a = eight(v[0]), b = eight(v[1]), c = eight(v[2]), d = eight(v[3]);
  // 128-bit halves: a, b of one register, c, d of the other
  const __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  const __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
  // a0 a1 c0 c1 | b0 b1 d0 d1 (+) a2 a3 c2 c3 | b2 b3 d2 d3
  const __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
  const __m256 one = _mm256_add_ps(_mm256_shuffle_ps(two, two, 0x88), _mm256_shuffle_ps(two, two, 0xdd));
  // a c … | b d …
  _mm_storeu_ps(out, _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1)));
}

MYRIAD_LANES void transpose_eight(__m256 (&v)[8]) {
  __m256 a[8], c[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    c[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    c[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
    c[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    c[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(c[i], c[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(c[i], c[i + 4], 0x31);
  }
}

// Rows become columns.
MYRIAD_LANES void transpose(F (&v)[16]) {
  __m256 quarter[2][2][8];
  for (int rows = 0; rows < 2; ++rows) {
    for (int i = 0; i < 8; ++i) {
      quarter[rows][0][i] = v[8 * rows + i].lo;
      quarter[rows][1][i] = v[8 * rows + i].hi;
    }
    transpose_eight(quarter[rows][0]);
    transpose_eight(quarter[rows][1]);
  }
  for (int columns = 0; columns < 2; ++columns)
    for (int i = 0; i < 8; ++i) v[8 * columns + i] = {quarter[0][columns][i], quarter[1][columns][i]};
}

// ---- integer dot products: sums over quads of codes times four activations

// Four bytes as they lie in memory.
using FourBytes [[gnu::may_alias, gnu::aligned(1)]] = std::int32_t;

MYRIAD_LANES __m256i four_bytes(const unsigned char* p) {
  return _mm256_set1_epi32(*reinterpret_cast<const FourBytes*>(p));
}
MYRIAD_LANES I add_products(I sum, I halves, __m256i by) {
  return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(halves.lo, by)),
          _mm256_add_epi32(sum.hi, _mm256_madd_epi16(halves.hi, by))};
}

// Codes are 0 … kMax as they lie; kOffset of each is too much. Small codes are multiplied as bytes, and as many
// products added in 16 bits as cannot overflow there: 2·128·kMax for each quad. Large ones are multiplied in 16 bits.
template <int kMax, int kOffset, bool kSmall = (kMax <= 63)>
struct Dot {
  static constexpr int kCorrection = kOffset;  // codes are multiplied with their offset, which is taken off again
  static constexpr std::size_t kWeightBytes = 512, kInputBytes = 32;  // of a group, expanded and laid out
  static constexpr int kRun = kMax <= 15 ? 8 : kMax <= 31 ? 4 : 2;
  static_assert(kRun * 2 * 128 * kMax <= 32767);
  using Weights = I;
  using Input = __m256i;

  MYRIAD_LANES static Weights weights(I codes) { return codes; }
  MYRIAD_LANES static void store_weights(unsigned char* group, int quad, Weights w) {
    store_bits(group + 64 * quad, w);
  }
  MYRIAD_LANES static Weights load_weights(const unsigned char* group, int quad) {
    return load_bits(group + 64 * quad);
  }
  MYRIAD_LANES static void lay_out(const std::int8_t* q, unsigned char* out) { __builtin_memcpy(out, q, 32); }
  MYRIAD_LANES static Input input(const unsigned char* x, int quad) { return four_bytes(x + 4 * quad); }

  // Over kQuads quads, counted from 0. kAlone: little else is in flight, so that two chains pay.
  template <int kQuads, bool kAlone>
  struct Sum {
    static constexpr int kTogether = kRun < kQuads ? kRun : kQuads;
    I part, sum;
    MYRIAD_LANES void start(I v) { sum = v; }
    MYRIAD_LANES void add(Weights w, Input x, int quad) {
      const I products = {_mm256_maddubs_epi16(w.lo, x), _mm256_maddubs_epi16(w.hi, x)};
      if (quad % kTogether == 0)
        part = products;
      else
        part = {_mm256_add_epi16(part.lo, products.lo), _mm256_add_epi16(part.hi, products.hi)};
      if (quad % kTogether == kTogether - 1) sum = add_products(sum, part, _mm256_set1_epi16(1));
    }
    MYRIAD_LANES I total() const { return sum; }
  };
};

template <int kMax, int kOffset>
struct Dot<kMax, kOffset, false> {
  static_assert(kMax <= 255);
  static constexpr int kCorrection = 0;
  static constexpr std::size_t kWeightBytes = 1024, kInputBytes = 64;
  // bytes 0 and 2 of each lane, bytes 1 and 3; the activations likewise
  struct Weights {
    I even, odd;
  };
  struct Input {
    __m256i even, odd;
  };

  MYRIAD_LANES static I signed_halves(I v) {
    const __m256i offset = _mm256_set1_epi16(kOffset);
    return {_mm256_sub_epi16(v.lo, offset), _mm256_sub_epi16(v.hi, offset)};
  }
  MYRIAD_LANES static Weights weights(I codes) {
    return {signed_halves(bit_and(codes, set1_bits(0x00ff00ffu))), signed_halves(right_halves(codes, 8))};
  }
  MYRIAD_LANES static void store_weights(unsigned char* group, int quad, Weights w) {
    store_bits(group + 128 * quad, w.even);
    store_bits(group + 128 * quad + 64, w.odd);
  }
  MYRIAD_LANES static Weights load_weights(const unsigned char* group, int quad) {
    return {load_bits(group + 128 * quad), load_bits(group + 128 * quad + 64)};
  }
  MYRIAD_LANES static void lay_out(const std::int8_t* q, unsigned char* out) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8), odd = _mm256_srai_epi16(v, 8);
    // per quad: two 16-bit activations of even bytes, two of odd ones
    const __m256i low = _mm256_unpacklo_epi32(even, odd), high = _mm256_unpackhi_epi32(even, odd);
    auto* to = reinterpret_cast<__m256i*>(out);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
  }
  MYRIAD_LANES static Input input(const unsigned char* x, int quad) {
    return {four_bytes(x + 8 * quad), four_bytes(x + 8 * quad + 4)};
  }

  template <int kQuads, bool kAlone>
  struct Sum {
    I sum;
    MYRIAD_LANES void start(I v) { sum = v; }
    MYRIAD_LANES void add(const Weights& w, const Input& x, int) {
      sum = add_products(add_products(sum, w.even, x.even), w.odd, x.odd);
    }
    MYRIAD_LANES I total() const { return sum; }
  };
};

// How the functions of the table are entered.
template <auto kFunction>
constexpr auto entered = kFunction;

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
