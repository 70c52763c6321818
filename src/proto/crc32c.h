// CRC-32C (Castagnoli, RFC 3720 appendix B.4): guards every frame against damage on its way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace myriad {

// Continues `crc` (0 to begin) over `bytes`: crc32c(crc32c(0, a), b) is the checksum of a and b joined. Uses the
// SSE 4.2 instruction where the processor has it.
std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes);

// The twin that runs anywhere, eight bytes a step through tables; the same results.
std::uint32_t crc32c_portable(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace myriad
