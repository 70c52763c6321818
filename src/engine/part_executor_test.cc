#include <future>

#include "engine/part_executor.h"

#include "engine/test_model.h"

namespace myriad {
namespace {

using std::chrono::seconds;

class Executor : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint32_t i = 0; i < specs_.size(); ++i) {
      auto bytes = build_part(*model_.weights, specs_[i]);
      ASSERT_TRUE(bytes) << bytes.error().to_string();
      auto part = Part::parse(std::move(*bytes), model_.graph, nullptr);
      ASSERT_TRUE(part) << part.error().to_string();
      ASSERT_TRUE(parts_.add(i, std::move(*part)));
    }
  }
  Result<Activation> attend(std::uint64_t sequence, std::uint32_t position, SequenceId from = {},
                            std::uint64_t keep = 0) {
    const Activation x(Form::f32, 1, model_.graph.config().hidden);
    const Activation* inputs[] = {&x};
    const SequenceRows rows[] = {{{sequence}, position, 1, from, {keep}}};
    const PartExecutor::Item item{0, inputs, {}, HeadWant::logits};
    Activation out;
    MYRIAD_TRY_STATUS(parts_.run({&item, 1}, rows, {}, [&](std::size_t, Activation y) { out = std::move(y); }));
    return out;
  }

  TestModel model_ = TestModel::open(test_model("random-k3"));
  std::vector<PartSpec> specs_{{{0, OpRole::attn, 0}, 0, 2}, {{0, OpRole::embed, 0}, 0, 256}};
  ThreadPool pool_{1};
  PartExecutor parts_{model_.graph, Profile::exact, Budget{2, 8, 4}, scalar_kernels(), pool_};
};

TEST_F(Executor, PositionsFollowEachOtherAndEndAtTheContext) {
  for (std::uint32_t p = 0; p < 8; ++p) ASSERT_TRUE(attend(1, p)) << p;
  EXPECT_EQ(attend(1, 8).error().code, Code::limit);
  EXPECT_EQ(attend(1, 3).error().code, Code::stale);
  EXPECT_EQ(attend(9, 1).error().code, Code::not_found);
  EXPECT_TRUE(attend(1, 0)) << "from the start again";
}

TEST_F(Executor, ASlotThatNobodyReleasedIsReclaimedWhenItIsIdle) {
  parts_.set_time(seconds(100));
  ASSERT_TRUE(attend(1, 0));
  parts_.set_time(seconds(101));
  ASSERT_TRUE(attend(2, 0));
  EXPECT_EQ(attend(3, 0).error().code, Code::busy) << "both were used a moment ago";
  parts_.set_time(seconds(102));
  ASSERT_TRUE(attend(2, 1));
  EXPECT_TRUE(attend(3, 0)) << "1 has been idle for two seconds";
  EXPECT_EQ(attend(1, 1).error().code, Code::not_found);
  EXPECT_TRUE(attend(2, 2)) << "the other one is as it was";
  const SequenceId one[] = {{1}};
  EXPECT_EQ(parts_.release(one).size(), 1u) << "whoever is behind this node may have it still";
}

TEST_F(Executor, ASequenceOfSlowStepsIsNotTakenForForgotten) {
  parts_.set_time(seconds(100));
  ASSERT_TRUE(attend(1, 0));
  ASSERT_TRUE(attend(2, 0));
  parts_.set_time(seconds(103));
  ASSERT_TRUE(attend(1, 1));
  ASSERT_TRUE(attend(2, 1));
  parts_.set_time(seconds(108));
  EXPECT_EQ(attend(3, 0).error().code, Code::busy) << "their steps take three seconds";
  ASSERT_TRUE(attend(1, 2));
  parts_.set_time(seconds(115));
  EXPECT_TRUE(attend(3, 0));
  EXPECT_EQ(attend(2, 2).error().code, Code::not_found);
  EXPECT_TRUE(attend(1, 3));
}

constexpr std::uint64_t of_gateway(std::uint64_t gateway, std::uint64_t sequence) {
  return gateway << kSequenceCounterBits | sequence;
}

