// AVX-512 with VNNI (Ice Lake, Zen 4 and later).
#include "kernels/lanes_avx512.h"
//
#include "kernels/kernels_lanes.h"
#include "kernels/kernels_tables.h"

namespace myriad {

namespace {

template <int kTiles, int kTokens>
[[gnu::noinline]] void int8_block(const unsigned char* tile, std::size_t stride, const Int8Block& block, float* y,
                                  std::size_t ldy) {
  const __m512i nibble = _mm512_set1_epi8(15);
  // kE2M1Doubled + 12
  const __m512i table =
      _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const unsigned char* scales = tile + 256 * block.groups;
  F acc[kTiles][kTokens];
  for (int i = 0; i < kTiles; ++i)
    for (int t = 0; t < kTokens; ++t) acc[i][t] = block.begin == 0 ? zero() : load(y + t * ldy + i * kLanes);
  for (std::size_t a = block.begin; a < block.end; ++a) {
    for (int i = 0; i < kTiles; ++i) {
      __m512i w[8];  // four columns of sixteen rows each
      for (int b = 0; b < 4; ++b) {
        const __m512i codes = load_bits(tile + i * stride + 256 * a + 64 * b);
        w[2 * b] = _mm512_shuffle_epi8(table, _mm512_and_si512(codes, nibble));
        w[2 * b + 1] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
      }
      const F ws = mul(weight_scales(scales + i * stride + 16 * a), set1(0.5f));
      for (int t = 0; t < kTokens; ++t) {
        const Int8Group& x = block.x[(a - block.begin) * kTokens + t];
        // two sums, so that neither waits for the other
        __m512i even = _mm512_set1_epi32(x.correction), odd = _mm512_setzero_si512();
        for (int b = 0; b < 4; ++b) {
          even = _mm512_dpbusd_epi32(even, w[2 * b], _mm512_set1_epi32(four_bytes(x.q + 8 * b)));
          odd = _mm512_dpbusd_epi32(odd, w[2 * b + 1], _mm512_set1_epi32(four_bytes(x.q + 8 * b + 4)));
        }
        const F sum = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
        acc[i][t] = fma(mul(ws, set1(x.scale)), sum, acc[i][t]);
      }
    }
  }
  for (int i = 0; i < kTiles; ++i)
    for (int t = 0; t < kTokens; ++t) store(y + t * ldy + i * kLanes, acc[i][t]);
}

constexpr Kernels kAvx512 = table_named("avx512");

}  // namespace

const Kernels& avx512_kernels() {
  return kAvx512;
}

}  // namespace myriad
