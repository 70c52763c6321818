// How two processes prove to each other that they hold the fleet's token, before anything else is read. The token
// itself never travels. A state machine on bytes: no sockets, no clock, no random source of its own.
//
//   connector → listener  hello   40 bytes: magic "MYH1", u16 oldest, u16 newest, nonce[32]
//   listener → connector  reply   44 bytes: magic, u16 status, u16 oldest, u16 newest, u16 chosen version, nonce[32]
//   connector → listener  proof   32 bytes: HMAC(token, "myriad connector 1" ‖ hello ‖ reply)
//   listener → connector  verdict 36 bytes: u16 status, u16 zero, HMAC(token, "myriad listener 1" ‖ hello ‖ reply ‖
//   proof), zeros if status is not 0
//
// All little-endian, HMAC-SHA-256 (RFC 2104). The label names who is proving, and the transcript holds both nonces, so
// a proof can be neither reflected nor replayed. Whoever connects proves first: a listener says nothing that a stranger
// could guess tokens from. Both sides learn why it failed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace myriad {

using HandshakeNonce = std::array<std::byte, 32>;

// The protocol versions that one side speaks: oldest..newest.
struct VersionRange {
  std::uint16_t oldest = 0, newest = 0;
};
VersionRange our_versions();

class Handshake {
 public:
  enum class Side { connector, listener };
  static constexpr std::size_t kHelloBytes = 40, kReplyBytes = 44, kProofBytes = 32, kVerdictBytes = 36;

  // `nonce` is 32 fresh bytes from the operating system's random source.
  Handshake(Side side, std::string token, const HandshakeNonce& nonce, VersionRange versions = our_versions());

  // Bytes that must be sent now; each is handed out once. After a failure too: it tells the peer why.
  std::vector<std::byte> take_output();
  // How many bytes the next message of the peer has; 0 when nothing more is expected.
  [[nodiscard]] std::size_t wanted() const;
  // One whole message, exactly wanted() bytes. Errors: unauthenticated, version, corrupt (the peer speaks something
  // else).
  Status receive(std::span<const std::byte> message);
  // Whether these first bytes of a message (fewer than wanted()) can still become one: a stranger is turned away at his
  // first bytes. Errors: corrupt.
  [[nodiscard]] Status plausible(std::span<const std::byte> beginning) const;
  // Both sides have proved themselves.
  [[nodiscard]] bool done() const { return state_ == State::done; }
  // The newest version that both speak; once done.
  [[nodiscard]] std::uint16_t version() const { return version_; }

 private:
  enum class State { hello, reply, proof, verdict, done, failed };
  void send(std::span<const std::byte> message);
  [[nodiscard]] std::array<std::byte, 32> prove(std::string_view label) const;
  Status receive_hello(std::span<const std::byte> message);
  Status receive_reply(std::span<const std::byte> message);
  Status receive_proof(std::span<const std::byte> message);
  Status receive_verdict(std::span<const std::byte> message);
  [[nodiscard]] std::unexpected<Error> no_common_version(VersionRange peer) const;

  Side side_;
  State state_;
  std::string token_;
  HandshakeNonce nonce_;
  VersionRange versions_;
  std::uint16_t version_ = 0;
  std::vector<std::byte> transcript_;  // every message so far, in order
  std::vector<std::byte> output_;
};

}  // namespace myriad
