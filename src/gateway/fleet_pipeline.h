// A fleet as a Pipeline: follows the controller's placement, sends steps to the lead of the first stage.
#pragma once

#include <memory>
#include <string>

#include "engine/pipeline.h"
#include "net/connection.h"

namespace myriad {

struct FleetPipelineOptions {
  Endpoint controller;
  std::string token;
  NodeId id;  // of this gateway
};

// A step that is answered neither by a reply nor by an error in this time has failed.
inline constexpr Nanos kStepLimit = std::chrono::seconds(120);

class FleetPipeline final : public Pipeline {
 public:
  // Connects in the background and keeps trying; reactor must outlive the pipeline.
  FleetPipeline(Reactor& reactor, FleetPipelineOptions options);
  ~FleetPipeline() override;

  void submit(Step step, std::function<void(Result<StepReply>)> on_reply) override;
  void cancel(std::uint64_t step) override;
  void release(std::vector<SequenceId> sequences) override;
  [[nodiscard]] Result<PipelineInfo> info() const override;
  void on_change(std::function<void()> changed) override;

  // The controller's last word; none yet: FleetState::waiting and a reason.
  [[nodiscard]] PlanUpdate plan() const;
  // Blocks until the fleet is ready. Errors: deadline, with the fleet's last reason; unauthenticated and version at
  // once.
  Status wait_ready(Nanos timeout) const;
  // Blocks until the controller has been reached once (whatever the fleet's state). Errors as above.
  Status wait_joined(Nanos timeout) const;
  // A file of the cut model (tokenizer, config.json), from the controller. Blocks, at most `timeout`.
  Result<std::string> fetch_file(const std::string& name, std::size_t limit, Nanos timeout) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace myriad
