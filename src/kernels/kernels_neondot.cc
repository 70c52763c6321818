// AArch64 with the dot-product extension (Cortex-A55, A76 and later: Raspberry Pi 5).
#include "kernels/lanes_neon.h"
//
#include "kernels/kernels_lanes.h"
#include "kernels/kernels_tables.h"

namespace myriad {

namespace {

constexpr Kernels kNeonDot = table_named("neondot");

}  // namespace

const Kernels& neondot_kernels() {
  return kNeonDot;
}

}  // namespace myriad
