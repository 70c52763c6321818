// AltiVec without VSX, on big-endian 64-bit PowerPC (Cell's PPE, 970).
#include "kernels/lanes_altivec.h"
//
#include "kernels/kernels_lanes.h"
#include "kernels/kernels_tables.h"

namespace myriad {

namespace {

constexpr Kernels kAltivec = table_named("altivec");

}  // namespace

const Kernels& altivec_kernels() {
  return kAltivec;
}

}  // namespace myriad
