#include "engine/batcher.h"

#include <algorithm>

#include "base/random.h"

namespace myriad {

Result<std::uint64_t> Batcher::admit(GenerationRequest request) {
  const std::size_t prompt = request.prompt.size();
  if (prompt == 0) return fail(Code::invalid_argument, "the prompt has no tokens; give at least one");
  if (request.max_tokens == 0) return fail(Code::invalid_argument, "max_tokens is 0; ask for at least one token");
  if (prompt > limits_.context || request.max_tokens > limits_.context - prompt)
    return fail(
        Code::limit,
        "the prompt has {} tokens and up to {} more are asked for, {} in all; the context budget of one sequence is "
        "{}: ask for fewer, or give the fleet more --context",
        prompt, request.max_tokens, prompt + request.max_tokens, limits_.context);
  if (waiting_.size() >= limits_.queue)
    return fail(Code::busy, "{} requests run and {} wait, which is as many as may; try again later", active_.size(),
                waiting_.size());
  waiting_.emplace_back(++last_generation_, std::move(request));
  return last_generation_;
}

std::optional<std::uint64_t> Batcher::cancel(std::uint64_t generation) {
  const auto cancelled = [](std::size_t prompt, std::size_t drawn) {
    return FinishedEvent{FinishReason::cancelled, static_cast<std::uint32_t>(prompt),
                         static_cast<std::uint32_t>(drawn)};
  };
  const auto queued =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& w) { return w.first == generation; });
  if (queued != waiting_.end()) {
    events_.emplace_back(generation, cancelled(queued->second.prompt.size(), 0));
    waiting_.erase(queued);
    return std::nullopt;
  }
  const auto it = active_.find(generation);
  if (it == active_.end() || it->second.cancelled) return std::nullopt;
  Generation& g = it->second;
  const auto event = cancelled(g.request.prompt.size(), g.tokens.size() - g.request.prompt.size());
  if (g.step == 0) {
    finish(generation, event);
    return std::nullopt;
  }
  // Its rows are under way: the state may be given up only when they are back.
  g.cancelled = true;
  events_.emplace_back(generation, event);
  return flights_.at(g.step).rows.size() == 1 ? std::optional(g.step) : std::nullopt;
}

bool Batcher::forget_oldest_prefix(SequenceId but) {
  auto oldest = kept_.end();
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    const bool needed = it->sequence == but ||
                        std::ranges::any_of(active_, [&](const auto& a) { return a.second.from == it->sequence; });
    if (!needed && (oldest == kept_.end() || it->used < oldest->used)) oldest = it;
  }
  if (oldest == kept_.end()) return false;
  released_.push_back(oldest->sequence);
  kept_.erase(oldest);
  return true;
}

// Pages are set aside for the longest that a sequence can become and for every copy, as if none were shared, so that
// none runs out of them half-way.
std::uint64_t Batcher::pages_taken() const {
  const CachePages& pages = limits_.pages;
  std::uint64_t taken = 0;
  for (const auto& [id, g] : active_) {
    taken += pages.for_positions(g.longest());
    for (const std::size_t at : g.keep_at) taken += pages.for_positions(at);
    if (g.before_draft.value != 0) taken += kDraftPages;
  }
  for (const auto& [step, flight] : flights_)
    for (const Kept& k : flight.kept) taken += pages.for_positions(k.tokens.size());
  for (const Kept& k : kept_) taken += pages.for_positions(k.tokens.size());
  return taken;
}

bool Batcher::has_room_for(const GenerationRequest& request) {
  const std::uint64_t wanted = limits_.pages.for_positions(std::uint64_t{request.prompt.size()} + request.max_tokens);
  while (pages_taken() + wanted > limits_.pages.count && forget_oldest_prefix({})) {
  }
  return active_.empty() || pages_taken() + wanted <= limits_.pages.count;
}