TEST_F(Executor, CopiesGiveWayToSequencesThatBegin) {
  const std::uint64_t mine = of_gateway(1, 1), copy = of_gateway(1, 2), other = of_gateway(2, 1);
  parts_.set_time(seconds(100));
  ASSERT_TRUE(attend(mine, 0));
  ASSERT_TRUE(attend(mine, 1, {}, copy));
  EXPECT_EQ(parts_.sequences(), 2u);
  parts_.set_time(seconds(101));
  ASSERT_TRUE(attend(other, 0)) << "nobody has begun as the copy";
  EXPECT_EQ(attend(copy, 1).error().code, Code::not_found);
  EXPECT_EQ(attend(of_gateway(1, 3), 1, {copy}).error().code, Code::not_found);
  EXPECT_TRUE(attend(mine, 2, {}, of_gateway(1, 4))) << "that there is no room for a copy is nobody's fault";
  EXPECT_EQ(attend(of_gateway(1, 4), 2).error().code, Code::not_found);
  EXPECT_TRUE(attend(mine, 3));
  const SequenceId ended[] = {{other}};
  parts_.release(ended);
  ASSERT_TRUE(attend(mine, 4, {}, of_gateway(1, 5)));
  ASSERT_TRUE(attend(of_gateway(1, 5), 4)) << "it runs from now on";
  parts_.set_time(seconds(102));
  EXPECT_EQ(attend(of_gateway(2, 2), 0).error().code, Code::busy);
  EXPECT_TRUE(attend(of_gateway(1, 5), 5));
}

TEST_F(Executor, AGatewayThatWaitsWithFewerSequencesComesFirst) {
  parts_.set_time(seconds(100));
  ASSERT_TRUE(attend(of_gateway(1, 1), 0));
  ASSERT_TRUE(attend(of_gateway(1, 2), 0));
  EXPECT_EQ(attend(of_gateway(2, 1), 0).error().code, Code::busy);
  const SequenceId ended[] = {{of_gateway(1, 1)}};
  parts_.release(ended);
  EXPECT_EQ(attend(of_gateway(1, 3), 0).error().code, Code::busy) << "it has one, the other waits with none";
  ASSERT_TRUE(attend(of_gateway(2, 2), 0));
  EXPECT_EQ(attend(of_gateway(1, 4), 0).error().code, Code::busy);
  const SequenceId both[] = {{of_gateway(1, 2)}, {of_gateway(2, 2)}};
  parts_.release(both);
  ASSERT_TRUE(attend(of_gateway(1, 5), 0));
  ASSERT_TRUE(attend(of_gateway(1, 6), 0)) << "nobody else waits";
  EXPECT_EQ(attend(of_gateway(2, 3), 0).error().code, Code::busy);
  const SequenceId one[] = {{of_gateway(1, 6)}};
  parts_.release(one);
  parts_.set_time(seconds(101));
  EXPECT_TRUE(attend(of_gateway(1, 7), 0)) << "who has not come again in a second does not wait any more";
}

TEST_F(Executor, ReleaseFreesASlotOnceAndRefusesLateCalls) {
  ASSERT_TRUE(attend(1, 0) && attend(2, 0));
  const SequenceId one[] = {{1}};
  EXPECT_EQ(parts_.release(one).size(), 1u);
  EXPECT_TRUE(parts_.release(one).empty());
  EXPECT_EQ(attend(1, 0).error().code, Code::stale);
  EXPECT_TRUE(attend(3, 0));
}

// A sequence that begins as a copy goes on as the original does; neither sees what the other adds, whatever pages they
// share.
TEST(Copies, GoOnAsTheOriginalDoes) {
  for (const char* name : {"random-k3", "random-kimi-linear"}) {
    for (const KvCache cache : {KvCache::f32, KvCache::bf16, KvCache::f16, KvCache::i8}) {
      const TestModel model = TestModel::open(test_model(name));
      const Budget budget{.sequences = 2, .context = 40, .step_rows = 16, .prefixes = 1, .cache = cache};
      const auto pipeline = model.pipeline(Profile::fast, {}, budget, 1);
      std::vector<std::int32_t> ids(30);
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 37 % 256);
      const auto run = [&](std::uint64_t sequence, std::uint32_t first, std::vector<std::int32_t> tokens,
                           SequenceId from = {}, SequenceId keep = {}) {
        Step step;
        step.step = 1;
        step.sequences = {{{sequence}, first, static_cast<std::uint32_t>(tokens.size()), from, keep}};
        step.wanted = {{static_cast<std::uint16_t>(tokens.size() - 1), HeadWant::logits, {}}};
        step.tokens = std::move(tokens);
        std::promise<Result<std::vector<float>>> logits;
        pipeline->submit(std::move(step), [&](Result<StepReply> reply) {
          if (reply)
            logits.set_value(std::vector<float>(reply->tensors[0].values.begin(), reply->tensors[0].values.end()));
          else
            logits.set_value(std::unexpected(reply.error()));
        });
        return logits.get_future().get();
      };
      const auto some = [&](std::size_t begin, std::size_t end) {
        return std::vector(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                           ids.begin() + static_cast<std::ptrdiff_t>(end));
      };
      ASSERT_TRUE(run(1, 0, some(0, 10)));
      ASSERT_TRUE(run(1, 10, some(10, 20), {}, {5})) << "sequence 5 is 1 at position 10";
      const auto straight = run(1, 20, some(20, 30));
      ASSERT_TRUE(straight) << straight.error().to_string();
      const auto other = run(2, 10, some(3, 9), {5});  // writes into the shared page
      ASSERT_TRUE(other) << other.error().to_string();
      pipeline->release({{2}});
      ASSERT_TRUE(run(3, 10, some(10, 20), {5}));
      EXPECT_EQ(run(3, 20, some(20, 30)).value(), *straight) << name << " " << kv_cache_name(cache);
      EXPECT_EQ(run(4, 10, some(10, 20), {99}).error().code, Code::not_found);
      pipeline->release({{1}});
      EXPECT_EQ(run(6, 9, some(9, 20), {5}).error().code, Code::not_found) << "a recurrent state cannot be cut back";
    }
  }
}

