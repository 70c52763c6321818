// What the fleet's plan is, when it is made and when parts move.
#include <algorithm>

#include "control/fleet.h"
#include "plan/pace.h"

namespace myriad {
namespace {

constexpr std::size_t kPartsNamed = 3;
constexpr std::size_t kNodesNamed = 3;
constexpr std::uint64_t kRemarkLimit =
    2'000'000;  // parts times nodes, beyond which trials would hold the controller up

std::string clipped_reason(std::string text) {
  if (text.size() > kMaxTextBytes) text.resize(kMaxTextBytes);
  return text;
}

}  // namespace

// ---- who may hold parts

bool Fleet::available(const Member& member) const {
  return alive(member) && !member.resting;
}

std::vector<NodeOffer> Fleet::offers() const {
  std::vector<NodeOffer> offers;
  for (const auto& [id, member] : members_) {
    if (!available(member)) continue;
    const std::uint64_t memory = member.offer.memory_bytes;
    offers.push_back({.id = id,
                      .memory_bytes = memory,
                      .headroom_bytes = static_cast<std::uint64_t>(options_.headroom * static_cast<double>(memory)),
                      .process_bytes = member.offer.process_bytes,
                      .speed = member.offer.speed,
                      .cores = member.offer.cores,
                      .held = member.held});
  }
  return offers;
}

void Fleet::end_rests() {
  for (auto& [id, member] : members_) {
    if (!member.resting) continue;
    if (now_ < member.rest_until) {
      wake_at(member.rest_until);
      continue;
    }
    member.resting = false;
    if (member.state == NodeState::failed && member.parts == 0)
      member.state = plan_ ? NodeState::spare : NodeState::joining;
    membership_changed();
  }
}

Fleet::Counts Fleet::counts() const {
  Counts counts;
  for (const auto& [id, member] : members_) {
    if (member.parts == 0) continue;
    ++counts.owners;
    if (missing(member)) {
      ++counts.missing;
    } else if (member.state == NodeState::ready) {
      ++counts.ready;
    }
  }
  return counts;
}

std::vector<const Fleet::Member*> Fleet::missing_members() const {
  std::vector<const Member*> all;
  for (const auto& [id, member] : members_)
    if (missing(member)) all.push_back(&member);
  return all;
}

// ---- when

void Fleet::consider_plan() {
  end_rests();
  if (plan_) {
    move_orphans();
  } else {
    first_plan();
  }
}

void Fleet::first_plan() {
  std::size_t here = 0;
  std::uint64_t offered = 0;
  for (const auto& [id, member] : members_) {
    if (!available(member)) continue;
    ++here;
    const double usable = static_cast<double>(member.offer.memory_bytes) * (1 - options_.headroom);
    offered =
        add_saturating(offered, (Bytes{static_cast<std::uint64_t>(usable)} - Bytes{member.offer.process_bytes}).value);
  }
  const std::uint64_t wanted =
      add_saturating(add_saturating(costs_.part_bytes(), costs_.state_bytes()),
                     multiply_saturating(std::max<std::size_t>(here, 1), costs_.helper_work()));
  const std::string bytes = fmt::format("{} of at least {} of memory are offered", human({offered}), human({wanted}));
  if (here == 0) {
    plan_error_ = fmt::format("waiting for nodes: none is here; {} of memory are wanted", human({wanted}));
    return;
  }
  if (options_.expect && here < *options_.expect) {
    plan_error_ = fmt::format("waiting for nodes: {} of {} are here; {}", here, *options_.expect, bytes);
    return;
  }
  if (!options_.expect && now_ < last_change_ + options_.settle) {
    plan_error_ = fmt::format("waiting for more nodes: {} here; {}", here, bytes);
    wake_at(last_change_ + options_.settle);
    return;
  }
  if (tried_membership_ == membership_) return;
  if (now_ < next_attempt_) {
    wake_at(next_attempt_);
    return;
  }
  next_attempt_ = now_ + options_.settle;
  tried_membership_ = membership_;
  const std::vector<NodeOffer> nodes = offers();
  Result<Placement> placement = place(costs_, nodes);
  if (!placement) {
    plan_error_ = std::move(placement.error().message);
    log_event(LogLevel::warning, plan_error_);
    return;
  }
  commit(std::move(*placement), "first plan");
}

void Fleet::move_orphans() {
  const std::vector<const Member*> gone = missing_members();
  if (gone.empty()) {
    plan_error_.clear();
    return;
  }
  const bool unheard =
      std::any_of(gone.begin(), gone.end(), [](const Member* m) { return m->state == NodeState::lost; });
  if (now_ < hold_until_ && unheard) {
    plan_error_ =
        "many nodes were lost at once, which is taken for a fault of the controller's own network; nothing is moved "
        "yet";
    wake_at(hold_until_);
    return;
  }
  if (now_ < last_change_ + options_.gather) {
    wake_at(last_change_ + options_.gather);
    return;
  }
  Nanos grace_ends = now_;
  for (const Member* member : gone)
    if (member->state == NodeState::lost) grace_ends = std::max(grace_ends, member->lost_at + options_.survivor_grace);
  const bool survivors = now_ >= grace_ends;
  if (!survivors) wake_at(grace_ends);
  if (tried_membership_ == membership_ && tried_survivors_ == survivors) return;
  tried_membership_ = membership_;
  tried_survivors_ = survivors;

  const std::vector<NodeOffer> nodes = offers();
  if (nodes.empty()) {
    plan_error_ = "no node is left; start some";
    return;
  }
  std::vector<NodeId> restarted;  // here, but with nothing loaded of what the plan says
  for (const Member* member : gone)
    if (available(*member)) restarted.push_back(member->id);
  std::string why = "parts go to nodes that held none";
  Result<Placement> placement =
      replace(costs_, plan_->placement, nodes, restarted, {.use_survivors = false, .explain = false});
  if (!placement && survivors) {
    why = "parts go to nodes that had room";
    placement = replace(costs_, plan_->placement, nodes, restarted, {.use_survivors = true, .explain = false});
  }
  if (!placement && survivors) {
    why = "everything is placed anew, because the gaps were too small";
    placement = place(costs_, nodes);
  }
  if (placement) {
    commit(std::move(*placement), why);
  } else if (survivors) {
    plan_error_ = std::move(placement.error().message);
    log_event(LogLevel::warning, plan_error_);
  } else {
    plan_error_ = fmt::format("waiting {:.0f} s for its return or for a node that takes its place",
                              std::chrono::duration<double>(options_.survivor_grace).count());
  }
}

void Fleet::commit(Placement placement, std::string_view why) {
  epoch_ = {std::max(epoch_, newest_known_).value + 1};
  newest_known_ = epoch_;
  Plan plan;
  plan.parts_of.resize(placement.nodes.size());
  for (std::uint32_t p = 0; p < placement.owner.size(); ++p) plan.parts_of[placement.owner[p]].push_back(p);
  plan.placement = std::move(placement);
  for (auto& [id, member] : members_) member.parts = 0;
  std::size_t owners = 0;
  for (std::size_t n = 0; n < plan.placement.nodes.size(); ++n) {
    const auto member = members_.find(plan.placement.nodes[n]);
    if (member == members_.end()) continue;
    member->second.parts = static_cast<std::uint32_t>(plan.parts_of[n].size());
    owners += member->second.parts > 0 ? 1 : 0;
  }
  plan_ = std::move(plan);
  plan_error_.clear();
  ++changes_;
  log_event(LogLevel::info, fmt::format("epoch {}: {} parts on {} nodes, {} stages ({})", epoch_.value,
                                        plan_->placement.owner.size(), owners, plan_->placement.stages.size(), why));
  const std::vector<NodeOffer> nodes = offers();
  pace_ = pace_of(costs_, plan_->placement, nodes);
  remark_.clear();
  if (multiply_saturating(plan_->placement.owner.size(), nodes.size()) <= kRemarkLimit) {
    if (auto remark = fewer_would_be_faster(costs_, plan_->placement, nodes)) {
      log_event(LogLevel::info, *remark);
      remark_ = std::move(*remark);
    }
  }
  for (auto& [id, member] : members_) {
    if (!alive(member)) continue;
    member.restarted = false;
    if (member.parts > 0) {
      member.state = NodeState::loading;
      member.last_progress = now_;
    } else if (!member.resting) {
      member.state = NodeState::spare;
    }
    // Those that hold something of an earlier plan are told to let go of it.
    if (member.parts > 0 || member.sent_epoch.value != 0 || member.reported_epoch.value != 0) send_assign(member);
  }
}

void Fleet::send_assign(Member& member) {
  member.sent_epoch = epoch_;
  member.last_progress = now_;
  actions_.push_back(AssignAction{*member.peer, member.id, epoch_});
}

// ---- views

FleetState Fleet::state() const {
  if (!plan_) return FleetState::waiting;
  const Counts c = counts();
  if (c.missing > 0) return FleetState::degraded;
  return c.ready == c.owners ? FleetState::ready : FleetState::loading;
}

std::string Fleet::parts_text(const NodeId& node) const {
  if (!plan_) return "no parts";
  const auto& nodes = plan_->placement.nodes;
  const auto found = std::find(nodes.begin(), nodes.end(), node);
  if (found == nodes.end()) return "no parts";
  const auto& parts = plan_->parts_of[static_cast<std::size_t>(found - nodes.begin())];
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kPartsNamed); ++i)
    text += (i > 0 ? ", " : "") + costs_.part_name(parts[i]);
  if (parts.size() > kPartsNamed) text += fmt::format(" and {} more parts", parts.size() - kPartsNamed);
  return text;
}

