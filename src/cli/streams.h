// Standard output and standard error as the commands write them. Nothing here throws: a stream that takes no more is
// noticed at the end (end_streams), and a standard error that is closed or full costs its sentences alone.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace myriad::cli {

// Whichever of descriptors 0 to 2 is closed is opened on /dev/null, so that no file of the work takes its number.
void open_standard_descriptors();

void write_out(std::string_view text);
void write_err(std::string_view text);
void flush_out();

// A format string and its arguments, on standard output and on standard error.
template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_out(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  write_err(fmt::format(format, std::forward<Args>(args)...));
}

// The process's exit code: `code`, or kFailed and a sentence where it is kDone and what was written did not all arrive.
// A reader that has gone (`| head`) is no failure.
int end_streams(int code);

}  // namespace myriad::cli
