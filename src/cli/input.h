// What people and scripts feed to the commands: lists of ids, JSON strings a line, whole files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace myriad::cli {

inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;  // of a file or line that is read whole
inline constexpr std::size_t kMaxIds = std::size_t{1} << 24;

// ASCII capitals as small letters: names of types and formats are known in either case.
std::string lower_case(std::string text);

// "1,2,3", "1 2 3" or a JSON list "[1, 2, 3]". `what` names it in errors (invalid_argument).
Result<std::vector<std::int32_t>> parse_ids(std::string_view text, std::string_view what);
// One list a line; empty lines are left out.
Result<std::vector<std::vector<std::int32_t>>> parse_id_lines(std::string_view text, std::string_view what);
// Errors: invalid_argument, naming the first id that is not in [0, vocabulary).
Status check_ids(const std::vector<std::int32_t>& ids, std::size_t vocabulary, std::string_view what);

// A JSON string with its quotes to bytes. Stricter readers refuse strings that are not UTF-8; here bytes of 0x80 and
// above stand for themselves, so that any byte string can be written. Half of a surrogate pair becomes U+FFFD. Errors:
// corrupt, with the byte position and what was expected.
Result<std::string> parse_json_string(std::string_view text);

// A file, or anything else that ends, such as a pipe; standard input for "-". Errors: not_found, io, limit.
Result<std::string> read_text(const std::filesystem::path& path);

// Calls `on_line` for each line of standard input that is not empty; of an error the line's number is put in front.
Status for_each_input_line(const std::function<Status(std::string_view)>& on_line);

}  // namespace myriad::cli
