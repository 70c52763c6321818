#include "engine/batcher.h"

#include <gtest/gtest.h>

#include <array>
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

GenerationRequest request_of(std::vector<std::int32_t> prompt, std::uint32_t max_tokens) {
  GenerationRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  return r;
}
std::vector<std::int32_t> counting(std::int32_t first, std::size_t n) {
  std::vector<std::int32_t> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = first + static_cast<std::int32_t>(i);
  return v;
}
std::vector<std::int32_t> joined(std::vector<std::int32_t> a, const std::vector<std::int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Batcher, TheNextTurnBeginsBeforeTheLastPromptsLastToken) {
  Batcher b({.sequences = 2, .context = 400, .step_rows = 400, .pages = {400, 4}, .prefixes = 2}, 1);
  const auto run = [&] {
    std::vector<SequenceRows> seen;
    while (auto step = b.next_step()) {
      seen.insert(seen.end(), step->sequences.begin(), step->sequences.end());
      b.on_reply(step->step, reply_to(*step));
    }
    return seen;
  };
  const auto first = counting(0, 100);
  ASSERT_TRUE(b.admit(request_of(first, 3)));
  auto seen = run();
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0].rows, 99u);
  EXPECT_EQ(seen[1].rows, 1u);
  const SequenceId kept = seen[1].keep;
  EXPECT_NE(kept.value, 0u);
  EXPECT_EQ(b.kept(), 1u);

  ASSERT_TRUE(b.admit(request_of(joined(first, counting(500, 50)), 2)));
  seen = run();
  EXPECT_EQ(seen[0].from, kept);
  EXPECT_EQ(seen[0].first_position, 99u);
  EXPECT_EQ(seen[0].rows, 50u);
  EXPECT_EQ(b.kept(), 2u);

  // Another conversation with the same beginning of 60 tokens: nothing kept fits, but from now on there will be.
  ASSERT_TRUE(b.admit(request_of(joined(counting(0, 60), counting(700, 50)), 2)));
  seen = run();
  EXPECT_EQ(seen[0].from.value, 0u);
  EXPECT_EQ(seen[0].rows, 60u);
  ASSERT_TRUE(b.admit(request_of(joined(counting(0, 60), counting(800, 50)), 2)));
  seen = run();
  EXPECT_NE(seen[0].from.value, 0u);
  EXPECT_EQ(seen[0].first_position, 60u);
  EXPECT_LE(b.kept(), 2u);
}

TEST(Batcher, TheSamePromptAgainIsAllButItsLastToken) {
  Batcher b({.sequences = 2, .context = 400, .step_rows = 64, .pages = {400, 4}, .prefixes = 2}, 1);
  const auto run = [&](std::vector<std::int32_t> prompt, std::uint32_t wanted, bool stops) {
    auto r = request_of(std::move(prompt), wanted);
    if (stops) r.stop_tokens = {7};
    EXPECT_TRUE(b.admit(std::move(r)));
    std::vector<SequenceRows> seen;
    while (auto step = b.next_step()) {
      seen.insert(seen.end(), step->sequences.begin(), step->sequences.end());
      b.on_reply(step->step, reply_to(*step));
    }
    return seen;
  };
  const auto kept_of_last = [&] {
    const auto events = b.take_events();
    for (const auto& [id, event] : events)
      if (const auto* token = std::get_if<TokenEvent>(&event)) {
        EXPECT_EQ(token->kept_tokens, std::get<FinishedEvent>(events.back().second).kept_tokens);
      }
    return std::get<FinishedEvent>(events.back().second).kept_tokens;
  };
  const auto prompt = counting(0, 100);
  auto seen = run(prompt, 1, false);  // an answer of one token leaves a copy, too
  EXPECT_EQ(kept_of_last(), 0u);
  ASSERT_EQ(seen.size(), 3u);
  const SequenceId kept = seen[2].keep;
  EXPECT_EQ(seen[2].first_position, 99u);
  for (const bool stops : {false, true, false}) {
    seen = run(prompt, 3, stops);
    EXPECT_EQ(seen.size(), stops ? 1u : 3u);
    EXPECT_EQ(seen[0].from, kept);
    EXPECT_EQ(seen[0].first_position, 99u);
    EXPECT_EQ(seen[0].rows, 1u);
    EXPECT_EQ(seen[0].keep.value, 0u);
    EXPECT_EQ(kept_of_last(), 99u);
  }
  EXPECT_EQ(b.kept(), 1u);
  // One that begins with all but its last token, and one that is a token shorter.
  EXPECT_EQ(run(joined(counting(0, 99), {555}), 2, false)[0].from, kept);
  EXPECT_EQ(run(counting(0, 99), 2, false)[0].from.value, 0u);
}

