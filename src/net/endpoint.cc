#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "net/connection.h"

namespace myriad {
namespace {

bool is_ip(int family, std::string_view text) {
  in6_addr bytes{};
  return ::inet_pton(family, std::string(text).c_str(), &bytes) == 1;
}

// Why a host that looks like an address is none; empty: it is one, or a name. A name does not end in a number, so
// whoever writes that means an IPv4 address; and no name holds a colon.
std::string_view wrong_ip(std::string_view host) {
  if (host.find(':') != std::string_view::npos)
    return is_ip(AF_INET6, host.substr(0, host.find('%')))
               ? ""
               : "with more than one colon it would be an IPv6 address, and is none (in brackets if a port follows)";
  const std::string_view last = host.substr(host.rfind('.') + 1);
  if (last.empty() || last.find_first_not_of("0123456789") != std::string_view::npos) return "";
  return is_ip(AF_INET, host) ? "" : "it ends like an IPv4 address, which is four numbers from 0 to 255";
}

}  // namespace

std::string Endpoint::to_string() const {
  return host.find(':') != std::string::npos ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
  const auto bad = [&](std::string_view why) {
    return fail(Code::invalid_argument,
                "\"{}\" is no address: {}; expected HOST[:PORT], such as 10.0.0.5:{}, [::1]:{} or node-3.example.org",
                text.substr(0, 300), why, default_port, default_port);
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
  if (host.find('*') != std::string_view::npos && host != "*") return bad("a * stands alone, for every address");
  if (const auto why = wrong_ip(host); !why.empty()) return bad(why);
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
