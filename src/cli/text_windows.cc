#include "cli/text_windows.h"

#include <algorithm>
#include <cmath>

namespace myriad::cli {

double loss_of(std::span<const float> logits, std::int32_t wanted) {
  double largest = -INFINITY, sum = 0;
  for (const float x : logits) largest = std::max(largest, static_cast<double>(x));
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  return largest + std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(wanted)]);
}

Result<Windows> text_windows(std::size_t ids, const WindowOptions& options, std::string_view text) {
  Windows w{.size = options.size};
  const std::size_t needed = options.second_halves ? w.size : w.size + 1;
  if (ids < needed)
    return fail(Code::invalid_argument, "{} has {} tokens; a window takes {}: use a longer text or a smaller --window",
                text, ids, needed);
  w.count = options.second_halves ? ids / w.size : (ids - 1) / w.size;
  if (options.most != 0) w.count = std::min(w.count, options.most);
  w.first_scored = options.second_halves ? w.size / 2 : 0;
  w.scored = options.second_halves ? w.size - w.first_scored - 1 : w.size;
  return w;
}

}  // namespace myriad::cli
