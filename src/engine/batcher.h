// Which rows go into the next step: requests wait, run, are batched, prefill in chunks beside others' decoding, and
// end. A state machine: it is told what happened, it gives steps and events; it owns no thread, socket or clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/generation.h"
#include "proto/messages.h"

namespace myriad {

struct BatcherLimits {
  std::uint32_t sequences = 4;        // that run at once
  std::uint32_t context = 4096;       // positions of one sequence
  std::uint32_t step_rows = 64;       // rows of a step
  std::uint32_t steps_in_flight = 1;  // as many as the pipeline has stages
  std::uint32_t queue = 64;           // requests that may wait
};

class Batcher {
 public:
  // `first_sequence`: where sequence ids begin; random high bits keep two gateways apart.
  Batcher(BatcherLimits limits, std::uint64_t first_sequence) : limits_(limits), next_sequence_(first_sequence) {}

  // Takes a request. Errors: invalid_argument (empty prompt, no tokens wanted), limit (over the context budget), busy
  // (queue full).
  Result<std::uint64_t> admit(GenerationRequest request);
  // Its FinishedEvent (cancelled) comes at once; a step that is under way with it alone is returned, for the pipeline
  // to stop.
  std::optional<std::uint64_t> cancel(std::uint64_t generation);
  // The next step, or nothing while all that can run is in flight. Step::epoch is the pipeline's to fill in.
  std::optional<Step> next_step();
  // Of a step that next_step() gave.
  void on_reply(std::uint64_t step, Result<StepReply> reply);

  // What happened since the last call, in order; and sequences whose state nobody needs any more.
  std::vector<std::pair<std::uint64_t, GenerationEvent>> take_events() { return std::exchange(events_, {}); }
  std::vector<SequenceId> take_released() { return std::exchange(released_, {}); }

  void set_limits(BatcherLimits limits) { limits_ = limits; }
  [[nodiscard]] const BatcherLimits& limits() const { return limits_; }
  [[nodiscard]] std::size_t running() const { return active_.size(); }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }

 private:
  struct Generation {
    GenerationRequest request;
    SequenceId sequence;
    std::vector<std::int32_t> tokens;  // prompt and what was drawn
    std::size_t computed = 0;          // positions that are in the attention state
    std::uint64_t step = 0;            // that it is in; 0 none
    bool cancelled = false;
  };
  struct Flight {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> rows;  // generation, rows of it
    std::vector<std::uint64_t> sampled;                         // generations in the order of Step::wanted
  };
  void finish(std::uint64_t id, GenerationEvent event);
  void on_sample(std::uint64_t id, Sample sample);

  BatcherLimits limits_;
  std::uint64_t next_sequence_;
  std::uint64_t last_generation_ = 0, last_step_ = 0, last_served_ = 0;
  std::deque<std::pair<std::uint64_t, GenerationRequest>> waiting_;
  std::map<std::uint64_t, Generation> active_;  // in order of arrival
  std::map<std::uint64_t, Flight> flights_;
  std::vector<std::pair<std::uint64_t, GenerationEvent>> events_;
  std::vector<SequenceId> released_;
};

}  // namespace myriad