// The tokens are those that would have been drawn one by one, whatever is guessed and whenever a guess is wrong; state
// is fed in order, and every sequence is given up.
TEST(Batcher, GuessesChangeNoToken) {
  CounterRandom random(11);
  for (int round = 0; round < 50; ++round) {
    // A text that repeats itself for the most part: token i is a function of i.
    const std::size_t period = 3 + random.below(6), wanted = 20 + random.below(60);
    const auto token_at = [&](std::size_t i) { return static_cast<std::int32_t>(i % 17 == 0 ? 100 + i : i % period); };
    std::vector<std::int32_t> prompt;
    for (std::size_t i = 0; i < 12; ++i) prompt.push_back(token_at(i));
    Batcher b({.sequences = 1,
               .context = 200,
               .step_rows = 12,
               .pages = {200, 4},
               .prefixes = round % 2 == 0 ? 0U : 1U,
               .drafts = 5},
              1);
    ASSERT_TRUE(b.admit(request_of(prompt, static_cast<std::uint32_t>(wanted))));
    std::map<SequenceId, std::vector<std::int32_t>> fed;
    std::set<SequenceId> released;
    std::size_t steps = 0, drafted = 0;
    while (auto step = b.next_step()) {
      ++steps;
      ASSERT_EQ(step->sequences.size(), 1u);
      const SequenceRows& s = step->sequences[0];
      if (s.keep.value != 0) fed[s.keep] = fed[s.sequence];
      auto& mine = fed[s.sequence];
      ASSERT_EQ(mine.size(), s.first_position);
      mine.insert(mine.end(), step->tokens.begin(), step->tokens.end());
      StepReply r;
      for (const SampledRow& w : step->wanted) {
        const std::size_t position = s.first_position + w.row + 1u;
        EXPECT_EQ(w.sample.position, position);
        // What a model draws depends on all that was fed: behind a wrong token, something else.
        bool right = true;
        for (std::size_t i = 0; i < position; ++i) right = right && mine[i] == token_at(i);
        r.samples.push_back({right ? token_at(position) : -5, 0, {}});
      }
      drafted += step->wanted.size() > 1;
      b.on_reply(step->step, std::move(r));
      for (const SequenceId id : b.take_released()) EXPECT_TRUE(released.insert(id).second);
    }
    std::vector<std::int32_t> drawn;
    for (auto& [id, event] : b.take_events())
      if (auto* t = std::get_if<TokenEvent>(&event)) drawn.push_back(t->sample.token);
    ASSERT_EQ(drawn.size(), wanted);
    for (std::size_t i = 0; i < wanted; ++i) EXPECT_EQ(drawn[i], token_at(12 + i)) << i;
    EXPECT_GT(drafted, 0u);
    EXPECT_LT(steps, wanted) << "guesses save steps";
    EXPECT_EQ(released.size() + b.kept(), fed.size());
  }
}

TEST(Batcher, APrefixThatIsGoneIsComputed) {
  Batcher b({.sequences = 1, .context = 400, .step_rows = 400, .pages = {400, 4}, .prefixes = 1}, 1);
  ASSERT_TRUE(b.admit(request_of(counting(0, 100), 2)));
  while (auto step = b.next_step()) b.on_reply(step->step, reply_to(*step));
  b.take_events();
  ASSERT_EQ(b.kept(), 1u);
  const auto id = b.admit(request_of(counting(0, 150), 2));
  auto step = b.next_step();
  ASSERT_NE(step->sequences[0].from.value, 0u);
  b.on_reply(step->step, fail(Code::not_found, "not here"));
  EXPECT_EQ(b.kept(), 0u);
  step = b.next_step();
  ASSERT_TRUE(step);
  EXPECT_EQ(step->sequences[0].first_position, 0u);
  EXPECT_EQ(step->sequences[0].rows, 150u);
  b.on_reply(step->step, reply_to(*step));
  while ((step = b.next_step())) b.on_reply(step->step, reply_to(*step));
  const auto events = b.take_events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events.back().first, *id);
  EXPECT_EQ(std::get<FinishedEvent>(events.back().second).reason, FinishReason::length);
}

