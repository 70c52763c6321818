// How many equal nodes a cut model needs: found by placing it on trial, without any weights.
#pragma once

#include "base/bytes.h"
#include "model/graph.h"
#include "part/cutter.h"
#include "part/manifest.h"
#include "proto/messages.h"

namespace myriad::cli {

// What a node that does not exist yet is assumed to take before any part is loaded, and the share of its memory that a
// controller keeps free.
inline constexpr std::uint64_t kProcessBytes = std::uint64_t{6} << 20;
inline constexpr double kHeadroom = 0.05;

struct FleetSize {
  std::size_t nodes = 0;
  std::uint64_t state_bytes = 0, buffer_bytes = 0;  // of all nodes together
};
// The smallest fleet (to within a hundredth) that placement finds room in. Errors: does_not_fit, when one part alone is
// too large for a node; invalid_argument (budget).
Result<FleetSize> fleet_size(const Graph& graph, const Manifest& manifest, Bytes node_memory, Profile profile,
                             const Budget& budget);

// Whether so many such nodes would hold the model, cut so (or as `manifest` says, if it is cut already). Errors:
// does_not_fit, with the numbers and what would help; invalid_argument.
Status check_fit(const Graph& graph, const Manifest* manifest, const CutOptions& options, std::size_t nodes,
                 Bytes node_memory, Profile profile, const Budget& budget);
// The budget with as many positions as caches of so many bytes hold, in all parts of the manifest together: whole pages
// of positions, or no bound where that is room for every sequence. Errors: does_not_fit (less than one sequence of the
// budget's context, with the least), invalid_argument.
Result<Budget> with_cache_memory(const Graph& graph, const Manifest& manifest, Bytes cache_memory, Profile profile,
                                 Budget budget);
// The manifest of a cut that is not made: without hashes.
Manifest planned_manifest(const Graph& graph, const CutOptions& options, std::string name);

}  // namespace myriad::cli
