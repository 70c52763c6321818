#include "plan/placement.h"

#include <algorithm>
#include <random>
#include <unordered_map>
#include <unordered_set>

#include "plan/advice.h"
#include "plan/fill.h"
#include "plan/search.h"

namespace myriad {
namespace {

Status check_offers(std::span<const NodeOffer> offers) {
  if (offers.empty()) return fail(Code::invalid_argument, "placing a model on no node at all; start at least one node");
  std::unordered_set<std::string_view> seen;
  for (const NodeOffer& offer : offers)
    if (!seen.insert(offer.id.value).second)
      return fail(Code::invalid_argument,
                  "two nodes offer themselves under the name {}; every node needs a name of its own", offer.id.value);
  return {};
}

// The order in which nodes get their run of parts: as their stores suggest from the last time, then by name.
std::vector<std::uint32_t> natural_order(std::span<const NodeOffer> offers) {
  std::vector<std::uint32_t> order(offers.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto first_held = [&](std::uint32_t i) { return offers[i].held.empty() ? kNowhere : offers[i].held.front(); };
    if (first_held(a) != first_held(b)) return first_held(a) < first_held(b);
    return natural_less(offers[a].id.value, offers[b].id.value);
  });
  return order;
}

FillBin empty_bin(const CostSheet& costs, const NodeOffer& offer) {
  FillBin bin;
  bin.free = (Bytes{offer.usable()} - Bytes{costs.helper_work()}).value;
  bin.speed = static_cast<double>(std::max<std::uint64_t>(offer.speed, 1));
  bin.lead_extra = costs.lead_work() - costs.helper_work();
  return bin;
}

std::uint32_t part_with_role_in_last_half(const CostSheet& costs, OpRole role) {
  // final_lead and the last ffn_lead stand near the end, before the head.
  for (std::size_t i = costs.parts().size(); i-- > 0;)
    if (costs.parts()[i].role == role && costs.parts()[i].half + 1 == costs.halves())
      return static_cast<std::uint32_t>(i);
  return kNowhere;
}

std::vector<FillItem> items_of(const CostSheet& costs, std::span<const std::uint32_t> parts) {
  const std::uint32_t last_lead = part_with_role_in_last_half(costs, OpRole::ffn_lead);
  const std::uint32_t final_lead = part_with_role_in_last_half(costs, OpRole::final_lead);
  const bool together = std::binary_search(parts.begin(), parts.end(), last_lead) &&
                        std::binary_search(parts.begin(), parts.end(), final_lead);
  std::vector<FillItem> items;
  items.reserve(parts.size());
  for (const std::uint32_t p : parts) {
    if (together && p == final_lead) continue;
    const PartCost& cost = costs.parts()[p];
    FillItem item{.part = p, .bytes = cost.bytes(), .work = cost.work, .lead = cost.lead};
    item.group = cost.role == OpRole::embed ? 0 : cost.role == OpRole::head ? costs.halves() + 1 : cost.half + 1;
    if (together && p == last_lead) {
      item.companion = final_lead;
      item.bytes = add_saturating(item.bytes, costs.parts()[final_lead].bytes());
      item.work += costs.parts()[final_lead].work;
    }
    items.push_back(item);
  }
  return items;
}

// A bin's bytes stay within this times its share of all bytes, wherever that is possible: embedding rows are no work, but
// somebody has to hold them.
constexpr double kMostOfShare = 1.1;

// Runs of whole halves may be so much larger on a fleet of few nodes: there a half that is split between two costs two
// rounds more a token, of few, and what it would even out is little beside what such nodes hold.
constexpr double kMostOfShareWhole = 1.4;
constexpr std::size_t kFewNodes = 8;

// By work, but with the bytes in bounds: the runs end the nearer to the borders of half-layers the more can be had of
// both. False if the bounds cannot be kept.
bool distribute_evenly(std::span<const FillItem> items, std::vector<FillBin>& bins, std::vector<std::uint32_t>& into) {
  std::vector<double> speeds, nothing(bins.size(), 0), rooms;
  double bytes = 0;
  for (const FillItem& item : items) bytes += static_cast<double>(item.bytes);
  for (const FillBin& bin : bins) {
    speeds.push_back(bin.speed);
    rooms.push_back(static_cast<double>(bin.free));
  }
  const std::vector<double> shares = water_fill(speeds, nothing, rooms, bytes);
  const auto at_most = [&](double times) {
    std::vector<std::uint64_t> most;
    for (const double share : shares) most.push_back(static_cast<std::uint64_t>(times * share));
    return most;
  };
  const std::vector<std::uint64_t> most = at_most(kMostOfShare);
  const auto all_help = [&] {
    std::vector<bool> used(bins.size());
    for (const std::uint32_t b : into)
      if (b != kNoBin) used[b] = true;
    return std::find(used.begin(), used.end(), false) == used.end();
  };
  const auto in_whole_halves = [&](std::span<const std::uint64_t> bound) {
    std::vector<FillBin> trial = bins;
    if (!fill_whole_halves(items, trial, bound, into) || !all_help()) return false;
    bins = std::move(trial);
    return true;
  };
  if (in_whole_halves(most)) return true;
  if (bins.size() < kFewNodes && in_whole_halves(at_most(kMostOfShareWhole))) return true;
  for (const double tolerance : {kBorderTolerance, 0.2, 0.1, 0.05, 0.0}) {
    for (const FillTarget target : {FillTarget::work, FillTarget::bytes}) {
      std::vector<FillBin> trial = bins;
      fill_contiguously(items, trial, target, into, tolerance, most);
      if (std::find(into.begin(), into.end(), kNoBin) != into.end() || !all_help()) continue;
      bins = std::move(trial);
      return true;
    }
  }
  return false;
}

// Distributes all items over the bins or says that it cannot. Bins change only on success.
bool distribute(std::span<const FillItem> items, std::vector<FillBin>& bins, std::vector<std::uint32_t>& into) {
  if (distribute_evenly(items, bins, into)) return true;
  std::vector<FillBin> best_bins;
  std::vector<std::uint32_t> best;
  for (const FillTarget target : {FillTarget::work, FillTarget::bytes, FillTarget::memory}) {
    std::vector<FillBin> trial = bins;
    std::vector<std::uint32_t> where;
    fill_contiguously(items, trial, target, where);
    const bool contiguous = std::find(where.begin(), where.end(), kNoBin) == where.end();
    if (!contiguous && best.empty() && fill_gaps(items, trial, where)) {
      best = where;
      best_bins = trial;
    }
    if (contiguous) {
      into = std::move(where);
      bins = std::move(trial);
      return true;
    }
  }
  if (best.empty()) {
    best.assign(items.size(), kNoBin);
    best_bins = bins;
    if (!fill_gaps(items, best_bins, best)) return false;
  }
  into = std::move(best);
  bins = std::move(best_bins);
  return true;
}

void write_owners(std::span<const FillItem> items, std::span<const std::uint32_t> into,
                  std::span<const std::uint32_t> bin_to_node, std::vector<std::uint32_t>& owner) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (into[i] == kNoBin) continue;
    owner[items[i].part] = bin_to_node[into[i]];
    if (items[i].companion != UINT32_MAX) owner[items[i].companion] = bin_to_node[into[i]];
  }
}