// What belongs to an earlier placement goes on in the next, once that is known; whoever reads sees no gap.
TEST(Batcher, AGenerationOutlivesItsPlacement) {
  Batcher b({.sequences = 2, .context = 100, .step_rows = 100}, 1);
  ASSERT_TRUE(b.admit(request_of(counting(0, 10), 4)));
  auto step = b.next_step();
  b.on_reply(step->step, reply_to(*step, 70));
  step = b.next_step();
  const SequenceId before = step->sequences[0].sequence;
  b.on_reply(step->step, fail(Code::stale, "another epoch"));
  EXPECT_TRUE(b.holds());
  EXPECT_FALSE(b.next_step());
  b.resume();
  EXPECT_FALSE(b.holds());
  step = b.next_step();
  ASSERT_TRUE(step);
  EXPECT_NE(step->sequences[0].sequence, before);
  EXPECT_EQ(step->sequences[0].first_position, 0u);
  EXPECT_EQ(step->tokens, joined(counting(0, 10), {70}));
  for (int i = 0; i < kMostRestarts; ++i) {
    b.on_reply(step->step, fail(Code::stale, "another epoch"));
    b.resume();
    step = b.next_step();
    if (!step) break;
  }
  EXPECT_FALSE(step) << "not for ever";
  const auto events = b.take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<FailedEvent>(events.back().second));
}

// Restarts that are worth a token each are not counted together.
TEST(Batcher, AGenerationOutlivesManyPlacements) {
  Batcher b({.sequences = 2, .context = 100, .step_rows = 100}, 1);
  constexpr int kPlacements = 5 * kMostRestarts;
  ASSERT_TRUE(b.admit(request_of(counting(0, 10), kPlacements + 1)));
  for (int i = 0; i < kPlacements; ++i) {
    auto step = b.next_step();
    ASSERT_TRUE(step) << i;
    b.on_reply(step->step, reply_to(*step, 70 + i));
    step = b.next_step();
    ASSERT_TRUE(step) << i;
    b.on_reply(step->step, fail(Code::stale, "another epoch"));
    b.resume();
  }
  auto step = b.next_step();
  ASSERT_TRUE(step);
  EXPECT_EQ(step->tokens, joined(counting(0, 10), counting(70, kPlacements)));
  b.on_reply(step->step, reply_to(*step));
  EXPECT_TRUE(std::holds_alternative<FinishedEvent>(b.take_events().back().second));
}

// The copy from before a guess may be missing: nodes had no room for it, or gave it away.
TEST(Batcher, AMissingCopyCostsOneRestartAndEndsGuessing) {
  Batcher b({.sequences = 1, .context = 200, .step_rows = 20, .pages = {200, 4}, .drafts = 5}, 1);
  ASSERT_TRUE(b.admit(request_of({1, 2, 3, 4, 1, 2, 3}, 60)));
  std::map<SequenceId, std::uint32_t> at;
  int lost = 0, guessed_after = 0;
  std::vector<std::int32_t> drawn;
  for (int steps = 0; steps < 200; ++steps) {
    auto step = b.next_step();
    if (!step) break;
    const SequenceRows& s = step->sequences[0];
    guessed_after += lost > 0 && step->wanted.size() > 1;
    if (s.first_position != 0 && !at.contains(s.sequence)) {
      ++lost;
      b.on_reply(step->step, fail(Code::not_found, "no attention state here"));
      continue;
    }
    EXPECT_EQ(s.first_position, at[s.sequence]);
    at[s.sequence] += s.rows;
    StepReply r;  // a text that begins to repeat itself, and then does not
    for (const SampledRow& w : step->wanted) {
      const auto p = static_cast<std::int32_t>(w.sample.position);
      r.samples.push_back({p % 5 == 0 ? 9 : 1 + p % 4, 0, {}});
    }
    b.on_reply(step->step, std::move(r));
  }
  for (auto& [id, event] : b.take_events()) {
    EXPECT_FALSE(std::holds_alternative<FailedEvent>(event));
    if (auto* t = std::get_if<TokenEvent>(&event)) drawn.push_back(t->sample.token);
  }
  ASSERT_EQ(drawn.size(), 60u);
  for (std::int32_t p = 7; p < 67; ++p) EXPECT_EQ(drawn[static_cast<std::size_t>(p - 7)], p % 5 == 0 ? 9 : 1 + p % 4);
  EXPECT_EQ(lost, 1);
  EXPECT_EQ(guessed_after, 0);
}