void Batcher::use_prefixes(Generation& g) {
  if (limits_.prefixes == 0) return;
  const std::vector<std::int32_t>& prompt = g.request.prompt;
  const auto shared = [&](const std::vector<std::int32_t>& other) {
    return static_cast<std::size_t>(std::mismatch(prompt.begin(), prompt.end(), other.begin(), other.end()).first -
                                    prompt.begin());
  };
  Kept* best = nullptr;
  for (Kept& k : kept_)
    if (k.tokens.size() < prompt.size() && shared(k.tokens) == k.tokens.size() &&
        (best == nullptr || k.tokens.size() > best->tokens.size()))
      best = &k;
  if (best != nullptr) {
    best->used = ++uses_;
    g.from = best->sequence;
    g.computed = best->tokens.size();
    g.kept = static_cast<std::uint32_t>(g.computed);
  }
  std::size_t parts_at = 0;
  for (const auto& other : prompts_) parts_at = std::max(parts_at, std::min(shared(other), prompt.size() - 1));
  prompts_.push_back(prompt);
  if (prompts_.size() > kRememberedPrompts) prompts_.pop_front();

  std::size_t room = limits_.prefixes - (best != nullptr ? 1 : 0);
  for (const auto& [id, other] : active_) room -= std::min(room, other.keep_at.size());
  std::size_t have = g.computed;
  for (const std::size_t at : {parts_at, prompt.size() - 1})
    if (at >= have + kLeastPrefix) g.keep_at.push_back(have = at);
  if (g.keep_at.size() > room) g.keep_at.erase(g.keep_at.begin(), g.keep_at.end() - static_cast<std::ptrdiff_t>(room));
  std::uint64_t taken = pages_taken() + limits_.pages.for_positions(g.longest());
  std::erase_if(g.keep_at, [&](std::size_t at) {
    const std::uint64_t more = limits_.pages.for_positions(at);
    if (taken + more > limits_.pages.count) return true;
    taken += more;
    return false;
  });
  // Room is made now, long before the copy: the nodes hear of it in time.
  std::size_t planned = g.keep_at.size();
  for (const auto& [id, other] : active_) planned += other.keep_at.size();
  while (kept_.size() + planned > limits_.prefixes && forget_oldest_prefix(g.from)) {
  }
}

void Batcher::start_waiting() {
  while (!waiting_.empty() && active_.size() < limits_.sequences && has_room_for(waiting_.front().second)) {
    auto& [id, request] = waiting_.front();
    Generation g;
    g.tokens = request.prompt;
    g.request = std::move(request);
    g.sequence = {next_sequence_++};
    use_prefixes(g);
    g.alone = crowded();
    active_.emplace(id, std::move(g));
    waiting_.pop_front();
  }
}

bool Batcher::can_go(std::uint64_t id, const Generation& g) const {
  if (g.step != 0 || g.held || g.again_at > now_) return false;
  const auto earlier = [&](const auto& a) { return a.first < id && a.second.refused_since; };
  return !g.begins() || std::ranges::none_of(active_, earlier);
}

std::optional<Nanos> Batcher::wakes_at() const {
  std::optional<Nanos> at;
  for (const auto& [id, g] : active_)
    if (g.step == 0 && !g.held && g.again_at > now_) at = std::min(at.value_or(g.again_at), g.again_at);
  return at;
}

// What followed the last tokens where they stood before, the latest such place, with the longest run first.
std::vector<std::int32_t> Batcher::guess(const Generation& g, std::size_t most) {
  constexpr std::size_t kLongest = 4, kShortest = 2;
  const auto& t = g.tokens;
  for (std::size_t n = kLongest; n >= kShortest && most > 0; --n) {
    if (t.size() < n + 1) continue;
    const auto last = t.end() - static_cast<std::ptrdiff_t>(n);
    for (auto at = last; at != t.begin();) {
      --at;
      if (!std::equal(last, t.end(), at)) continue;
      const auto from = at + static_cast<std::ptrdiff_t>(n);
      const auto count = std::min<std::ptrdiff_t>(t.end() - from, static_cast<std::ptrdiff_t>(most));
      return {from, from + count};
    }
  }
  return {};
}

// Of the guesses that are under way `right` were, from the first on.
void Batcher::settle_draft(std::uint64_t id, std::size_t right) {
  const auto it = active_.find(id);
  if (it == active_.end()) return;
  Generation& g = it->second;
  if (g.draft.empty()) return;
  g.draft_credit = right == 0 ? g.draft_credit - 1 : std::min(g.draft_credit + 1, 4);
  if (g.draft_credit <= 0) {
    constexpr std::size_t kPause = 24;
    g.draft_again = g.tokens.size() + kPause;
    g.draft_credit = 1;
  }
  if (right < g.draft.size()) {
    std::swap(g.sequence, g.before_draft);
    g.computed = g.computed_before;
  }
  released_.push_back(std::exchange(g.before_draft, {}));
  g.draft.clear();
}