TEST_F(Executor, APoolOfFewerPagesThanSequencesCouldFillIsSharedOut) {
  // Pages of 8 positions, three of them, for four sequences of up to 8.
  PartExecutor parts(model_.graph, Profile::exact,
                     Budget{.sequences = 4, .context = 8, .step_rows = 8, .positions = 24}, scalar_kernels(), pool_);
  const std::size_t mla = 3;  // the first layer whose attention has a cache
  const PartSpec spec{{mla, OpRole::attn, 0}, 0, 2};
  auto bytes = build_part(*model_.weights, spec);
  ASSERT_TRUE(bytes) << bytes.error().to_string();
  ASSERT_TRUE(parts.add(0, Part::parse(std::move(*bytes), model_.graph, nullptr).value()));
  EXPECT_EQ(parts.state_bytes(), 3 * 8 * parts.find(0)->op().state_bytes_per_position(2, CacheType::f32));
  const auto begin = [&](std::uint64_t sequence) {
    const Operator& op = parts.find(0)->op();
    std::vector<Activation> inputs;
    for (const Seam& seam : op.inputs) inputs.emplace_back(Form::f32, 5, seam.width);
    std::vector<const Activation*> pointers;
    for (const Activation& x : inputs) pointers.push_back(&x);
    const SequenceRows rows[] = {{{sequence}, 0, 5, {}, {}}};
    const PartExecutor::Item item{0, pointers, {}, HeadWant::logits};
    return parts.run({&item, 1}, rows, {}, [](std::size_t, Activation) {});
  };
  ASSERT_TRUE(begin(1));
  ASSERT_TRUE(begin(2));
  ASSERT_TRUE(begin(3));
  EXPECT_EQ(begin(4).error().code, Code::busy);
  const SequenceId two[] = {{2}};
  parts.release(two);
  EXPECT_TRUE(begin(5));
}

TEST_F(Executor, ACallIsBoundedBeforeItIsRun) {
  Call many;
  many.tokens.assign(5, 1);
  many.items = {{1, {}, {}, HeadWant::logits}};
  EXPECT_EQ(parts_.execute(many).error().code, Code::limit) << "five rows, a step has four";
  many.tokens.assign(4, 1);
  many.items.assign(20000, {1, {}, {}, HeadWant::logits});
  EXPECT_EQ(parts_.execute(many).error().code, Code::limit) << "the answer would not fit a frame";
  many.items.resize(3);
  const auto reply = parts_.execute(many);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->tensors.size(), 3u);
  many.tokens = {300, 1, 1, 1};
  EXPECT_EQ(parts_.execute(many).error().code, Code::invalid_argument) << "a token that the part does not hold";
  many.items = {{7, {}, {}, HeadWant::logits}};
  EXPECT_EQ(parts_.execute(many).error().code, Code::not_found);
}

TEST(Candidates, FromAPeerAreCheckedOneByOne) {
  const std::vector<float> logits{1, 3, 2, -1};
  std::vector<float> packed(kPackedCandidates);
  pack_candidates(block_candidates(scalar_kernels(), logits, 0), packed);
  const auto good = unpack_candidates(packed, 4);
  ASSERT_TRUE(good) << good.error().to_string();
  EXPECT_EQ((*good)[0].best.front().token, 1);
  for (const auto& [at, value] : std::vector<std::pair<std::size_t, float>>{
           {0, NAN}, {1, -1}, {2, kCandidatesPerBlock + 1}, {2, NAN}, {3, 4}, {3, -1}, {4, NAN}, {6, 9}}) {
    auto bad = packed;
    bad[at] = value;
    EXPECT_FALSE(unpack_candidates(bad, 4)) << at << " " << value;
  }
}

}  // namespace
}  // namespace myriad
