// The little of HTTP/1.1 (RFC 9112, RFC 9110 §14) that serving and fetching files needs, as pure functions on text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace myriad {

inline constexpr std::size_t kMaxHttpHeadBytes = std::size_t{8} << 10;
inline constexpr std::size_t kMaxHttpFields = 64;

// Where a head ends: the position behind its blank line, or nothing yet.
std::optional<std::size_t> http_head_end(std::string_view text);

struct HttpFields {
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case
  // The value of the only field of that name; nothing if there is none or more than one.
  [[nodiscard]] std::optional<std::string_view> only(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const;
};

struct HttpRequestHead {
  std::string method, target;
  int minor = 1;  // HTTP/1.x
  HttpFields fields;
};
struct HttpResponseHead {
  int status = 0;
  int minor = 1;
  HttpFields fields;
};
// From the head with its blank line. Errors: corrupt, limit.
Result<HttpRequestHead> parse_http_request(std::string_view head);
Result<HttpResponseHead> parse_http_response(std::string_view head);

// Decimal digits only. Nothing for anything else, or beyond 2^63.
std::optional<std::uint64_t> parse_http_number(std::string_view digits);

struct ByteRange {
  std::uint64_t first = 0, last = 0;  // both inclusive
};
enum class RangeKind { whole, part, unsatisfiable };
// A `Range` field against a file of `size` bytes: one range "bytes=a-b", "bytes=a-" or "bytes=-n" gives a part;
// whatever else it says is ignored as RFC 9110 allows, and the whole file is sent.
RangeKind parse_http_range(std::string_view value, std::uint64_t size, ByteRange& range);

// "bytes a-b/total".
struct ContentRange {
  std::uint64_t first = 0, last = 0, total = 0;
};
std::optional<ContentRange> parse_content_range(std::string_view value);

// May stand in a request line or a field: visible ASCII only, and a target begins with '/'.
bool is_http_target(std::string_view text);
bool is_http_value(std::string_view text);

}  // namespace myriad
