// All parts in this process: plain local inference, with the same runner, kernels and seams as a fleet.
#pragma once

#include <memory>

#include "engine/pipeline.h"
#include "kernels/thread_pool.h"
#include "part/part_file.h"

namespace myriad {

class LocalPipeline final : public Pipeline {
 public:
  // `load(i)` gives the part `specs[i]`; parts are loaded one after the other, the head of tied embeddings before its
  // turn, so that it serves as the embedding, too. Threads: see ThreadPool.
  static Result<std::unique_ptr<LocalPipeline>> create(const Graph& graph, std::string model_name, Profile profile,
                                                       Budget budget, std::size_t threads,
                                                       const std::vector<PartSpec>& specs,
                                                       const std::function<Result<Part>(std::size_t)>& load);
  ~LocalPipeline() override;
  void submit(Step step, std::function<void(Result<StepReply>)> on_reply) override;
  void cancel(std::uint64_t step) override;
  void release(std::vector<SequenceId> sequences) override;
  [[nodiscard]] Result<PipelineInfo> info() const override;
  [[nodiscard]] std::uint64_t part_bytes() const;
  [[nodiscard]] std::uint64_t state_bytes() const;

 private:
  struct Impl;
  explicit LocalPipeline(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace myriad
