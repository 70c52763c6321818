#include "base/error.h"

namespace myriad {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::internal:
      return "internal";
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::not_found:
      return "not_found";
    case Code::corrupt:
      return "corrupt";
    case Code::unsupported:
      return "unsupported";
    case Code::does_not_fit:
      return "does_not_fit";
    case Code::unavailable:
      return "unavailable";
    case Code::deadline:
      return "deadline";
    case Code::cancelled:
      return "cancelled";
    case Code::unauthenticated:
      return "unauthenticated";
    case Code::version:
      return "version";
    case Code::io:
      return "io";
    case Code::limit:
      return "limit";
    case Code::busy:
      return "busy";
    case Code::stale:
      return "stale";
  }
  return "unknown";
}

std::string Error::to_string() const {
  std::string out = message;
  if (!node.empty()) out += fmt::format(" [node {}]", node);
  if (!part.empty()) out += fmt::format(" [part {}]", part);
  return out;
}

}  // namespace myriad