std::string Fleet::reason() const {
  if (!plan_) return clipped_reason(plan_error_);
  const std::vector<const Member*> gone = missing_members();
  if (gone.empty()) {
    const Counts c = counts();
    return c.ready == c.owners ? std::string()
                               : fmt::format("{} of {} nodes have loaded their parts", c.ready, c.owners);
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(gone.size(), kNodesNamed); ++i) {
    const Member& m = *gone[i];
    if (i > 0) text += "; ";
    if (m.state == NodeState::failed) {
      text += fmt::format("node {} could not load {}: {}", m.id.value, parts_text(m.id), m.last_error);
    } else {
      text += fmt::format("node {} {} ({})", m.id.value, m.state == NodeState::lost ? "is lost" : "has started anew",
                          parts_text(m.id));
    }
  }
  if (gone.size() > kNodesNamed) text += fmt::format("; and {} more nodes", gone.size() - kNodesNamed);
  if (!plan_error_.empty()) text += "; " + plan_error_;
  return clipped_reason(std::move(text));
}

std::optional<NodeState> Fleet::node_state(const NodeId& node) const {
  const auto member = members_.find(node);
  if (member == members_.end()) return {};
  return member->second.state;
}

std::optional<Assign> Fleet::assignment(const NodeId& node) const {
  const auto self = members_.find(node);
  if (!plan_ || self == members_.end()) return {};
  const Placement& placement = plan_->placement;
  Assign assign{
      .epoch = epoch_, .config_json = manifest_.config_json, .profile = options_.profile, .budget = options_.budget};
  std::unordered_map<std::uint32_t, std::uint32_t> listed;  // from the placement's indices to the message's
  const auto list = [&](std::uint32_t n) {
    const auto [entry, fresh] = listed.try_emplace(n, static_cast<std::uint32_t>(assign.nodes.size()));
    if (fresh) {
      NodeAddress address{.node = placement.nodes[n]};
      if (const auto m = members_.find(placement.nodes[n]); m != members_.end()) {
        address.host = m->second.host;
        address.port = m->second.offer.port;
      }
      assign.nodes.push_back(std::move(address));
    }
    return entry->second;
  };
  std::vector<std::uint32_t> parts;
  const auto place_of_self = std::find(placement.nodes.begin(), placement.nodes.end(), node);
  if (place_of_self == placement.nodes.end()) {
    // Not part of this plan: it learns that it holds nothing.
    assign.nodes.push_back({.node = node, .host = self->second.host, .port = self->second.offer.port});
  } else {
    const auto index = static_cast<std::uint32_t>(place_of_self - placement.nodes.begin());
    assign.self = list(index);
    parts = plan_->parts_of[index];
    for (const StageAssignment& stage : placement.stages) {
      if (stage.lead != index) continue;
      for (Half h = stage.first; h < stage.last; ++h)
        for (std::uint32_t p = parts_of_half_[h].first; p < parts_of_half_[h].second; ++p) parts.push_back(p);
    }
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  }
  assign.parts.reserve(parts.size());
  for (const std::uint32_t p : parts) {
    const ManifestPart& part = manifest_.parts[p];
    assign.parts.push_back(
        {.index = p, .spec = part.spec, .id = part.id, .bytes = part.bytes, .owner = list(placement.owner[p])});
  }
  assign.stages.reserve(placement.stages.size());
  for (const StageAssignment& stage : placement.stages)
    assign.stages.push_back({.lead = list(stage.lead), .first = stage.first, .last = stage.last});
  return assign;
}

