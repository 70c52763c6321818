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
  Result<Activation> attend(std::uint64_t sequence, std::uint32_t position) {
    const Activation x(Form::f32, 1, model_.graph.config().hidden);
    const Activation* inputs[] = {&x};
    const SequenceRows rows[] = {{{sequence}, position, 1}};
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
  EXPECT_EQ(attend(1, 1).error().code, Code::stale);
  EXPECT_TRUE(attend(2, 2)) << "the other one is as it was";
}

TEST_F(Executor, ReleaseFreesASlotOnceAndRefusesLateCalls) {
  ASSERT_TRUE(attend(1, 0) && attend(2, 0));
  const SequenceId one[] = {{1}};
  EXPECT_EQ(parts_.release(one).size(), 1u);
  EXPECT_TRUE(parts_.release(one).empty());
  EXPECT_EQ(attend(1, 0).error().code, Code::stale);
  EXPECT_TRUE(attend(3, 0));
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
  pack_candidates(block_candidates(logits, 0), packed);
  const auto good = unpack_candidates(packed, 4);
  ASSERT_TRUE(good) << good.error().to_string();
  EXPECT_EQ((*good)[0].best.front().token, 1);
  for (const auto& [at, value] : std::vector<std::pair<std::size_t, float>>{
           {0, NAN}, {1, -1}, {2, 65}, {2, NAN}, {3, 4}, {3, -1}, {4, NAN}, {6, 9}}) {
    auto bad = packed;
    bad[at] = value;
    EXPECT_FALSE(unpack_candidates(bad, 4)) << at << " " << value;
  }
}

}  // namespace
}  // namespace myriad
