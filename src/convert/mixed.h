// Mixed formats: each group of tensors gets the type that a budget of bytes allows, by measured effect on the logits.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "convert/calibration.h"
#include "convert/journal.h"
#include "convert/plan.h"
#include "kernels/thread_pool.h"

namespace myriad {

// Bytes of the output's weight files, or bits for each weight of the model's matrices (vectors and what is not the
// model's come on top).
struct SizeBudget {
  std::uint64_t bytes = 0;
  double bits_per_weight = 0;  // if not 0
};
// "3MB", "2.5GiB", "4.5bpw". Errors: invalid_argument.
Result<SizeBudget> parse_size_budget(std::string_view text);

// Whether the model can become as small as that: by shapes alone, nothing is read or measured. Errors:
// invalid_argument, with the smallest size that there is.
Status check_size_budget(const ModelFiles& files, const SizeBudget& budget, const std::filesystem::path& out);

struct MixedProgress {
  std::size_t done = 0, all = 0;  // measurements
  std::string what;
};

// Groups are matrices of one role in one layer (all experts of a layer together). For every type that is not worse in
// both bytes and squared error than another one, the effect is measured with all other tensors as they are; what
// `journal` knows is not measured again. Errors: those of check_size_budget and of
// Calibration. The plan's notes say what was measured.
Result<std::vector<TensorPlan>> mixed_plan(const ModelFiles& files, const SizeBudget& budget,
                                           const std::filesystem::path& out, std::vector<std::int32_t> ids,
                                           const CalibrationOptions& options, Journal& journal, ThreadPool& pool,
                                           const std::function<void(const MixedProgress&)>& progress);

}  // namespace myriad
