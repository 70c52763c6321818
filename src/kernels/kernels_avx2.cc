// AVX2 with FMA (Haswell, Zen and later).
#include "kernels/lanes_avx2.h"
//
#include "kernels/kernels_lanes.h"
#include "kernels/kernels_tables.h"

namespace myriad {

namespace {

template <int kTiles, int kTokens>
[[gnu::noinline]] void int8_block(const unsigned char* tile, std::size_t stride, const Int8Block& block, float* y,
                                  std::size_t ldy) {
  const __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  // kE2M1Doubled + 12
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const unsigned char* scales = tile + 256 * block.groups;
  F acc[kTiles][kTokens];
  for (int i = 0; i < kTiles; ++i)
    for (int t = 0; t < kTokens; ++t) acc[i][t] = block.begin == 0 ? zero() : load(y + t * ldy + i * kLanes);
  for (std::size_t a = block.begin; a < block.end; ++a) {
    for (int i = 0; i < kTiles; ++i) {
      __m256i sums[kTokens][2];
      for (int half = 0; half < 2; ++half) {  // rows 0–7, 8–15
        __m256i w[8];                         // four columns of eight rows each
        for (int b = 0; b < 4; ++b) {
          const unsigned char* at = tile + i * stride + 256 * a + 64 * b + 32 * half;
          const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
          w[2 * b] = _mm256_shuffle_epi8(table, _mm256_and_si256(codes, nibble));
          w[2 * b + 1] = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble));
        }
        for (int t = 0; t < kTokens; ++t) {
          const Int8Group& x = block.x[(a - block.begin) * kTokens + t];
          __m256i sum = _mm256_set1_epi32(x.correction);
          // A 16-bit lane takes four sums of two products, each at most 24·128·2 = 6144, without overflow.
          for (int quarter = 0; quarter < 8; quarter += 4) {
            __m256i part = _mm256_maddubs_epi16(w[quarter], _mm256_set1_epi32(four_bytes(x.q + 4 * quarter)));
            for (int c = quarter + 1; c < quarter + 4; ++c)
              part = _mm256_add_epi16(part, _mm256_maddubs_epi16(w[c], _mm256_set1_epi32(four_bytes(x.q + 4 * c))));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(part, ones));
          }
          sums[t][half] = sum;
        }
      }
      const F ws = mul(weight_scales(scales + i * stride + 16 * a), set1(0.5f));
      for (int t = 0; t < kTokens; ++t) {
        const F sum = {_mm256_cvtepi32_ps(sums[t][0]), _mm256_cvtepi32_ps(sums[t][1])};
        acc[i][t] = fma(mul(ws, set1(block.x[(a - block.begin) * kTokens + t].scale)), sum, acc[i][t]);
      }
    }
  }
  for (int i = 0; i < kTiles; ++i)
    for (int t = 0; t < kTokens; ++t) store(y + t * ldy + i * kLanes, acc[i][t]);
}

constexpr Kernels kAvx2 = table_named("avx2");

}  // namespace

const Kernels& avx2_kernels() {
  return kAvx2;
}

}  // namespace myriad
