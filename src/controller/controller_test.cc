#include "controller/controller.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "net/event_test.h"
#include "net/http_client.h"
#include "part/cutter.h"

namespace myriad {
namespace {

using namespace std::chrono_literals;
using test::Mailbox;
namespace fs = std::filesystem;

constexpr const char* kToken = "a token for tests alone";
constexpr std::uint64_t kMiB = 1 << 20;

// A cut directory with a manifest of the demo model, but no parts: the controller needs none to plan.
class ControllerProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    log_configure(LogLevel::off, "");
    std::string name = (fs::temp_directory_path() / "myriad-controller-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::ifstream file(fs::path(MYRIAD_SOURCE_DIR) / "models/tiny-k3/config.json");
    Manifest manifest;
    manifest.model_name = "tiny-k3";
    manifest.config_json.assign(std::istreambuf_iterator<char>(file), {});
    const Graph graph = Graph::build(parse_config(manifest.config_json).value()).value();
    for (const PartSpec& spec : cut(graph, {.target_bytes = 64 << 10})) {
      ManifestPart part{.spec = spec, .id = {}, .bytes = graph.find(spec.op)->weight_bytes(spec.units())};
      const std::string words = spec.name();
      part.id.digest = sha256(std::as_bytes(std::span(words)));
      manifest.parts.push_back(part);
    }
    std::ofstream(folder_ / kManifestName) << manifest.to_json();
    reactor_.start();
  }
  void TearDown() override {
    controller_.reset();
    reactor_.stop();
    fs::remove_all(folder_);
  }

  void start(FleetOptions fleet = {}) {
    ControllerOptions options{.listen = {"127.0.0.1", 0},
                              .http_port = 0,
                              .token = kToken,
                              .cut_directory = folder_,
                              .fleet = std::move(fleet)};
    options.on_stop = [this] { stopped_.put(true); };
    auto controller = Controller::start(reactor_, std::move(options));
    ASSERT_TRUE(controller) << controller.error().message;
    controller_ = std::move(*controller);
  }

  struct Asked {
    Message message;
    Responder responder;
  };
  struct Client {
    ConnectionPtr connection;
    std::shared_ptr<Mailbox<Asked>> asked = std::make_shared<Mailbox<Asked>>();
    std::shared_ptr<Mailbox<Error>> ended = std::make_shared<Mailbox<Error>>();
  };
  Client client(Role role, const std::string& name, std::uint64_t incarnation = 1) {
    Client c;
    Mailbox<Result<ConnectionPtr>> done;
    Connection::Handlers handlers{[asked = c.asked](Connection&, Message m, Responder r) {
                                    asked->put({std::move(m), std::move(r)});
                                  },
                                  [ended = c.ended](Connection&, const Error& why) { ended->put(why); }};
    connect(reactor_, {"127.0.0.1", controller_->port()}, kToken, Hello{role, {name}, incarnation}, handlers, 5s,
            [&](Result<ConnectionPtr> r) { done.put(std::move(r)); });
    auto connection = done.take();
    EXPECT_TRUE(connection && *connection) << name;
    if (connection && *connection) c.connection = **connection;
    return c;
  }
  Message ask(const Client& c, Message question) {
    Mailbox<Result<Message>> answers;
    c.connection->call(std::move(question), 5s, [&](Result<Message> m) { answers.put(std::move(m)); });
    auto answer = answers.take();
    if (!answer) return Failure{{Code::internal, "no answer", {}, {}}};
    if (!*answer) return Failure{answer->error()};
    return **answer;
  }
  Client node(const std::string& name, std::uint64_t incarnation = 1) {
    Client c = client(Role::node, name, incarnation);
    const Message answer = ask(c, Register{.node = {name},
                                           .incarnation = incarnation,
                                           .memory_bytes = 64 * kMiB,
                                           .process_bytes = 4 * kMiB,
                                           .cores = 1,
                                           .speed = 1'000'000'000,
                                           .isa = "scalar",
                                           .port = 7300});
    EXPECT_TRUE(std::holds_alternative<Registered>(answer)) << message_name(answer);
    return c;
  }
  // The next message of one kind; others that come before are left out.
  template <class M>
  static std::optional<std::pair<M, Responder>> next(const Client& c) {
    while (auto asked = c.asked->take())
      if (auto* m = std::get_if<M>(&asked->message)) return std::pair(std::move(*m), std::move(asked->responder));
    return {};
  }
  static std::optional<PlanUpdate> update_with(const Client& c, FleetState state) {
    while (auto update = next<PlanUpdate>(c))
      if (update->first.state == state) return update->first;
    return {};
  }

