#include "model/own_context.h"

#include <fmt/core.h>

namespace myriad {

std::string beyond_own_context(std::uint64_t positions, std::uint64_t own) {
  if (own == 0 || positions <= own) return {};
  return fmt::format(
      "{} positions of a sequence go beyond the {} of the model's own context, which it was trained for: what comes "
      "behind them will be poor; keep prompt and answer together within {}",
      positions, own, own);
}

}  // namespace myriad
