#include "engine/batcher.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/random.h"

namespace myriad {
namespace {

GenerationRequest request(std::size_t prompt, std::uint32_t max_tokens) {
  GenerationRequest r;
  for (std::size_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<std::int32_t>(i % 50));
  r.max_tokens = max_tokens;
  return r;
}

StepReply reply_to(const Step& step, std::int32_t token = 7) {
  StepReply r;
  for (std::size_t i = 0; i < step.wanted.size(); ++i) r.samples.push_back({token, 0, {}});
  return r;
}

TEST(Batcher, PrefillsInChunksAndDecodesOneByOne) {
  Batcher b({4, 100, 8, 1, 4}, 1000);
  const auto id = b.admit(request(19, 3));
  ASSERT_TRUE(id);
  std::vector<std::size_t> rows;
  while (auto step = b.next_step()) {
    rows.push_back(step->tokens.size());
    EXPECT_FALSE(b.next_step().has_value()) << "one step in flight";
    b.on_reply(step->step, reply_to(*step));
  }
  EXPECT_EQ(rows, (std::vector<std::size_t>{8, 8, 3, 1, 1}));
  const auto events = b.take_events();
  ASSERT_EQ(events.size(), 4u);
  const auto& last = std::get<FinishedEvent>(events.back().second);
  EXPECT_EQ(last.reason, FinishReason::length);
  EXPECT_EQ(last.prompt_tokens, 19u);
  EXPECT_EQ(last.completion_tokens, 3u);
  EXPECT_EQ(b.take_released().size(), 1u);
}

TEST(Batcher, RefusesWhatCannotRun) {
  Batcher b({1, 10, 8, 1, 1}, 1);
  EXPECT_EQ(b.admit(request(0, 1)).error().code, Code::invalid_argument);
  EXPECT_EQ(b.admit(request(1, 0)).error().code, Code::invalid_argument);
  EXPECT_EQ(b.admit(request(8, 3)).error().code, Code::limit);
  EXPECT_EQ(b.admit(request(1, 0xffffffffu)).error().code, Code::limit);
  ASSERT_TRUE(b.admit(request(8, 2)));
  EXPECT_EQ(b.admit(request(1, 1)).error().code, Code::busy);
}

TEST(Batcher, StopTokenEndsWithoutBeingGiven) {
  Batcher b({1, 10, 8, 1, 1}, 1);
  auto r = request(2, 5);
  r.stop_tokens = {9};
  ASSERT_TRUE(b.admit(std::move(r)));
  auto step = b.next_step();
  b.on_reply(step->step, reply_to(*step, 9));
  const auto events = b.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<FinishedEvent>(events[0].second).reason, FinishReason::stop);
}

TEST(Batcher, CancelInFlightReleasesStateOnlyAfterTheStep) {
  Batcher b({2, 50, 8, 1, 4}, 1);
  const auto id = b.admit(request(4, 5));
  auto step = b.next_step();
  EXPECT_EQ(b.cancel(*id), step->step);
  EXPECT_EQ(b.take_events().size(), 1u);
  EXPECT_TRUE(b.take_released().empty());
  b.on_reply(step->step, fail(Code::cancelled, "gone"));
  EXPECT_EQ(b.take_released().size(), 1u);
  EXPECT_TRUE(b.take_events().empty()) << "one last event only";
  EXPECT_EQ(b.running(), 0u);
}

// Random arrivals, replies, failures and cancels: every request ends exactly once, positions are consecutive, rows
// never exceed the step, and every sequence is released once.
TEST(Batcher, Property) {
  const std::uint64_t seed = std::random_device{}();
  CounterRandom random(seed);
  SCOPED_TRACE(seed);
  Batcher b({3, 64, 10, 2, 8}, 500);
  std::map<std::uint64_t, int> ended;
  std::map<SequenceId, std::uint32_t> position;
  std::vector<Step> in_flight;
  std::set<SequenceId> released;
  std::vector<std::uint64_t> ids;
  const auto drain = [&] {
    for (auto& [id, event] : b.take_events())
      if (!std::holds_alternative<TokenEvent>(event)) ++ended[id];
    for (const auto s : b.take_released()) EXPECT_TRUE(released.insert(s).second);
  };
  for (int round = 0; round < 3000; ++round) {
    const auto what = random.below(10);
    if (what < 2 && round < 2500) {
      if (const auto id = b.admit(request(1 + random.below(40), static_cast<std::uint32_t>(1 + random.below(24)))))
        ids.push_back(*id);
    } else if (what == 2 && !ids.empty()) {
      b.cancel(ids[random.below(ids.size())]);
    } else if (what < 6 && !in_flight.empty()) {
      const std::size_t i = random.below(in_flight.size());
      const Step step = in_flight[i];
      in_flight.erase(in_flight.begin() + static_cast<std::ptrdiff_t>(i));
      if (random.below(20) == 0)
        b.on_reply(step.step, fail(Code::unavailable, "lost"));
      else
        b.on_reply(step.step, reply_to(step));
    } else if (auto step = b.next_step()) {
      EXPECT_LE(step->tokens.size(), 10u);
      for (const auto& s : step->sequences) {
        EXPECT_FALSE(released.contains(s.sequence));
        EXPECT_EQ(position[s.sequence], s.first_position);
        position[s.sequence] += s.rows;
        for (const auto& other : in_flight)
          for (const auto& o : other.sequences) EXPECT_NE(o.sequence, s.sequence);
      }
      in_flight.push_back(std::move(*step));
    }
    drain();
  }
  for (int round = 0; round < 5000 && (b.running() + b.waiting() > 0); ++round) {
    if (auto step = b.next_step()) in_flight.push_back(std::move(*step));
    if (!in_flight.empty()) {
      b.on_reply(in_flight.back().step, reply_to(in_flight.back()));
      in_flight.pop_back();
    }
    drain();
  }
  EXPECT_EQ(b.running() + b.waiting(), 0u);
  EXPECT_EQ(ended.size(), ids.size());
  for (const auto& [id, n] : ended) EXPECT_EQ(n, 1) << id;
}

}  // namespace
}  // namespace myriad
