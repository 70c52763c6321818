// Addresses as options of commands give them. Every error says which option was read, what it held, what was expected
// and what to try.
#pragma once

#include <string>
#include <string_view>

#include "net/connection.h"

namespace myriad {

// An address to listen on: HOST[:PORT], :PORT, * for every address of this machine; port 0 is a free one. Errors:
// invalid_argument.
Result<Endpoint> parse_listen_option(std::string_view option, std::string_view text, std::uint16_t default_port);
// The address of another process: it names a host and no port 0. Errors: invalid_argument.
Result<Endpoint> parse_join_option(std::string_view option, std::string_view text, std::uint16_t default_port);
// A port alone, 0 to 65535. Errors: invalid_argument.
Result<std::uint16_t> parse_port_option(std::string_view option, std::string_view text, std::uint16_t example);
// A host without a port, that others reach this process at; empty stays empty. Errors: invalid_argument.
Result<std::string> parse_host_option(std::string_view option, std::string_view text);
// What a browser sends as Origin: SCHEME://HOST[:PORT] without a path, or "null"; or "*" for all. Errors:
// invalid_argument.
Result<std::string> parse_origin_option(std::string_view option, std::string_view text);

}  // namespace myriad
