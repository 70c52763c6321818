// AArch64 with what every such processor has (Cortex-A53, A72: Raspberry Pi 3 and 4).
#include "kernels/lanes_neon.h"
//
#include "kernels/kernels_lanes.h"
#include "kernels/kernels_tables.h"

namespace myriad {

namespace {

constexpr Kernels kNeon = table_named("neon");

}  // namespace

const Kernels& neon_kernels() {
  return kNeon;
}

}  // namespace myriad
