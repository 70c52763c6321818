// The controller's mind: who is in the fleet, who holds what, and what to tell whom. A state machine without I/O: it
// takes events and the present time and returns actions; it owns no socket, no thread and no clock. The controller
// process drives it from a reactor, tests and the simulator from a virtual clock.
//
// What it promises
//   * A node lives as long as it is heard from: `lease` by time, whatever its connection says. A closed connection ends
//   it at once.
//   * An older incarnation of a name is refused for ever; a newer one replaces the older and its parts count as lost
//   with it.
//   * Each plan has a larger epoch than the one before, covers every part once, and names only nodes that were alive
//   when it was made.
//   * A lost node's parts are moved to nodes that hold nothing as soon as there are some, and to survivors after a
//   grace in
//     which it may return; when more than half of the fleet falls silent within one lease the fault is taken for this
//     host's own network and nothing is moved for a while. A node that comes back with the same incarnation in time
//     still has everything and goes on.
//   * A node that could not load its parts rests for a time that doubles with each failure.
//   * Everything is bounded: nodes, watchers, the log of events.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/log.h"
#include "control/event_log.h"
#include "part/manifest.h"
#include "plan/pace.h"
#include "plan/placement.h"
#include "proto/messages.h"

namespace myriad {

// One connection, named by whoever drives the Fleet; never used again after closed().
struct PeerId {
  std::uint64_t value = 0;
  friend auto operator<=>(PeerId, PeerId) = default;
};

struct FleetOptions {
  Profile profile = Profile::fast;
  Budget budget;
  std::optional<std::uint32_t> expect;  // plan when so many nodes are there; without it when none has come for `settle`
  double headroom = 0.05;               // of each node's memory, kept free; 0 to 0.5
  Epoch before_first;                   // the first plan's epoch is larger; after a restart nodes hold old ones
  std::uint16_t http_port = 0;          // of the part server
  std::string fetch_ticket;

  Nanos heartbeat = std::chrono::milliseconds(500);
  Nanos lease = std::chrono::milliseconds(2000);
  Nanos settle = std::chrono::milliseconds(500);
  Nanos gather =
      std::chrono::milliseconds(250);  // after a loss or a join, before parts are moved: one plan for many events
  Nanos survivor_grace =
      std::chrono::seconds(10);  // a lost node may return before its parts go to nodes that have parts already
  Nanos network_hold = std::chrono::seconds(10);  // nothing is moved so long after many were lost at once
  Nanos load_stall = std::chrono::seconds(60);    // loading without progress
  Nanos first_rest = std::chrono::seconds(5);     // of a node that failed to load; doubles
  Nanos longest_rest = std::chrono::minutes(5);
  Nanos forget_after = std::chrono::minutes(10);  // a lost node without parts leaves the status
  std::size_t max_nodes = 4096;
  std::size_t max_watchers = 256;
};

// ---- what is to be done
struct SendAction {  // a notice
  PeerId to;
  Message message;
};
struct AnswerAction {  // to the question that the event was; one each for registered, heartbeat, watch, kill, status
  PeerId to;
  Message message;
};
// Ask `to` to hold what assignment(node) says at the time of sending; tell assigned() or assign_failed() of the answer,
// with this epoch.
struct AssignAction {
  PeerId to;
  NodeId node;
  Epoch epoch;
};
struct CloseAction {
  PeerId peer;
  std::string why;
};
struct LogAction {
  LogLevel level = LogLevel::warning;
  std::string text;
};
struct StopAction {};  // everybody has been told: the controller may end
using FleetAction = std::variant<SendAction, AnswerAction, AssignAction, CloseAction, LogAction, StopAction>;
using FleetActions = std::vector<FleetAction>;

class Fleet {
 public:
  // Errors: as CostSheet::build, and invalid_argument for options outside their bounds.
  static Result<Fleet> create(const Graph& graph, Manifest manifest, FleetOptions options, Nanos now);

  // ---- events. `now` never decreases.
  FleetActions registered(PeerId peer, const Register& message, std::string_view observed_host, Nanos now);
  FleetActions heartbeat(PeerId peer, const Heartbeat& message, Nanos now);
  FleetActions assigned(PeerId peer, const Assigned& message, Nanos now);
  FleetActions assign_failed(PeerId peer, Epoch epoch, const Error& error, Nanos now);
  FleetActions watch(PeerId peer, Nanos now);
  FleetActions closed(PeerId peer, Nanos now);  // any connection, watchers' too
  FleetActions kill(PeerId asked_by, const KillRequest& message, Nanos now);
  FleetActions status(PeerId asked_by, Nanos now);
  FleetActions shutdown(PeerId asked_by, Nanos now);
  FleetActions tick(Nanos now);
  // When tick() is due at the latest; Nanos::max() if nothing will happen by itself. A tick that comes late by more
  // than half a lease means that this process did not run: leases are then counted from now, because nobody was
  // listening.
  [[nodiscard]] Nanos next_tick() const { return due_; }