TEST(Batcher, WhoFindsNoRoomWaitsForIt) {
  using std::chrono::seconds;
  Batcher b({.sequences = 2, .context = 100, .step_rows = 100, .pages = {100, 4}}, 1);
  Nanos now = seconds(1000);
  b.set_time(now);
  ASSERT_TRUE(b.admit(request_of(counting(0, 10), 3)));
  std::set<SequenceId> seen;
  int refusals = 0;
  while (now < seconds(1000) + kBusyPatience / 2) {
    auto step = b.next_step();
    ASSERT_TRUE(step);
    EXPECT_TRUE(seen.insert(step->sequences[0].sequence).second) << "parts of it may have begun somewhere";
    EXPECT_EQ(step->sequences[0].first_position, 0u);
    b.on_reply(step->step, fail(Code::busy, "no room for another sequence"));
    ++refusals;
    EXPECT_FALSE(b.next_step()) << "not at once";
    const auto wakes = b.wakes_at();
    ASSERT_TRUE(wakes);
    EXPECT_GT(*wakes, now);
    EXPECT_LE(*wakes, now + kLongestPause);
    EXPECT_EQ(b.take_released().size(), 1u);
    b.set_time(now = *wakes);
    EXPECT_FALSE(b.wakes_at());
  }
  EXPECT_GT(refusals, 100);
  while (auto step = b.next_step()) b.on_reply(step->step, reply_to(*step));
  auto events = b.take_events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_TRUE(std::holds_alternative<FinishedEvent>(events.back().second));

  // Not for ever.
  b.set_time(now);
  const Nanos begun = now;
  ASSERT_TRUE(b.admit(request_of(counting(0, 10), 3)));
  while (auto step = b.next_step()) {
    b.on_reply(step->step, fail(Code::busy, "no room for another sequence"));
    if (const auto wakes = b.wakes_at()) b.set_time(now = *wakes);
  }
  events = b.take_events();
  ASSERT_EQ(events.size(), 1u);
  const Error& error = std::get<FailedEvent>(events[0].second).error;
  EXPECT_EQ(error.code, Code::busy);
  EXPECT_EQ(error.message,
            "waited 60 s for room on the nodes, which all gateways of this fleet share: no room for another sequence");
  EXPECT_GE(now, begun + kBusyPatience);
  EXPECT_LE(now, begun + kBusyPatience + kLongestPause);
  EXPECT_EQ(b.running(), 0u);
}

