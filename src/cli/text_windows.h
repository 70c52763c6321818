// A text as windows of ids that each begin with fresh state, and how well a model predicts them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"

namespace myriad::cli {

struct WindowOptions {
  std::size_t size = 256;
  std::size_t most = 0;        // windows; 0: all full ones
  bool second_halves = false;  // as llama.cpp's tool counts
};

// Which ids of a window of N are fed, and which predictions count.
//   myriad     ids [w·N, (w+1)·N], both ends: N are fed, all N predictions count; neighbours share one id
//   llama.cpp  ids [w·N, (w+1)·N): all are fed, predictions of the second half count
struct Windows {
  std::size_t size = 0, count = 0, first_scored = 0, scored = 0;
};
// Errors: invalid_argument (no whole window; `text` names what is too short).
Result<Windows> text_windows(std::size_t ids, const WindowOptions& options, std::string_view text);

// -log softmax(logits)[wanted]
double loss_of(std::span<const float> logits, std::int32_t wanted);

}  // namespace myriad::cli
