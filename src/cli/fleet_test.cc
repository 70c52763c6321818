// A whole fleet over real sockets, in one process: controller, nodes, and the gateway's pipeline.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "base/random.h"
#include "controller/controller.h"
#include "engine/local_pipeline.h"
#include "gateway/fleet_pipeline.h"
#include "model/hf_weights.h"
#include "node/node.h"
#include "part/cutter.h"

namespace myriad {
namespace {

constexpr const char* kToken = "a token for this test only";

class FleetTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / fmt::format("myriad-fleet-test-{}", ::getpid());
    std::filesystem::remove_all(directory_);
    auto weights = HfWeights::open(std::filesystem::path(MYRIAD_SOURCE_DIR) / "tests/data/random-k3");
    ASSERT_TRUE(weights) << weights.error().to_string();
    weights_.emplace(std::move(*weights));
    graph_.emplace(weights_->graph());
    reactor_.start();
  }
  void TearDown() override {
    pipeline_.reset();
    nodes_.clear();
    controller_.reset();
    reactor_.stop();
    std::filesystem::remove_all(directory_);
  }

  void start(std::size_t nodes, Profile profile, std::uint64_t cut_seed) {
    const auto manifest =
        cut_model(*weights_, {std::uint64_t{64} << 10, cut_seed}, directory_ / "cut", "tiny", nullptr);
    ASSERT_TRUE(manifest) << manifest.error().to_string();
    ControllerOptions options;
    options.listen = {"127.0.0.1", 0};
    options.http_port = 0;
    options.token = kToken;
    options.cut_directory = directory_ / "cut";
    options.fleet.profile = profile;
    options.fleet.budget = {4, 64, 32};
    options.fleet.expect = static_cast<std::uint32_t>(nodes);
    auto controller = Controller::start(reactor_, std::move(options));
    ASSERT_TRUE(controller) << controller.error().to_string();
    controller_ = std::move(*controller);
    for (std::size_t i = 0; i < nodes; ++i) add_node(fmt::format("n{}", i));
    pipeline_ = std::make_shared<FleetPipeline>(
        reactor_, FleetPipelineOptions{{"127.0.0.1", controller_->port()}, kToken, NodeId{"gateway"}});
    const auto ready = pipeline_->wait_ready(std::chrono::seconds(30));
    ASSERT_TRUE(ready) << ready.error().to_string();
  }

  void add_node(const std::string& name) {
    NodeOptions options;
    options.controller = {"127.0.0.1", controller_->port()};
    options.token = kToken;
    options.id = {name};
    auto store = PartStore::open(directory_ / name, {});
    ASSERT_TRUE(store) << store.error().to_string();
    options.store = std::make_unique<PartStore>(std::move(*store));
    options.threads = 1;
    auto node = Node::start(std::move(options), [](const Status&) {});
    ASSERT_TRUE(node) << node.error().to_string();
    nodes_[name] = std::move(*node);
  }

  std::vector<std::vector<float>> logits(Pipeline& pipeline, std::uint32_t chunk) {
    std::vector<std::vector<float>> out;
    const auto status =
        run_logits(pipeline, {{++sequence_}, ids_}, {}, chunk,
                   [&](std::size_t, std::span<const float> row) { out.emplace_back(row.begin(), row.end()); });
    EXPECT_TRUE(status) << status.error().to_string();
    return out;
  }

  std::vector<std::vector<float>> expected(Profile profile) {
    const auto specs = cut(*graph_, {});
    auto local =
        LocalPipeline::create(*graph_, "tiny", profile, {4, 64, 32}, 1, specs, [&](std::size_t i) -> Result<Part> {
          MYRIAD_TRY(AlignedBuffer bytes, build_part(*weights_, specs[i]));
          return Part::parse(std::move(bytes), *graph_, nullptr);
        });
    return logits(**local, 32);
  }

  std::filesystem::path directory_;
  std::optional<HfWeights> weights_;
  std::optional<Graph> graph_;
  Reactor reactor_;
  std::unique_ptr<Controller> controller_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;
  std::shared_ptr<FleetPipeline> pipeline_;
  std::uint64_t sequence_ = 0;
  std::vector<std::int32_t> ids_{5, 17, 99, 3, 200, 201, 7, 8, 9, 10, 11, 12, 250, 30, 31, 32, 33, 34, 35, 36, 37};
};

TEST_F(FleetTest, AnyNumberOfNodesAndAnyCutGiveTheSameBits) {
  const std::uint64_t seed = std::random_device{}();
  CounterRandom random(seed);
  SCOPED_TRACE(seed);
  for (const std::size_t nodes : {1, 2, 3, 7}) {
    const Profile profile = nodes % 2 == 0 ? Profile::exact : Profile::fast;
    const auto cut_seed = random.next();
    start(nodes, profile, nodes == 1 ? 0 : cut_seed);
    if (HasFatalFailure()) return;
    EXPECT_EQ(logits(*pipeline_, static_cast<std::uint32_t>(1 + random.below(32))), expected(profile))
        << nodes << " nodes";
    pipeline_.reset();
    nodes_.clear();
    controller_.reset();
    std::filesystem::remove_all(directory_);
  }
}

TEST_F(FleetTest, ALostNodeIsNamedAndTheFleetIsWholeWhenAnotherJoins) {
  start(3, Profile::fast, 0);
  if (HasFatalFailure()) return;
  const auto before = logits(*pipeline_, 8);
  nodes_.erase("n1");
  Step step;
  step.step = 1;
  step.sequences = {{{77}, 0, 1}};
  step.tokens = {5};
  step.wanted = {{0, HeadWant::candidates, {}}};
  const auto reply = run_step(*pipeline_, step);
  ASSERT_FALSE(reply);
  EXPECT_NE(reply.error().to_string().find("n1"), std::string::npos) << reply.error().to_string();
  add_node("n9");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (true) {
    const auto plan = pipeline_->plan();
    const bool has =
        std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const NodeAddress& a) { return a.node.value == "n9"; });
    if (plan.state == FleetState::ready && has) break;
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << plan.reason;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(logits(*pipeline_, 8), before);
}

}  // namespace
}  // namespace myriad