// Whoever is refused begins by itself, before those that came later; those that run go on.
TEST(Batcher, ARefusalIsNotTheOthers) {
  Batcher b({.sequences = 4, .context = 100, .step_rows = 100, .pages = {100, 8}}, 1);
  Nanos now = std::chrono::seconds(1000);
  b.set_time(now);
  const auto first_token = [](const Step& s) { return s.tokens.front(); };
  ASSERT_TRUE(b.admit(request_of(counting(0, 10), 50)));
  auto step = b.next_step();
  b.on_reply(step->step, reply_to(*step));
  ASSERT_TRUE(b.admit(request_of(counting(100, 10), 5)));
  step = b.next_step();
  ASSERT_EQ(step->sequences.size(), 2u);
  b.on_reply(step->step, fail(Code::busy, "no room"));
  step = b.next_step();
  ASSERT_TRUE(step);
  EXPECT_EQ(first_token(*step), 0) << "at once: it had its room";
  EXPECT_EQ(step->sequences.size(), 1u);
  b.on_reply(step->step, reply_to(*step));
  ASSERT_TRUE(b.admit(request_of(counting(200, 10), 5)));
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 2; ++j) {
      step = b.next_step();
      ASSERT_TRUE(step);
      EXPECT_EQ(step->sequences.size(), 1u);
      EXPECT_GT(step->sequences[0].first_position, 0u) << "the one that runs, alone";
      b.on_reply(step->step, reply_to(*step));
    }
    ASSERT_TRUE(b.wakes_at());
    b.set_time(now = *b.wakes_at());
    step = b.next_step();
    ASSERT_TRUE(step);
    EXPECT_EQ(step->sequences.size(), 1u);
    EXPECT_EQ(first_token(*step), 100);
    b.on_reply(step->step, fail(Code::busy, "no room"));
  }
  b.set_time(now = *b.wakes_at());
  step = b.next_step();
  EXPECT_EQ(first_token(*step), 100);
  b.on_reply(step->step, reply_to(*step));
  step = b.next_step();
  EXPECT_EQ(first_token(*step), 200) << "its turn";
  EXPECT_EQ(step->sequences.size(), 1u);
  b.on_reply(step->step, reply_to(*step));
  step = b.next_step();
  EXPECT_EQ(step->sequences.size(), 3u);
  b.on_reply(step->step, reply_to(*step));
  for (const auto& [id, event] : b.take_events()) EXPECT_TRUE(std::holds_alternative<TokenEvent>(event));
}

TEST(Batcher, OneSequencesErrorIsNotTheOthers) {
  Batcher b({.sequences = 3, .context = 100, .step_rows = 100, .pages = {100, 3}}, 1);
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(*b.admit(request_of(counting(100 * i, 10), 4)));
  const std::int32_t culprit = 100;  // the first token of the second
  std::map<std::uint64_t, std::vector<std::int32_t>> tokens;
  std::map<std::uint64_t, bool> failed;
  for (int rounds = 0; rounds < 100; ++rounds) {
    auto step = b.next_step();
    if (!step) break;
    bool bad = false;
    for (std::size_t at = 0, i = 0; i < step->sequences.size(); at += step->sequences[i++].rows)
      bad = bad || (step->sequences[i].first_position == 0 && step->tokens[at] == culprit && rounds >= 1) ||
            (rounds == 1 && step->sequences.size() > 1);
    if (bad)
      b.on_reply(step->step, fail(Code::internal, "a value is not finite"));
    else
      b.on_reply(step->step, reply_to(*step));
    for (auto& [id, event] : b.take_events()) {
      if (auto* t = std::get_if<TokenEvent>(&event)) tokens[id].push_back(t->sample.token);
      if (std::holds_alternative<FailedEvent>(event)) failed[id] = true;
    }
  }
  EXPECT_EQ(b.running(), 0u);
  EXPECT_EQ(tokens[ids[0]].size(), 4u);
  EXPECT_EQ(tokens[ids[2]].size(), 4u);
  EXPECT_TRUE(failed[ids[1]]);
  EXPECT_EQ(failed.size(), 1u);
}

TEST(Batcher, PagesAreSetAsideForTheWholeOfASequence) {
  Batcher b({.sequences = 4, .context = 100, .step_rows = 100, .pages = {10, 12}}, 1);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(b.admit(request_of(counting(0, 20), 30)));  // five pages each
  auto step = b.next_step();
  ASSERT_TRUE(step);
  EXPECT_EQ(step->sequences.size(), 2u) << "of twelve pages";
  EXPECT_EQ(b.waiting(), 2u);
}

