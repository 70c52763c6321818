// AVX2 with FMA and F16C (Haswell, Zen and later).
#include "kernels/lanes_avx2.h"
//
#include "kernels/kernels_lanes.h"
#include "kernels/kernels_tables.h"

namespace myriad {

namespace {

constexpr Kernels kAvx2 = table_named("avx2");

}  // namespace

const Kernels& avx2_kernels() {
  return kAvx2;
}

}  // namespace myriad
