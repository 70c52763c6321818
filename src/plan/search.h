// The bare search, without a sentence on failure: for trials.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/placement.h"

namespace myriad {

// False if no way was found; `owner` is indices into `offers`, one a part.
bool search_placement(const CostSheet& costs, std::span<const NodeOffer> offers, std::vector<std::uint32_t>& owner);

}  // namespace myriad
