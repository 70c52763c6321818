#include "proto/handshake.h"

#include <gtest/gtest.h>

#include <random>

#include "base/bytes.h"
#include "base/sha256.h"
#include "proto/messages.h"

namespace myriad {
namespace {

using Side = Handshake::Side;

HandshakeNonce nonce(std::uint8_t first) {
  HandshakeNonce n;
  for (std::size_t i = 0; i < n.size(); ++i) n[i] = static_cast<std::byte>(first + i);
  return n;
}

struct Outcome {
  Status connector, listener;
};

// Carries messages to and fro until neither has anything to say.
Outcome converse(Handshake& connector, Handshake& listener) {
  Outcome outcome;
  for (bool moved = true; moved;) {
    moved = false;
    if (const auto bytes = connector.take_output(); !bytes.empty()) {
      moved = true;
      outcome.listener = listener.receive(bytes);
    }
    if (const auto bytes = listener.take_output(); !bytes.empty()) {
      moved = true;
      outcome.connector = connector.receive(bytes);
    }
  }
  return outcome;
}

TEST(Handshake, SameTokenOnBothSides) {
  Handshake connector(Side::connector, "secret", nonce(1));
  Handshake listener(Side::listener, "secret", nonce(2));
  EXPECT_EQ(listener.wanted(), Handshake::kHelloBytes);
  const Outcome outcome = converse(connector, listener);
  EXPECT_TRUE(outcome.connector);
  EXPECT_TRUE(outcome.listener);
  EXPECT_TRUE(connector.done());
  EXPECT_TRUE(listener.done());
  EXPECT_EQ(connector.version(), kProtocolVersion);
  EXPECT_EQ(connector.wanted(), 0u);
}

TEST(Handshake, DifferentTokensAreNamedOnBothSides) {
  Handshake connector(Side::connector, "secret", nonce(1));
  Handshake listener(Side::listener, "secreT", nonce(2));
  const Outcome outcome = converse(connector, listener);
  ASSERT_FALSE(outcome.connector);
  ASSERT_FALSE(outcome.listener);
  EXPECT_EQ(outcome.connector.error().code, Code::unauthenticated);
  EXPECT_EQ(outcome.listener.error().code, Code::unauthenticated);
  EXPECT_NE(outcome.connector.error().message.find("the tokens differ"), std::string::npos);
  EXPECT_FALSE(connector.done());
  EXPECT_FALSE(listener.done());
}

TEST(Handshake, VersionsThatDoNotOverlapAreNamedOnBothSides) {
  Handshake connector(Side::connector, "t", nonce(1), {1, 1});
  Handshake listener(Side::listener, "t", nonce(2), {7, 9});
  const Outcome outcome = converse(connector, listener);
  ASSERT_FALSE(outcome.connector);
  ASSERT_FALSE(outcome.listener);
  EXPECT_EQ(outcome.connector.error().code, Code::version);
  EXPECT_NE(outcome.connector.error().message.find("this side speaks 1..1, the peer 7..9"), std::string::npos)
      << outcome.connector.error().message;
  EXPECT_NE(outcome.listener.error().message.find("this side speaks 7..9, the peer 1..1"), std::string::npos);
}

TEST(Handshake, TheNewestCommonVersionIsChosen) {
  Handshake connector(Side::connector, "t", nonce(1), {2, 6});
  Handshake listener(Side::listener, "t", nonce(2), {4, 9});
  converse(connector, listener);
  ASSERT_TRUE(connector.done());
  EXPECT_EQ(connector.version(), 6);
  EXPECT_EQ(listener.version(), 6);
}

// A listener that reflects our own words, or replays those of an earlier conversation, proves nothing.
TEST(Handshake, ReflectionAndReplayFail) {
  Handshake connector(Side::connector, "secret", nonce(1));
  Handshake listener(Side::listener, "secret", nonce(2));
  ASSERT_TRUE(listener.receive(connector.take_output()));
  const auto reply = listener.take_output();
  ASSERT_TRUE(connector.receive(reply));
  const auto proof = connector.take_output();
  std::vector<std::byte> reflected(4);
  reflected.insert(reflected.end(), proof.begin(), proof.end());
  EXPECT_EQ(connector.receive(reflected).error().code, Code::unauthenticated);

  Handshake later(Side::listener, "secret", nonce(3));
  Handshake replayed(Side::connector, "", nonce(1));
  ASSERT_TRUE(later.receive(replayed.take_output()));
  EXPECT_EQ(later.receive(proof).error().code, Code::unauthenticated);
}

TEST(Handshake, TheTokenDoesNotTravel) {
  const std::string token = "a token that would be seen";
  Handshake connector(Side::connector, token, nonce(1));
  Handshake listener(Side::listener, token, nonce(2));
  std::string seen;
  for (int i = 0; i < 2; ++i) {
    for (auto* pair : {&connector, &listener}) {
      const auto bytes = pair->take_output();
      seen.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      ASSERT_TRUE((pair == &connector ? listener : connector).receive(bytes));
    }
  }
  ASSERT_TRUE(connector.done() && listener.done());
  EXPECT_EQ(seen.size(), 40u + 44u + 32u + 36u);
  EXPECT_EQ(seen.find(token.substr(0, 8)), std::string::npos);
}

TEST(Handshake, AnyFlippedBitIsRefused) {
  // Message and bit that is damaged on its way.
  for (int message = 0; message < 4; ++message)
    for (std::size_t bit = 0; bit < 8 * 36; ++bit) {
      Handshake connector(Side::connector, "secret", nonce(1));
      Handshake listener(Side::listener, "secret", nonce(2));
      Status status;
      for (int i = 0; i < 4 && status; ++i) {
        Handshake& from = i % 2 == 0 ? connector : listener;
        Handshake& to = i % 2 == 0 ? listener : connector;
        auto bytes = from.take_output();
        if (i == message && bit / 8 < bytes.size()) bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
        status = to.receive(bytes);
      }
      const bool spare = message == 3 && bit / 8 >= 2 && bit / 8 < 4;  // two bytes without meaning
      const bool beyond = message == 2 && bit / 8 >= Handshake::kProofBytes;
      EXPECT_TRUE(spare || beyond || !status) << "message " << message << " bit " << bit;
    }
}

TEST(Handshake, StrangersAreTurnedAwayAtTheirFirstBytes) {
  Handshake listener(Side::listener, "t", nonce(2));
  const std::string http = "GET / HTTP/1.1\r\n";
  const auto bytes = std::as_bytes(std::span(http));
  EXPECT_FALSE(listener.plausible(bytes.first(1)));
  const Status refused = listener.plausible(bytes);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("\"GET \""), std::string::npos) << refused.error().message;
  Handshake connector(Side::connector, "t", nonce(1));
  const auto hello = connector.take_output();
  for (std::size_t n = 0; n < hello.size(); ++n)
    EXPECT_TRUE(listener.plausible(std::span<const std::byte>(hello).first(n)));
}

TEST(Handshake, BytesArePinned) {
  Handshake connector(Side::connector, "secret", nonce(1), {1, 1});
  Handshake listener(Side::listener, "secret", nonce(0x80), {1, 1});
  const auto hello = connector.take_output();
  EXPECT_EQ(to_hex(hello), "4d594831010001000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20");
  ASSERT_TRUE(listener.receive(hello));
  const auto reply = listener.take_output();
  EXPECT_EQ(to_hex(std::span(reply).first(12)), "4d5948310000010001000100");
  ASSERT_TRUE(connector.receive(reply));
  EXPECT_EQ(to_hex(connector.take_output()), "d2ec9ad60ab7ba394bdea97e4b7f7bb9e628b11ce5f3e1035164c7c855cd9085");
}

TEST(Handshake, NothingIsAcceptedOutOfTurn) {
  Handshake listener(Side::listener, "t", nonce(2));
  EXPECT_EQ(listener.receive({}).error().code, Code::corrupt);
  EXPECT_EQ(listener.wanted(), 0u);
  const std::vector<std::byte> hello(Handshake::kHelloBytes);
  EXPECT_FALSE(listener.receive(hello));
}

}  // namespace
}  // namespace myriad
