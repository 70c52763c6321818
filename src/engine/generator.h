// The GenerationBackend over a Pipeline: a Batcher driven by a thread of its own.
#pragma once

#include <memory>

#include "engine/batcher.h"
#include "engine/generation.h"
#include "engine/pipeline.h"

namespace myriad {

// A probe (or real) step must have passed every stage within this time for ready() to say so without asking again.
inline constexpr Nanos kProbeAge = std::chrono::seconds(5);

class Generator final : public GenerationBackend {
 public:
  struct Options {
    std::uint32_t queue = 64;  // requests that may wait
  };
  explicit Generator(std::shared_ptr<Pipeline> pipeline) : Generator(std::move(pipeline), Options{}) {}
  Generator(std::shared_ptr<Pipeline> pipeline, Options options);
  ~Generator() override;  // waits for the steps that are under way

  Result<std::uint64_t> start(GenerationRequest request, OnEvent on_event) override;
  void cancel(std::uint64_t generation) override;
  [[nodiscard]] ModelInfo info() const override;
  // Starts a probe when the last success is older than kProbeAge or of another epoch; until one of this epoch
  // succeeded: unavailable.
  [[nodiscard]] Status ready() const override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace myriad