Placement empty_placement(const CostSheet& costs, std::span<const NodeOffer> offers) {
  Placement placement;
  placement.nodes.reserve(offers.size());
  for (const NodeOffer& offer : offers) placement.nodes.push_back(offer.id);
  placement.owner.assign(costs.parts().size(), kNowhere);
  return placement;
}

std::vector<std::uint32_t> every_part(const CostSheet& costs) {
  std::vector<std::uint32_t> all(costs.parts().size());
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

}  // namespace

std::uint64_t NodeOffer::usable() const {
  return (Bytes{memory_bytes} - Bytes{headroom_bytes} - Bytes{process_bytes}).value;
}

bool Placement::complete() const {
  return std::find(owner.begin(), owner.end(), kNowhere) == owner.end();
}

bool natural_less(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      const auto run = [&](std::string_view s, std::size_t at) {
        std::size_t end = at;
        while (end < s.size() && digit(s[end])) ++end;
        while (at + 1 < end && s[at] == '0') ++at;
        return std::pair(s.substr(at, end - at), end);
      };
      const auto [x, x_end] = run(a, i);
      const auto [y, y_end] = run(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      i = x_end;
      j = y_end;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // "n01" and "n1" differ in nothing but their zeros
}

bool search_placement(const CostSheet& costs, std::span<const NodeOffer> offers, std::vector<std::uint32_t>& owner) {
  const std::vector<FillItem> items = items_of(costs, every_part(costs));
  const std::vector<std::uint32_t> order = natural_order(offers);
  std::vector<FillBin> bins;
  bins.reserve(order.size());
  for (const std::uint32_t i : order) bins.push_back(empty_bin(costs, offers[i]));
  std::vector<std::uint32_t> into;
  if (!distribute(items, bins, into)) return false;
  owner.assign(costs.parts().size(), kNowhere);
  write_owners(items, into, order, owner);
  return true;
}

Result<Placement> place(const CostSheet& costs, std::span<const NodeOffer> offers) {
  MYRIAD_TRY_STATUS(check_offers(offers));
  Placement placement = empty_placement(costs, offers);
  if (!search_placement(costs, offers, placement.owner)) return std::unexpected(does_not_fit(costs, offers));
  placement.stages = stages_of(costs, placement.owner);
  return placement;
}

Result<Placement> place(const Graph& graph, const Manifest& manifest, std::span<const NodeOffer> offers,
                        Profile profile, const Budget& budget) {
  MYRIAD_TRY(const CostSheet costs, CostSheet::build(graph, manifest, profile, budget));
  return place(costs, offers);
}

Result<Placement> replace(const CostSheet& costs, const Placement& old, std::span<const NodeOffer> offers,
                          std::span<const NodeId> restarted, const ReplaceOptions& options) {
  MYRIAD_TRY_STATUS(check_offers(offers));
  if (old.owner.size() != costs.parts().size())
    return fail(Code::invalid_argument, "the old placement is one of {} parts, the model has {}", old.owner.size(),
                costs.parts().size());
  std::unordered_map<std::string_view, std::uint32_t> index;
  for (std::uint32_t i = 0; i < offers.size(); ++i) index.emplace(offers[i].id.value, i);
  std::unordered_set<std::string_view> again;
  for (const NodeId& id : restarted) again.insert(id.value);

  Placement placement = empty_placement(costs, offers);
  std::vector<std::uint32_t> old_to_new(old.nodes.size(), kNowhere), home(old.nodes.size(), kNowhere);
  for (std::size_t i = 0; i < old.nodes.size(); ++i) {
    const auto found = index.find(old.nodes[i].value);
    if (found == index.end()) continue;
    home[i] = found->second;
    if (!again.contains(old.nodes[i].value)) old_to_new[i] = found->second;
  }
  std::vector<FillBin> bins;
  for (const NodeOffer& offer : offers) bins.push_back(empty_bin(costs, offer));
  std::vector<bool> survivor(offers.size(), false);
  std::vector<std::uint32_t> orphans;
  const std::uint32_t last_lead = part_with_role_in_last_half(costs, OpRole::ffn_lead);
  const std::uint32_t final_lead = part_with_role_in_last_half(costs, OpRole::final_lead);
  const auto stays = [&](std::uint32_t p) {
    return old.owner[p] < old_to_new.size() && old_to_new[old.owner[p]] != kNowhere;
  };
  for (std::uint32_t p = 0; p < old.owner.size(); ++p) {
    // final_lead moves with its lead.
    if (!stays(p) || (p == final_lead && last_lead != kNowhere && !stays(last_lead))) {
      orphans.push_back(p);
      continue;
    }
    const std::uint32_t node = old_to_new[old.owner[p]];
    placement.owner[p] = node;
    survivor[node] = true;
    const PartCost& cost = costs.parts()[p];
    const FillItem item{.part = p, .bytes = cost.bytes(), .work = cost.work, .lead = cost.lead};
    FillBin& bin = bins[node];
    const std::uint64_t bytes =
        std::min(bin.cost(item), bin.free);  // a budget that has shrunk leaves no room, not less than none
    bin.free -= bytes;
    bin.load += cost.work;
    bin.leads |= cost.lead;
  }

  // Restarted nodes take back what they had, as far as it fits.
  std::vector<std::uint32_t> homeless;
  for (const std::uint32_t p : orphans) {
    const std::uint32_t node = old.owner[p] < home.size() ? home[old.owner[p]] : kNowhere;
    const PartCost& cost = costs.parts()[p];
    const FillItem item{.part = p, .bytes = cost.bytes(), .work = cost.work, .lead = cost.lead};
    if (node == kNowhere || !bins[node].fits(item)) {
      homeless.push_back(p);
      continue;
    }
    bins[node].take(item);
    placement.owner[p] = node;
  }
  if (!homeless.empty()) {
    const std::vector<FillItem> items = items_of(costs, homeless);
    // First choice: nodes that hold nothing; those whose store has most of it stand first.
    std::vector<std::uint32_t> spare, everybody;
    std::vector<std::size_t> overlap(offers.size(), 0);
    for (const std::uint32_t i : natural_order(offers)) {
      for (const std::uint32_t p : offers[i].held)
        overlap[i] += std::binary_search(homeless.begin(), homeless.end(), p) ? 1 : 0;
      everybody.push_back(i);
      if (!survivor[i]) spare.push_back(i);
    }
    std::stable_sort(spare.begin(), spare.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return overlap[a] > overlap[b]; });
    std::uint64_t whole = 0;
    bool any_lead = false;
    for (const FillItem& item : items) {
      whole = add_saturating(whole, item.bytes);
      any_lead |= item.lead;
    }
    // One node for all of it, if there is one: a lost node's run of parts stays a run. The smallest such node.
    std::uint32_t single = kNowhere;
    for (const std::uint32_t i : spare) {
      if (add_saturating(whole, any_lead && !bins[i].leads ? bins[i].lead_extra : 0) > bins[i].free) continue;
      if (single == kNowhere || overlap[i] > overlap[single] ||
          (overlap[i] == overlap[single] && bins[i].free < bins[single].free))
        single = i;
    }
    const auto try_on = [&](std::span<const std::uint32_t> nodes) {
      std::vector<FillBin> some;
      some.reserve(nodes.size());
      for (const std::uint32_t i : nodes) some.push_back(bins[i]);
      std::vector<std::uint32_t> into;
      if (nodes.empty() || !distribute(items, some, into)) return false;
      write_owners(items, into, nodes, placement.owner);
      return true;
    };
    bool placed = single != kNowhere && try_on(std::span(&single, 1));
    placed = placed || try_on(spare);
    placed = placed || (options.use_survivors && try_on(everybody));
    if (!placed && !options.explain)
      return fail(Code::does_not_fit, "the parts of lost nodes do not fit on the others");
    if (!placed) return std::unexpected(does_not_fit(costs, offers));
  }
  placement.stages = stages_of(costs, placement.owner);
  return placement;
}

