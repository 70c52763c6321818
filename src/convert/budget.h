// One choice of several for each of many groups, so that the sum of their effects is small and the sum of their bytes
// stays within a budget.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"

namespace myriad {

struct Choice {
  std::uint64_t bytes = 0;
  double effect = 0;  // less is better
};

// The index of a choice for every group. First by the ratio of effect to bytes along each group's lower convex hull,
// which is the optimum for the bytes that it uses; what is left of the budget then goes to single steps and to pairs of
// steps (one group gives bytes, another takes them) as long as they help. Errors: does_not_fit, if the smallest choices
// together are more than the budget; invalid_argument for a group without a choice.
Result<std::vector<std::size_t>> choose_within(std::span<const std::vector<Choice>> groups, std::uint64_t budget);

}  // namespace myriad
