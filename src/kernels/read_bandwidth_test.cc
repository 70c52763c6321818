#include "kernels/read_bandwidth.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/aligned_buffer.h"

namespace myriad {
namespace {

TEST(ReadBandwidth, ReadsEveryWordOnce) {
  constexpr std::size_t kBytes = 256 * 37;
  auto buffer = AlignedBuffer::allocate(kBytes, "a test");
  ASSERT_TRUE(buffer);
  EXPECT_EQ(read_words(buffer->bytes()), 0U);
  for (std::size_t i = 0; i < kBytes; i += 8) {  // any word alone is seen, wherever it is
    const std::uint64_t word = 0x9E3779B97F4A7C15ULL * (i + 1);
    std::memcpy(buffer->data() + i, &word, 8);
    ASSERT_EQ(read_words(buffer->bytes()), word) << i;
    ASSERT_EQ(read_words_portable(buffer->bytes()), word) << i;
    std::memset(buffer->data() + i, 0, 8);
  }
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < kBytes; i += 8) {
    const std::uint64_t word = 0xD1B54A32D192ED03ULL * (i + 1);
    std::memcpy(buffer->data() + i, &word, 8);
    all ^= word;
  }
  EXPECT_EQ(read_words(buffer->bytes()), all);
  EXPECT_EQ(read_words_portable(buffer->bytes()), all);
}

TEST(ReadBandwidth, IsARateThatMemoryCanHave) {
  for (const std::size_t threads : {1, 3}) {
    const auto rate = read_bandwidth(threads, std::size_t{8} << 20, 0.01);
    ASSERT_TRUE(rate) << rate.error().message;
    EXPECT_GT(*rate, 0.01);   // GB/s
    EXPECT_LT(*rate, 10000);  // three cores' first-level caches stay below
  }
}

TEST(ReadBandwidth, RefusesWhatMakesNoSense) {
  EXPECT_EQ(read_bandwidth(0, kReadBandwidthBytes, 1).error().code, Code::invalid_argument);
  EXPECT_EQ(read_bandwidth(kReadBandwidthThreads + 1, kReadBandwidthBytes, 1).error().code, Code::invalid_argument);
  EXPECT_EQ(read_bandwidth(2, 1000, 1).error().code, Code::invalid_argument);
  EXPECT_EQ(read_bandwidth(1, kReadBandwidthBytes, 0).error().code, Code::invalid_argument);
  EXPECT_EQ(read_bandwidth(1, kReadBandwidthBytes, -1).error().code, Code::invalid_argument);
}

}  // namespace
}  // namespace myriad
