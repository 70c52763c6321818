// For tests of the fleet's mind: a fleet of pretended processes under virtual time.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/fleet.h"
#include "plan/testing.h"

namespace myriad::testing {

using namespace std::chrono_literals;

// A fleet under virtual time, with nodes that behave until they are told otherwise.
class World {
 public:
  struct Process {  // one node's process
    std::string id;
    std::uint64_t incarnation = 0;
    std::uint64_t peer = 0;  // 0: not connected
    std::uint64_t memory = 64 * (std::uint64_t{1} << 20);
    bool frozen = false;
    bool loads = true;                // false: never answers an Assign
    std::optional<Error> load_error;  // answers with this
    Epoch epoch;
    NodeState state = NodeState::joining;
    std::uint64_t loaded = 0;
    std::optional<Assign> assign;
    bool told_to_stop = false;
  };

  explicit World(FleetOptions options = {}, std::size_t layers = 8, std::uint32_t granules = 2)
      : graph_(Graph::build(small_config(layers, 16)).value()) {
    options.budget = {.sequences = 2, .context = 512, .step_rows = 8};
    options.http_port = 7201;
    options.fetch_ticket = "ticket";
    fleet = std::make_unique<Fleet>(Fleet::create(graph_, cut(graph_, granules), options, now).value());
  }

