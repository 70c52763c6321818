// Expected failures travel as values: `Result<T>` is `std::expected<T, Error>`. Exceptions are for bugs.
#pragma once

#include <fmt/core.h>

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace myriad {

// What kind of failure it was. The numbers are part of the wire protocol: never renumber, only append.
enum class Code : unsigned char {
  internal = 0,          // a bug in Myriad
  invalid_argument = 1,  // the caller asked for something that makes no sense
  not_found = 2,         // a file, tensor, node, part or sequence that does not exist
  corrupt = 3,           // bytes that contradict their checksum, header or schema
  unsupported = 4,       // well-formed, but nothing here can run it
  does_not_fit = 5,      // more bytes wanted than there are
  unavailable = 6,       // a node, part or controller that cannot be reached now
  deadline = 7,          // the time for this call is over
  cancelled = 8,         // whoever wanted the answer has gone
  unauthenticated = 9,   // a wrong token
  version = 10,          // the peer speaks no protocol version that we speak
  io = 11,               // the operating system refused
  limit = 12,            // a named maximum was exceeded
  busy = 13,             // try again later
  stale = 14,            // from an older epoch or incarnation
};

std::string_view code_name(Code code);

// `message` is a whole sentence for a person: what was being done, to what, what was found, what was expected, what to
// try. `node` and `part` say where in the fleet it happened; empty if that is nowhere in particular.
struct Error {
  Code code = Code::internal;
  std::string message;
  std::string node;
  std::string part;

  // Puts "doing X: " in front, outermost first.
  [[nodiscard]] Error within(std::string_view doing) && {
    message = fmt::format("{}: {}", doing, message);
    return std::move(*this);
  }
  [[nodiscard]] std::string to_string() const;
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

// `return fail(Code::corrupt, "reading {}: header of {} bytes is longer than the file", path, n);`
template <class... Args>
[[nodiscard]] std::unexpected<Error> fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...), {}, {}});
}

}  // namespace myriad

#define MYRIAD_CAT2(a, b) a##b
#define MYRIAD_CAT(a, b) MYRIAD_CAT2(a, b)
// MYRIAD_TRY(auto x, expression);  declares x from a Result or returns its error.
#define MYRIAD_TRY(decl, ...)                                                                                   \
  auto MYRIAD_CAT(result_, __LINE__) = (__VA_ARGS__);                                                           \
  if (!MYRIAD_CAT(result_, __LINE__)) return std::unexpected(std::move(MYRIAD_CAT(result_, __LINE__)).error()); \
  decl = std::move(*MYRIAD_CAT(result_, __LINE__))
// MYRIAD_TRY_STATUS(expression);  returns the error of a Status, if it has one.
#define MYRIAD_TRY_STATUS(...) \
  if (auto status_ = (__VA_ARGS__); !status_) return std::unexpected(std::move(status_).error())
