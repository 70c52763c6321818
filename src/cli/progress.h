// Progress of long work on standard error: one line that is rewritten on a terminal, a line every tenth elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace myriad::cli {

class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  // Ends the terminal's line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  // `detail` follows the percentage.
  void update(std::uint64_t done, std::uint64_t all, const std::string& detail);

 private:
  std::string what_;
  bool terminal_;
  bool open_ = false;
  int last_tenth_ = -1;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace myriad::cli
