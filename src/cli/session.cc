#include "cli/session.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "cli/available_memory.h"
#include "cli/cut_cache.h"
#include "cli/fleet_report.h"
#include "cli/fleet_size.h"
#include "cli/local_fleet.h"
#include "gateway/fleet_pipeline.h"
#include "kernels/numa.h"
#include "kernels/thread_pool.h"
#include "net/ports.h"
#include "plan/account.h"

namespace myriad::cli {
namespace {

constexpr std::uint64_t kLogitsFrameBytes = kMaxFrameBytes - (std::uint64_t{1} << 20);
constexpr Nanos kReadyLimit = std::chrono::seconds(30);

// Before anything is loaded: attention state alone can be more than there is.
Status check_state_fits(const ModelSource& model, const CutOptions& cut_options, Profile profile,
                        const Budget& budget) {
  const Manifest planned =
      model.manifest() != nullptr ? *model.manifest() : planned_manifest(model.graph(), cut_options, model.name());
  std::uint64_t state = 0;
  for (const ManifestPart& part : planned.parts)
    if (const Operator* op = model.graph().find(part.spec.op); op != nullptr)
      state = add_saturating(state, attention_state_bytes(*op, part.spec.units(), profile, budget));
  const std::uint64_t there = available_memory();
  if (state <= there) return {};
  return fail(
      Code::does_not_fit,
      "the attention state of {} sequence{} of {} positions takes {} bytes ({}), and {} bytes ({}) of memory are "
      "available; use less --context, a smaller --cache-type (i8), or a fleet of more machines",
      budget.sequences, budget.sequences == 1 ? "" : "s", grouped(budget.context), grouped(state), human({state}),
      grouped(there), human({there}));
}

class LocalSession final : public Session {
 public:
  static Result<std::unique_ptr<Session>> open(const EngineOptions& options, ModelSource model, const Budget& budget) {
    CutOptions cut_options;
    cut_options.random_seed = options.cut_seed;
    MYRIAD_TRY_STATUS(place_process(options.threads != 0 ? options.threads : usable_cores()));
    MYRIAD_TRY_STATUS(check_state_fits(model, cut_options, options.profile, budget));
    auto session = std::unique_ptr<LocalSession>(new LocalSession(std::move(model)));
    MYRIAD_TRY(std::unique_ptr<LocalPipeline> pipeline,
               session->model_.pipeline(options.profile, budget, options.threads, cut_options));
    session->pipeline_ = std::move(pipeline);
    return session;
  }
  [[nodiscard]] const ModelSource& model() const override { return model_; }
  [[nodiscard]] std::shared_ptr<Pipeline> pipeline() const override { return pipeline_; }
  [[nodiscard]] std::string account() const override {
    return fmt::format("memory: weights {}, attention state {}, whole process {} resident\n",
                       human({pipeline_->part_bytes()}), human({pipeline_->state_bytes()}), human({resident_bytes()}));
  }

 private:
  explicit LocalSession(ModelSource model) : model_(std::move(model)) {}
  ModelSource model_;
  std::shared_ptr<LocalPipeline> pipeline_;  // reads the graph of model_, so it goes first
};

class FleetSession final : public Session {
 public:
  static Result<std::unique_ptr<Session>> open(const EngineOptions& options, ModelSource model, const Budget& budget) {
    WantedCut wanted;
    wanted.model = options.model;
    wanted.name = model.name();
    wanted.options.random_seed = options.cut_seed;
    wanted.options.target_bytes = shared_target_bytes(model.graph(), options.nodes, options.node_memory);
    MYRIAD_TRY_STATUS(check_fit(model.graph(), model.manifest(), wanted.options, options.nodes, options.node_memory,
                                options.profile, budget));
    LocalFleetOptions fleet;
    MYRIAD_TRY(fleet.cut_directory, cached_cut(wanted));
    fleet.cut_directory = std::filesystem::absolute(fleet.cut_directory);
    fleet.nodes = options.nodes;
    fleet.node_memory = options.node_memory;
    fleet.profile = options.profile;
    fleet.budget = budget;
    fleet.threads = options.threads != 0
                        ? options.threads
                        : std::max<std::uint32_t>(1, static_cast<std::uint32_t>(usable_cores()) / options.nodes);
    fleet.local_parts = true;
    auto session = std::unique_ptr<FleetSession>(new FleetSession(std::move(model)));
    MYRIAD_TRY(session->fleet_, LocalFleet::start(fleet));
    FleetPipelineOptions pipeline;
    MYRIAD_TRY(pipeline.controller, parse_endpoint(session->fleet_->state().controller, kControllerPort));
    pipeline.token = session->fleet_->token();
    pipeline.id = {fmt::format("session-{}", getpid())};
    session->reactor_.start();
    session->pipeline_ = std::make_shared<FleetPipeline>(session->reactor_, std::move(pipeline));
    MYRIAD_TRY_STATUS(session->pipeline_->wait_ready(kReadyLimit));
    return session;
  }
  [[nodiscard]] const ModelSource& model() const override { return model_; }
  [[nodiscard]] std::shared_ptr<Pipeline> pipeline() const override { return pipeline_; }
  [[nodiscard]] std::string account() const override {
    const auto status = fleet_->status();
    if (!status) return fmt::format("memory: {}\n", status.error().to_string());
    return account_of_status(*status).value_or(std::string());
  }

 private:
  explicit FleetSession(ModelSource model) : model_(std::move(model)) {}
  ModelSource model_;
  std::unique_ptr<LocalFleet> fleet_;
  Reactor reactor_;
  std::shared_ptr<FleetPipeline> pipeline_;  // goes before its reactor, and that before the fleet
};

}  // namespace

Result<std::unique_ptr<Session>> Session::open(std::string_view command, const EngineOptions& options,
                                               ModelSource model, Budget budget) {
  if (options.context != 0 && options.context < budget.context)
    return fail(Code::invalid_argument, "--context {}: {} positions are needed; raise --context to {}, or leave it out",
                options.context, budget.context, budget.context);
  if (options.context != 0) budget.context = options.context;
  budget.cache = options.cache;
  MYRIAD_TRY_STATUS(check_budget(budget));
  MYRIAD_TRY_STATUS(check_window(model.config(), budget.context));
  if (!command.empty()) warn_of_context(command, budget.context, model.config());
  if (options.cut_seed != 0 && model.manifest() != nullptr)
    return fail(Code::invalid_argument,
                "{} is cut already; --cut-seed is for what is cut here: GGUF files and Hugging Face directories",
                model.directory().string());
  if (options.nodes != 0) return FleetSession::open(options, std::move(model), budget);
  return LocalSession::open(options, std::move(model), budget);
}

std::uint32_t rows_of_logits(const ModelConfig& config, std::uint32_t wanted) {
  const std::uint64_t rows = kLogitsFrameBytes / (sizeof(float) * std::max<std::uint64_t>(config.vocab, 1));
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::min<std::uint64_t>(rows, wanted), 1, kMaxRowsPerStep));
}

std::uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  in >> all >> resident;
  return in ? resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace myriad::cli
