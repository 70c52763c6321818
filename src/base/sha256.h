// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), without a library so that a PowerPC node has them too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace myriad {

using Sha256Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  // Ends the message; the object may not be used afterwards.
  Sha256Digest finish();

 private:
  std::array<std::uint32_t, 8> state_;
  std::array<std::byte, 64> block_;
  std::uint64_t length_ = 0;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
Sha256Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

// Takes the same time wherever the first difference is.
bool equal_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

// 64 lower-case hexadecimal digits and back.
std::string to_hex(std::span<const std::byte> bytes);
Result<Sha256Digest> digest_from_hex(std::string_view hex);

}  // namespace myriad
