// The sentence for a person whose model does not fit, and what would fit.
#pragma once

#include <span>

#include "base/error.h"
#include "plan/placement.h"

namespace myriad {

// What all parts want against what nodes offer, in sums; cheap.
struct Shortfall {
  std::uint64_t parts = 0, state = 0, buffers = 0;  // buffers: one lead's and a helper's for every other node
  std::uint64_t offered = 0;                        // memory less headroom and process
  [[nodiscard]] std::uint64_t wanted() const { return add_saturating(add_saturating(parts, state), buffers); }
  [[nodiscard]] std::uint64_t missing() const { return wanted() > offered ? wanted() - offered : 0; }
};
Shortfall shortfall(const CostSheet& costs, std::span<const NodeOffer> offers);

// does_not_fit: bytes wanted and offered, bytes missing or the part that no node can take, and which of these would
// help: more nodes like the middle one, more memory a node, less context, fewer sequences. Each suggestion was placed
// on trial if the fleet is small enough for that to be quick, and is an estimate otherwise.
Error does_not_fit(const CostSheet& costs, std::span<const NodeOffer> offers);

}  // namespace myriad
