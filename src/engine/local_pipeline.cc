#include "engine/local_pipeline.h"

#include <map>

#include "engine/stage_runner.h"
#include "engine/work_queue.h"

namespace myriad {

struct LocalPipeline::Impl {
  std::string model_name;
  const Graph& graph;
  Budget budget;
  Profile profile;
  ThreadPool pool;
  PartExecutor parts;
  std::unique_ptr<StageRunner> runner;
  std::uint64_t last_ticket = 0;  // on the queue's thread
  WorkQueue queue;                // last: its thread is gone before anything that it uses

  Impl(std::string name, const Graph& g, Budget b, Profile p, std::size_t threads, const Kernels& kernels)
      : model_name(std::move(name)), graph(g), budget(b), profile(p), pool(threads), parts(g, p, b, kernels, pool) {}
};

namespace {

// With tied embeddings the rows of the head are those of the embedding. Where both are cut alike the head's parts are
// loaded in the embedding's place, too, so that the rows lie in memory once.
class TiedLoader {
 public:
  using Load = std::function<Result<Part>(std::size_t)>;
  TiedLoader(const Graph& graph, const std::vector<PartSpec>& specs, const Load& load)
      : graph_(graph), specs_(specs), load_(load) {
    if (!graph.config().tied_embeddings) return;
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (specs[i].op.role == OpRole::head) heads_[{specs[i].begin, specs[i].end}] = i;
  }

  Result<Part> load(std::size_t i) {
    if (const auto early = early_.find(i); early != early_.end()) {
      Part part = std::move(early->second);
      early_.erase(early);
      return part;
    }
    const auto head = heads_.find({specs_[i].begin, specs_[i].end});
    if (specs_[i].op.role != OpRole::embed || head == heads_.end()) return load_(i);
    MYRIAD_TRY(Part rows, load_(head->second));
    auto part = rows.seen_as(specs_[i], graph_);
    early_.emplace(head->second, std::move(rows));
    if (part) return std::move(*part);
    return load_(i);
  }

 private:
  const Graph& graph_;
  const std::vector<PartSpec>& specs_;
  const Load& load_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> heads_;  // by units
  std::map<std::size_t, Part> early_;                                     // heads that were loaded before their turn
};

}  // namespace

Result<std::unique_ptr<LocalPipeline>> LocalPipeline::create(const Graph& graph, std::string model_name,
                                                             Profile profile, Budget budget, std::size_t threads,
                                                             const std::vector<PartSpec>& specs,
                                                             const std::function<Result<Part>(std::size_t)>& load) {
  MYRIAD_TRY(const Kernels* kernels, choose_kernels());
  auto impl = std::make_unique<Impl>(std::move(model_name), graph, budget, profile, threads, *kernels);
  Assign assign;
  assign.epoch = {1};
  assign.profile = profile;
  assign.budget = budget;
  assign.nodes = {{NodeId{"local"}, "", 0}};
  assign.stages = {{0, 0, graph.halves()}};
  TiedLoader loader(graph, specs, load);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    MYRIAD_TRY(Part part, loader.load(i));
    assign.parts.push_back({static_cast<std::uint32_t>(i), specs[i], {}, part.bytes(), 0});
    MYRIAD_TRY_STATUS(impl->parts.add(static_cast<std::uint32_t>(i), std::move(part)));
  }
  MYRIAD_TRY(impl->runner, StageRunner::create(graph, std::move(assign), impl->parts, *kernels));
  return std::unique_ptr<LocalPipeline>(new LocalPipeline(std::move(impl)));
}

LocalPipeline::LocalPipeline(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalPipeline::~LocalPipeline() = default;

void LocalPipeline::submit(Step step, std::function<void(Result<StepReply>)> on_reply) {
  step.epoch = {1};
  step.next_stage = 0;
  impl_->queue.post([this, step = std::move(step), on_reply = std::move(on_reply)]() mutable {
    impl_->parts.set_time(std::chrono::steady_clock::now().time_since_epoch());
    auto actions = impl_->runner->on_step(++impl_->last_ticket, std::move(step));
    for (auto& action : actions)  // everything is local: a step ends inside on_step
      if (auto* done = std::get_if<FinishStep>(&action)) on_reply(std::move(done->reply));
  });
}

void LocalPipeline::cancel(std::uint64_t /*step*/) {}  // a step runs to its end; what waits is short

void LocalPipeline::release(std::vector<SequenceId> sequences) {
  impl_->queue.post([this, sequences = std::move(sequences)] { impl_->parts.release(sequences); });
}

Result<PipelineInfo> LocalPipeline::info() const {
  return PipelineInfo{impl_->model_name,
                      static_cast<std::uint32_t>(impl_->graph.config().vocab),
                      1,
                      impl_->profile,
                      impl_->budget,
                      {1},
                      impl_->graph.config().max_positions};
}
std::uint64_t LocalPipeline::part_bytes() const {
  return impl_->parts.part_bytes();
}
std::uint64_t LocalPipeline::state_bytes() const {
  return impl_->parts.state_bytes();
}

}  // namespace myriad
