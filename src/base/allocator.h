// Makes the C library's allocator predictable, for processes that account their memory.
#pragma once

namespace myriad {

// Few arenas, and a fixed threshold above which blocks are mapped and given back to the system when freed (glibc
// otherwise raises it to 32 MiB after the first large free, and keeps such blocks). Call once, first thing in main.
void bound_allocator();
// Gives freed memory back to the system.
void trim_allocator();

}  // namespace myriad
