// Who holds what: every part of a manifest on exactly one node, nobody over its memory, shares that follow speed.
//
// The search is a heuristic with a fixed result (same input, same placement):
//   1. each node's target is a share of the work that follows its speed, capped by its memory (water filling);
//   2. parts are handed out in execution order, so that a node's parts are neighbours, and the border between two nodes
//   is moved to
//      the border of a half-layer where that costs little pace, because a half that is split costs round trips for each
//      token;
//   3. what did not fit so goes to the smallest gap that takes it. If that fails, the same with targets by bytes, then
//   filling each
//      node to its memory, then largest part first.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/graph.h"
#include "part/manifest.h"
#include "plan/account.h"

namespace myriad {

inline constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();

struct NodeOffer {
  NodeId id;
  std::uint64_t memory_bytes = 0;    // budget of the whole process
  std::uint64_t headroom_bytes = 0;  // of those, kept free
  std::uint64_t process_bytes = 0;   // resident before any part is loaded
  std::uint64_t speed = 0;           // weight bytes a second; 0 counts as 1
  std::uint32_t cores = 1;
  std::vector<std::uint32_t> held;  // indices into Manifest::parts of what its store holds already, ascending
  // What parts, state and buffers may take.
  [[nodiscard]] std::uint64_t usable() const;
};

struct Placement {
  std::vector<NodeId>
      nodes;  // every node that offered itself, in the order of the offers; those without parts are spare
  std::vector<std::uint32_t>
      owner;  // one a manifest part: index into nodes, or kNowhere while a lost node's part has no home
  std::vector<StageAssignment> stages;  // ascending, covering all halves; empty while a lead part has no home
  [[nodiscard]] bool complete() const;
};

// Errors: does_not_fit, with bytes wanted, offered and missing and what would fit; invalid_argument (two offers of one
// name, no offer, a budget outside its bounds); corrupt (manifest and graph disagree).
Result<Placement> place(const Graph& graph, const Manifest& manifest, std::span<const NodeOffer> offers,
                        Profile profile, const Budget& budget);
Result<Placement> place(const CostSheet& costs, std::span<const NodeOffer> offers);

// Keeps every part where it is and places only those whose owner is not among `offers` any more, or is in `restarted`
// (it is back, with nothing loaded): first on nodes that hold nothing (restarted ones get their own parts back), then,
// if `use_survivors`, on nodes with room. Errors as place(); then nothing changes.
struct ReplaceOptions {
  bool use_survivors = true;
  bool explain = true;  // without it a refusal has no advice: for whoever only tries
};
Result<Placement> replace(const CostSheet& costs, const Placement& old, std::span<const NodeOffer> offers,
                          std::span<const NodeId> restarted, const ReplaceOptions& options);

// Any part anywhere, stage leads anywhere, within every node's memory: for tests of what must hold under every
// placement. Only final_lead is bound: it sits with the lead of the last half, which hands it the residual stream.
Result<Placement> place_random(const CostSheet& costs, std::span<const NodeOffer> offers, std::uint64_t seed);

// Maximal runs of halves whose lead part has one owner. Empty if a lead part has no home.
std::vector<StageAssignment> stages_of(const CostSheet& costs, std::span<const std::uint32_t> owner);

// The account of each node of `offers` (matched by name) under a placement, in the order of the offers.
std::vector<NodeAccount> account_of(const CostSheet& costs, const Placement& placement,
                                    std::span<const NodeOffer> offers);

// "n2" before "n10": digits compare as numbers.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace myriad
