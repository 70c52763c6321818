// Where steps go: a fleet's first lead, or all parts in this process.
#pragma once

#include <functional>
#include <span>

#include "proto/messages.h"

namespace myriad {

struct PipelineInfo {
  std::string model_name;
  std::uint32_t vocabulary = 0;
  std::uint32_t stages = 1;
  Profile profile = Profile::fast;
  Budget budget;
  Epoch epoch;                    // sequences do not survive a new one
  std::uint64_t own_context = 0;  // positions that the model was trained for; 0: unknown
};

class Pipeline {
 public:
  virtual ~Pipeline() = default;
  // `on_reply` is called once, from a thread of the pipeline's own. Never blocks. Step::epoch and next_stage are filled
  // in.
  virtual void submit(Step step, std::function<void(Result<StepReply>)> on_reply) = 0;
  // Stops what can be stopped of a submitted step; its on_reply gets `cancelled` (or the reply, if it came first).
  virtual void cancel(std::uint64_t step) = 0;
  virtual void release(std::vector<SequenceId> sequences) = 0;
  // Errors: unavailable, with the reason, while there is no whole fleet behind it.
  [[nodiscard]] virtual Result<PipelineInfo> info() const = 0;
  // `changed` is called, from a thread of the pipeline's own, whenever info() may say something else. A pipeline that
  // never changes never calls it.
  virtual void on_change(std::function<void()> changed) { (void)changed; }
};

// Blocks until the reply is there. For the command line.
Result<StepReply> run_step(Pipeline& pipeline, Step step);

// Logits of a whole sequence, every position, in chunks; `others` are rows of other sequences put into the same steps
// (batching). Rows come in order; `on_row(position, logits)`.
struct SequenceRun {
  SequenceId sequence;
  std::span<const std::int32_t> tokens;
};
Status run_logits(Pipeline& pipeline, const SequenceRun& main, std::span<const SequenceRun> others, std::uint32_t chunk,
                  const std::function<void(std::size_t, std::span<const float>)>& on_row);

}  // namespace myriad
