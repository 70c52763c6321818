// Runs the stages that this node leads: takes a step, walks its rows through the half-layers, calls helpers for what it
// does not hold, passes the stream on to the next lead, and answers. A state machine: it is told what happened and says
// what to send; it owns no socket, thread or clock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "engine/part_executor.h"
#include "model/layer.h"
#include "proto/messages.h"

namespace myriad {

inline constexpr std::size_t kMaxStepsInFlight = 256;  // at one lead

// Send this question to node `node` (an index into Assign::nodes); the answer comes back through on_answer(call, …).
struct SendQuestion {
  std::uint64_t call = 0;
  std::uint32_t node = 0;
  Message message;  // Call or Step
};
struct CancelQuestion {
  std::uint64_t call = 0;
  std::uint32_t node = 0;
};
// The step that came with `ticket` is done.
struct FinishStep {
  std::uint64_t ticket = 0;
  Result<StepReply> reply;
};
using Action = std::variant<SendQuestion, CancelQuestion, FinishStep>;

class StageRunner {
 public:
  struct Impl;  // internal
  // `assign` must hold a route for every operator of the halves that its node leads. All references outlive the runner.
  // Errors: corrupt, naming the operator that has no complete route.
  static Result<std::unique_ptr<StageRunner>> create(const Graph& graph, Assign assign, PartExecutor& parts,
                                                     const Kernels& kernels);
  ~StageRunner();

  // A step for one of this node's stages (Step::next_stage). Local parts run inside this call.
  std::vector<Action> on_step(std::uint64_t ticket, Step step);
  std::vector<Action> on_answer(std::uint64_t call, Result<Message> answer);
  // Nobody wants this step any more. Its calls are cancelled; no FinishStep follows.
  std::vector<Action> on_cancel(std::uint64_t ticket);
  // Which nodes hold attention state of the stages that this node leads (a Release goes to them and to the next lead).
  [[nodiscard]] const std::vector<std::uint32_t>& stateful_nodes() const;
  [[nodiscard]] std::optional<std::uint32_t> next_lead() const;
  [[nodiscard]] const Assign& assignment() const;
  [[nodiscard]] std::size_t steps_in_flight() const;

 private:
  explicit StageRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace myriad
