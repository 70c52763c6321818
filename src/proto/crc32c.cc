#include "proto/crc32c.h"

#include <array>

#include "base/bytes.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace myriad {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // bit-reversed

// kTables[n][b]: the effect of byte b followed by n zero bytes.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> t{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t c = b;
    for (int k = 0; k < 8; ++k) c = (c >> 1) ^ ((c & 1) ? kPolynomial : 0);
    t[0][b] = c;
  }
  for (std::size_t n = 1; n < 8; ++n)
    for (std::size_t b = 0; b < 256; ++b) t[n][b] = (t[n - 1][b] >> 8) ^ t[0][t[n - 1][b] & 0xff];
  return t;
}();

std::uint32_t step(std::uint32_t c, std::byte b) {
  return (c >> 8) ^ kTables[0][(c ^ std::to_integer<std::uint32_t>(b)) & 0xff];
}

#if defined(__x86_64__)
constexpr std::size_t kLane = 1024;  // bytes of each of three lanes that hide the instruction's latency

// kShift[i][b]: a register that holds b in its byte i, after `kLane` zero bytes have gone through it.
using ShiftTable = std::array<std::array<std::uint32_t, 256>, 4>;
constexpr ShiftTable kShift = [] {
  ShiftTable t{};
  // The map is linear: images of the 32 single bits, then sums of them.
  std::array<std::uint32_t, 32> image{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t c = std::uint32_t{1} << bit;
    for (std::size_t n = 0; n < kLane; ++n) c = (c >> 8) ^ kTables[0][c & 0xff];
    image[bit] = c;
  }
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t b = 0; b < 256; ++b)
      for (std::size_t k = 0; k < 8; ++k)
        if ((b >> k & 1) != 0) t[i][b] ^= image[8 * i + k];
  return t;
}();

std::uint32_t shift_lane(std::uint64_t c) {
  return kShift[0][c & 0xff] ^ kShift[1][c >> 8 & 0xff] ^ kShift[2][c >> 16 & 0xff] ^ kShift[3][c >> 24 & 0xff];
}

std::uint64_t word(const std::byte* p) {
  return load_le<std::uint64_t>(p);
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::uint32_t crc, std::span<const std::byte> bytes) {
  std::uint64_t c = ~crc;
  const std::byte* p = bytes.data();
  std::size_t n = bytes.size();
  for (; n >= 3 * kLane; p += 3 * kLane, n -= 3 * kLane) {
    std::uint64_t c1 = 0, c2 = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      c = _mm_crc32_u64(c, word(p + i));
      c1 = _mm_crc32_u64(c1, word(p + kLane + i));
      c2 = _mm_crc32_u64(c2, word(p + 2 * kLane + i));
    }
    c = shift_lane(shift_lane(c) ^ c1) ^ c2;
  }
  for (; n >= 8; p += 8, n -= 8) c = _mm_crc32_u64(c, word(p));
  auto c32 = static_cast<std::uint32_t>(c);
  for (; n > 0; ++p, --n) c32 = _mm_crc32_u8(c32, std::to_integer<unsigned char>(*p));
  return ~c32;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(std::uint32_t crc, std::span<const std::byte> bytes) {
  std::uint32_t c = ~crc;
  const std::byte* p = bytes.data();
  std::size_t n = bytes.size();
  for (; n >= 8; p += 8, n -= 8) {
    const std::uint32_t a = c ^ load_le<std::uint32_t>(p);
    const auto b = load_le<std::uint32_t>(p + 4);
    c = kTables[7][a & 0xff] ^ kTables[6][a >> 8 & 0xff] ^ kTables[5][a >> 16 & 0xff] ^ kTables[4][a >> 24] ^
        kTables[3][b & 0xff] ^ kTables[2][b >> 8 & 0xff] ^ kTables[1][b >> 16 & 0xff] ^ kTables[0][b >> 24];
  }
  for (; n > 0; ++p, --n) c = step(c, *p);
  return ~c;
}

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool hardware = __builtin_cpu_supports("sse4.2") != 0;
  if (hardware) return crc32c_sse42(crc, bytes);
#endif
  return crc32c_portable(crc, bytes);
}

}  // namespace myriad
