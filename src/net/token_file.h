// A fleet's secret in a file: whoever holds it may join the fleet, so it is made from the system's random source, is
// readable by its owner alone, and never appears in a message or a log.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "base/error.h"

namespace myriad {

inline constexpr std::size_t kMinTokenBytes = 16;
inline constexpr std::size_t kMaxTokenBytes = 1024;

// What such a file holds, for messages.
enum class Secret { fleet_token, api_key };

// The first line of the file, without the white space at its end. A file that others may read is used, with a warning
// in the log that says how to close it. Errors: not_found, io, invalid_argument (shorter or longer than the bounds,
// more than one line, a directory).
Result<std::string> read_token_file(const std::filesystem::path& file, Secret secret = Secret::fleet_token);

// Makes a file of mode 0600 with a new token of 256 random bits in hexadecimal, and returns the token. An existing file
// is never touched. Errors: io (the file exists, its folder does not, no permission).
Result<std::string> create_token_file(const std::filesystem::path& file);

// `bytes` from the operating system's random source, in hexadecimal. Errors: io.
Result<std::string> random_hex(std::size_t bytes);

}  // namespace myriad
