#include "proto/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace myriad {
namespace {

std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s));
}

TEST(Crc32c, KnownVectors) {
  // RFC 3720, appendix B.4
  EXPECT_EQ(crc32c(0, bytes_of(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(0, bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(crc32c(0, bytes_of(ascending)), 0x46dd794eu);
  EXPECT_EQ(crc32c(0, bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(0, {}), 0u);
}

TEST(Crc32c, BothPathsAgreeAndJoin) {
  std::mt19937_64 random(1);
  std::vector<std::byte> data(10000);
  for (std::byte& b : data) b = static_cast<std::byte>(random());
  const std::span<const std::byte> all(data);
  for (int i = 0; i < 300; ++i) {
    const std::size_t at = random() % 17;
    const std::size_t n = random() % (data.size() - at);
    const auto part = all.subspan(at, n);
    const std::uint32_t whole = crc32c_portable(0, part);
    ASSERT_EQ(crc32c(0, part), whole) << "offset " << at << " length " << n;
    const std::size_t cut = n == 0 ? 0 : random() % n;
    ASSERT_EQ(crc32c(crc32c(0, part.first(cut)), part.subspan(cut)), whole);
  }
}

}  // namespace
}  // namespace myriad
