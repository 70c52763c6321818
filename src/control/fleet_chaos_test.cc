// What must hold whatever happens, and how long it takes with many.
#include "control/testing.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <ctime>
#include <random>
#include <set>

namespace myriad::testing {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
// Sanitizers make everything many times slower: fewer seeds, and no statement about time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Of this process, so that a busy machine does not count.
double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

TEST(Fleet, AThousandNodesAtOnce) {
  World w({.expect = 1000}, 40, 1);
  const double begin = processor_seconds();
  for (int i = 0; i < 1000; ++i) w.start("n" + std::to_string(i), 8 * kMiB);
  EXPECT_EQ(w.fleet->state(), FleetState::loading) << w.fleet->reason();
  const double joined = processor_seconds();
  w.deliver();
  EXPECT_EQ(w.fleet->state(), FleetState::ready) << w.fleet->reason();
  for (auto& [id, p] : w.processes) w.beat(p);
  const double ready = processor_seconds();
  if (!kSanitized) {
    EXPECT_LT(joined - begin, 2.0);
    EXPECT_LT(ready - joined, 2.0);
  }
}

// Any order of joins, crashes, freezes, returns, failures and silences.
TEST(Fleet, InvariantsUnderRandomEvents) {
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 4U : 15U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    FleetOptions options;
    if (random() % 2 == 0) options.expect = 1 + random() % 4;
    World w(options, 3, 4);
    w.watch();
    Epoch epoch{};
    for (int step = 0; step < 250; ++step) {
      const std::string id = "n" + std::to_string(random() % 9);
      const auto process = w.processes.find(id);
      const bool up = process != w.processes.end() && process->second.peer != 0;
      switch (random() % 12) {
        case 0:
        case 1:
          w.start(id, kMiB * (4 + random() % 30));
          break;
        case 2:
          if (up) w.crash(id);
          break;
        case 3:
          if (up) process->second.frozen = true;
          break;
        case 4:
          if (process != w.processes.end()) process->second.frozen = false;
          break;
        case 5:
          if (process != w.processes.end() && !up) w.connect(process->second);
          break;  // a ghost or the same process
        case 6:
          if (process != w.processes.end()) process->second.load_error = Error{Code::does_not_fit, "no room", {}, {}};
          break;
        case 7:
          if (process != w.processes.end()) process->second.load_error.reset();
          break;
        case 8:
          w.handle(w.fleet->heartbeat(
              {random() % 50},
              {.node = {id}, .incarnation = random() % 300, .epoch = {random() % 9}, .state = NodeState::ready},
              w.now));
          break;
        case 9:
          w.handle(w.fleet->assigned({random() % 50}, {.epoch = {random() % 9}}, w.now));
          break;
        case 10:
          w.handle(w.fleet->closed({100'000 + random() % 50}, w.now));
          break;
        default:
          w.run(std::chrono::milliseconds(random() % 4000));
          break;
      }
      ASSERT_GE(w.fleet->epoch(), epoch);
      const bool fresh = w.fleet->epoch() != epoch;
      epoch = w.fleet->epoch();
      if (const Placement* placement = w.fleet->placement()) {
        std::set<NodeId> names(placement->nodes.begin(), placement->nodes.end());
        ASSERT_EQ(names.size(), placement->nodes.size());
        ASSERT_TRUE(placement->complete());
        ASSERT_EQ(placement->stages.back().last, w.fleet->costs().halves());
        // (A process that came back with less memory is missing until the next plan.)
        if (w.fleet->state() != FleetState::degraded) {
          for (const NodeAccount& a : w.fleet->account())
            ASSERT_LE(a.total(), std::max(a.budget_bytes, a.process_bytes)) << a.node.value;
        }
        if (fresh && step > 0) {
          for (const std::uint32_t owner : placement->owner)
            ASSERT_TRUE(w.fleet->node_state(placement->nodes[owner]).has_value());
        }
      }
      if (w.fleet->state() == FleetState::ready) {
        const Placement& placement = *w.fleet->placement();
        for (const std::uint32_t owner : placement.owner)
          ASSERT_EQ(w.fleet->node_state(placement.nodes[owner]), NodeState::ready);
        const PlanUpdate update = w.fleet->plan_update();
        for (const StageAssignment& stage : update.stages) ASSERT_LT(stage.lead, update.nodes.size());
        ASSERT_TRUE(update.lost.empty());
        ASSERT_TRUE(update.reason.empty());
      }
      ASSERT_TRUE(nlohmann::json::accept(w.fleet->status_json(w.now)));
    }
    // Peace: everybody well, with room enough, must end in a fleet that works.
    for (int i = 0; i < 9; ++i) {
      World::Process& p = w.processes["n" + std::to_string(i)];
      p.load_error.reset();
      p.frozen = false;
      p.loads = true;
      w.start("n" + std::to_string(i), 64 * kMiB);
    }
    // (the longest rest of one that failed to load is five minutes)
    for (int i = 0; i < 400 && w.fleet->state() != FleetState::ready; ++i) w.run(1s);
    w.run(1s);
    EXPECT_EQ(w.fleet->state(), FleetState::ready) << w.fleet->reason() << "\n" << w.fleet->status_json(w.now);
  }
}
}  // namespace
}  // namespace myriad::testing
