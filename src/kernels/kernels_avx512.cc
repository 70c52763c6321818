// AVX-512 with VNNI (Ice Lake, Zen 4 and later).
#include "kernels/lanes_avx512.h"
//
#include "kernels/kernels_lanes.h"
#include "kernels/kernels_tables.h"

namespace myriad {

namespace {

template <int kTokens>
void int8_block(const unsigned char* tile, const Int8Block& block, float* y, std::size_t ldy) {
  const __m512i nibble = _mm512_set1_epi8(15);
  // kE2M1Doubled + 12
  const __m512i table =
      _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const unsigned char* scales = tile + 256 * block.groups;
  F acc[kTokens];
  for (int t = 0; t < kTokens; ++t) acc[t] = block.begin == 0 ? zero() : load(y + t * ldy);
  for (std::size_t a = block.begin; a < block.end; ++a) {
    __m512i w[8];  // four columns of sixteen rows each
    for (int b = 0; b < 4; ++b) {
      const __m512i codes = load_bits(tile + 256 * a + 64 * b);
      w[2 * b] = _mm512_shuffle_epi8(table, _mm512_and_si512(codes, nibble));
      w[2 * b + 1] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
    }
    const F ws = mul(weight_scales(scales + 16 * a), set1(0.5f));
    for (int t = 0; t < kTokens; ++t) {
      const std::int8_t* q = block.q + 32 * (t * block.groups + a);
      __m512i even = _mm512_set1_epi32(block.correction[t * block.piece + a - block.begin]),
              odd = _mm512_setzero_si512();
      for (int b = 0; b < 4; ++b) {
        std::int32_t four[2];
        __builtin_memcpy(four, q + 8 * b, 8);
        even = _mm512_dpbusd_epi32(even, w[2 * b], _mm512_set1_epi32(four[0]));
        odd = _mm512_dpbusd_epi32(odd, w[2 * b + 1], _mm512_set1_epi32(four[1]));
      }
      const F sum = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
      acc[t] = fma(mul(ws, set1(block.scale[t * block.groups + a])), sum, acc[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) store(y + t * ldy, acc[t]);
}

constexpr Kernels kAvx512 = table_named("avx512");

}  // namespace

const Kernels& avx512_kernels() {
  return kAvx512;
}

}  // namespace myriad
