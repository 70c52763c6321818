#include "base/allocator.h"

#include <cstdlib>  // defines __GLIBC__

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace myriad {

void bound_allocator() {
#if defined(__GLIBC__)
  ::mallopt(M_ARENA_MAX, 1);  // an arena of a thread is made of heaps of 64 MiB, which come and go whole
  // Weights have pages of their own (AlignedBuffer). What is left are the buffers of steps, which come again with every
  // step: given back each time, their pages would be cleared anew each time.
  ::mallopt(M_MMAP_THRESHOLD, 32 * 1024 * 1024);
  ::mallopt(M_TRIM_THRESHOLD, 64 * 1024 * 1024);
#endif
}

void trim_allocator() {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
}

}  // namespace myriad
