#include "control/testing.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace myriad::testing {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST(Fleet, FormsWhenNobodyElseComes) {
  World w;
  w.watch();
  EXPECT_EQ(std::get<PlanUpdate>(w.last_answer).state, FleetState::waiting);
  EXPECT_EQ(w.fleet->next_tick(), Nanos::max());  // nobody is here: nothing to wake up for
  w.start_many(3);
  w.run(400ms);
  EXPECT_EQ(w.fleet->state(), FleetState::waiting);
  EXPECT_NE(w.fleet->reason().find("3 here"), std::string::npos) << w.fleet->reason();
  w.run(400ms);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_EQ(w.fleet->reason(), "");
  EXPECT_EQ(w.fleet->epoch().value, 1U);
  EXPECT_EQ(w.last_update.state, FleetState::ready);
  EXPECT_EQ(w.last_update.nodes.size(), 3U);
  EXPECT_EQ(w.last_update.nodes[0].host, "10.0.0.1");
  EXPECT_EQ(w.last_update.stages.back().last, 16U);
  EXPECT_EQ(w.last_update.fetch_ticket, "ticket");
  EXPECT_EQ(w.fleet->node_state({"n1"}), NodeState::ready);
}

TEST(Fleet, WaitsForAsManyAsAreExpectedAndSaysSo) {
  World w({.expect = 4});
  w.start_many(3);
  w.run(5s);
  EXPECT_EQ(w.fleet->state(), FleetState::waiting);
  EXPECT_NE(w.fleet->reason().find("3 of 4"), std::string::npos) << w.fleet->reason();
  w.start("n3");
  EXPECT_EQ(w.fleet->state(), FleetState::loading);  // at once, without settling
  w.run(10ms);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
}

TEST(Fleet, SaysHowManyBytesAreMissingAndFormsWhenTheyCome) {
  World w;
  w.start("small", 8 * kMiB);
  w.run(2s);
  EXPECT_EQ(w.fleet->state(), FleetState::waiting);
  EXPECT_NE(w.fleet->reason().find("are missing"), std::string::npos) << w.fleet->reason();
  EXPECT_NE(w.fleet->reason().find("add "), std::string::npos) << w.fleet->reason();
  w.start("large", 64 * kMiB);
  w.run(2s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready) << w.fleet->reason();
}

