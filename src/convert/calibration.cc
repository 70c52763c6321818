#include "convert/calibration.h"

#include <algorithm>
#include <cmath>

#include "convert/divergence.h"
#include "convert/overlay.h"
#include "engine/local_pipeline.h"
#include "part/cutter.h"

namespace myriad {
namespace {

constexpr std::size_t kRows = 256;                                 // of a step, at most
constexpr std::uint64_t kReplyBytes = std::uint64_t{32} << 20;     // of logits in one reply
constexpr std::uint64_t kMaxLogitsBytes = std::uint64_t{4} << 30;  // that are kept of the original

}  // namespace

Result<Calibration> Calibration::create(const ModelFiles& files, std::vector<std::int32_t> ids,
                                        const CalibrationOptions& options) {
  const std::size_t vocabulary = files.weights().config().vocab;
  const std::size_t whole = ids.size() / options.window * options.window;
  if (whole == 0)
    return fail(Code::invalid_argument, "the calibration text has {} tokens, expected a window of {} at least",
                ids.size(), options.window);
  ids.resize(whole);
  if (whole * vocabulary * sizeof(float) > kMaxLogitsBytes)
    return fail(Code::limit, "calibrating on {} tokens keeps {} logits, more than 4 GiB; take fewer windows", whole,
                whole * vocabulary);
  Calibration calibration(files, std::move(ids), options);
  calibration.logits_.resize(whole * vocabulary);
  MYRIAD_TRY_STATUS(calibration.run(files.weights(), [&](std::size_t at, std::span<const float> row) {
    std::copy(row.begin(), row.end(), calibration.logits_.begin() + static_cast<std::ptrdiff_t>(at * vocabulary));
  }));
  return calibration;
}

Status Calibration::run(const ModelWeights& weights,
                        const std::function<void(std::size_t, std::span<const float>)>& on_row) const {
  const Graph& graph = weights.graph();
  const std::size_t vocabulary = graph.config().vocab;
  const auto rows = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(kReplyBytes / (vocabulary * sizeof(float)), 1, std::min(kRows, options_.window)));
  const Budget budget{.sequences = 1, .context = static_cast<std::uint32_t>(options_.window), .step_rows = rows};
  const std::vector<PartSpec> specs = cut(graph, {});
  MYRIAD_TRY(const std::unique_ptr<LocalPipeline> pipeline,
             LocalPipeline::create(graph, "calibration", options_.profile, budget,
                                   options_.threads == 0 ? usable_cores() : options_.threads, specs,
                                   [&](std::size_t i) -> Result<Part> {
                                     MYRIAD_TRY(AlignedBuffer bytes, build_part(weights, specs[i], false));
                                     return Part::parse(std::move(bytes), graph, nullptr);
                                   }));
  for (std::size_t begin = 0; begin < ids_.size(); begin += options_.window)
    MYRIAD_TRY_STATUS(run_logits(*pipeline, {{1 + begin}, std::span(ids_).subspan(begin, options_.window)}, {}, rows,
                                 [&](std::size_t at, std::span<const float> row) { on_row(begin + at, row); }));
  return {};
}

Result<double> Calibration::effect(const std::map<std::size_t, DType>& types) const {
  MYRIAD_TRY(const OverlaidWeights weights, OverlaidWeights::create(*files_, types));
  const std::size_t vocabulary = weights.config().vocab;
  double sum = 0;
  MYRIAD_TRY_STATUS(run(weights, [&](std::size_t at, std::span<const float> row) {
    sum += compare_rows(std::span(logits_).subspan(at * vocabulary, vocabulary), row).kl;
  }));
  const double mean = sum / static_cast<double>(ids_.size());
  if (!std::isfinite(mean)) return fail(Code::internal, "calibrating: the KL divergence is not a finite number");
  return mean;
}

}  // namespace myriad
