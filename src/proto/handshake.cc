#include "proto/handshake.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/sha256.h"
#include "proto/messages.h"

namespace myriad {
namespace {

constexpr std::uint32_t kMagic = 0x3148594d;  // "MYH1"
constexpr std::string_view kConnectorLabel = "myriad connector 1";
constexpr std::string_view kListenerLabel = "myriad listener 1";

// On the wire: never renumber.
constexpr std::uint16_t kOk = 0;
constexpr std::uint16_t kNoCommonVersion = 1;
constexpr std::uint16_t kTokensDiffer = 2;

std::unexpected<Error> tokens_differ() {
  return fail(Code::unauthenticated,
              "the tokens differ: this side and the peer were started with different fleet tokens; give both the same");
}

std::unexpected<Error> stranger(std::span<const std::byte> start) {
  std::string shown;
  for (const std::byte b : start.first(std::min<std::size_t>(start.size(), 4))) {
    const auto c = std::to_integer<unsigned char>(b);
    shown += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
  }
  return fail(
      Code::corrupt,
      "the peer does not speak this protocol: its first bytes are \"{}\", expected \"MYH1\"; check that address "
      "and port belong to a Myriad process",
      shown);
}

}  // namespace

VersionRange our_versions() {
  return {kOldestProtocolVersion, kProtocolVersion};
}

Handshake::Handshake(Side side, std::string token, const HandshakeNonce& nonce, VersionRange versions)
    : side_(side),
      state_(side == Side::connector ? State::reply : State::hello),
      token_(std::move(token)),
      nonce_(nonce),
      versions_(versions) {
  if (side_ != Side::connector) return;
  std::array<std::byte, kHelloBytes> hello{};
  store_le(hello.data(), kMagic);
  store_le(hello.data() + 4, versions_.oldest);
  store_le(hello.data() + 6, versions_.newest);
  std::ranges::copy(nonce_, hello.begin() + 8);
  send(hello);
}

void Handshake::send(std::span<const std::byte> message) {
  output_.insert(output_.end(), message.begin(), message.end());
  transcript_.insert(transcript_.end(), message.begin(), message.end());
}

std::vector<std::byte> Handshake::take_output() {
  return std::exchange(output_, {});
}

std::size_t Handshake::wanted() const {
  switch (state_) {
    case State::hello:
      return kHelloBytes;
    case State::reply:
      return kReplyBytes;
    case State::proof:
      return kProofBytes;
    case State::verdict:
      return kVerdictBytes;
    case State::done:
    case State::failed:
      break;
  }
  return 0;
}

Status Handshake::plausible(std::span<const std::byte> beginning) const {
  if (state_ != State::hello && state_ != State::reply) return {};
  std::array<std::byte, 4> magic{};
  store_le(magic.data(), kMagic);
  const std::size_t n = std::min(beginning.size(), magic.size());
  if (!std::ranges::equal(beginning.first(n), std::span(magic).first(n))) return stranger(beginning);
  return {};
}

Status Handshake::receive(std::span<const std::byte> message) {
  const State state = std::exchange(state_, State::failed);  // until the message has proved good
  switch (state) {
    case State::hello:
      if (message.size() == kHelloBytes) return receive_hello(message);
      break;
    case State::reply:
      if (message.size() == kReplyBytes) return receive_reply(message);
      break;
    case State::proof:
      if (message.size() == kProofBytes) return receive_proof(message);
      break;
    case State::verdict:
      if (message.size() == kVerdictBytes) return receive_verdict(message);
      break;
    case State::done:
    case State::failed:
      break;
  }
  return fail(Code::corrupt, "a handshake message of {} bytes came out of turn", message.size());
}

std::array<std::byte, 32> Handshake::prove(std::string_view label) const {
  std::vector<std::byte> text;
  text.reserve(label.size() + transcript_.size());
  const auto letters = std::as_bytes(std::span(label));
  text.insert(text.end(), letters.begin(), letters.end());
  text.insert(text.end(), transcript_.begin(), transcript_.end());
  return hmac_sha256(std::as_bytes(std::span(token_)), text);
}

std::unexpected<Error> Handshake::no_common_version(VersionRange peer) const {
  return fail(Code::version,
              "no common protocol version: this side speaks {}..{}, the peer {}..{}; update the older of the two",
              versions_.oldest, versions_.newest, peer.oldest, peer.newest);
}

Status Handshake::receive_hello(std::span<const std::byte> message) {
  if (load_le<std::uint32_t>(message.data()) != kMagic) return stranger(message);
  const VersionRange peer{load_le<std::uint16_t>(message.data() + 4), load_le<std::uint16_t>(message.data() + 6)};
  transcript_.assign(message.begin(), message.end());
  const std::uint16_t common = std::min(versions_.newest, peer.newest);
  const bool good = peer.oldest <= peer.newest && common >= std::max(versions_.oldest, peer.oldest);

  std::array<std::byte, kReplyBytes> reply{};
  store_le(reply.data(), kMagic);
  store_le(reply.data() + 4, good ? kOk : kNoCommonVersion);
  store_le(reply.data() + 6, versions_.oldest);
  store_le(reply.data() + 8, versions_.newest);
  store_le(reply.data() + 10, good ? common : std::uint16_t{0});
  std::ranges::copy(nonce_, reply.begin() + 12);
  send(reply);
  if (!good) return no_common_version(peer);
  version_ = common;
  state_ = State::proof;
  return {};
}

Status Handshake::receive_reply(std::span<const std::byte> message) {
  if (load_le<std::uint32_t>(message.data()) != kMagic) return stranger(message);
  const auto status = load_le<std::uint16_t>(message.data() + 4);
  const VersionRange peer{load_le<std::uint16_t>(message.data() + 6), load_le<std::uint16_t>(message.data() + 8)};
  const auto chosen = load_le<std::uint16_t>(message.data() + 10);
  if (status == kNoCommonVersion) return no_common_version(peer);
  if (status != kOk) return fail(Code::corrupt, "the peer answered the handshake with status {}", status);
  if (chosen < versions_.oldest || chosen > versions_.newest || chosen < peer.oldest || chosen > peer.newest)
    return no_common_version(peer);
  transcript_.insert(transcript_.end(), message.begin(), message.end());
  send(prove(kConnectorLabel));
  version_ = chosen;
  state_ = State::verdict;
  return {};
}

Status Handshake::receive_proof(std::span<const std::byte> message) {
  const bool good = equal_constant_time(message, prove(kConnectorLabel));
  transcript_.insert(transcript_.end(), message.begin(), message.end());
  std::array<std::byte, kVerdictBytes> verdict{};
  store_le(verdict.data(), good ? kOk : kTokensDiffer);
  if (good) std::ranges::copy(prove(kListenerLabel), verdict.begin() + 4);
  send(verdict);
  if (!good) return tokens_differ();
  state_ = State::done;
  return {};
}

Status Handshake::receive_verdict(std::span<const std::byte> message) {
  if (load_le<std::uint16_t>(message.data()) != kOk) return tokens_differ();
  // Our own proof is part of the transcript by now, as it is for the listener.
  if (!equal_constant_time(message.subspan(4), prove(kListenerLabel))) return tokens_differ();
  state_ = State::done;
  return {};
}

}  // namespace myriad
