// Which rows go into the next step: requests wait, run, are batched, prefill in chunks beside others' decoding, and
// end. A state machine: it is told what happened, it gives steps and events; it owns no thread, socket or clock.
//
// Prefixes: nodes keep copies of some prompts' states (SequenceRows::keep), and a request whose prompt begins with one
// of them begins there (SequenceRows::from). A recurrent state cannot be cut back, so where copies are made is chosen
// beforehand: before the prompt's last token, since the same prompt may come again, whose first answer is drawn from
// what that token gives, and the next turn of a chat begins with it; and where it parts from an earlier prompt, since
// whatever both begin with is likely to come again. So the last token of a new prompt has a step of its own. What a
// copy gives are the bits that computing would.
//
// Drafts: where the last tokens of a text stood in it before, those that followed are guessed to follow again. They go
// into the step beside the token that is due, each row is sampled, and as many samples stand as the guesses before them
// were right: the tokens are those that would have been drawn one by one. Before the rows the state is copied; if a
// guess was wrong, the sequence goes on as that copy, and the tokens that stand are fed again with the next step.
//
// A step that fails because of one of its sequences is not the others' failure: each starts again by itself, from the
// tokens that it has, so that nobody sees it but the one whose fault it is. So does everybody whose state is gone with
// an earlier placement.
//
// Nodes may serve other gateways too, so that one of them may have no room for a sequence that begins, or have given a
// copy's room to somebody (PartExecutor). Whoever is refused waits for a moment that doubles, up to kBusyPatience
// for a token; those of its gateway that came later begin after it. While that goes on (crowded()) sequences begin
// in steps of their own, so that a refusal costs the others nothing, and nothing is guessed.
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
  CachePages pages{4096, 4};          // of all running sequences and kept prefixes together
  std::uint32_t prefixes = 0;         // that are kept at most
  std::uint32_t drafts = 0;           // guessed tokens of a step and sequence, at most
};
inline constexpr std::size_t kLeastPrefix = 32;       // tokens that are worth a copy, beyond what a kept one has
inline constexpr std::size_t kRememberedPrompts = 8;  // to find out where prompts part
inline constexpr int kMostRestarts = 3;               // without a token between them
inline constexpr Nanos kBusyPatience = std::chrono::seconds(60);
inline constexpr Nanos kFirstPause = std::chrono::milliseconds(10);  // of whoever was refused for want of room
// Less than kWaitingLasts of the nodes, so that they know who waits.
inline constexpr Nanos kLongestPause = std::chrono::milliseconds(100);
inline constexpr Nanos kCrowdedFor = std::chrono::seconds(20);  // after the last refusal or loss of a state
inline constexpr std::uint64_t kDraftPages = 2;  // that a sequence and its copy before a guess do not share, at most
inline constexpr std::size_t kDraftingSequences = 2;  // with more that run, steps have rows enough without guesses

class Batcher {
 public:
  // `first_sequence`: where sequence ids begin; random high bits (gateway_of) keep two gateways apart.
  Batcher(BatcherLimits limits, std::uint64_t first_sequence) : limits_(limits), next_sequence_(first_sequence) {}

  // The present time, before next_step() and on_reply(). Whoever drives this comes back at wakes_at(), if there is one,
  // for steps that can go then.
  void set_time(Nanos now) { now_ = now; }
  [[nodiscard]] std::optional<Nanos> wakes_at() const;

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

  // Whether generations are held back because the placement that their step met is not the present one; and that they
  // go on now, from the tokens that they have.
  [[nodiscard]] bool holds() const;
  void resume();

  // With a new placement the copies are gone.
  void forget_prefixes();

  // What happened since the last call, in order; and sequences whose state nobody needs any more.
  std::vector<std::pair<std::uint64_t, GenerationEvent>> take_events() { return std::exchange(events_, {}); }
  std::vector<SequenceId> take_released() { return std::exchange(released_, {}); }

  void set_limits(BatcherLimits limits) { limits_ = limits; }
  [[nodiscard]] const BatcherLimits& limits() const { return limits_; }
  [[nodiscard]] std::size_t kept() const { return kept_.size(); }
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
    std::uint32_t kept = 0;            // tokens of the prompt that a kept prefix had
    SequenceId from;                   // the kept prefix that it begins as, until its first step is back
    std::vector<std::size_t> keep_at;  // positions where a copy of its state is to be made, ascending
    bool alone = false;                // its next step is its own
    SequenceId before_draft;           // the copy that was made before the guesses that are under way
    std::vector<std::int32_t> draft;   // those
    std::size_t computed_before = 0;   // positions of that copy
    int draft_credit = 2;              // guesses are left alone for a while when none was right of late
    std::size_t draft_again = 0;       // tokens, when they are tried again
    bool held = false;                 // until resume()
    int restarts = 0;                  // since the last token

    std::optional<Nanos> refused_since;  // it waits for room at the nodes
    Nanos again_at{};                    // then its next step may go
    Nanos pause{}, waited{};             // the last one; and all before refused_since; since the last token

    [[nodiscard]] bool begins() const { return computed == 0 || from.value != 0; }  // the nodes have no state of it
    [[nodiscard]] std::uint64_t longest() const { return std::uint64_t{request.prompt.size()} + request.max_tokens; }
  };
  struct Kept {
    SequenceId sequence;
    std::vector<std::int32_t> tokens;
    std::uint64_t used = 0;
  };
  struct Flight {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> rows;  // generation, rows of it
    std::vector<std::pair<std::uint64_t, std::size_t>>
        sampled;             // generations and samples, in the order of Step::wanted
    std::vector<Kept> kept;  // copies that it makes
  };
  void start_waiting();
  [[nodiscard]] std::uint64_t pages_taken() const;
  [[nodiscard]] bool has_room_for(const GenerationRequest& request);
  void use_prefixes(Generation& g);
  // But the one that is named, and those that somebody is about to begin as. False if there is none.
  bool forget_oldest_prefix(SequenceId but);
  [[nodiscard]] bool crowded() const { return now_ < crowded_until_; }
  // Whether its next step may go: it is not under way, held or waiting for room, nor does somebody who came earlier.
  [[nodiscard]] bool can_go(std::uint64_t id, const Generation& g) const;
  // Of the step's failure.
  void fail_or_restart(std::uint64_t id, const Error& error, bool shared);
  void finish(std::uint64_t id, GenerationEvent event);
  void on_sample(std::uint64_t id, Sample sample);
  [[nodiscard]] static std::vector<std::int32_t> guess(const Generation& g, std::size_t most);
  void settle_draft(std::uint64_t id, std::size_t right);

  BatcherLimits limits_;
  std::uint64_t next_sequence_;
  std::uint64_t last_generation_ = 0, last_step_ = 0, last_served_ = 0;
  Nanos now_{}, crowded_until_{};
  std::deque<std::pair<std::uint64_t, GenerationRequest>> waiting_;
  std::map<std::uint64_t, Generation> active_;  // in order of arrival
  std::map<std::uint64_t, Flight> flights_;
  std::vector<Kept> kept_;
  std::deque<std::vector<std::int32_t>> prompts_;  // recent ones
  std::uint64_t uses_ = 0;
  std::vector<std::pair<std::uint64_t, GenerationEvent>> events_;
  std::vector<SequenceId> released_;
};

}  // namespace myriad
