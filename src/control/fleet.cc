#include "control/fleet.h"

#include <algorithm>
#include <cmath>

namespace myriad {
namespace {

constexpr std::size_t kMaxHeldRemembered = 1024;  // of a node's store; it is a hint
constexpr std::size_t kMaxGraves = 16'384;
constexpr Nanos kTickWithNodes = std::chrono::milliseconds(250);
constexpr Nanos kTickWithoutNodes = std::chrono::seconds(1);
constexpr Nanos kReasonInterval = std::chrono::seconds(1);  // between updates that differ in their reason alone
constexpr std::size_t kSmallestFleetForNetworkFault = 4;
constexpr std::uint64_t kLargestEpochJump = std::uint64_t{1} << 48;

std::string seconds_text(Nanos n) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(n).count());
}

std::string clipped(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  text.resize(most - 3);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80)
    text.pop_back();  // no half of a character
  if (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0) text.pop_back();
  return text + "...";
}

}  // namespace

Status check_node_id(const NodeId& id) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  if (id.value.empty() || id.value.size() > kMaxNodeIdBytes ||
      !std::all_of(id.value.begin(), id.value.end(), allowed) || id.value.front() == '-' || id.value.front() == '.')
    return fail(Code::invalid_argument,
                "a node wants to be called {}; a name is 1 to {} of the characters A-Z a-z 0-9 . _ - and begins with "
                "none of . -",
                log_value(clipped(id.value, 80)), kMaxNodeIdBytes);
  return {};
}

Result<Fleet> Fleet::create(const Graph& graph, Manifest manifest, FleetOptions options, Nanos now) {
  if (!(options.headroom >= 0 && options.headroom <= 0.5))
    return fail(Code::invalid_argument, "a headroom of {} of each node's memory was asked for; it can be 0 to 0.5",
                options.headroom);
  if (options.expect && (*options.expect < 1 || *options.expect > options.max_nodes))
    return fail(Code::invalid_argument, "a fleet of {} nodes is to be expected; it can be 1 to {}", *options.expect,
                options.max_nodes);
  if (options.heartbeat <= Nanos::zero() || options.lease < 2 * options.heartbeat)
    return fail(Code::invalid_argument, "the lease must be at least two heartbeats long");
  MYRIAD_TRY(CostSheet costs, CostSheet::build(graph, manifest, options.profile, options.budget));
  Fleet fleet(std::move(manifest), std::move(costs), std::move(options), now);
  fleet.own_context_ = graph.config().max_positions;
  return fleet;
}

Fleet::Fleet(Manifest manifest, CostSheet costs, FleetOptions options, Nanos now)
    : manifest_(std::move(manifest)),
      costs_(std::move(costs)),
      options_(std::move(options)),
      epoch_(options_.before_first),
      newest_known_(options_.before_first),
      now_(now) {
  part_index_.reserve(manifest_.parts.size());
  parts_of_half_.assign(costs_.halves(), {0, 0});
  for (std::uint32_t p = 0; p < manifest_.parts.size(); ++p) {
    part_index_.emplace(manifest_.parts[p].id, p);
    auto& [first, last] = parts_of_half_[costs_.parts()[p].half];
    if (last == 0) first = p;
    last = p + 1;
  }
}

// ---- bookkeeping around every event

void Fleet::begin(Nanos now) {
  now_ = std::max(now_, now);
  actions_.clear();
  if (due_ != Nanos::max() && now_ > due_ + options_.lease / 2) {
    const Nanos late = now_ - due_;
    bool any = false;
    for (auto& [id, member] : members_)
      if (alive(member)) {
        member.last_heard = std::max(member.last_heard, now_ - options_.heartbeat);
        any = true;
      }
    if (any)
      log_event(LogLevel::warning,
                fmt::format("the controller did not run for {}; every node's lease starts anew", seconds_text(late)));
  }
}

FleetActions Fleet::finish() {
  // Most events are heartbeats that change nothing; whatever looks at all nodes waits for a change or for its time.
  if (!stopping_ && (seen_changes_ != changes_ || now_ >= wake_)) {
    wake_ = Nanos::max();
    consider_plan();
    publish();
    seen_changes_ = changes_;
  }
  if (members_.empty()) {
    tick_due_ = Nanos::max();
  } else {
    tick_due_ = std::min(tick_due_, now_ + (peers_.empty() ? kTickWithoutNodes : kTickWithNodes));
  }
  due_ = std::min(tick_due_, wake_);
  return std::move(actions_);
}

