// Where kernels.cc finds the tables of the vector instruction sets. Each table's file is compiled for its set, so it
// must not be called into, nor its address taken for use, before the CPU has been asked.
#pragma once

#include "kernels/table.h"

namespace myriad {

#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
#elif defined(__aarch64__)
const Kernels& neon_kernels();
const Kernels& neondot_kernels();
#elif defined(__powerpc64__)
const Kernels& altivec_kernels();
#endif

}  // namespace myriad