  fs::path folder_;
  Reactor reactor_;
  std::unique_ptr<Controller> controller_;
  Mailbox<bool> stopped_;
};

TEST_F(ControllerProcess, FormsAFleetTellsWatchersAndNoticesALoss) {
  start({.expect = 2});
  const Client gateway = client(Role::gateway, "g");
  const Message first = ask(gateway, Watch{});
  ASSERT_TRUE(std::holds_alternative<PlanUpdate>(first)) << message_name(first);
  EXPECT_EQ(std::get<PlanUpdate>(first).state, FleetState::waiting);
  EXPECT_EQ(std::get<PlanUpdate>(first).model_name, "tiny-k3");
  const Client a = node("a"), b = node("b");
  auto assign_a = next<Assign>(a), assign_b = next<Assign>(b);
  ASSERT_TRUE(assign_a && assign_b);
  EXPECT_GT(assign_a->first.parts.size() + assign_b->first.parts.size(), 50U);
  EXPECT_EQ(assign_a->first.nodes[assign_a->first.self].host, "127.0.0.1");  // as it was seen, since it gave none
  EXPECT_EQ(assign_a->first.nodes[assign_a->first.self].port, 7300);
  assign_a->second.answer(Assigned{.epoch = assign_a->first.epoch});
  assign_b->second.answer(Assigned{.epoch = assign_b->first.epoch});
  auto ready = update_with(gateway, FleetState::ready);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->stages.size(), 2U);
  b.connection->close();
  auto degraded = update_with(gateway, FleetState::degraded);
  ASSERT_TRUE(degraded);
  EXPECT_EQ(degraded->lost.at(0).value, "b");
  // Another one takes its place.
  const Client c = node("c");
  auto again_a = next<Assign>(a), assign_c = next<Assign>(c);
  ASSERT_TRUE(again_a && assign_c);
  EXPECT_GT(assign_c->first.epoch, assign_a->first.epoch);
  again_a->second.answer(Assigned{.epoch = again_a->first.epoch});
  assign_c->second.answer(Assigned{.epoch = assign_c->first.epoch});
  EXPECT_TRUE(update_with(gateway, FleetState::ready));
}

TEST_F(ControllerProcess, ASilentNodeLosesItsLeaseWhileItsConnectionStands) {
  start({.expect = 1, .heartbeat = 50ms, .lease = 200ms});
  const Client gateway = client(Role::gateway, "g");
  ask(gateway, Watch{});
  const Client a = node("a");
  auto assign = next<Assign>(a);
  ASSERT_TRUE(assign);
  assign->second.answer(Assigned{.epoch = assign->first.epoch});
  auto degraded = update_with(gateway, FleetState::degraded);
  ASSERT_TRUE(degraded);
  EXPECT_NE(degraded->reason.find("node a is lost"), std::string::npos) << degraded->reason;
  const Message beat =
      ask(a, Heartbeat{.node = {"a"}, .incarnation = 1, .epoch = assign->first.epoch, .state = NodeState::ready});
  ASSERT_TRUE(std::holds_alternative<HeartbeatReply>(beat));
  EXPECT_EQ(std::get<HeartbeatReply>(beat).epoch, assign->first.epoch);
  EXPECT_TRUE(update_with(gateway, FleetState::ready));
}

TEST_F(ControllerProcess, ALoadFailureReachesTheGateway) {
  start({.expect = 1});
  const Client gateway = client(Role::gateway, "g");
  ask(gateway, Watch{});
  const Client a = node("a");
  auto assign = next<Assign>(a);
  ASSERT_TRUE(assign);
  assign->second.fail({Code::does_not_fit, "loading L000.attn: 5 MiB wanted, 3 MiB free", "a", "L000.attn"});
  auto degraded = update_with(gateway, FleetState::degraded);
  ASSERT_TRUE(degraded);
  EXPECT_NE(degraded->reason.find("5 MiB wanted, 3 MiB free"), std::string::npos) << degraded->reason;
}

TEST_F(ControllerProcess, AGhostIsRefusedAndShownTheDoor) {
  start();
  const Client now = node("a", 20);
  const Client ghost = client(Role::node, "a", 10);
  const Message answer = ask(ghost, Register{.node = {"a"}, .incarnation = 10, .memory_bytes = kMiB, .port = 1});
  ASSERT_TRUE(std::holds_alternative<Failure>(answer));
  EXPECT_EQ(std::get<Failure>(answer).error.code, Code::stale);
  EXPECT_TRUE(ghost.ended->take());
  // A newer one replaces the present one, whose connection ends.
  const Client newer = node("a", 30);
  EXPECT_TRUE(now.ended->take());
}