PlanUpdate Fleet::plan_update() const {
  PlanUpdate update{.epoch = epoch_,
                    .state = state(),
                    .reason = reason(),
                    .profile = options_.profile,
                    .budget = options_.budget,
                    .http_port = options_.http_port,
                    .fetch_ticket = options_.fetch_ticket};
  update.model_name = manifest_.model_name.substr(0, kMaxNameBytes);
  update.vocabulary = manifest_.parts.empty() ? 0 : manifest_.parts.back().spec.end;  // the head is last
  update.own_context = own_context_;
  for (const Member* member : missing_members()) update.lost.push_back(member->id);
  if (!plan_) return update;
  std::vector<std::uint32_t> listed(plan_->placement.nodes.size(), kNowhere);
  for (std::size_t n = 0; n < listed.size(); ++n) {
    if (plan_->parts_of[n].empty()) continue;
    const auto m = members_.find(plan_->placement.nodes[n]);
    listed[n] = static_cast<std::uint32_t>(update.nodes.size());
    update.nodes.push_back({.node = plan_->placement.nodes[n]});
    if (m == members_.end()) continue;
    update.nodes.back().host = m->second.host;
    update.nodes.back().port = m->second.offer.port;
  }
  for (const StageAssignment& stage : plan_->placement.stages)
    update.stages.push_back({.lead = listed[stage.lead], .first = stage.first, .last = stage.last});
  return update;
}

std::vector<NodeAccount> Fleet::account() const {
  if (!plan_) return {};
  std::vector<NodeOffer> nodes;
  for (const NodeId& id : plan_->placement.nodes) {
    NodeOffer offer{.id = id};
    if (const auto m = members_.find(id); m != members_.end()) {
      offer.memory_bytes = m->second.offer.memory_bytes;
      offer.headroom_bytes = static_cast<std::uint64_t>(options_.headroom * static_cast<double>(offer.memory_bytes));
      offer.process_bytes = m->second.offer.process_bytes;
    }
    nodes.push_back(std::move(offer));
  }
  return account_of(costs_, plan_->placement, nodes);
}

}  // namespace myriad