TEST(Fleet, AFrozenNodeIsLostWithinItsLeaseAndMayComeBack) {
  World w;
  w.watch();
  w.start_many(3);
  w.run(2s);
  ASSERT_EQ(w.fleet->state(), FleetState::ready);
  w.processes["n1"].frozen = true;
  w.run(3s);
  EXPECT_EQ(w.fleet->state(), FleetState::degraded);
  ASSERT_EQ(w.last_update.lost.size(), 1U);
  EXPECT_EQ(w.last_update.lost[0].value, "n1");
  EXPECT_NE(w.last_update.reason.find("node n1 is lost (L"), std::string::npos) << w.last_update.reason;
  w.processes["n1"].frozen = false;  // its connection never closed, everything is still loaded
  w.run(1s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_EQ(w.fleet->epoch().value, 1U);
  EXPECT_TRUE(w.last_update.lost.empty());
}

TEST(Fleet, TheSameProcessOnANewConnectionGoesOn) {
  World w;
  w.start_many(3);
  w.run(2s);
  w.crash("n1");  // only the connection, as it turns out
  EXPECT_EQ(w.fleet->state(), FleetState::degraded);
  w.run(1s);
  w.connect(w.processes["n1"]);
  w.run(1s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_EQ(w.fleet->epoch().value, 1U);
  // A second connection of the same process, while the first still stands: the newer is used.
  World::Process& n2 = w.processes["n2"];
  const std::uint64_t old = n2.peer;
  w.connect(n2);
  EXPECT_NE(n2.peer, old);
  w.handle(w.fleet->closed({old}, w.now));  // means nothing any more
  w.run(3s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
}

TEST(Fleet, ANewerIncarnationReplacesAndAGhostIsRefused) {
  World w;
  w.start_many(3);
  w.run(2s);
  const World::Process ghost = w.processes["n1"];
  const auto parts = w.parts_of("n1");
  w.start("n1");  // a new process of this name, the old connection still open
  EXPECT_EQ(w.fleet->state(), FleetState::degraded);
  w.run(1s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_EQ(w.fleet->epoch().value, 2U);
  EXPECT_EQ(w.parts_of("n1"), parts);
  // The old one speaks up again: on a new connection, and with a heartbeat on the old one.
  w.handle(w.fleet->registered({5000}, w.greeting(ghost), "10.0.0.9", w.now));
  EXPECT_EQ(w.answered_code(), Code::stale);
  w.handle(w.fleet->heartbeat(
      {ghost.peer}, {.node = {"n1"}, .incarnation = ghost.incarnation, .epoch = {1}, .state = NodeState::ready},
      w.now));
  EXPECT_EQ(w.answered_code(), Code::stale);
  w.run(1s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_EQ(w.fleet->epoch().value, 2U);
}

TEST(Fleet, AJoiningNodeTakesTheLostOnesPlaceAtOnce) {
  World w;
  w.watch();
  w.start_many(3);
  w.run(2s);
  const auto parts = w.parts_of("n2");
  w.crash("n2");
  EXPECT_EQ(w.last_update.state, FleetState::degraded);  // without any delay
  w.run(1s);
  EXPECT_EQ(w.fleet->epoch().value, 1U);
  w.start("fresh");
  w.run(1s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_EQ(w.fleet->epoch().value, 2U);
  EXPECT_EQ(w.parts_of("fresh"), parts);
  EXPECT_EQ(w.processes["n0"].epoch.value, 2U);  // everybody learns the new epoch
  // The dead one's return finds its place taken.
  w.connect(w.processes["n2"]);
  w.run(1s);
  EXPECT_EQ(w.fleet->node_state({"n2"}), NodeState::spare);
  EXPECT_EQ(w.fleet->epoch().value, 2U);
  EXPECT_EQ(w.processes["n2"].epoch.value, 2U);  // and is told to let go of what it holds
  EXPECT_EQ(w.processes["n2"].loaded, 0U);
}

TEST(Fleet, ASpareTakesOverWithoutAnybodyJoining) {
  World w({.expect = 2});
  w.start_many(2);
  w.run(1s);
  w.start("spare");
  w.run(1s);
  EXPECT_EQ(w.fleet->node_state({"spare"}), NodeState::spare);
  EXPECT_EQ(w.fleet->epoch().value, 1U);  // nothing moves for a newcomer's sake
  w.crash("n0");
  w.run(500ms);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_GT(w.parts_of("spare"), 0U);
}

TEST(Fleet, SurvivorsTakeOverAfterTheGrace) {
  World w;
  w.start_many(3);
  w.run(2s);
  w.crash("n0");
  w.run(9s);
  EXPECT_EQ(w.fleet->state(), FleetState::degraded);
  EXPECT_EQ(w.fleet->epoch().value, 1U);
  w.run(2s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_EQ(w.parts_of("n0"), 0U);
  EXPECT_EQ(w.parts_of("n1") + w.parts_of("n2"), w.fleet->manifest().parts.size());
}

TEST(Fleet, SaysSoWhenNobodyHasRoomForALostNodesParts) {
  World w({.expect = 2});
  w.start_many(2, 12 * kMiB);
  w.run(1s);
  ASSERT_EQ(w.fleet->state(), FleetState::ready) << w.fleet->reason();
  w.crash("n0");
  w.run(15s);
  EXPECT_EQ(w.fleet->state(), FleetState::degraded);
  EXPECT_NE(w.fleet->reason().find("does not fit"), std::string::npos) << w.fleet->reason();
  EXPECT_NE(w.fleet->reason().find("add 1 node of 12.0 MiB"), std::string::npos) << w.fleet->reason();
  const std::size_t lines = w.log.size();
  w.run(60s);
  EXPECT_LE(w.log.size(), lines + 1);  // and does not say it for ever
  w.start("n2", 12 * kMiB);
  w.run(1s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready) << w.fleet->reason();
}

TEST(Fleet, ALoadFailureReachesEverybodyAndItsPartsGoElsewhere) {
  World w({.expect = 2});
  w.watch();
  w.processes["n0"].load_error =
      Error{Code::does_not_fit, "loading L001.attn: 5 MiB wanted, 3 MiB free", "n0", "L001.attn"};
  w.start_many(2);
  w.run(500ms);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);  // n1 has room for all
  EXPECT_EQ(w.fleet->epoch().value, 2U);
  EXPECT_TRUE(w.logged("5 MiB wanted, 3 MiB free"));
  EXPECT_EQ(w.fleet->node_state({"n0"}), NodeState::failed);
  EXPECT_NE(w.fleet->status_json(w.now).find("5 MiB wanted, 3 MiB free"), std::string::npos);
  w.run(10s);
  EXPECT_EQ(w.fleet->node_state({"n0"}), NodeState::spare);  // its rest is over
}

TEST(Fleet, AFailingNodeThatNobodyCanReplaceRestsLongerEachTime) {
  World w({.expect = 1});
  w.watch();
  w.processes["n0"].load_error = Error{Code::does_not_fit, "5 MiB wanted, 3 MiB free", {}, {}};
  w.start("n0");
  std::vector<Nanos> tries;
  Epoch seen{};
  while (w.now < 200s) {
    w.run(100ms);
    if (w.fleet->epoch() != seen) tries.push_back(w.now);
    seen = w.fleet->epoch();
  }
  EXPECT_EQ(w.fleet->state(), FleetState::degraded);
  EXPECT_NE(w.last_update.reason.find("node n0 could not load"), std::string::npos) << w.last_update.reason;
  EXPECT_NE(w.last_update.reason.find("5 MiB wanted, 3 MiB free"), std::string::npos);
  ASSERT_GE(tries.size(), 5U);
  EXPECT_LE(tries.size(), 7U);
  for (std::size_t i = 2; i < tries.size(); ++i)
    EXPECT_GT(tries[i] - tries[i - 1], (tries[i - 1] - tries[i - 2]) * 3 / 2);
  w.processes["n0"].load_error.reset();  // somebody gave it memory
  w.run(300s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
}

TEST(Fleet, LoadingMayTakeLongAsLongAsItProgresses) {
  World w({.expect = 2});
  w.processes["n0"].loads = false;
  w.start_many(2);
  for (int i = 0; i < 20; ++i) {
    w.run(20s);
    ++w.processes["n0"].loaded;
    w.processes["n0"].epoch = w.fleet->epoch();
    w.processes["n0"].state = NodeState::loading;
  }
  EXPECT_EQ(w.fleet->state(), FleetState::loading);
  EXPECT_EQ(w.fleet->epoch().value, 1U);
  EXPECT_NE(w.fleet->reason().find("1 of 2 nodes"), std::string::npos);
  w.run(90s);  // and now nothing happens
  EXPECT_TRUE(w.logged("no progress"));
  EXPECT_EQ(w.fleet->state(), FleetState::ready);  // n1 took its parts
}

TEST(Fleet, ManyLostAtOnceAreTakenForTheControllersNetwork) {
  World w({.expect = 8});
  w.start_many(8);
  w.start("spare");
  w.run(2s);
  ASSERT_EQ(w.fleet->state(), FleetState::ready);
  for (int i = 0; i < 6; ++i) w.processes["n" + std::to_string(i)].frozen = true;
  w.run(8s);
  EXPECT_EQ(w.fleet->state(), FleetState::degraded);
  EXPECT_EQ(w.fleet->epoch().value, 1U);  // the spare was not used
  EXPECT_TRUE(w.logged("the controller's own network"));
  EXPECT_NE(w.fleet->reason().find("own network"), std::string::npos) << w.fleet->reason();
  for (auto& [id, p] : w.processes) p.frozen = false;
  w.run(1s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_EQ(w.fleet->epoch().value, 1U);
}

TEST(Fleet, WhenTheyDoNotComeBackTheRestGoesOn) {
  World w({.expect = 8});
  w.start_many(8);
  w.run(2s);
  for (int i = 0; i < 5; ++i) w.crash("n" + std::to_string(i));
  w.run(9s);
  EXPECT_EQ(w.fleet->epoch().value, 1U);
  w.run(5s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready) << w.fleet->reason();
  EXPECT_EQ(w.fleet->epoch().value, 2U);
}

TEST(Fleet, RestartedOnesAreNotWaitedFor) {
  World w({.expect = 6});
  w.start_many(6);
  w.run(2s);
  for (int i = 0; i < 6; ++i) w.crash("n" + std::to_string(i));  // power cut
  w.run(1s);
  for (int i = 0; i < 6; ++i) w.start("n" + std::to_string(i));
  w.run(1s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready) << w.fleet->reason();
  EXPECT_EQ(w.fleet->epoch().value, 2U);  // one plan for all of them
}

TEST(Fleet, AControllerThatSleptBlamesItself) {
  World w;
  w.start_many(5);
  w.run(2s);
  w.now += 30s;  // the process was stopped; heartbeats wait in sockets
  w.handle(w.fleet->tick(w.now));
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_TRUE(w.logged("the controller did not run"));
  w.run(3s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_EQ(w.fleet->epoch().value, 1U);
}

TEST(Fleet, ARestartedControllerGoesBeyondTheEpochsThatNodesKnow) {
  World w;
  w.start_many(2);
  for (auto& [id, p] : w.processes) {
    p.epoch = {70};
    p.state = NodeState::ready;
    w.beat(p);
  }
  w.run(1s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
  EXPECT_EQ(w.fleet->epoch().value, 71U);
  // One that turns up later knows still more.
  World::Process& late = w.start("late");
  late.epoch = {90};
  late.state = NodeState::ready;
  w.beat(late);
  w.crash("n0");
  w.run(1s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready) << w.fleet->reason();
  EXPECT_EQ(w.fleet->epoch().value, 91U);
  // One that never said so refuses: the same again, beyond what it knows.
  World::Process& silent = w.start("silent");
  silent.loads = false;
  w.crash("n1");
  w.run(1s);
  ASSERT_GT(w.parts_of("silent"), 0U);
  EXPECT_EQ(w.fleet->epoch().value, 92U);
  silent.epoch = {500};
  w.beat(silent);
  silent.loads = true;
  silent.assign.reset();
  w.handle(
      w.fleet->assign_failed({silent.peer}, {92}, Error{Code::stale, "epoch 92 is older than 500", {}, {}}, w.now));
  w.run(1s);
  EXPECT_EQ(w.fleet->state(), FleetState::ready) << w.fleet->reason();
  EXPECT_EQ(w.fleet->epoch().value, 501U);
}

TEST(Fleet, RefusesNamesAndNumbersThatMakeNoSense) {
  World w({.max_nodes = 3});
  for (const char* name : {"", "a b", "../x", "-x", ".x", "n\n1",
                           "0123456789012345678901234567890123456789012345678901234567890123456789"}) {
    w.handle(w.fleet->registered({77}, {.node = {name}, .incarnation = 1, .port = 1}, "h", w.now));
    EXPECT_EQ(w.answered_code(), Code::invalid_argument) << name;
  }
  w.handle(w.fleet->registered({77}, {.node = {"a"}, .incarnation = 0, .port = 1}, "h", w.now));
  EXPECT_EQ(w.answered_code(), Code::invalid_argument);
  w.handle(w.fleet->registered({77}, {.node = {"a"}, .incarnation = 1, .port = 0}, "h", w.now));
  EXPECT_EQ(w.answered_code(), Code::invalid_argument);
  w.start_many(3);
  w.start("one-too-many");
  EXPECT_EQ(w.answered_code(), Code::limit);
  EXPECT_EQ(Fleet::create(Graph::build(small_config(1, 2)).value(), {}, {.headroom = 0.9}, 0s).error().code,
            Code::invalid_argument);
}

TEST(Fleet, KillAndShutdown) {
  World w;
  w.start_many(2);
  w.run(1s);
  w.handle(w.fleet->kill({500}, {.node = {"nobody"}}, w.now));
  EXPECT_EQ(w.answered_code(), Code::not_found);
  w.handle(w.fleet->kill({500}, {.node = {"n1"}}, w.now));
  EXPECT_TRUE(std::holds_alternative<Done>(w.last_answer));
  EXPECT_TRUE(w.processes["n1"].told_to_stop);
  EXPECT_FALSE(w.processes["n0"].told_to_stop);
  w.handle(w.fleet->shutdown({500}, w.now));
  EXPECT_TRUE(w.processes["n0"].told_to_stop);
  EXPECT_TRUE(w.stopped);
}

TEST(Fleet, StatusNamesWhatAPersonAsksFor) {
  World w;
  w.start_many(3);
  w.run(1s);
  w.crash("n2");
  const auto status = nlohmann::json::parse(w.fleet->status_json(w.now));
  EXPECT_EQ(status["state"], "degraded");
  EXPECT_EQ(status["epoch"], 1);
  EXPECT_EQ(status["model"], "test-model");
  ASSERT_EQ(status["nodes"].size(), 3U);
  const auto& node = status["nodes"][0];
  for (const char* field : {"id", "state", "host", "port", "incarnation", "memory", "cores", "speed", "calls", "parts",
                            "last_heard_ms", "account", "part_names"})
    EXPECT_TRUE(node.contains(field)) << field;
  EXPECT_EQ(status["nodes"][2]["state"], "lost");
  EXPECT_EQ(status["stages"].back()["last_half"], 16);
  EXPECT_FALSE(status["events"].empty());
  std::uint64_t bytes = 0;
  for (const auto& n : status["nodes"]) bytes += n["account"]["parts"].get<std::uint64_t>();
  EXPECT_EQ(bytes, w.fleet->costs().part_bytes());
  // How long a token should take, and that fewer nodes would do.
  EXPECT_EQ(status["estimate"]["hops"], 2);
  EXPECT_GT(status["estimate"]["compute_ms"], 0.0);
}

TEST(Fleet, ForgetsTheLongLostButNotTheirIncarnations) {
  World w({.expect = 2});
  w.start_many(2);
  w.run(1s);
  w.start("gone");
  const World::Process old = w.processes["gone"];
  w.start("gone");
  w.crash("gone");
  w.run(601s);
  EXPECT_FALSE(w.fleet->node_state({"gone"}));
  w.handle(w.fleet->registered({5000}, w.greeting(old), "10.0.0.9", w.now));
  EXPECT_EQ(w.answered_code(), Code::stale);
}

TEST(Fleet, EventsAndUpdatesStayBounded) {
  World w;
  w.watch();
  w.start_many(2);
  w.run(1s);
  for (int i = 0; i < 400; ++i) {
    w.start("flapping");
    w.crash("flapping");
  }
  const auto status = nlohmann::json::parse(w.fleet->status_json(w.now));
  EXPECT_LE(status["events"].size(), EventLog::kMaxEvents);
  EXPECT_LE(w.updates, 10U);
  EXPECT_EQ(w.fleet->state(), FleetState::ready);
}
}  // namespace
}  // namespace myriad::testing
