// What this process uses and what this machine can do, measured.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "kernels/kernels.h"
#include "kernels/thread_pool.h"

namespace myriad {

// Resident bytes of this process now (/proc/self/statm), 0 if the system does not say.
Bytes resident_bytes();

// Weight bytes a second that the bf16 product streams, on all threads of the pool: the best of 16 rounds (about 30 ms;
// neighbours on the same machine only make rounds slower), times the CPU quota if this process has one. Takes an
// eighth of `memory` for that time, 8 MiB at most.
std::uint64_t measure_speed(const Kernels& kernels, ThreadPool& pool, Bytes memory);

}  // namespace myriad
