// For tests: an HTTP client that sends exactly the bytes it is given, over a socket, with a deadline for every wait.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace myriad {

struct RawResponse {
  int status = 0;
  std::string head, body;
  [[nodiscard]] bool has(std::string_view header) const { return head.find(header) != std::string::npos; }
};

// For one step of the server; long, because sanitizers on a busy machine are slow.
inline constexpr int kWaitMs = 60000;

class RawClient {
 public:
  explicit RawClient(std::uint16_t port, bool ipv6 = false, int receive_buffer = 0) {
    socket_ = ::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    if (ipv6) {
      sockaddr_in6 at{};
      at.sin6_family = AF_INET6;
      at.sin6_port = htons(port);
      at.sin6_addr = in6addr_loopback;
      connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
    } else {
      sockaddr_in at{};
      at.sin_family = AF_INET;
      at.sin_port = htons(port);
      at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
    }
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void end_sending() { ::shutdown(socket_, SHUT_WR); }
  // False when the server has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      pollfd p{socket_, POLLOUT, 0};
      if (::poll(&p, 1, kWaitMs) != 1) return false;
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  // More of the answer into the buffer; false at its end or after kWaitMs.
  bool receive() {
    pollfd p{socket_, POLLIN, 0};
    if (::poll(&p, 1, kWaitMs) != 1) return false;
    char some[16384];
    const ssize_t n = ::recv(socket_, some, sizeof some, 0);
    if (n <= 0) return false;
    buffer_.append(some, static_cast<std::size_t>(n));
    return true;
  }
  bool receive_until(std::string_view text) {
    while (buffer_.find(text) == std::string::npos) {
      if (!receive()) return false;
    }
    return true;
  }
  // Whether the server ends the connection; what it sends before is read.
  bool ends() {
    while (receive()) continue;
    pollfd p{socket_, POLLIN, 0};
    char one = 0;
    return ::poll(&p, 1, 0) == 1 && ::recv(socket_, &one, 1, MSG_PEEK) <= 0;
  }
  std::string& buffer() { return buffer_; }

  // The next whole answer; chunked bodies are joined. Status 0 if there is none. `head_only`: the answer to a HEAD.
  RawResponse response(bool head_only = false) {
    RawResponse r;
    if (!receive_until("\r\n\r\n")) return r;
    const auto end = buffer_.find("\r\n\r\n") + 4;
    r.head = buffer_.substr(0, end);
    buffer_.erase(0, end);
    r.status = std::atoi(r.head.c_str() + r.head.find(' '));
    if (head_only || r.status == 204 || r.status == 100) return r;
    if (const auto length = r.head.find("Content-Length: "); length != std::string::npos) {
      const std::size_t n = std::strtoul(r.head.c_str() + length + 16, nullptr, 10);
      while (buffer_.size() < n) {
        if (!receive()) return {};
      }
      r.body = buffer_.substr(0, n);
      buffer_.erase(0, n);
    } else if (r.has("Transfer-Encoding: chunked")) {
      while (true) {
        if (!receive_until("\r\n")) return {};
        const auto line = buffer_.find("\r\n");
        const std::size_t n = std::strtoul(buffer_.c_str(), nullptr, 16);
        while (buffer_.size() < line + 2 + n + 2) {
          if (!receive()) return {};
        }
        r.body += buffer_.substr(line + 2, n);
        buffer_.erase(0, line + 2 + n + 2);
        if (n == 0) break;
      }
    } else {
      while (receive()) continue;
      r.body = std::exchange(buffer_, {});
    }
    return r;
  }

 private:
  int socket_ = -1;
  bool connected_ = false;
  std::string buffer_;
};

}  // namespace myriad