void Fleet::membership_changed() {
  last_change_ = now_;
  ++membership_;
  ++changes_;
}

void Fleet::log_event(LogLevel level, std::string text) {
  events_.add(now_, level, text);
  actions_.push_back(LogAction{level, std::move(text)});
}

Fleet::Member* Fleet::member_of(PeerId peer) {
  const auto name = peers_.find(peer.value);
  if (name == peers_.end()) return nullptr;
  const auto member = members_.find(name->second);
  return member == members_.end() ? nullptr : &member->second;
}

bool Fleet::missing(const Member& m) {
  return m.parts > 0 && (m.state == NodeState::lost || m.state == NodeState::failed || m.restarted);
}

void Fleet::detach(Member& member, std::string_view why) {
  if (!member.peer) return;
  actions_.push_back(CloseAction{*member.peer, std::string(why)});
  peers_.erase(member.peer->value);
  member.peer.reset();
}

void Fleet::lose(Member& member, std::string_view why) {
  if (member.state == NodeState::lost) return;
  const std::string had = member.parts > 0 ? fmt::format("; it held {}", parts_text(member.id)) : std::string();
  // A process that ended while it loaded may have been killed for its memory; the second time in a row it rests before
  // it is tried again.
  if (member.state == NodeState::loading && !member.peer && ++member.failures > 1)
    rest(member, fmt::format("{} while it loaded", why));
  member.state = NodeState::lost;
  member.lost_at = now_;
  membership_changed();
  log_event(LogLevel::warning, fmt::format("node {} is lost: {}{}", member.id.value, why, had));
}

void Fleet::rest(Member& member, std::string why) {
  Nanos pause = options_.first_rest;
  for (std::uint32_t i = 1; i < member.failures && pause < options_.longest_rest; ++i) pause *= 2;
  member.rest_until = now_ + std::min(pause, options_.longest_rest);
  member.resting = true;
  member.last_error = clipped(std::move(why), 1000);
}

void Fleet::mark_ready(Member& member) {
  if (member.state == NodeState::ready) return;
  member.state = NodeState::ready;
  ++changes_;
  member.restarted = false;
  member.failures = 0;
  member.last_error.clear();
  const Counts c = counts();
  if (c.ready == c.owners)
    log_event(LogLevel::info, fmt::format("epoch {}: all {} nodes are ready", epoch_.value, c.owners));
}

// ---- membership