  // ---- views
  // What `node` must hold under the present plan, with the routes that it needs. Nothing if it is unknown or there is
  // no plan. `nodes` lists only those that the receiver has to do with; indices in the message point into that list.
  [[nodiscard]] std::optional<Assign> assignment(const NodeId& node) const;
  [[nodiscard]] PlanUpdate plan_update() const;
  [[nodiscard]] std::string status_json(Nanos now) const;  // at most kMaxStatusBytes
  [[nodiscard]] FleetState state() const;
  [[nodiscard]] std::string reason() const;  // a sentence, when not ready
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] const Placement* placement() const { return plan_ ? &plan_->placement : nullptr; }
  [[nodiscard]] std::optional<NodeState> node_state(const NodeId& node) const;
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const CostSheet& costs() const { return costs_; }
  // The present plan's account, one line a node; empty without a plan.
  [[nodiscard]] std::vector<NodeAccount> account() const;

 private:
  struct Member {
    NodeId id;
    std::uint64_t incarnation = 0;
    std::optional<PeerId> peer;
    Register offer;                   // without `held`
    std::vector<std::uint32_t> held;  // indices into the manifest
    std::string host;
    NodeState state = NodeState::joining;
    bool restarted = false;  // it is alive, but what the plan says it holds is gone
    Nanos last_heard{}, lost_at{}, last_progress{};
    Nanos rest_until{};
    bool resting = false;  // until then; it gets no parts
    Epoch sent_epoch;      // of the last Assign sent to this connection
    Epoch reported_epoch;  // of its last heartbeat
    std::uint64_t memory_used = 0, calls = 0, parts_loaded = 0;
    std::uint64_t resident_after_load = 0;
    std::uint32_t failures = 0;
    std::string last_error;
    std::uint32_t parts = 0;  // in the present plan
  };
  struct Plan {
    Placement placement;
    std::vector<std::vector<std::uint32_t>> parts_of;  // by node of the placement
  };
  // Owners of parts in the present plan, by state.
  struct Counts {
    std::size_t owners = 0, ready = 0, missing = 0;
  };

  Fleet(Manifest manifest, CostSheet costs, FleetOptions options, Nanos now);

  // fleet.cc
  void begin(Nanos now);
  FleetActions finish();
  void log_event(LogLevel level, std::string text);
  Member* member_of(PeerId peer);
  void lose(Member& member, std::string_view why);
  void rest(Member& member, std::string why);
  void mark_ready(Member& member);
  void detach(Member& member, std::string_view why);  // closes its connection
  [[nodiscard]] bool alive(const Member& member) const { return member.peer && member.state != NodeState::lost; }
  [[nodiscard]] static bool missing(const Member& member);  // its parts of the present plan are not there
  void expire_leases();
  void watch_for_network_fault();
  void forget_old();
  void send_assign(Member& member);
  void publish();

  // fleet_plan.cc
  void consider_plan();
  void first_plan();
  void move_orphans();
  void commit(Placement placement, std::string_view why);
  [[nodiscard]] bool available(const Member& member) const;
  [[nodiscard]] std::vector<NodeOffer> offers() const;
  [[nodiscard]] Counts counts() const;
  [[nodiscard]] std::vector<const Member*> missing_members() const;  // ascending by name
  [[nodiscard]] std::string parts_text(const NodeId& node) const;
  void wake_at(Nanos when) { wake_ = std::min(wake_, when); }
  void end_rests();
  void membership_changed();

  Manifest manifest_;
  std::uint64_t own_context_ = 0;  // of the model, in positions
  CostSheet costs_;
  FleetOptions options_;
  std::unordered_map<PartId, std::uint32_t> part_index_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> parts_of_half_;  // [first, last) in the manifest

  std::map<NodeId, Member> members_;
  std::unordered_map<std::uint64_t, NodeId> peers_;
  std::unordered_set<std::uint64_t> watchers_;
  std::map<NodeId, std::uint64_t> graveyard_;  // incarnations of the forgotten
  std::optional<Plan> plan_;
  Pace pace_;           // expected of the present plan
  std::string remark_;  // a sentence on it, or nothing
  Epoch epoch_;
  Epoch newest_known_;  // to anybody

  Nanos now_{}, due_ = Nanos::max();
  Nanos tick_due_ = Nanos::max();  // for leases
  Nanos wake_ = Nanos::max();      // for plans and watchers
  Nanos last_change_{};            // a node came, was lost or failed
  Nanos next_attempt_{};
  Nanos hold_until_{};
  std::uint64_t changes_ = 1;                            // grows with whatever may change the plan or the state
  std::uint64_t seen_changes_ = 0;                       // those that consider_plan() and publish() have looked at
  std::uint64_t membership_ = 1, tried_membership_ = 0;  // no second attempt at what failed before who is there changes
  bool tried_survivors_ = false;
  std::string plan_error_;  // why the last attempt failed
  bool stopping_ = false;

  // What watchers know.
  struct Published {
    Epoch epoch;
    FleetState state = FleetState::waiting;
    std::vector<NodeId> lost;
    std::string reason;
  };
  std::optional<Published> published_;
  Nanos published_at_{};
  FleetActions actions_;
  EventLog events_;
};

// 1 to kMaxNodeIdBytes of [A-Za-z0-9._-], not beginning with '-' or '.'.
Status check_node_id(const NodeId& id);

}  // namespace myriad
