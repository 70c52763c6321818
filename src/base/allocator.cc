#include "base/allocator.h"

#include <cstdlib>  // defines __GLIBC__

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace myriad {

void bound_allocator() {
#if defined(__GLIBC__)
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_MMAP_THRESHOLD, 512 * 1024);
  ::mallopt(M_TRIM_THRESHOLD, 512 * 1024);
#endif
}

void trim_allocator() {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
}

}  // namespace myriad
