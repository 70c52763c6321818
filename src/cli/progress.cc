#include "cli/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/streams.h"

namespace myriad::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);

}  // namespace

ProgressLine::ProgressLine(std::string what) : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (open_) write_err("\n");
}

void ProgressLine::update(std::uint64_t done, std::uint64_t all, const std::string& detail) {
  const double share = all == 0 ? 1 : static_cast<double>(done) / static_cast<double>(all);
  const auto now = std::chrono::steady_clock::now();
  if (terminal_) {
    if (done != all && now - last_ < kRedraw) return;
    last_ = now;
    open_ = true;
    print_err("\r{}: {:3.0f} %  {}\033[K", what_, 100 * share, detail);
    return;
  }
  const int tenth = std::clamp(static_cast<int>(share * 10), 0, 10);
  if (tenth == last_tenth_ || tenth == 0) return;
  last_tenth_ = tenth;
  print_err("{}: {} %  {}\n", what_, 10 * tenth, detail);
}

}  // namespace myriad::cli