FleetActions Fleet::registered(PeerId peer, const Register& message, std::string_view observed_host, Nanos now) {
  begin(now);
  const auto refuse = [&](Code code, std::string text) {
    log_event(LogLevel::warning, fmt::format("a node was refused: {}", text));
    actions_.push_back(AnswerAction{peer, Failure{{code, text, clipped(message.node.value, kMaxNodeIdBytes), {}}}});
    actions_.push_back(CloseAction{peer, std::move(text)});
    return finish();
  };
  if (const Status valid = check_node_id(message.node); !valid)
    return refuse(valid.error().code, valid.error().message);
  if (stopping_) return refuse(Code::unavailable, "the fleet is being shut down");
  if (message.incarnation == 0)
    return refuse(Code::invalid_argument, fmt::format("node {} gives no incarnation", message.node.value));
  if (message.port == 0)
    return refuse(Code::invalid_argument, fmt::format("node {} gives no port for its data", message.node.value));
  if (const auto other = peers_.find(peer.value); other != peers_.end() && other->second != message.node)
    return refuse(Code::invalid_argument,
                  fmt::format("one connection registers as {} and as {}", other->second.value, message.node.value));
  auto found = members_.find(message.node);
  std::uint64_t newest = 0;
  if (found != members_.end()) {
    newest = found->second.incarnation;
  } else if (const auto grave = graveyard_.find(message.node); grave != graveyard_.end()) {
    newest = grave->second;
  }
  if (message.incarnation < newest)
    return refuse(
        Code::stale,
        fmt::format("incarnation {} of node {} is older than {}, which is known; an old process has come back, end it",
                    message.incarnation, message.node.value, newest));
  if (found == members_.end()) {
    if (members_.size() >= options_.max_nodes) {
      const auto useless = std::find_if(members_.begin(), members_.end(), [](const auto& m) {
        return m.second.state == NodeState::lost && m.second.parts == 0;
      });
      if (useless == members_.end())
        return refuse(Code::limit, fmt::format("the fleet has {} nodes, which is its maximum", members_.size()));
      detach(useless->second, "it was lost, and its place in the fleet was needed");
      members_.erase(useless);
    }
    found = members_.try_emplace(message.node).first;
    found->second.id = message.node;
    graveyard_.erase(message.node);
  }
  Member& member = found->second;
  const bool same_process = member.incarnation == message.incarnation;
  if (member.peer && *member.peer != peer)
    detach(member, same_process ? "the same process has connected anew" : "a newer process has this name");
  if (!same_process) {
    if (member.incarnation != 0) {
      if (member.parts > 0) member.restarted = true;
      log_event(LogLevel::info, fmt::format("node {} has started anew", member.id.value));
    }
    member.incarnation = message.incarnation;
    member.state = plan_ && member.parts == 0 ? NodeState::spare : NodeState::joining;
    member.reported_epoch = {};
    member.memory_used = member.calls = member.parts_loaded = member.resident_after_load = 0;
    membership_changed();
  }
  // The same process after a pause stays what it was; if it was lost, its next heartbeat says what it still holds.
  if (!member.peer || *member.peer != peer) member.sent_epoch = {};
  member.peer = peer;
  peers_[peer.value] = member.id;
  member.last_heard = now_;
  member.offer = message;
  member.offer.held.clear();
  member.offer.held.shrink_to_fit();
  member.host = message.host.empty() ? std::string(observed_host.substr(0, kMaxHostBytes)) : message.host;
  member.held.clear();
  for (const PartId& id : message.held) {
    if (member.held.size() >= kMaxHeldRemembered) break;
    if (const auto index = part_index_.find(id); index != part_index_.end()) member.held.push_back(index->second);
  }
  std::sort(member.held.begin(), member.held.end());
  if (!same_process)
    log_event(LogLevel::info, fmt::format("node {} at {}:{} offers {} ({} taken), {} cores, speed {}/s",
                                          member.id.value, member.host, message.port, human({message.memory_bytes}),
                                          human({message.process_bytes}), message.cores, human({message.speed})));
  const auto milliseconds = [](Nanos n) {
    return static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(n).count());
  };
  actions_.push_back(AnswerAction{peer, Registered{.heartbeat_ms = milliseconds(options_.heartbeat),
                                                   .lease_ms = milliseconds(options_.lease),
                                                   .http_port = options_.http_port,
                                                   .fetch_ticket = options_.fetch_ticket}});
  return finish();
}

FleetActions Fleet::heartbeat(PeerId peer, const Heartbeat& message, Nanos now) {
  begin(now);
  Member* member = member_of(peer);
  if (member == nullptr || member->id != message.node || member->incarnation != message.incarnation) {
    Error error{Code::stale,
                fmt::format("a heartbeat of node {} came on a connection where it is not registered; register first",
                            clipped(message.node.value, kMaxNodeIdBytes)),
                {},
                {}};
    actions_.push_back(AnswerAction{peer, Failure{std::move(error)}});
    return finish();
  }
  member->last_heard = now_;
  member->memory_used = message.memory_used;
  member->calls = message.calls;
  member->reported_epoch = message.epoch;
  if (message.parts_loaded != member->parts_loaded) member->last_progress = now_;
  member->parts_loaded = message.parts_loaded;
  // After a restart of the controller, nodes know epochs that are larger than its own.
  if (message.epoch > newest_known_ && message.epoch.value - newest_known_.value < kLargestEpochJump)
    newest_known_ = message.epoch;

  const bool has_plan = plan_ && member->parts > 0 && !member->restarted;
  if (member->state == NodeState::lost) {
    if (has_plan && message.epoch == epoch_ &&
        (message.state == NodeState::ready || message.state == NodeState::loading)) {
      member->last_progress = now_;
      member->state = NodeState::loading;
      ++changes_;
      log_event(LogLevel::info, fmt::format("node {} is back after {} with everything it held", member->id.value,
                                            seconds_text(now_ - member->lost_at)));
    } else {
      // It holds nothing that this plan needs, or never heard of this plan.
      if (member->parts > 0) member->restarted = true;
      member->state = member->parts > 0 || !plan_ ? NodeState::joining : NodeState::spare;
      membership_changed();
      log_event(LogLevel::info,
                fmt::format("node {} is back after {}", member->id.value, seconds_text(now_ - member->lost_at)));
    }
  }
  if (plan_ && member->state == NodeState::loading && !member->restarted && message.epoch == epoch_ &&
      message.state == NodeState::ready)
    mark_ready(*member);
  if (member->state == NodeState::ready && message.epoch == epoch_ && message.state == NodeState::failed) {
    ++member->failures;
    rest(*member, "it reports that it has failed");
    member->state = NodeState::failed;
    membership_changed();
    log_event(LogLevel::warning, fmt::format("node {} reports that it has failed", member->id.value));
  }
  // An Assign that was lost with a connection, or that this node needs to drop what it holds.
  if (plan_ && member->sent_epoch != epoch_ && message.epoch < epoch_ && !member->restarted &&
      member->state != NodeState::failed && (member->parts > 0 || message.epoch.value != 0))
    send_assign(*member);
  actions_.push_back(AnswerAction{peer, HeartbeatReply{member->sent_epoch}});
  return finish();
}

