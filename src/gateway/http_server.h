// An HTTP/1.1 and 1.0 server for an API: whole answers and streams, one thread that sleeps while nothing happens, and a
// bound on all that a client can make it keep. It notices at once when a client leaves, also while nothing is being
// sent to it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/ids.h"

namespace myriad {

inline constexpr std::size_t kMaxHeaderBytes = std::size_t{16} << 10;
inline constexpr std::size_t kMaxPipelinedBytes = std::size_t{32} << 10;  // read ahead while a request is served
inline constexpr std::size_t kMaxBodyBytesInMemory = std::size_t{32}
                                                     << 20;  // request bodies of all connections together
inline constexpr std::size_t kMaxQueuedStreamBytes = std::size_t{512} << 10;  // produced, not yet taken by the client
inline constexpr std::size_t kHttpThreadStack = std::size_t{512} << 10;

struct HttpHead {
  std::string method;
  std::string path;   // without the query, not decoded; "*" of `OPTIONS *`
  std::string query;  // without the question mark
  std::string authorization, content_type, origin, requested_headers;  // empty when absent
};

// A body and its share of kMaxBodyBytesInMemory, which is given back when it is destroyed, on whatever thread.
class HttpBody {
 public:
  HttpBody() = default;
  HttpBody(std::string text, std::shared_ptr<void> lease) : text_(std::move(text)), lease_(std::move(lease)) {}
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::shared_ptr<void> lease_;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers{};
};

// The answer to one request. All calls on the server's thread. Either respond() once, or begin_stream(), write() …,
// end_stream(). After the client has gone every call does nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual void respond(HttpResponse response) = 0;
  // `idle_text` is sent whenever nothing else was for the server's idle interval.
  virtual void begin_stream(std::string content_type, HttpHeaders headers, std::string idle_text) = 0;
  virtual void write(std::string text) = 0;
  virtual void end_stream() = 0;
  // Called once, on the server's thread, if the client leaves, or does not take what is sent to it, before the answer
  // is complete.
  virtual void on_gone(std::function<void()> gone) = 0;
  [[nodiscard]] virtual bool gone() const = 0;
};

class HttpServer {
 public:
  struct Options {
    std::size_t max_connections = 512;  // beyond it idle ones are closed, else new ones get a 503
    std::size_t max_body_bytes = std::size_t{16} << 20;
    std::size_t socket_send_buffer = std::size_t{256} << 10;  // in the kernel
    Nanos idle_limit = std::chrono::seconds(75);              // between two requests of a connection
    Nanos header_limit = std::chrono::seconds(10);            // from a header's first byte to its last
    Nanos body_step_limit = std::chrono::seconds(20);         // for each 16 KiB of a body
    Nanos body_limit = std::chrono::minutes(5);
    Nanos write_limit = std::chrono::seconds(30);    // without the client taking a single byte
    Nanos idle_interval = std::chrono::seconds(10);  // of begin_stream
    Nanos linger_limit = std::chrono::seconds(2);    // for a client to take the answer before a connection is closed
  };
  struct Handler {
    // Looks at a request before its body is read; an answer here means that the body is not wanted. May be empty.
    std::function<std::optional<HttpResponse>(const HttpHead&)> refuse;
    // On the server's thread; must answer through the exchange, now or later.
    std::function<void(HttpHead, HttpBody, std::shared_ptr<HttpExchange>)> handle;
    // The body of an error below the handler: malformed HTTP, a limit, a timeout.
    std::function<HttpResponse(int status, std::string message)> error;
  };

  // Listens on host:port (port 0: a free one; host "" is loopback, "*" every address, else a name or a number; IPv4 and
  // IPv6 wherever the host has both) and serves on a thread of its own. Blocks for a name's resolution. Errors: io,
  // invalid_argument.
  static Result<std::unique_ptr<HttpServer>> open(const std::string& host, std::uint16_t port, Options options,
                                                  Handler handler);
  virtual ~HttpServer() = default;  // closes all connections and joins the thread
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  // Thread-safe: runs `work` on the server's thread, in order.
  virtual void post(std::function<void()> work) = 0;
  // Thread-safe; after it no handler and no posted work runs any more.
  virtual void stop() = 0;
};

}  // namespace myriad