std::optional<Step> Batcher::next_step() {
  start_waiting();
  if (flights_.size() >= limits_.steps_in_flight) return std::nullopt;

  Step step;
  Flight flight;
  std::uint32_t room = limits_.step_rows;
  const auto add = [&](std::uint64_t id, Generation& g, std::size_t rows) {
    const std::size_t first = g.computed;
    SequenceRows slice{g.sequence, static_cast<std::uint32_t>(first), 0, g.from, {}};
    if (!g.keep_at.empty() && first == g.keep_at.front()) {
      g.keep_at.erase(g.keep_at.begin());
      slice.keep = {next_sequence_++};
      flight.kept.push_back(
          {slice.keep, {g.tokens.begin(), g.tokens.begin() + static_cast<std::ptrdiff_t>(first)}, ++uses_});
    }
    if (!g.keep_at.empty()) rows = std::min(rows, g.keep_at.front() - first);
    slice.rows = static_cast<std::uint32_t>(rows);
    step.sequences.push_back(slice);
    step.tokens.insert(step.tokens.end(), g.tokens.begin() + static_cast<std::ptrdiff_t>(first),
                       g.tokens.begin() + static_cast<std::ptrdiff_t>(first + rows));
    if (first + rows == g.tokens.size()) {
      const std::size_t drawn = g.tokens.size() - g.request.prompt.size();
      if (drawn > 0 && slice.keep.value == 0 && !crowded() && active_.size() <= kDraftingSequences &&
          g.tokens.size() >= g.draft_again && pages_taken() + kDraftPages <= limits_.pages.count)
        g.draft = guess(g, std::min({std::size_t{limits_.drafts}, g.request.max_tokens - drawn - 1, room - rows}));
      if (!g.draft.empty()) {
        g.before_draft = {next_sequence_++};
        g.computed_before = first;
        step.sequences.back().keep = g.before_draft;
        step.sequences.back().rows += static_cast<std::uint32_t>(g.draft.size());
        step.tokens.insert(step.tokens.end(), g.draft.begin(), g.draft.end());
      }
      const std::size_t last = step.tokens.size() - 1 - g.draft.size();
      for (std::size_t i = 0; i <= g.draft.size(); ++i) {
        SampleSpec spec = g.request.sample;
        spec.position = static_cast<std::uint32_t>(g.tokens.size() + i);
        step.wanted.push_back({static_cast<std::uint16_t>(last + i), HeadWant::candidates, spec});
      }
      flight.sampled.emplace_back(id, 1 + g.draft.size());
      rows += g.draft.size();
    }
    flight.rows.emplace_back(id, static_cast<std::uint32_t>(rows));
    room -= static_cast<std::uint32_t>(rows);
  };
  // Those that wait for their next token first, one row each; then prompts share what room is left. Whoever was served
  // last in the step before comes last in this one, so that nobody starves when a step has room for few.
  const auto alone =
      std::ranges::find_if(active_, [&](const auto& a) { return a.second.alone && can_go(a.first, a.second); });
  if (alone != active_.end())
    add(alone->first, alone->second, std::min<std::size_t>(alone->second.tokens.size() - alone->second.computed, room));
  const auto after = active_.upper_bound(last_served_);
  const auto serve = [&](bool decoding, auto from, auto to) {
    for (auto it = from; it != to && room > 0; ++it) {
      auto& [id, g] = *it;
      const std::size_t left = g.tokens.size() - g.computed;
      const bool due = g.tokens.size() > g.request.prompt.size() && left <= 1 + std::size_t{kMaxDrafts};
      if (!g.alone && can_go(id, g) && due == decoding) add(id, g, std::min<std::size_t>(left, room));
    }
  };
  for (const bool decoding : {true, false}) {
    if (alone != active_.end()) break;
    serve(decoding, after, active_.end());
    serve(decoding, active_.begin(), after);
  }
  if (flight.rows.empty()) return std::nullopt;
  last_served_ = flight.rows.back().first;
  step.step = ++last_step_;
  for (const auto& [id, rows] : flight.rows) active_.at(id).step = step.step;
  flights_.emplace(step.step, std::move(flight));
  return step;
}

void Batcher::finish(std::uint64_t id, GenerationEvent event) {
  const auto it = active_.find(id);
  if (!it->second.cancelled) events_.emplace_back(id, std::move(event));
  released_.push_back(it->second.sequence);
  if (it->second.before_draft.value != 0) released_.push_back(it->second.before_draft);
  active_.erase(it);
}

void Batcher::on_sample(std::uint64_t id, Sample sample) {
  Generation& g = active_.at(id);
  g.restarts = 0;
  g.waited = g.pause = {};
  const auto& r = g.request;
  const std::int32_t token = sample.token;
  g.tokens.push_back(token);
  const auto drawn = static_cast<std::uint32_t>(g.tokens.size() - r.prompt.size());
  const auto prompt = static_cast<std::uint32_t>(r.prompt.size());
  if (std::find(r.stop_tokens.begin(), r.stop_tokens.end(), token) != r.stop_tokens.end())
    return finish(id, FinishedEvent{FinishReason::stop, prompt, drawn, g.kept});
  events_.emplace_back(id, TokenEvent{std::move(sample), g.kept});
  if (drawn >= r.max_tokens) finish(id, FinishedEvent{FinishReason::length, prompt, drawn, g.kept});
}

