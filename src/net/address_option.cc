#include "net/address_option.h"

#include <algorithm>
#include <charconv>

#include "proto/messages.h"

namespace myriad {
namespace {

constexpr std::size_t kShown = 300;  // bytes of a wrong value

std::unexpected<Error> bad(std::string_view option, std::string_view text, std::string_view why) {
  return fail(Code::invalid_argument, "reading the option {} \"{}\": {}", option, text.substr(0, kShown), why);
}

// What parse_endpoint says, with what to try.
std::unexpected<Error> bad_endpoint(std::string_view option, Error error, const std::string& try_this) {
  error.message = fmt::format("reading the option {}: {}; try {}", option, error.message, try_this);
  return std::unexpected(std::move(error));
}

}  // namespace

Result<Endpoint> parse_listen_option(std::string_view option, std::string_view text, std::uint16_t default_port) {
  const std::string try_this =
      fmt::format("{} 127.0.0.1:{}, which only this machine reaches, or {} '*:{}' for every address of this machine",
                  option, default_port, option, default_port);
  if (text.empty())
    return bad(option, text, "it is empty; expected an address of this machine, HOST[:PORT]; try " + try_this);
  auto endpoint = parse_endpoint(text, default_port);
  if (!endpoint) return bad_endpoint(option, std::move(endpoint).error(), try_this);
  return endpoint;
}

Result<Endpoint> parse_join_option(std::string_view option, std::string_view text, std::uint16_t default_port) {
  const std::string try_this =
      fmt::format("{} 10.0.0.5:{} with the address of the machine where it runs", option, default_port);
  auto endpoint = parse_endpoint(text, default_port);
  if (!endpoint) return bad_endpoint(option, std::move(endpoint).error(), try_this);
  if (endpoint->host.empty() || endpoint->host == "*")
    return bad(option, text,
               fmt::format("it names no host that one can connect to; expected that of the controller, HOST[:PORT]; "
                           "try {}",
                           try_this));
  if (endpoint->port == 0)
    return bad(option, text,
               fmt::format("port 0 stands for any free one, to which nobody can connect; expected the port that the "
                           "controller listens on, 1 to 65535; try {}",
                           try_this));
  return endpoint;
}

Result<std::uint16_t> parse_port_option(std::string_view option, std::string_view text, std::uint16_t example) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value > 65535)
    return bad(
        option, text,
        fmt::format("it is no port; expected a number from 0 (a free one) to 65535; try {} {}", option, example));
  return static_cast<std::uint16_t>(value);
}

Result<std::string> parse_host_option(std::string_view option, std::string_view text) {
  if (text.empty()) return std::string();
  const std::string try_this =
      fmt::format("{} 10.0.0.7 with an address of this machine that the others reach, or leave it out", option);
  // Without a port of its own an address takes the default, so two defaults tell whether it has one.
  const auto endpoint = parse_endpoint(text, 1);
  if (!endpoint) return bad_endpoint(option, endpoint.error(), try_this);
  const auto other = parse_endpoint(text, 2);
  if (other && endpoint->port == other->port)
    return bad(option, text,
               fmt::format("it has a port; expected a host alone, whose port is the one that this process listens on; "
                           "try {} {}",
                           option, endpoint->host));
  if (endpoint->host.empty() || endpoint->host == "*" || endpoint->host.size() > kMaxHostBytes)
    return bad(option, text,
               "it is no host that others can connect to; expected a name or an address; try " + try_this);
  return endpoint->host;
}

Result<std::string> parse_origin_option(std::string_view option, std::string_view text) {
  if (text == "*" || text == "null") return std::string(text);
  constexpr std::string_view expected =
      "expected what browsers send as Origin, SCHEME://HOST[:PORT] without a path, or * for all";
  const auto colon = text.find("://");
  if (colon == std::string_view::npos || colon == 0)
    return bad(option, text,
               fmt::format("it is no origin of a web page: it has no scheme; {}; try {} http://{}", expected, option,
                           text.substr(0, kShown)));
  const std::string_view host = text.substr(colon + 3);
  const auto path = host.find_first_of("/?#");
  if (path != std::string_view::npos)
    return bad(option, text,
               fmt::format("it is no origin of a web page: a path follows the host; {}; try {} {}", expected, option,
                           text.substr(0, colon + 3 + path)));
  const auto printable = [](char c) { return c > ' ' && c < 0x7f; };
  if (host.empty() || !std::ranges::all_of(text, printable))
    return bad(
        option, text,
        fmt::format("it is no origin of a web page: {}; {}; try {} https://chat.example.org",
                    host.empty() ? "it names no host" : "it holds characters that no origin has", expected, option));
  return std::string(text);
}

}  // namespace myriad