FleetActions Fleet::assigned(PeerId peer, const Assigned& message, Nanos now) {
  begin(now);
  Member* member = member_of(peer);
  if (member != nullptr && plan_ && message.epoch == epoch_ && !member->restarted) {
    member->resident_after_load = message.resident_bytes;
    member->reported_epoch = epoch_;
    member->last_heard = now_;
    if (member->parts > 0 && (member->state == NodeState::loading || member->state == NodeState::lost))
      mark_ready(*member);
  }
  return finish();
}

FleetActions Fleet::assign_failed(PeerId peer, Epoch epoch, const Error& error, Nanos now) {
  begin(now);
  Member* member = member_of(peer);
  // An answer to an older plan concerns nobody; a connection that ended is reported as such.
  if (member != nullptr && plan_ && epoch == epoch_ && error.code == Code::stale && newest_known_ > epoch_) {
    // It has served a controller that knew larger numbers: the same placement again, beyond them.
    commit(Placement(plan_->placement), "a node knows a later epoch");
    return finish();
  }
  const bool concerns = member != nullptr && plan_ && epoch == epoch_ && member->parts > 0 && alive(*member) &&
                        error.code != Code::unavailable && error.code != Code::cancelled;
  if (concerns) {
    ++member->failures;
    rest(*member, error.to_string());
    member->state = NodeState::failed;
    membership_changed();
    log_event(LogLevel::error,
              fmt::format("node {} could not load its parts (failure {}, it rests for {}): {}", member->id.value,
                          member->failures, seconds_text(member->rest_until - now_), error.to_string()));
  }
  return finish();
}

FleetActions Fleet::closed(PeerId peer, Nanos now) {
  begin(now);
  watchers_.erase(peer.value);
  if (Member* member = member_of(peer)) {
    peers_.erase(peer.value);
    member->peer.reset();
    lose(*member, "its connection closed");
    watch_for_network_fault();
  }
  return finish();
}

void Fleet::expire_leases() {
  for (auto& [id, member] : members_) {
    if (!alive(member)) continue;
    if (now_ - member.last_heard > options_.lease) {
      lose(member, fmt::format("nothing was heard of it for {}", seconds_text(now_ - member.last_heard)));
    } else if (member.state == NodeState::loading && now_ - member.last_progress > options_.load_stall) {
      ++member.failures;
      rest(member, fmt::format("loading made no progress for {} ({} of {} parts)",
                               seconds_text(now_ - member.last_progress), member.parts_loaded, member.parts));
      member.state = NodeState::failed;
      membership_changed();
      log_event(LogLevel::error, fmt::format("node {}: {}", id.value, member.last_error));
    }
  }
}

