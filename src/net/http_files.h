// Serves files over HTTP/1.1 to whoever has a ticket: how parts get from the controller to the nodes. GET and HEAD with
// one range, keep-alive, nothing else.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "net/connection.h"

namespace myriad {

class HttpFiles {
 public:
  struct Options {
    std::size_t max_connections = 1024;             // beyond it new ones are closed at once
    Nanos head_timeout = std::chrono::seconds(10);  // for a whole request head
    Nanos idle_timeout = std::chrono::seconds(30);  // between requests, and for a reader that takes nothing
  };
  // The file that a path names ("/parts/…"; as it stands in the request, without the query), or nothing: only what this
  // answers is served.
  using Find = std::function<std::optional<std::filesystem::path>(std::string_view path)>;
  // Whether a ticket opens the door; compares in constant time (equal_constant_time of base/sha256.h).
  using Admit = std::function<bool(std::string_view ticket)>;

  // `find` and `admit` run on the loop's thread. Endpoint as for Listener::open. Reading from a slow disk holds the
  // loop up for a piece of at most 256 KiB at a time. Errors: io, not_found.
  static Result<std::unique_ptr<HttpFiles>> open(Reactor& reactor, Endpoint at, Find find, Admit admit,
                                                 Options options);
  virtual ~HttpFiles() = default;  // closes
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  virtual void close() = 0;
};

}  // namespace myriad
