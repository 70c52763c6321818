#include "cli/session.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "plan/account.h"

namespace myriad::cli {
namespace {

constexpr std::uint64_t kLogitsFrameBytes = kMaxFrameBytes - (std::uint64_t{1} << 20);

class LocalSession final : public Session {
 public:
  static Result<std::unique_ptr<Session>> open(const EngineOptions& options, ModelSource model, const Budget& budget) {
    auto session = std::unique_ptr<LocalSession>(new LocalSession(std::move(model)));
    CutOptions cut_options;
    cut_options.random_seed = options.cut_seed;
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

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const EngineOptions& options, ModelSource model, Budget budget) {
  if (options.context != 0) budget.context = options.context;
  MYRIAD_TRY_STATUS(check_budget(budget));
  if (options.cut_seed != 0 && model.manifest() != nullptr)
    return fail(Code::invalid_argument, "{} is cut already; --cut-seed is for Hugging Face directories",
                model.directory().string());
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
