#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "base/sha256.h"

namespace myriad {
namespace {

std::span<const std::byte> bytes_of(std::string_view s) {
  return std::as_bytes(std::span(s));
}

TEST(Sha256, KnownVectors) {
  // FIPS 180-4 examples
  EXPECT_EQ(to_hex(sha256(bytes_of(""))), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256(bytes_of("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const std::string million(1000000, 'a');
  EXPECT_EQ(to_hex(sha256(bytes_of(million))), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, AnySplitGivesTheSameDigest) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  const auto whole = sha256(bytes_of(text));
  for (std::size_t step = 1; step < 150; ++step) {
    Sha256 h;
    for (std::size_t at = 0; at < text.size(); at += step) h.update(bytes_of(std::string_view(text).substr(at, step)));
    EXPECT_EQ(h.finish(), whole) << step;
  }
}

TEST(Hmac, Rfc4231) {
  EXPECT_EQ(to_hex(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const std::string key(131, '\xaa');
  EXPECT_EQ(to_hex(hmac_sha256(bytes_of(key), bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Bytes, Parse) {
  EXPECT_EQ(parse_bytes("256MiB")->value, 268435456u);
  EXPECT_EQ(parse_bytes("1.5GiB")->value, 1610612736u);
  EXPECT_EQ(parse_bytes("200MB")->value, 200000000u);
  EXPECT_EQ(parse_bytes("64 KiB")->value, 65536u);
  EXPECT_EQ(parse_bytes("12")->value, 12u);
  for (const char* bad : {"", "MiB", "-1", "12XB", "1e30", "12MiBs", "nan"}) EXPECT_FALSE(parse_bytes(bad)) << bad;
  EXPECT_EQ(grouped(1560860324864), "1,560,860,324,864");
  EXPECT_EQ(grouped(12), "12");
}

TEST(AlignedBuffer, AlignedZeroedAndOfItsExactSize) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{65}, AlignedBuffer::kOwnPages - 1,
                                 AlignedBuffer::kOwnPages, std::size_t{1000001}, (std::size_t{5} << 20) + 123}) {
    auto buffer = AlignedBuffer::allocate(size, "a test");
    ASSERT_TRUE(buffer.has_value());
    EXPECT_EQ(buffer->size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
    for (const std::byte b : buffer->bytes()) ASSERT_EQ(b, std::byte{0});
    std::ranges::fill(buffer->bytes(), std::byte{1});
    const std::byte* const where = buffer->data();
    const AlignedBuffer moved = std::move(*buffer);
    EXPECT_EQ(moved.data(), where);
    EXPECT_EQ(moved.size(), size);
    EXPECT_EQ(buffer->size(), 0u);  // NOLINT(bugprone-use-after-move): what is left is empty
  }
}

TEST(AlignedBuffer, SaysWhatTheSystemRefused) {
  const auto buffer = AlignedBuffer::allocate(std::size_t{1} << 60, "a part of half the world");
  ASSERT_FALSE(buffer.has_value());
  EXPECT_EQ(buffer.error().code, Code::does_not_fit);
  EXPECT_NE(buffer.error().message.find("a part of half the world"), std::string::npos);
}

TEST(ByteReader, NeverReadsPastTheEnd) {
  ByteWriter w;
  w.put<std::uint16_t>(513);
  w.put_string("xyz");
  ByteReader r(w.bytes());
  EXPECT_EQ(r.get<std::uint16_t>(), 513);
  EXPECT_EQ(r.get_string(3), "xyz");
  EXPECT_TRUE(r.ok());
  EXPECT_EQ(r.get<std::uint64_t>(), 0u);
  EXPECT_FALSE(r.ok());
  ByteReader limited(std::span(w.bytes()).subspan(2));
  EXPECT_EQ(limited.get_string(2), "");
  EXPECT_FALSE(limited.ok());
}

}  // namespace
}  // namespace myriad
