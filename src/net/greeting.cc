#include "net/greeting.h"

#include <sys/random.h>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

namespace myriad {

using boost::system::error_code;

Result<HandshakeNonce> fresh_nonce() {
  HandshakeNonce nonce;
  if (::getentropy(nonce.data(), nonce.size()) != 0)
    return fail(Code::io, "asking the operating system for random bytes: {}", std::strerror(errno));
  return nonce;
}

Greeting::Greeting(std::shared_ptr<Core> core, boost::asio::ip::tcp::socket socket, Handshake::Side side,
                   std::string token, Hello self, std::function<void(Result<Greeted>)> done)
    : core_(std::move(core)),
      socket_(std::move(socket)),
      timer_(core_->context),
      self_(std::move(self)),
      done_(std::move(done)) {
  static_assert(Handshake::kReplyBytes >= Handshake::kHelloBytes && Handshake::kReplyBytes >= Handshake::kVerdictBytes);
  if (const auto nonce = fresh_nonce()) handshake_.emplace(side, std::move(token), *nonce);
}

void Greeting::start(Nanos limit) {
  started_ = Core::now();
  core_->open.emplace(this, [this] {
    done_ = nullptr;
    finish(fail(Code::cancelled, "this process is stopping"));
  });
  if (!handshake_) return finish(fail(Code::io, "the operating system gives no random bytes for the handshake"));
  timer_.expires_at(Core::time_point(Core::now() + bounded_wait(limit)));
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error)
      self->finish(fail(Code::deadline,
                        "the peer did not finish the handshake in time; it may be overloaded, or no Myriad process"));
  });
  send_then_read();
}

void Greeting::give_up(Error why) {
  finish(std::unexpected(std::move(why)));
}

void Greeting::broken(const error_code& error) {
  if (!done_) return;
  const bool closed = error == boost::asio::error::eof || error == boost::asio::error::connection_reset ||
                      error == boost::asio::error::broken_pipe;
  finish(closed ? fail(Code::unavailable, "the peer closed the connection during the handshake")
                : fail(Code::unavailable, "during the handshake: {}", error.message()));
}

void Greeting::send_then_read() {
  out_ = handshake_->take_output();
  if (out_.empty()) return read_handshake();
  boost::asio::async_write(socket_, boost::asio::buffer(out_),
                           [self = shared_from_this()](const error_code& error, std::size_t) {
                             if (!self->done_) return;
                             if (error) return self->broken(error);
                             self->read_handshake();
                           });
}

void Greeting::read_handshake() {
  const std::size_t wanted = handshake_->wanted();
  if (wanted == 0) return send_hello();
  socket_.async_read_some(boost::asio::buffer(in_.data() + have_, wanted - have_),
                          [self = shared_from_this(), wanted](const error_code& error, std::size_t n) {
                            if (!self->done_) return;
                            if (error) return self->broken(error);
                            self->have_ += n;
                            const auto bytes = std::span<const std::byte>(self->in_).first(self->have_);
                            if (auto status = self->handshake_->plausible(bytes); !status)
                              return self->finish(std::unexpected(status.error()));
                            if (self->have_ < wanted) return self->read_handshake();
                            self->have_ = 0;
                            auto status = self->handshake_->receive(bytes);
                            if (status) return self->send_then_read();
                            // The peer is told why before the connection ends.
                            self->out_ = self->handshake_->take_output();
                            boost::asio::async_write(self->socket_, boost::asio::buffer(self->out_),
                                                     [self, error = status.error()](const error_code&, std::size_t) {
                                                       self->finish(std::unexpected(error));
                                                     });
                          });
}

void Greeting::send_hello() {
  auto frame = encode_frame({0, false, 0, self_});
  if (!frame) return finish(std::unexpected(std::move(frame).error()));
  out_ = std::move(*frame);
  boost::asio::async_write(socket_, boost::asio::buffer(out_),
                           [self = shared_from_this()](const error_code& error, std::size_t) {
                             if (!self->done_) return;
                             if (error) return self->broken(error);
                             self->read_hello_header();
                           });
}

void Greeting::read_hello_header() {
  boost::asio::async_read(
      socket_, boost::asio::buffer(in_.data(), kFrameHeaderBytes),
      [self = shared_from_this()](const error_code& error, std::size_t) {
        if (!self->done_) return;
        if (error) return self->broken(error);
        const auto header = decode_frame_header(std::span<const std::byte>(self->in_).first(kFrameHeaderBytes));
        if (!header) return self->finish(std::unexpected(header.error()));
        if (header->message_bytes > kMaxHelloFrame || header->payload_bytes > 0)
          return self->finish(fail(Code::limit, "the peer's greeting announces {} bytes, expected at most {}",
                                   header->message_bytes, kMaxHelloFrame));
        self->read_hello_body(*header);
      });
}

void Greeting::read_hello_body(FrameHeader header) {
  body_.resize(header.message_bytes);
  boost::asio::async_read(
      socket_, boost::asio::buffer(body_), [self = shared_from_this(), header](const error_code& error, std::size_t) {
        if (!self->done_) return;
        if (error) return self->broken(error);
        auto envelope =
            decode_frame(header, std::span<const std::byte>(self->in_).first(kFrameHeaderBytes), self->body_);
        if (!envelope) return self->finish(std::unexpected(std::move(envelope).error()));
        auto* hello = std::get_if<Hello>(&envelope->message);
        if (hello == nullptr)
          return self->finish(
              fail(Code::corrupt, "the peer began with a {} message, expected Hello", message_name(envelope->message)));
        self->finish(std::move(*hello));
      });
}

void Greeting::finish(Result<Hello> outcome) {
  core_->open.erase(this);
  timer_.cancel();
  auto done = std::exchange(done_, nullptr);
  if (outcome && done) return done(Greeted{std::move(socket_), std::move(*outcome)});
  error_code ignored;
  socket_.close(ignored);
  if (done) done(std::unexpected(std::move(outcome).error()));
}

}  // namespace myriad
