// Structured logs on standard error: `2026-11-30T08:00:00.123Z info node=n3 event=part_loaded part=L003.attn.o
// bytes=123`. At most kLogLinesPerSecond lines are written a second; what was left out is counted in the next line that
// gets through.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace myriad {

enum class LogLevel { debug, info, warning, error, off };

inline constexpr int kLogLinesPerSecond = 200;

// Process-wide; from MYRIAD_LOG (debug, info, warning, error, off), `warning` by default. `who` is put in front of
// every line ("node=n3").
void log_configure(LogLevel level, std::string who);
LogLevel log_level_from_environment(LogLevel otherwise);
bool log_enabled(LogLevel level);
void log_write(LogLevel level, std::string_view text);
// Quotes a value when it holds spaces, quotes or control characters, so that a line stays one line.
std::string log_value(std::string_view value);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_write(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace myriad
