// Private to net/*.cc: the beginning of a connection, the same on both sides: the handshake, then one Hello each way.
// Reads nothing else, and nothing longer than kMaxHelloFrame, from a peer that has not proved itself.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/reactor_impl.h"
#include "proto/handshake.h"
#include "proto/messages.h"

namespace myriad {

inline constexpr std::size_t kMaxHelloFrame = 1024;

class Greeting : public std::enable_shared_from_this<Greeting> {
 public:
  struct Greeted {
    boost::asio::ip::tcp::socket socket;
    Hello peer;
  };
  // All on the loop's thread. `done` is called once: the socket and the peer's Hello, or why not (`deadline` after
  // `limit`).
  Greeting(std::shared_ptr<Core> core, boost::asio::ip::tcp::socket socket, Handshake::Side side, std::string token,
           Hello self, std::function<void(Result<Greeted>)> done);
  void start(Nanos limit);
  void give_up(Error why);
  [[nodiscard]] Nanos started() const { return started_; }

 private:
  void send_then_read();
  void read_handshake();
  void send_hello();
  void read_hello_header();
  void read_hello_body(FrameHeader header);
  void finish(Result<Hello> outcome);
  void broken(const boost::system::error_code& error);

  std::shared_ptr<Core> core_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  std::optional<Handshake> handshake_;
  Hello self_;
  std::function<void(Result<Greeted>)> done_;
  Nanos started_{0};
  std::array<std::byte, Handshake::kReplyBytes> in_{};
  std::size_t have_ = 0;
  std::vector<std::byte> out_;
  std::vector<std::byte> body_;
};

// 32 bytes from the operating system. Errors: io.
Result<HandshakeNonce> fresh_nonce();

}  // namespace myriad