  Process& start(const std::string& id, std::uint64_t memory = 64 * (std::uint64_t{1} << 20)) {
    Process& p = processes[id];
    const auto keep = p.load_error;
    const bool loads = p.loads;
    p = Process{.id = id, .incarnation = ++clock_, .memory = memory, .loads = loads, .load_error = keep};
    connect(p);
    return p;
  }
  void start_many(std::size_t n, std::uint64_t memory = 64 * (std::uint64_t{1} << 20)) {
    for (std::size_t i = 0; i < n; ++i) start("n" + std::to_string(i), memory);
  }
  Register greeting(const Process& p) const {
    return {.node = {p.id},
            .incarnation = p.incarnation,
            .memory_bytes = p.memory,
            .process_bytes = 2 * (std::uint64_t{1} << 20),
            .cores = 2,
            .speed = 1'000'000'000,
            .isa = "scalar",
            .port = 7000};
  }
  void connect(Process& p) {
    p.peer = ++next_peer_;
    handle(fleet->registered({p.peer}, greeting(p), "10.0.0.1", now));
  }
  void crash(const std::string& id) {
    Process& p = processes.at(id);
    const std::uint64_t peer = std::exchange(p.peer, 0);
    if (peer != 0) handle(fleet->closed({peer}, now));
  }
  // Time passes; nodes send heartbeats, ticks come when they are due.
  void run(Nanos duration) {
    const Nanos end = now + duration;
    while (now < end) {
      const Nanos next_beat = (now / 100ms + 1) * 100ms;
      now = std::min({end, next_beat, std::max(fleet->next_tick(), now + 1ms)});
      if (now >= fleet->next_tick()) handle(fleet->tick(now));
      if (now % 500ms == 0ns)
        for (auto& [id, p] : processes)
          if (p.peer != 0 && !p.frozen) beat(p);
      deliver();
    }
  }
  void beat(Process& p) {
    handle(fleet->heartbeat({p.peer},
                            {.node = {p.id},
                             .incarnation = p.incarnation,
                             .epoch = p.epoch,
                             .state = p.state,
                             .memory_used = 5 * (std::uint64_t{1} << 20),
                             .calls = 1,
                             .parts_loaded = p.loaded},
                            now));
  }
  // Nodes answer what they were asked; a frozen one keeps it for later.
  void deliver() {
    for (auto& [id, p] : processes) {
      if (p.peer == 0 || p.frozen || !p.assign || !p.loads) continue;
      const Assign assign = *std::exchange(p.assign, std::nullopt);
      p.epoch = assign.epoch;
      if (p.load_error && !assign.parts.empty()) {
        p.state = NodeState::failed;
        handle(fleet->assign_failed({p.peer}, assign.epoch, *p.load_error, now));
        continue;
      }
      p.state = NodeState::ready;
      p.loaded = assign.parts.size();
      handle(fleet->assigned(
          {p.peer},
          {.epoch = assign.epoch, .part_bytes = 1, .state_bytes = 1, .resident_bytes = 9 * (std::uint64_t{1} << 20)},
          now));
    }
  }
  void handle(FleetActions actions) {
    for (FleetAction& action : actions) {
      if (auto* assign = std::get_if<AssignAction>(&action)) {
        Process* p = by_peer(assign->to);
        ASSERT_NE(p, nullptr) << "an Assign to nobody";
        EXPECT_EQ(p->id, assign->node.value);
        EXPECT_GT(assign->epoch, p->epoch);
        p->assign = fleet->assignment(assign->node);
        ASSERT_TRUE(p->assign);
        check_assign(*p->assign, p->id);
      } else if (auto* close = std::get_if<CloseAction>(&action)) {
        if (Process* p = by_peer(close->peer)) p->peer = 0;
      } else if (auto* send = std::get_if<SendAction>(&action)) {
        if (std::holds_alternative<Shutdown>(send->message)) {
          if (Process* p = by_peer(send->to)) p->told_to_stop = true;
        } else if (auto* update = std::get_if<PlanUpdate>(&send->message)) {
          EXPECT_TRUE(check_message(send->message, Code::corrupt));
          EXPECT_GE(update->epoch, last_update.epoch);
          last_update = *update;
          ++updates;
        }
      } else if (auto* answer = std::get_if<AnswerAction>(&action)) {
        last_answer = answer->message;
      } else if (auto* line = std::get_if<LogAction>(&action)) {
        log.push_back(line->text);
      } else if (std::holds_alternative<StopAction>(action)) {
        stopped = true;
      }
    }
  }
  void check_assign(const Assign& assign, const std::string& id) const {
    EXPECT_TRUE(check_message(Message{assign}, Code::corrupt));
    EXPECT_EQ(assign.nodes[assign.self].node.value, id);
    std::set<std::uint32_t> indices;
    for (const PartAssignment& part : assign.parts) {
      EXPECT_TRUE(indices.insert(part.index).second);
      EXPECT_EQ(part.id, fleet->manifest().parts[part.index].id);
      // Its own, or of a half that it leads.
      bool led = part.owner == assign.self;
      for (const StageAssignment& stage : assign.stages)
        led |= stage.lead == assign.self && half_of(part.spec.op, fleet->costs().halves()) >= stage.first &&
               half_of(part.spec.op, fleet->costs().halves()) < stage.last;
      EXPECT_TRUE(led) << part.spec.name();
    }
  }
  Process* by_peer(PeerId peer) {
    for (auto& [id, p] : processes)
      if (p.peer == peer.value && peer.value != 0) return &p;
    return nullptr;
  }
  void watch() { handle(fleet->watch({999'999}, now)); }
  [[nodiscard]] std::size_t parts_of(const std::string& id) const {
    std::size_t n = 0;
    if (const Placement* placement = fleet->placement())
      for (const std::uint32_t owner : placement->owner) n += placement->nodes[owner].value == id ? 1 : 0;
    return n;
  }
  [[nodiscard]] bool logged(std::string_view words) const {
    return std::any_of(log.begin(), log.end(),
                       [&](const std::string& line) { return line.find(words) != std::string::npos; });
  }
  [[nodiscard]] Code answered_code() const {
    const auto* failure = std::get_if<Failure>(&last_answer);
    return failure != nullptr ? failure->error.code : Code::internal;
  }

  Nanos now = 1s;
  std::unique_ptr<Fleet> fleet;
  std::map<std::string, Process> processes;
  PlanUpdate last_update;
  std::size_t updates = 0;
  Message last_answer;
  std::vector<std::string> log;
  bool stopped = false;

 private:
  Graph graph_;
  std::uint64_t clock_ = 100;
  std::uint64_t next_peer_ = 0;
};

}  // namespace myriad::testing
