#include <algorithm>
#include <charconv>

#include "net/connection.h"

namespace myriad {

std::string Endpoint::to_string() const {
  return host.find(':') != std::string::npos ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
  const auto bad = [&](std::string_view why) {
    return fail(Code::invalid_argument, "\"{}\" is no address: {}; expected host:port, 10.0.0.5:7070 or [::1]:7070",
                text.substr(0, 300), why);
  };
  std::string_view host = text;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return bad("the bracket is not closed");
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty() && !port.starts_with(':')) return bad("something else than a port follows the bracket");
  } else if (const auto colon = text.find(':'); colon != std::string_view::npos && colon == text.rfind(':')) {
    host = text.substr(0, colon);
    port = text.substr(colon);
  }
  if (host.size() > 253) return bad("the host's name is too long");
  const bool plain = std::ranges::all_of(host, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-:%*").find(c) != std::string_view::npos;
  });
  if (!plain) return bad("the host holds characters that no name or address has");
  Endpoint endpoint{std::string(host), default_port};
  if (!port.empty()) {
    port.remove_prefix(1);
    unsigned value = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
    if (error != std::errc{} || end != port.data() + port.size() || value > 65535)
      return bad("the port is no number from 0 to 65535");
    endpoint.port = static_cast<std::uint16_t>(value);
  }
  return endpoint;
}

}  // namespace myriad
