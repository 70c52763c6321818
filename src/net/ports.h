// The ports that the processes listen on unless they are told otherwise.
#pragma once

#include <cstdint>

namespace myriad {

inline constexpr std::uint16_t kControllerPort = 7200;  // nodes, gateways and tools
inline constexpr std::uint16_t kPartServerPort =
    7201;  // HTTP: parts, manifest and tokenizer files, for those with a ticket
inline constexpr std::uint16_t kGatewayHttpPort = 8080;

}  // namespace myriad
