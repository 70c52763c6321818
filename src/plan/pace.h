// How long a token takes under a placement, before anything runs, and whether fewer nodes would be faster: beyond what
// memory asks for, each further node adds round trips, and a planner that keeps silent about them lets people buy
// slowness.
//
// An estimate for one sequence at a time: weight bytes over each node's measured speed, parts of one round in parallel,
// rounds and hops one after the other, each for one network round trip. It knows nothing of queues, of other users of a
// machine, or of bandwidth.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "plan/placement.h"

namespace myriad {

// A wired local network with sleeping receivers; measure and pass another where it matters.
inline constexpr double kAssumedRoundTrip = 200e-6;

struct Pace {
  double compute_seconds = 0;  // of one token
  std::uint32_t hops = 0;      // from stage to stage
  std::uint32_t rounds = 0;    // in which a lead waits for helpers
  [[nodiscard]] double seconds(double round_trip = kAssumedRoundTrip) const {
    return compute_seconds + round_trip * (static_cast<double>(rounds) + static_cast<double>(hops) / 2);
  }
};

// `offers` as they were placed on (matched by name). The placement is complete.
Pace pace_of(const CostSheet& costs, const Placement& placement, std::span<const NodeOffer> offers);

// A sentence if some of the fastest of these nodes alone would hold the model and be at least a tenth faster for one
// sequence. Tries placements on 1, 2, 4, … nodes.
std::optional<std::string> fewer_would_be_faster(const CostSheet& costs, const Placement& placement,
                                                 std::span<const NodeOffer> offers,
                                                 double round_trip = kAssumedRoundTrip);

}  // namespace myriad