void Batcher::fail_or_restart(std::uint64_t id, const Error& error, bool shared) {
  Generation& g = active_.at(id);
  bool again = false, waits = false;
  Nanos waited{};
  switch (error.code) {
    case Code::not_found:  // of a prefix, of the copy before a guess, or of the sequence: somebody else has its room
      again = g.restarts < kMostRestarts;
      crowded_until_ = now_ + kCrowdedFor;
      break;
    case Code::stale:
      again = g.restarts < kMostRestarts;
      g.held = true;
      break;
    case Code::busy: {  // whatever is only a convenience makes room
      while (forget_oldest_prefix({})) {
      }
      crowded_until_ = now_ + kCrowdedFor;
      waits = !shared || g.begins();  // otherwise it is the others' fault, it seems
      again = g.restarts < kMostRestarts;
      if (!waits) break;
      if (!g.refused_since) g.refused_since = now_;
      waited = g.waited + now_ - *g.refused_since;
      again = waited < kBusyPatience;
      g.pause = std::clamp(2 * g.pause, kFirstPause, kLongestPause);
      // Two gateways that refused each other do not meet again.
      const auto spread = CounterRandom(g.sequence.value).below(static_cast<std::uint64_t>(g.pause.count() / 2));
      g.again_at = now_ + g.pause - Nanos(static_cast<Nanos::rep>(spread));
      break;
    }
    case Code::limit:
    case Code::invalid_argument:
    case Code::internal:
      again = (shared || g.from.value != 0) && g.restarts < kMostRestarts;
      break;
    default:  // a node is gone: that is everybody's
      break;
  }
  if (!again) {
    Error last = error;
    if (waits)
      last = std::move(last).within(
          fmt::format("waited {:.0f} s for room on the nodes, which all gateways of this fleet share",
                      std::chrono::duration<double>(waited).count()));
    return finish(id, FailedEvent{std::move(last)});
  }
  if (error.code == Code::not_found)
    std::erase_if(kept_, [&](const Kept& k) {
      if (k.sequence == g.from) released_.push_back(k.sequence);
      return k.sequence == g.from;
    });
  released_.push_back(g.sequence);
  if (g.before_draft.value != 0) released_.push_back(std::exchange(g.before_draft, {}));
  if (!g.draft.empty()) g.draft_again = SIZE_MAX;  // the copy may be what failed
  g.draft.clear();
  g.sequence = {next_sequence_++};
  g.computed = 0;
  g.kept = 0;
  g.from = {};
  g.keep_at.clear();
  g.alone = crowded() || (shared && error.code != Code::stale);
  if (!waits) ++g.restarts;
}

bool Batcher::holds() const {
  return std::ranges::any_of(active_, [](const auto& a) { return a.second.held; });
}

void Batcher::forget_prefixes() {
  for (const Kept& k : kept_) released_.push_back(k.sequence);
  kept_.clear();
}

void Batcher::resume() {
  for (auto& [id, g] : active_) g.held = false;
}

void Batcher::on_reply(std::uint64_t step, Result<StepReply> reply) {
  const auto it = flights_.find(step);
  if (it == flights_.end()) return;
  const Flight flight = std::move(it->second);
  flights_.erase(it);
  std::size_t wanted = 0;
  for (const auto& [id, samples] : flight.sampled) wanted += samples;
  if (reply && reply->samples.size() != wanted)
    reply =
        fail(Code::corrupt, "a step of {} sampled rows was answered with {} samples", wanted, reply->samples.size());
  for (const auto& [id, rows] : flight.rows) {
    Generation& g = active_.at(id);
    g.step = 0;
    if (g.cancelled) {
      finish(id, FinishedEvent{});
    } else if (!reply) {
      fail_or_restart(id, reply.error(), flight.rows.size() > 1);
    } else {
      g.computed += rows;
      g.from = {};
      g.alone = false;
      if (g.refused_since) g.waited += now_ - *std::exchange(g.refused_since, {});
    }
  }
  for (const Kept& k : flight.kept) {
    if (reply && kept_.size() < limits_.prefixes)
      kept_.push_back(k);
    else
      released_.push_back(k.sequence);
  }
  if (!reply) return;
  std::size_t at = 0;
  for (const auto& [id, samples] : flight.sampled) {
    std::size_t right = 0;
    for (std::size_t i = 0; i < samples && right == i && active_.contains(id); ++i) {
      const auto& draft = active_.at(id).draft;
      const std::int32_t token = reply->samples[at + i].token;
      if (i < draft.size() && draft[i] == token) ++right;
      on_sample(id, std::move(reply->samples[at + i]));
    }
    settle_draft(id, right);
    at += samples;
  }
}

}  // namespace myriad
