#include "engine/batcher.h"

#include <algorithm>

namespace myriad {

Result<std::uint64_t> Batcher::admit(GenerationRequest request) {
  const std::size_t prompt = request.prompt.size();
  if (prompt == 0) return fail(Code::invalid_argument, "the prompt has no tokens; give at least one");
  if (request.max_tokens == 0) return fail(Code::invalid_argument, "max_tokens is 0; ask for at least one token");
  if (prompt > limits_.context || request.max_tokens > limits_.context - prompt)
    return fail(
        Code::limit,
        "the prompt has {} tokens and up to {} more are asked for, {} in all; the context budget of one sequence is {}",
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

std::optional<Step> Batcher::next_step() {
  while (!waiting_.empty() && active_.size() < limits_.sequences) {
    auto& [id, request] = waiting_.front();
    Generation g;
    g.tokens = request.prompt;
    g.request = std::move(request);
    g.sequence = {next_sequence_++};
    active_.emplace(id, std::move(g));
    waiting_.pop_front();
  }
  if (flights_.size() >= limits_.steps_in_flight) return std::nullopt;

  Step step;
  Flight flight;
  std::uint32_t room = limits_.step_rows;
  const auto add = [&](std::uint64_t id, Generation& g, std::size_t rows) {
    const std::size_t first = g.computed;
    step.sequences.push_back({g.sequence, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(rows)});
    step.tokens.insert(step.tokens.end(), g.tokens.begin() + static_cast<std::ptrdiff_t>(first),
                       g.tokens.begin() + static_cast<std::ptrdiff_t>(first + rows));
    if (first + rows == g.tokens.size()) {
      SampleSpec spec = g.request.sample;
      spec.position = static_cast<std::uint32_t>(g.tokens.size());
      step.wanted.push_back({static_cast<std::uint16_t>(step.tokens.size() - 1), HeadWant::candidates, spec});
      flight.sampled.push_back(id);
    }
    flight.rows.emplace_back(id, static_cast<std::uint32_t>(rows));
    room -= static_cast<std::uint32_t>(rows);
  };
  // Those that wait for their next token first, one row each; then prompts share what room is left. Whoever was served
  // last in the step before comes last in this one, so that nobody starves when a step has room for few.
  const auto after = active_.upper_bound(last_served_);
  const auto serve = [&](bool decoding, auto from, auto to) {
    for (auto it = from; it != to && room > 0; ++it) {
      auto& [id, g] = *it;
      const std::size_t left = g.tokens.size() - g.computed;
      if (g.step == 0 && (left == 1) == decoding) add(id, g, std::min<std::size_t>(left, room));
    }
  };
  for (const bool decoding : {true, false}) {
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
  active_.erase(it);
}

void Batcher::on_sample(std::uint64_t id, Sample sample) {
  Generation& g = active_.at(id);
  const auto& r = g.request;
  const std::int32_t token = sample.token;
  g.tokens.push_back(token);
  const auto drawn = static_cast<std::uint32_t>(g.tokens.size() - r.prompt.size());
  const auto prompt = static_cast<std::uint32_t>(r.prompt.size());
  if (std::find(r.stop_tokens.begin(), r.stop_tokens.end(), token) != r.stop_tokens.end())
    return finish(id, FinishedEvent{FinishReason::stop, prompt, drawn});
  events_.emplace_back(id, TokenEvent{std::move(sample)});
  if (drawn >= r.max_tokens) finish(id, FinishedEvent{FinishReason::length, prompt, drawn});
}

void Batcher::on_reply(std::uint64_t step, Result<StepReply> reply) {
  const auto it = flights_.find(step);
  if (it == flights_.end()) return;
  const Flight flight = std::move(it->second);
  flights_.erase(it);
  if (reply && reply->samples.size() != flight.sampled.size())
    reply = fail(Code::corrupt, "a step of {} sampled rows was answered with {} samples", flight.sampled.size(),
                 reply->samples.size());
  for (const auto& [id, rows] : flight.rows) {
    Generation& g = active_.at(id);
    g.step = 0;
    g.computed += rows;
    if (g.cancelled)
      finish(id, FinishedEvent{});
    else if (!reply)
      finish(id, FailedEvent{reply.error()});
  }
  if (!reply) return;
  for (std::size_t i = 0; i < flight.sampled.size(); ++i)
    if (active_.contains(flight.sampled[i])) on_sample(flight.sampled[i], std::move(reply->samples[i]));
}

}  // namespace myriad