// Many lost at once say more about the observer than about them.
void Fleet::watch_for_network_fault() {
  if (now_ < hold_until_) return;
  std::size_t lost = 0, silent = 0, healthy = 0;
  bool parts = false;
  for (const auto& [id, member] : members_) {
    if (member.state == NodeState::lost) {
      if (now_ - member.lost_at > options_.lease) continue;
      ++lost;
      parts |= member.parts > 0;
    } else {
      ++(now_ - member.last_heard > 2 * options_.heartbeat ? silent : healthy);
    }
  }
  // Silent ones count when somebody's lease has already ended: theirs ends within a heartbeat.
  if (!parts || lost == 0 || lost + silent + healthy < kSmallestFleetForNetworkFault || lost + silent <= healthy)
    return;
  hold_until_ = now_ + options_.network_hold;
  log_event(LogLevel::error, fmt::format("{} of {} nodes were lost within {}: this is taken for a fault of the "
                                         "controller's own network; nothing is moved for {}",
                                         lost + silent, lost + silent + healthy, seconds_text(options_.lease),
                                         seconds_text(options_.network_hold)));
}

void Fleet::forget_old() {
  for (auto it = members_.begin(); it != members_.end();) {
    const Member& member = it->second;
    if (member.state == NodeState::lost && !member.peer && member.parts == 0 &&
        now_ - member.lost_at > options_.forget_after) {
      if (graveyard_.size() >= kMaxGraves) graveyard_.erase(graveyard_.begin());
      graveyard_[member.id] = member.incarnation;
      it = members_.erase(it);
    } else {
      ++it;
    }
  }
}

FleetActions Fleet::tick(Nanos now) {
  begin(now);
  tick_due_ = Nanos::max();
  expire_leases();
  watch_for_network_fault();
  forget_old();
  return finish();
}

// ---- watchers and tools

FleetActions Fleet::watch(PeerId peer, Nanos now) {
  begin(now);
  if (!watchers_.contains(peer.value) && watchers_.size() >= options_.max_watchers) {
    actions_.push_back(AnswerAction{
        peer, Failure{{Code::limit,
                       fmt::format("{} gateways watch this fleet already, which is the maximum", watchers_.size()),
                       {},
                       {}}}});
    return finish();
  }
  watchers_.insert(peer.value);
  actions_.push_back(AnswerAction{peer, plan_update()});
  return finish();
}

FleetActions Fleet::kill(PeerId asked_by, const KillRequest& message, Nanos now) {
  begin(now);
  const auto found = members_.find(message.node);
  if (found == members_.end() || !found->second.peer) {
    actions_.push_back(AnswerAction{asked_by, Failure{{Code::not_found,
                                                       fmt::format("killing node {}: no node of this name is connected",
                                                                   clipped(message.node.value, kMaxNodeIdBytes)),
                                                       {},
                                                       {}}}});
  } else {
    log_event(LogLevel::warning, fmt::format("node {} is told to stop, as was asked for", message.node.value));
    actions_.push_back(SendAction{*found->second.peer, Shutdown{}});
    actions_.push_back(AnswerAction{asked_by, Done{}});
  }
  return finish();
}

FleetActions Fleet::status(PeerId asked_by, Nanos now) {
  begin(now);
  actions_.push_back(AnswerAction{asked_by, StatusReply{status_json(now_)}});
  return finish();
}

FleetActions Fleet::shutdown(PeerId asked_by, Nanos now) {
  begin(now);
  log_event(LogLevel::warning, "the whole fleet is told to stop, as was asked for");
  stopping_ = true;
  for (const auto& [peer, node] : peers_) actions_.push_back(SendAction{{peer}, Shutdown{}});
  for (const std::uint64_t watcher : watchers_) actions_.push_back(SendAction{{watcher}, Shutdown{}});
  actions_.push_back(AnswerAction{asked_by, Done{}});
  actions_.push_back(StopAction{});
  return finish();
}

void Fleet::publish() {
  Published next{.epoch = epoch_, .state = state(), .lost = {}, .reason = reason()};
  for (const Member* member : missing_members()) next.lost.push_back(member->id);
  const bool changed = !published_ || next.epoch != published_->epoch || next.state != published_->state ||
                       next.lost != published_->lost;
  if (!changed && next.reason == published_->reason) return;
  if (!changed && now_ < published_at_ + kReasonInterval) {
    wake_at(published_at_ + kReasonInterval);
    return;
  }
  if (!watchers_.empty()) {
    const PlanUpdate update = plan_update();
    for (const std::uint64_t watcher : watchers_) actions_.push_back(SendAction{{watcher}, update});
  }
  published_ = std::move(next);
  published_at_ = now_;
}

}  // namespace myriad
