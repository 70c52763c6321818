// AVX-512 with VNNI (Ice Lake, Zen 4 and later).
#include "kernels/lanes_avx512.h"
//
#include "kernels/kernels_lanes.h"
#include "kernels/kernels_tables.h"

namespace myriad {

namespace {

constexpr Kernels kAvx512 = table_named("avx512");

}  // namespace

const Kernels& avx512_kernels() {
  return kAvx512;
}

}  // namespace myriad
