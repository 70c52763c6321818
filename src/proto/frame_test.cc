#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/bytes.h"
#include "proto/crc32c.h"
#include "proto/messages.h"
#include "proto/random_message_test.h"

namespace myriad {
namespace {

using test::RandomMessages;

Result<Envelope> decode(std::span<const std::byte> frame) {
  if (frame.size() < kFrameHeaderBytes) return fail(Code::corrupt, "{} bytes", frame.size());
  MYRIAD_TRY(const FrameHeader header, decode_frame_header(frame.first(kFrameHeaderBytes)));
  return decode_frame(header, frame.first(kFrameHeaderBytes), frame.subspan(kFrameHeaderBytes));
}

// Makes the checksum right again, so that what lies behind it is tested.
void seal(std::vector<std::byte>& frame) {
  const std::span<const std::byte> all(frame);
  store_le(frame.data() + 12, crc32c(crc32c(0, all.first(12)), all.subspan(kFrameHeaderBytes)));
}

std::uint64_t fresh_seed() {
  const std::uint64_t seed = std::random_device{}();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

TEST(Frame, EveryMessageComesBackAsItWas) {
  const std::uint64_t seed = fresh_seed();
  RandomMessages random(seed);
  for (std::size_t kind = 0; kind < std::variant_size_v<Message>; ++kind)
    for (int i = 0; i < 40; ++i) {
      const Envelope in{random.below(1000), random.below(2) == 1, static_cast<std::uint32_t>(random.below(9999)),
                        random.of_kind(kind)};
      const auto frame = encode_frame(in);
      ASSERT_TRUE(frame) << "seed " << seed << ": " << frame.error().message;
      ASSERT_EQ(frame->size() % 16, 0u);
      const auto out = decode(*frame);
      ASSERT_TRUE(out) << "seed " << seed << ": " << out.error().message;
      EXPECT_EQ(out->call, in.call);
      EXPECT_EQ(out->answer, in.answer);
      EXPECT_EQ(out->deadline_ms, in.deadline_ms);
      ASSERT_TRUE(test::same(out->message, in.message)) << "seed " << seed << ", " << message_name(in.message);
      EXPECT_EQ(*encode_frame(*out), *frame);
    }
}

TEST(Frame, AMessageMayLieAnywhereInMemory) {
  RandomMessages random(7);
  const Envelope in{1, false, 0, random.of_kind(5)};
  const auto frame = encode_frame(in);
  ASSERT_TRUE(frame);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::vector<std::byte> moved(shift);
    moved.insert(moved.end(), frame->begin(), frame->end());
    const auto out = decode(std::span<const std::byte>(moved).subspan(shift));
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_TRUE(test::same(out->message, in.message));
  }
}

TEST(Frame, EveryCutAndEveryFlippedBitIsAnError) {
  const std::uint64_t seed = fresh_seed();
  RandomMessages random(seed);
  for (std::size_t kind = 0; kind < std::variant_size_v<Message>; ++kind) {
    auto frame = *encode_frame({3, false, 0, random.of_kind(kind)});
    for (std::size_t n = 0; n<frame.size(); n += frame.size()> 2000 ? 37 : 1)
      ASSERT_FALSE(decode(std::span<const std::byte>(frame).first(n))) << "seed " << seed << ", length " << n;
    for (std::size_t i = 0; i<frame.size(); i += frame.size()> 2000 ? 29 : 1) {
      const auto bit = static_cast<std::byte>(1u << random.below(8));
      frame[i] ^= bit;
      const auto out = decode(frame);
      ASSERT_FALSE(out) << "seed " << seed << ", byte " << i;
      ASSERT_TRUE(out.error().code == Code::corrupt || out.error().code == Code::limit);
      frame[i] ^= bit;
    }
    ASSERT_TRUE(decode(frame));
  }
}

// Behind a right checksum: whatever comes out is an error or a message that could be sent again.
TEST(Frame, DamageWithARightChecksumNeverBreaksTheReader) {
  const std::uint64_t seed = fresh_seed();
  RandomMessages random(seed);
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    auto frame = *encode_frame({5, true, 9, random.any()});
    for (std::size_t n = 1 + random.below(4); n > 0; --n)
      frame[4 + random.below(frame.size() - 4)] = static_cast<std::byte>(random.below(256));
    seal(frame);
    const auto out = decode(frame);
    if (!out) {
      ++refused;
      continue;
    }
    // Texts of a Failure may hold anything; everything else has passed the writer's own check.
    ASSERT_TRUE(encode_frame(*out)) << "seed " << seed << ", round " << i;
  }
  EXPECT_GT(refused, 500) << "seed " << seed;
}

// A vector of 8-byte numbers that is moved by four bytes: its length would be read from the first number.
TEST(Frame, NumbersAtOddAddressesAreRefused) {
  auto frame = *encode_frame({0, false, 0, Release{{{1}, {5}, {6}}}});
  const std::size_t end = frame.size() - 8;
  bool moved = false;
  for (std::size_t at = kFrameHeaderBytes; at < end && !moved; at += 4) {
    const auto offset = load_le<std::uint32_t>(frame.data() + at);
    if (offset == 0 || at + offset + 4 > end || load_le<std::uint32_t>(frame.data() + at + offset) != 3) continue;
    store_le(frame.data() + at, offset + 4);
    moved = true;
  }
  ASSERT_TRUE(moved);
  seal(frame);
  const auto out = decode(frame);
  ASSERT_FALSE(out);
  EXPECT_NE(out.error().message.find("odd address"), std::string::npos) << out.error().message;
}

TEST(Frame, BytesOfOneFrameArePinned) {
  Call call;
  call.epoch = {0x0102030405060708};
  call.items = {{7, {0}, {1}, HeadWant::candidates}};
  Activation t(Form::bf16, 2, 3);
  t.values = {1.0F, -2.0F, 0.5F, 3.0F, 0.0F, -0.0F};
  call.tensors = {t};
  const auto frame = encode_frame({9, false, 1500, call});
  ASSERT_TRUE(frame);
  EXPECT_EQ(to_hex(*frame),
            "4d594631a0000000100000002e7e2a05180000000000000000000e001e0010000000080007000c000e0000000000000fdc05000020"
            "00000009000000000000000000000000000e0014000c0000000000040008000e000000200000000c00000008070605040302010100"
            "000002000000030000000100000001000000100000000c00140008000c00100007000c000000000000010700000010000000040000"
            "0001000000010000000100000000000000803f00c0003f40400000008000000000");
  const auto out = decode(*frame);
  ASSERT_TRUE(out);
  EXPECT_TRUE(test::same(out->message, Message{call}));
}

TEST(Frame, NotANumberStaysNotANumber) {
  CallReply reply;
  Activation t(Form::bf16, 1, 1);
  t.values[0] = std::bit_cast<float>(0x7f800001u);  // its upper half alone would be an infinity
  reply.tensors = {t};
  const auto out = decode(*encode_frame({1, true, 0, reply}));
  ASSERT_TRUE(out);
  EXPECT_TRUE(std::isnan(std::get<CallReply>(out->message).tensors[0].values[0]));
}

TEST(Frame, TooLongIsRefusedByTheWriterWithNumbers) {
  CallReply reply;
  reply.tensors.assign(3, Activation(Form::f32, 1024, 1024));
  const auto frame = encode_frame({1, true, 0, reply});
  ASSERT_FALSE(frame);
  EXPECT_EQ(frame.error().code, Code::limit);
  EXPECT_NE(frame.error().message.find("12,582,912"), std::string::npos) << frame.error().message;
  EXPECT_NE(frame.error().message.find("CallReply"), std::string::npos) << frame.error().message;
}

TEST(Frame, HeadersAreBoundedBeforeAnythingIsAllocated) {
  auto frame = *encode_frame({1, false, 0, Ping{}});
  store_le(frame.data() + 4, std::uint32_t{0xffffffff});
  store_le(frame.data() + 8, std::uint32_t{0xffffffff});
  const auto header = decode_frame_header(std::span<const std::byte>(frame).first(kFrameHeaderBytes));
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code, Code::limit);
  frame[0] = std::byte{0};
  const auto other = decode_frame_header(std::span<const std::byte>(frame).first(kFrameHeaderBytes));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::corrupt);
  EXPECT_EQ(decode_frame_header({}).error().code, Code::corrupt);
}