Result<Placement> place_random(const CostSheet& costs, std::span<const NodeOffer> offers, std::uint64_t seed) {
  MYRIAD_TRY_STATUS(check_offers(offers));
  std::mt19937_64 random(seed);
  // Largest first after a while: a few tries at pure chance, then chance among those nodes that have room, in
  // descending size.
  for (int attempt = 0; attempt < 8; ++attempt) {
    std::vector<FillItem> items = items_of(costs, every_part(costs));
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random() % i]);
    if (attempt >= 4)
      std::stable_sort(items.begin(), items.end(),
                       [](const FillItem& a, const FillItem& b) { return a.bytes > b.bytes; });
    std::vector<FillBin> bins;
    for (const NodeOffer& offer : offers) bins.push_back(empty_bin(costs, offer));
    Placement placement = empty_placement(costs, offers);
    bool all = true;
    for (const FillItem& item : items) {
      std::uint32_t chosen = kNowhere;
      for (int draw = 0; draw < 8 && chosen == kNowhere; ++draw) {
        const auto candidate = static_cast<std::uint32_t>(random() % bins.size());
        if (bins[candidate].fits(item)) chosen = candidate;
      }
      const auto offset = static_cast<std::uint32_t>(random() % bins.size());
      for (std::uint32_t i = 0; i < bins.size() && chosen == kNowhere; ++i)
        if (bins[(i + offset) % bins.size()].fits(item))
          chosen = static_cast<std::uint32_t>((i + offset) % bins.size());
      if (chosen == kNowhere) {
        all = false;
        break;
      }
      bins[chosen].take(item);
      placement.owner[item.part] = chosen;
      if (item.companion != UINT32_MAX) placement.owner[item.companion] = chosen;
    }
    if (!all) continue;
    placement.stages = stages_of(costs, placement.owner);
    return placement;
  }
  return std::unexpected(does_not_fit(costs, offers));
}

