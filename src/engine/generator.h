// The GenerationBackend over a Pipeline: a Batcher driven by a thread of its own.
#pragma once

#include <memory>

#include "engine/batcher.h"
#include "engine/generation.h"
#include "engine/pipeline.h"

namespace myriad {

class Generator final : public GenerationBackend {
 public:
  struct Options {
    std::uint32_t queue = 64;  // requests that may wait
    // When no step has succeeded for so long, a probe token is sent through every stage; 0: only for a new placement.
    // Readiness needs a success within three times this.
    Nanos probe_every{0};
  };
  explicit Generator(std::shared_ptr<Pipeline> pipeline) : Generator(std::move(pipeline), Options{}) {}
  Generator(std::shared_ptr<Pipeline> pipeline, Options options);
  ~Generator() override;  // cancels the steps that are under way and waits for their answers

  Result<std::uint64_t> start(GenerationRequest request, OnEvent on_event) override;
  void cancel(std::uint64_t generation) override;
  // What was known last, also while the pipeline cannot be used.
  [[nodiscard]] ModelInfo info() const override;
  // Errors: unavailable, with the reason: the pipeline's, the last probe's failure, or that no success is recent
  // enough.
  [[nodiscard]] Status ready() const override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace myriad
