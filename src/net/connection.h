// One authenticated connection between two processes: several calls in flight, answers in any order, every call with a
// deadline, cancellation, and detection of a peer that is frozen with its sockets open.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "net/reactor.h"
#include "proto/messages.h"

namespace myriad {

// A frozen peer: calls are outstanding, nothing came for kPingAfter, so a Ping was sent; if nothing at all comes for
// kSilenceLimit the connection is closed and its calls fail. An idle connection sends nothing. Pings are answered by
// the reactor's thread, so a peer that computes is not taken for frozen.
inline constexpr Nanos kPingAfter = std::chrono::milliseconds(500);
inline constexpr Nanos kSilenceLimit = std::chrono::milliseconds(2000);
inline constexpr Nanos kHandshakeLimit = std::chrono::seconds(5);
inline constexpr std::size_t kMaxCallsInFlight = 4096;                 // on one connection, each direction
inline constexpr std::size_t kMaxQueuedBytes = std::size_t{64} << 20;  // written but not yet sent, one connection

// Answers one question; exactly once. Copyable; thread-safe; an answer after the connection is gone is dropped.
class Responder {
 public:
  struct State;
  Responder() = default;
  explicit Responder(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void answer(Message message) const;
  void fail(Error error) const { answer(Message{Failure{std::move(error)}}); }
  // True once the caller has cancelled, its deadline has passed or the connection is gone: nobody waits for the answer.
  [[nodiscard]] bool abandoned() const;
  // Is there a question? Not for a notice.
  explicit operator bool() const { return state_ != nullptr; }

 private:
  std::shared_ptr<State> state_;
};

// Stays open until either side closes it, whoever holds a ConnectionPtr; the object stays valid for as long as somebody
// holds one (shared_from_this() gives one for the reference that handlers get). When the Reactor ends first, callbacks
// are dropped uncalled.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Handlers {
    // All called on the reactor's thread. A question (responder not empty) or a notice (call 0).
    std::function<void(Connection&, Message, Responder)> on_message;
    std::function<void(Connection&, const Error& why)> on_close;  // once, after which the object is dead
  };
  virtual ~Connection() = default;
  // Thread-safe. `on_answer` is called once on the reactor's thread: the answer, or the error (a Failure from the peer,
  // deadline, unavailable when the connection ends or the peer is frozen, limit). Error::node is set to the peer if it
  // was empty. Returns a handle for cancel().
  virtual std::uint64_t call(Message question, Nanos timeout, std::function<void(Result<Message>)> on_answer) = 0;
  virtual void cancel(std::uint64_t call) = 0;  // on_answer gets `cancelled`; the peer is told
  virtual void notify(Message notice) = 0;      // no answer expected
  virtual void close() = 0;
  [[nodiscard]] virtual const Hello& peer() const = 0;
  [[nodiscard]] virtual std::string remote_host() const = 0;  // numeric address, without port
};
using ConnectionPtr = std::shared_ptr<Connection>;

struct Endpoint {
  std::string host;  // name or numeric, IPv4 or IPv6 (without brackets)
  std::uint16_t port = 0;
  [[nodiscard]] std::string to_string() const;  // "[::1]:7070", "10.0.0.5:7070"
};
Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port);

// Connects, does the handshake (proto/handshake.h) and exchanges Hello. `done` on the reactor's thread, within
// `timeout`. Errors name the endpoint: unavailable, unauthenticated (tokens differ), version (what either side speaks),
// deadline.
void connect(Reactor& reactor, Endpoint to, std::string token, Hello self, Connection::Handlers handlers, Nanos timeout,
             std::function<void(Result<ConnectionPtr>)> done);

// Accepts such connections on host:port (port 0: a free one; host "" = loopback, "*" = every address, IPv4 and IPv6).
class Listener {
 public:
  struct Options {
    std::size_t max_connections = 4096;  // beyond it new ones are closed at once
    std::size_t max_handshakes = 256;    // connections that have not proved themselves yet
  };
  static Result<std::unique_ptr<Listener>> open(Reactor& reactor, Endpoint at, std::string token, Hello self,
                                                std::function<Connection::Handlers(const Hello& peer)> accept,
                                                Options options);
  virtual ~Listener() = default;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  virtual void close() = 0;
};

}  // namespace myriad
