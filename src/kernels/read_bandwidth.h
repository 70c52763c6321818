// How fast this machine's memory can be read by a loop that does nothing else: the yardstick that decoding, which
// streams every weight once a token, is held against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace myriad {

// Larger than the caches of a machine of a few cores.
inline constexpr std::size_t kReadBandwidthBytes = std::size_t{1} << 30;
inline constexpr std::size_t kReadBandwidthThreads = 1024;

// GB/s (10^9 bytes a second), all threads together. Each thread has an equal share of `bytes`, filled by itself, and
// reads it in ascending order, again and again, for about `seconds`. Blocks for as long, and for the filling before.
// Errors: invalid_argument (no thread or more than kReadBandwidthThreads, less than 64 KiB a thread, no time or more
// than an hour); does_not_fit, when the memory is not there.
Result<double> read_bandwidth(std::size_t threads, std::size_t bytes, double seconds);

// The loop itself: XOR of all 64-bit words, with the widest loads that this CPU has. The span begins at a multiple of
// 64 and is a multiple of 256 bytes long.
std::uint64_t read_words(std::span<const std::byte> bytes);
// The same by plain C++, for the test and for other CPUs.
std::uint64_t read_words_portable(std::span<const std::byte> bytes);

}  // namespace myriad