// What a node's pool does: pages are shared by copies until somebody writes to them.
class Pool {
 public:
  explicit Pool(std::uint32_t positions) : positions_(positions) {}
  void step(const SequenceRows& s) {
    if (s.from.value != 0 && !tables_.contains(s.sequence)) copy(s.from, s.first_position, s.sequence);
    if (s.keep.value != 0) copy(s.sequence, s.first_position, s.keep);
    auto& mine = tables_[s.sequence];
    for (std::size_t i = s.first_position / positions_; i * positions_ < s.first_position + s.rows; ++i) {
      if (i < mine.size() && users_[mine[i]] == 1) continue;
      if (i < mine.size()) --users_[mine[i]];
      if (i >= mine.size()) mine.push_back(0);
      mine[i] = ++last_;
      users_[last_] = 1;
    }
  }
  void release(SequenceId id) {
    for (const auto page : tables_[id]) --users_[page];
    tables_.erase(id);
  }
  [[nodiscard]] std::size_t used() {
    std::erase_if(users_, [](const auto& u) { return u.second == 0; });
    return users_.size();
  }

 private:
  void copy(SequenceId from, std::uint32_t position, SequenceId to) {
    auto table = tables_[from];
    table.resize(std::min<std::size_t>(table.size(), (position + positions_ - 1) / positions_));
    for (const auto page : table) ++users_[page];
    tables_[to] = table;
  }
  std::uint32_t positions_;
  std::uint64_t last_ = 0;
  std::map<SequenceId, std::vector<std::uint64_t>> tables_;
  std::map<std::uint64_t, int> users_;
};

// Random arrivals, replies, failures and cancels: every request ends exactly once, positions are consecutive, rows
// never exceed the step, and every sequence is released once.
TEST(Batcher, Property) {
  const std::uint64_t seed = std::random_device{}();
  CounterRandom random(seed);
  SCOPED_TRACE(seed);
  Batcher b({3, 64, 10, 2, 8, {16, 4 + random.below(12)}, 2, 3}, 500);
  std::map<std::uint64_t, int> ended;
  std::map<SequenceId, std::uint32_t> position, copies;
  std::vector<Step> in_flight;
  std::set<SequenceId> released;
  std::vector<std::uint64_t> ids;
  Pool pool(16);
  Nanos now = std::chrono::seconds(1);
  const auto drain = [&] {
    for (auto& [id, event] : b.take_events())
      if (!std::holds_alternative<TokenEvent>(event)) ++ended[id];
    for (const auto s : b.take_released()) {
      EXPECT_TRUE(released.insert(s).second);
      pool.release(s);
    }
  };
  for (int round = 0; round < 3000; ++round) {
    const auto what = random.below(10);
    if (what < 2 && round < 2500) {
      auto r = request(1 + random.below(40), static_cast<std::uint32_t>(1 + random.below(24)));
      r.prompt.front() = static_cast<std::int32_t>(random.below(2));
      if (const auto id = b.admit(std::move(r))) ids.push_back(*id);
    } else if (what == 2 && !ids.empty()) {
      b.cancel(ids[random.below(ids.size())]);
    } else if (what < 6 && !in_flight.empty()) {
      const std::size_t i = random.below(in_flight.size());
      const Step step = in_flight[i];
      in_flight.erase(in_flight.begin() + static_cast<std::ptrdiff_t>(i));
      constexpr std::array kErrors{Code::unavailable, Code::internal, Code::busy, Code::not_found, Code::stale};
      b.set_time(now += std::chrono::milliseconds(random.below(random.below(50) == 0 ? 30000 : 30)));
      if (random.below(4) == 0) b.resume();
      if (const auto bad = random.below(40); bad < kErrors.size())
        b.on_reply(step.step, fail(kErrors[bad], "lost"));
      else
        b.on_reply(step.step, reply_to(step));
    } else if (auto step = b.next_step()) {
      EXPECT_LE(step->tokens.size(), 10u);
      drain();  // what is given up before a step is gone when it comes
      for (const auto& s : step->sequences) pool.step(s);
      EXPECT_LE(pool.used(), b.limits().pages.count);
      for (const auto& s : step->sequences) {
        EXPECT_FALSE(released.contains(s.sequence));
        if (s.from.value != 0 && position[s.sequence] == 0) {
          EXPECT_TRUE(copies.contains(s.from) && !released.contains(s.from));
          EXPECT_EQ(copies[s.from], s.first_position);
          position[s.sequence] = s.first_position;
        }
        if (s.keep.value != 0) copies[s.keep] = position[s.keep] = s.first_position;
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
    b.resume();
    if (const auto wakes = b.wakes_at()) b.set_time(*wakes);
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