TEST_F(ControllerProcess, StatusKillAndShutdownAreForTools) {
  start();
  const Client a = node("a"), tool = client(Role::tool, "t"), gateway = client(Role::gateway, "g");
  const Message status = ask(tool, StatusRequest{});
  ASSERT_TRUE(std::holds_alternative<StatusReply>(status)) << message_name(status);
  EXPECT_EQ(nlohmann::json::parse(std::get<StatusReply>(status).json)["nodes"][0]["id"], "a");
  EXPECT_TRUE(std::holds_alternative<Failure>(ask(gateway, Shutdown{})));
  EXPECT_TRUE(std::holds_alternative<Failure>(ask(a, KillRequest{.node = {"a"}})));
  EXPECT_TRUE(std::holds_alternative<Failure>(ask(tool, Heartbeat{.node = {"a"}, .incarnation = 1})));
  EXPECT_TRUE(std::holds_alternative<Failure>(ask(tool, Step{})));
  EXPECT_TRUE(std::holds_alternative<Failure>(ask(tool, KillRequest{.node = {"b"}})));
  EXPECT_TRUE(std::holds_alternative<Done>(ask(tool, KillRequest{.node = {"a"}})));
  EXPECT_TRUE(next<Shutdown>(a));
  const Client b = node("b");
  EXPECT_TRUE(std::holds_alternative<Done>(ask(tool, Shutdown{})));
  EXPECT_TRUE(next<Shutdown>(b));
  EXPECT_TRUE(stopped_.take());
}

TEST_F(ControllerProcess, ServesTheCutToThoseWithATicket) {
  start();
  const Client a = client(Role::node, "a");
  const Message answer = ask(a, Register{.node = {"a"}, .incarnation = 1, .memory_bytes = 64 * kMiB, .port = 7300});
  ASSERT_TRUE(std::holds_alternative<Registered>(answer));
  const auto& door = std::get<Registered>(answer);
  EXPECT_EQ(door.http_port, controller_->http_port());
  EXPECT_GE(door.fetch_ticket.size(), 32U);
  const auto get = [&](const std::string& path, const std::string& ticket) -> Result<std::string> {
    std::string text;
    Mailbox<Status> done;
    http_get(
        reactor_, {"127.0.0.1", door.http_port}, path, ticket, 16 * kMiB,
        [&](std::span<const std::byte> piece) -> Status {
          text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
          return {};
        },
        5s, [&](Status status) { done.put(std::move(status)); });
    const auto status = done.take();
    if (!status) return fail(Code::internal, "no end");
    if (!*status) return std::unexpected(status->error());
    return text;
  };
  const auto manifest = get("/v1/manifest.json", door.fetch_ticket);
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(Manifest::parse(*manifest)->model_name, "tiny-k3");
  const PartId id = Manifest::parse(*manifest)->parts[0].id;
  fs::create_directories(folder_ / "parts");
  std::ofstream(part_path(folder_, id)) << "the part";
  EXPECT_EQ(get("/v1/parts/" + id.hex() + ".part", door.fetch_ticket).value_or("nothing"), "the part");
  EXPECT_EQ(get("/v1/manifest.json", "another-ticket").error().code, Code::unauthenticated);
  EXPECT_EQ(get("/v1/manifest.json", "").error().code, Code::unauthenticated);
  EXPECT_EQ(get("/v1/../manifest.json", door.fetch_ticket).error().code, Code::not_found);
  EXPECT_EQ(get("/v1/parts/" + Manifest::parse(*manifest)->parts[1].id.hex() + ".part", door.fetch_ticket).error().code,
            Code::not_found);
}

TEST_F(ControllerProcess, FailsToStartWithASentence) {
  const auto try_start = [&](const fs::path& folder, std::string token, FleetOptions fleet = {}) {
    auto controller = Controller::start(reactor_, {.listen = {"127.0.0.1", 0},
                                                   .http_port = 0,
                                                   .token = std::move(token),
                                                   .cut_directory = folder,
                                                   .fleet = std::move(fleet)});
    return controller ? Error{} : controller.error();
  };
  EXPECT_NE(try_start(folder_ / "nowhere", kToken).message.find("nowhere"), std::string::npos);
  EXPECT_EQ(try_start(folder_, "short").code, Code::invalid_argument);
  EXPECT_EQ(try_start(folder_, kToken, {.budget = {.context = 0}}).code, Code::invalid_argument);
}

TEST_F(ControllerProcess, AHundredNodesAtOnce) {
  start({.expect = 100});
  const Client gateway = client(Role::gateway, "g");
  ask(gateway, Watch{});
  std::vector<Client> nodes;
  for (int i = 0; i < 100; ++i) nodes.push_back(node("n" + std::to_string(i)));
  // Those that the demo model's parts do not reach are spare and are asked nothing.
  const auto status = nlohmann::json::parse(std::get<StatusReply>(ask(gateway, StatusRequest{})).json);
  std::size_t holders = 0;
  for (const auto& n : status["nodes"]) holders += n["parts"] > 0 ? 1 : 0;
  EXPECT_GT(holders, 10U);
  std::size_t assigned = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (status["nodes"][i]["parts"] == 0) continue;
    const std::string id = status["nodes"][i]["id"];
    auto assign = next<Assign>(nodes[std::stoul(id.substr(1))]);
    ASSERT_TRUE(assign) << id;
    assign->second.answer(Assigned{.epoch = assign->first.epoch});
    ++assigned;
  }
  EXPECT_EQ(assigned, holders);
  EXPECT_TRUE(update_with(gateway, FleetState::ready));
}

}  // namespace
}  // namespace myriad
