#include "cli/fleet_size.h"

#include <algorithm>

#include "plan/account.h"
#include "plan/advice.h"
#include "plan/search.h"

namespace myriad::cli {
namespace {

std::vector<NodeOffer> equal_nodes(std::size_t count, Bytes memory) {
  NodeOffer offer;
  offer.memory_bytes = memory.value;
  offer.headroom_bytes = static_cast<std::uint64_t>(kHeadroom * static_cast<double>(memory.value));
  offer.process_bytes = kProcessBytes;
  offer.speed = 1;
  std::vector<NodeOffer> offers(count, offer);
  for (std::size_t i = 0; i < count; ++i) offers[i].id.value = fmt::format("n{}", i);
  return offers;
}

}  // namespace

Result<FleetSize> fleet_size(const Graph& graph, const Manifest& manifest, Bytes node_memory, Profile profile,
                             const Budget& budget) {
  MYRIAD_TRY(const CostSheet costs, CostSheet::build(graph, manifest, profile, budget));
  const std::uint64_t usable = equal_nodes(1, node_memory)[0].usable();
  const std::uint64_t each = (Bytes{usable} - Bytes{costs.helper_work()}).value;
  const std::uint64_t lead_extra = costs.lead_work() - costs.helper_work();
  for (std::size_t i = 0; i < costs.parts().size(); ++i) {
    const PartCost& part = costs.parts()[i];
    const std::uint64_t wanted = add_saturating(part.bytes(), part.lead ? lead_extra : 0);
    if (wanted > each)
      return fail(Code::does_not_fit,
                  "part {} takes {} bytes (weights {}, attention state {}{}); a node of {} has {} bytes for parts: use "
                  "smaller parts (--part-bytes), less --context, fewer --sequences or a larger --node-memory",
                  costs.part_name(i), wanted, part.part_bytes, part.state_bytes,
                  part.lead ? fmt::format(", a lead's buffers {}", lead_extra) : "", human(node_memory), each);
  }
  // No fleet can be smaller than this; placement is then tried with one that grows by a hundredth.
  const std::uint64_t all = add_saturating(costs.part_bytes(), costs.state_bytes());
  std::size_t nodes = std::max<std::size_t>(1, all / each + (all % each != 0));
  std::vector<std::uint32_t> owner;
  while (!search_placement(costs, equal_nodes(nodes, node_memory), owner))
    nodes += std::max<std::size_t>(1, nodes / 100);
  FleetSize size{.nodes = nodes, .state_bytes = costs.state_bytes()};
  std::vector<bool> leads(nodes, false);
  for (std::size_t i = 0; i < owner.size(); ++i)
    if (costs.parts()[i].lead) leads[owner[i]] = true;
  size.buffer_bytes = nodes * costs.helper_work() +
                      static_cast<std::uint64_t>(std::count(leads.begin(), leads.end(), true)) * lead_extra;
  return size;
}

Manifest planned_manifest(const Graph& graph, const CutOptions& options, std::string name) {
  Manifest manifest;
  manifest.model_name = std::move(name);
  for (const PartSpec& spec : cut(graph, options))
    manifest.parts.push_back({spec, {}, graph.find(spec.op)->weight_bytes(spec.units())});
  return manifest;
}

Status check_fit(const Graph& graph, const Manifest* manifest, const CutOptions& options, std::size_t nodes,
                 Bytes node_memory, Profile profile, const Budget& budget) {
  Manifest planned;
  if (manifest == nullptr) planned = planned_manifest(graph, options, "model");
  MYRIAD_TRY(const CostSheet costs,
             CostSheet::build(graph, manifest == nullptr ? planned : *manifest, profile, budget));
  const auto offers = equal_nodes(nodes, node_memory);
  MYRIAD_TRY([[maybe_unused]] const Placement placement, place(costs, offers));
  return {};
}

Result<Budget> with_cache_memory(const Graph& graph, const Manifest& manifest, Bytes cache_memory, Profile profile,
                                 Budget budget) {
  budget.positions = 0;
  MYRIAD_TRY_STATUS(check_budget(budget));
  std::uint64_t position = 0;
  for (const ManifestPart& part : manifest.parts)
    if (const Operator* op = graph.find(part.spec.op); op != nullptr)
      position += op->state_bytes_per_position(part.spec.units(), op->cache_type(budget.cache, profile));
  if (position == 0)
    return fail(Code::invalid_argument,
                "--cache-memory {}: this model has no caches that grow with the positions; leave it out",
                human(cache_memory));
  const CachePages pages = cache_pages(budget);
  const std::uint64_t page = position * pages.positions;
  const std::uint64_t least = page * pages.for_positions(budget.context);
  if (cache_memory.value < least)
    return fail(Code::does_not_fit,
                "--cache-memory {}: one sequence of --context {} takes {} bytes ({}) in the caches of all nodes; give "
                "at least that, less --context, or a smaller --cache-type",
                human(cache_memory), budget.context, grouped(least), human({least}));
  const std::uint64_t count = cache_memory.value / page;
  if (count < pages.count) budget.positions = static_cast<std::uint32_t>(count * pages.positions);
  return budget;
}

}  // namespace myriad::cli