TEST(Frame, WhatDoesNotAgreeWithItselfIsRefused) {
  const auto refused = [](const Message& m, Code code) {
    const auto frame = encode_frame({1, false, 0, m});
    ASSERT_FALSE(frame) << message_name(m);
    EXPECT_EQ(frame.error().code, code) << frame.error().message;
    EXPECT_EQ(check_message(m, Code::corrupt).error().code, code == Code::limit ? Code::limit : Code::corrupt);
  };
  Call call;
  call.tensors = {Activation(Form::f32, 2, 4)};
  call.items = {{0, {1}, {}}};
  refused(call, Code::invalid_argument);
  call.items = {{0, {0}, {2}}};
  refused(call, Code::invalid_argument);
  call.items = {{0, {0}, {1}}};
  EXPECT_TRUE(encode_frame({1, false, 0, call}));
  call.tensors[0].values.pop_back();
  refused(call, Code::invalid_argument);
  call.tensors[0] = Activation();
  call.tensors[0].rows = std::numeric_limits<std::size_t>::max();
  call.tensors[0].width = 2;
  call.items.clear();
  refused(call, Code::limit);

  Step step;
  step.sequences = {{{1}, 0, 2}};
  step.tokens = {1};
  refused(step, Code::invalid_argument);
  step.tokens = {1, 2};
  EXPECT_TRUE(encode_frame({1, false, 0, step}));
  step.wanted = {{2, HeadWant::candidates, {}}};
  refused(step, Code::invalid_argument);
  step.wanted[0].row = 1;
  step.wanted[0].sample.temperature = std::numeric_limits<float>::quiet_NaN();
  refused(step, Code::invalid_argument);
  step.wanted.clear();
  step.tensors = {Activation(Form::f32, 3, 1)};
  refused(step, Code::invalid_argument);
  step.tensors.clear();
  step.tokens.clear();
  step.sequences.assign(2, {{1}, 0, 513});
  refused(step, Code::limit);
  step.sequences = {{{1}, 0xffffffff, 1}};
  refused(step, Code::invalid_argument);

  refused(Hello{Role::node, {std::string(65, 'a')}, 1}, Code::limit);
  refused(Hello{Role::node, {"a b"}, 1}, Code::invalid_argument);
  refused(Hello{static_cast<Role>(4), {"a"}, 1}, Code::invalid_argument);
  Assign assign;
  refused(assign, Code::invalid_argument);  // it has no receiver
}

TEST(Frame, AFailureAlwaysFits) {
  std::string text(kMaxTextBytes - 1, 'x');
  text += "ä and much more";
  const auto out = decode(*encode_frame({1, true, 0, Failure{{Code::busy, text, std::string(100, 'n'), "p"}}}));
  ASSERT_TRUE(out);
  const Error& error = std::get<Failure>(out->message).error;
  EXPECT_EQ(error.message, std::string(kMaxTextBytes - 1, 'x'));  // the letter of two bytes is left out whole
  EXPECT_EQ(error.node.size(), kMaxNodeIdBytes);
  EXPECT_EQ(error.part, "p");
}

}  // namespace
}  // namespace myriad
