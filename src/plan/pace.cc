#include "plan/pace.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace myriad {
namespace {

// Operators of a half that a lead asks for at the same time (docs/architecture.md, one token's way through).
std::uint32_t round_of(OpRole role) {
  switch (role) {
    case OpRole::embed:
    case OpRole::attn_lead:
    case OpRole::ffn_lead:
    case OpRole::final_lead:
      return 0;
    case OpRole::attn_q_a:
    case OpRole::attn_kv_a:
    case OpRole::router:
    case OpRole::latent_down:
    case OpRole::shared_up:
    case OpRole::dense_up:
      return 1;
    case OpRole::attn:
    case OpRole::expert:
    case OpRole::shared_down:
    case OpRole::dense_down:
      return 2;
    case OpRole::attn_o:
    case OpRole::latent_up:
      return 3;
    case OpRole::head:
      return 4;
  }
  return 0;
}

}  // namespace

Pace pace_of(const CostSheet& costs, const Placement& placement, std::span<const NodeOffer> offers) {
  std::unordered_map<std::string_view, double> speeds;
  for (const NodeOffer& offer : offers)
    speeds.emplace(offer.id.value, static_cast<double>(std::max<std::uint64_t>(offer.speed, 1)));
  std::vector<double> speed(placement.nodes.size(), 1);
  for (std::size_t n = 0; n < speed.size(); ++n)
    if (const auto found = speeds.find(placement.nodes[n].value); found != speeds.end()) speed[n] = found->second;
  std::vector<std::uint32_t> lead(costs.halves(), 0);
  for (const StageAssignment& stage : placement.stages)
    for (Half h = stage.first; h < stage.last; ++h) lead[h] = stage.lead;

  Pace pace;
  pace.hops = placement.stages.empty() ? 0 : static_cast<std::uint32_t>(placement.stages.size() - 1);
  // Parts stand in execution order, but rounds of a half interleave: gather one half at a time.
  struct Round {
    std::unordered_map<std::uint32_t, double> busy;  // seconds by node
    bool helped = false;
  };
  std::size_t p = 0;
  while (p < placement.owner.size()) {
    const Half half = costs.parts()[p].half;
    std::vector<Round> rounds(5);
    for (; p < placement.owner.size() && costs.parts()[p].half == half; ++p) {
      const PartCost& cost = costs.parts()[p];
      Round& round = rounds[round_of(cost.role)];
      const std::uint32_t node = placement.owner[p];
      round.busy[node] += cost.single_work / speed[node];
      round.helped |= node != lead[half];
    }
    for (const Round& round : rounds) {
      double longest = 0;
      for (const auto& [node, seconds] : round.busy) longest = std::max(longest, seconds);
      pace.compute_seconds += longest;
      pace.rounds += round.helped ? 1 : 0;
    }
  }
  return pace;
}

std::optional<std::string> fewer_would_be_faster(const CostSheet& costs, const Placement& placement,
                                                 std::span<const NodeOffer> offers, double round_trip) {
  std::vector<bool> holds(placement.nodes.size(), false);
  for (const std::uint32_t owner : placement.owner) holds[owner] = true;
  const auto used = static_cast<std::size_t>(std::count(holds.begin(), holds.end(), true));
  const double now = pace_of(costs, placement, offers).seconds(round_trip);
  std::vector<NodeOffer> fastest(offers.begin(), offers.end());
  std::stable_sort(fastest.begin(), fastest.end(),
                   [](const NodeOffer& a, const NodeOffer& b) { return a.speed > b.speed; });
  std::size_t best_nodes = 0;
  double best = now * 0.9;
  for (std::size_t n = 1; n < used; n *= 2) {
    const std::span<const NodeOffer> few(fastest.data(), n);
    const auto trial = replace(
        costs,
        Placement{.nodes = {}, .owner = std::vector<std::uint32_t>(costs.parts().size(), kNowhere), .stages = {}}, few,
        {}, {.use_survivors = false, .explain = false});
    if (!trial) continue;
    const double seconds = pace_of(costs, *trial, few).seconds(round_trip);
    if (seconds >= best) continue;
    best = seconds;
    best_nodes = n;
  }
  if (best_nodes == 0) return {};
  return fmt::format(
      "{} node{} would do and be faster for one sequence: about {:.2f} ms a token against {:.2f} ms on {} (computing "
      "at the measured "
      "speed, {:.1f} ms a network round trip)",
      best_nodes, best_nodes == 1 ? "" : "s", best * 1e3, now * 1e3, used, round_trip * 1e3);
}

}  // namespace myriad
