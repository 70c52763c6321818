// Fetches the rest of a file over HTTP/1.1: how a node gets its parts, and goes on where it was interrupted.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "net/connection.h"

namespace myriad {

// GETs bytes [offset, expected_total) of http://`from``path`, presenting `bearer` (visible ASCII; empty: none).
// Thread-safe; both callbacks run on the loop's thread. `on_data` gets pieces of at most 64 KiB, in order; when it
// fails, the transfer ends with its error. `done` is called once: fine when every byte was delivered. Nothing is
// retried here: ask again from the offset that was reached. Errors name the endpoint and the path: unavailable
// (connection, server error, ended early), deadline (nothing came for `idle_timeout`), unauthenticated (401, 403),
// not_found (404), busy (429, 503), corrupt (another size or range than expected), limit (a head beyond
// kMaxHttpHeadBytes), unsupported (an answer that we do not read), invalid_argument.
void http_get_range(Reactor& reactor, Endpoint from, std::string path, std::string bearer, std::uint64_t offset,
                    std::uint64_t expected_total, std::function<Status(std::span<const std::byte>)> on_data,
                    Nanos idle_timeout, std::function<void(Status)> done);

// The same for a whole file whose size is not known beforehand, at most `limit` bytes (beyond it: limit).
void http_get(Reactor& reactor, Endpoint from, std::string path, std::string bearer, std::uint64_t limit,
              std::function<Status(std::span<const std::byte>)> on_data, Nanos idle_timeout,
              std::function<void(Status)> done);

}  // namespace myriad
