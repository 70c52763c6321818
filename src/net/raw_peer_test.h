// For tests: the other end of a connection as a plain blocking socket, which does the handshake and then only what the
// test says.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "proto/handshake.h"
#include "proto/messages.h"

namespace myriad::test {

class RawPeer {
 public:
  explicit RawPeer(int fd) : fd_(fd) {
    timeval limit{5, 0};  // no test waits for ever
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  RawPeer(RawPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawPeer& operator=(RawPeer&&) = delete;
  ~RawPeer() {
    if (fd_ >= 0) ::close(fd_);
  }

  static RawPeer dial(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) std::abort();
    return RawPeer(fd);
  }

  [[nodiscard]] int fd() const { return fd_; }
  void close() { ::close(std::exchange(fd_, -1)); }

  void write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  void write(std::string_view text) const { write(std::as_bytes(std::span(text))); }
  void write(const Envelope& envelope) const { write(std::span<const std::byte>(*encode_frame(envelope))); }

  // Fewer when the other side closed, or after five seconds.
  [[nodiscard]] std::vector<std::byte> read(std::size_t n) const {
    std::vector<std::byte> out(n);
    std::size_t have = 0;
    while (have < n) {
      const ssize_t got = ::recv(fd_, out.data() + have, n - have, 0);
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    out.resize(have);
    return out;
  }
  // Reads on until the other side closes; false if it does not within five seconds.
  [[nodiscard]] bool closed_by_peer() const {
    char buffer[4096];
    for (;;) {
      const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
      if (got == 0) return true;
      if (got < 0) return errno == ECONNRESET;
    }
  }

  [[nodiscard]] Result<Envelope> read_frame() const {
    const auto header_bytes = read(kFrameHeaderBytes);
    MYRIAD_TRY(const FrameHeader header, decode_frame_header(header_bytes));
    const auto body = read(header.message_bytes + header.payload_bytes);
    return decode_frame(header, header_bytes, body);
  }

  Status handshake(Handshake::Side side, const std::string& token, VersionRange versions = our_versions()) const {
    HandshakeNonce nonce{};
    nonce[0] = std::byte{42};
    Handshake handshake(side, token, nonce, versions);
    for (;;) {
      write(std::span<const std::byte>(handshake.take_output()));
      if (handshake.wanted() == 0) return {};
      auto status = handshake.receive(read(handshake.wanted()));
      if (!status) {
        write(std::span<const std::byte>(handshake.take_output()));
        return status;
      }
    }
  }
  // Handshake and Hello, both ways.
  Status greet(Handshake::Side side, const std::string& token, const std::string& name) const {
    MYRIAD_TRY_STATUS(handshake(side, token));
    write({0, false, 0, Hello{Role::node, {name}, 1}});
    MYRIAD_TRY(const Envelope hello, read_frame());
    if (!std::holds_alternative<Hello>(hello.message)) return fail(Code::corrupt, "no Hello came");
    return {};
  }

 private:
  int fd_;
};

// A listening socket whose connections the test answers by hand.
class RawListener {
 public:
  RawListener() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 || ::listen(fd_, 8) != 0) std::abort();
    socklen_t n = sizeof at;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &n);
    port_ = ntohs(at.sin_port);
    timeval limit{5, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;
  ~RawListener() { ::close(fd_); }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] RawPeer accept() const { return RawPeer(::accept(fd_, nullptr, nullptr)); }

 private:
  int fd_;
  std::uint16_t port_ = 0;
};

}  // namespace myriad::test