std::vector<StageAssignment> stages_of(const CostSheet& costs, std::span<const std::uint32_t> owner) {
  std::vector<std::uint32_t> lead(costs.halves(), kNowhere);
  for (std::size_t p = 0; p < owner.size(); ++p) {
    const PartCost& cost = costs.parts()[p];
    if (cost.role == OpRole::attn_lead || cost.role == OpRole::ffn_lead) lead[cost.half] = owner[p];
  }
  std::vector<StageAssignment> stages;
  for (Half h = 0; h < lead.size(); ++h) {
    if (lead[h] == kNowhere) return {};
    if (stages.empty() || stages.back().lead != lead[h])
      stages.push_back({.lead = lead[h], .first = h, .last = h + 1});
    else
      stages.back().last = h + 1;
  }
  return stages;
}

std::vector<NodeAccount> account_of(const CostSheet& costs, const Placement& placement,
                                    std::span<const NodeOffer> offers) {
  std::unordered_map<std::string_view, std::uint32_t> index;
  std::vector<NodeAccount> accounts(offers.size());
  std::vector<PartCost> held(offers.size());  // what any of the node's parts needs
  for (std::uint32_t i = 0; i < offers.size(); ++i) {
    index.emplace(offers[i].id.value, i);
    accounts[i].node = offers[i].id;
    accounts[i].process_bytes = offers[i].process_bytes;
    accounts[i].budget_bytes = (Bytes{offers[i].memory_bytes} - Bytes{offers[i].headroom_bytes}).value;
  }
  for (std::size_t p = 0; p < placement.owner.size(); ++p) {
    if (placement.owner[p] == kNowhere) continue;
    const auto found = index.find(placement.nodes[placement.owner[p]].value);
    if (found == index.end()) continue;
    NodeAccount& account = accounts[found->second];
    const PartCost& cost = costs.parts()[p];
    ++account.parts;
    account.lead |= cost.lead;
    held[found->second].lead |= cost.lead;
    held[found->second].attends |= cost.attends;
    held[found->second].mixes_experts |= cost.mixes_experts;
    account.part_bytes = add_saturating(account.part_bytes, cost.part_bytes);
    account.state_bytes = add_saturating(account.state_bytes, cost.state_bytes);
  }
  for (std::size_t i = 0; i < accounts.size(); ++i)
    if (accounts[i].parts > 0) accounts[i].work_bytes = costs.work_of(held[i]);
  return accounts;
}

}  // namespace myriad
