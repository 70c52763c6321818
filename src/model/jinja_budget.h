// What the evaluation of one chat template may use. Templates come in model files, and what they work on comes in
// requests: neither may make a gateway hang or run out of memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"

namespace myriad::jinja {

inline constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxSyntaxNodes = 100'000;
inline constexpr std::size_t kMaxSyntaxDepth = 150;      // nesting of expressions and blocks
inline constexpr std::size_t kMaxEvaluationDepth = 400;  // the same at run time, through macros
// Of the stack, below the frame that evaluation begins in; a sanitizer's frames are several times as large.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr std::size_t kMaxStackBytes = std::size_t{4} << 20;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr std::size_t kMaxStackBytes = std::size_t{4} << 20;
#else
inline constexpr std::size_t kMaxStackBytes = std::size_t{384} << 10;
#endif
#else
inline constexpr std::size_t kMaxStackBytes = std::size_t{384} << 10;
#endif
inline constexpr std::size_t kMaxValueDepth = 250;       // nesting of lists and dicts that is printed or compared
inline constexpr std::size_t kMaxSteps = 20'000'000;     // expressions evaluated, or kBytesAStep of text or data
inline constexpr std::size_t kBytesAStep = 32;           // handled
inline constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;   // one string, and the output
inline constexpr std::size_t kMaxLiveBytes = std::size_t{256} << 20;  // all values at a time
inline constexpr std::int64_t kMaxRange = 100'000;                    // numbers of a range(), as in Jinja's sandbox

// Counts. Once a limit is passed every further call says so: whoever cannot return an error at once may go on for a
// moment and look later.
class Budget {
 public:
  // One expression, or work on so many bytes. False when the steps are used up.
  bool step() {
    if (steps_ < kMaxSteps) {
      ++steps_;
      return true;
    }
    return false;
  }
  bool work(std::size_t bytes) {
    const std::size_t steps = bytes / kBytesAStep + 1;
    if (steps > kMaxSteps - steps_) {
      steps_ = kMaxSteps;
      return false;
    }
    steps_ += steps;
    return true;
  }
  // Memory that values occupy from now on. False when there is none left; it is counted all the same.
  bool take(std::size_t bytes) {
    live_ += bytes;
    if (live_ > kMaxLiveBytes) full_ = true;
    return !full_;
  }
  void give(std::size_t bytes) { live_ -= bytes; }

  [[nodiscard]] bool exceeded() const { return full_ || steps_ >= kMaxSteps; }
  [[nodiscard]] std::size_t steps() const { return steps_; }
  [[nodiscard]] std::size_t live_bytes() const { return live_; }
  // Errors: limit, saying which.
  [[nodiscard]] Status status() const;

 private:
  std::size_t steps_ = 0, live_ = 0;
  bool full_ = false;
};

}  // namespace myriad::jinja
