// What a type costs one tensor, measured where it counts: at the logits, on a text.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "convert/model_files.h"
#include "model/graph.h"

namespace myriad {

struct CalibrationOptions {
  Profile profile = Profile::fast;
  std::size_t threads = 0;   // 0: usable_cores()
  std::size_t window = 256;  // ids that begin with fresh state
};

class Calibration {
 public:
  // Runs the original over all whole windows of `ids` and keeps its logits: ids · vocabulary floats. `files` must
  // outlive this object. Errors: invalid_argument (no whole window), those of the engine.
  static Result<Calibration> create(const ModelFiles& files, std::vector<std::int32_t> ids,
                                    const CalibrationOptions& options);

  // The mean KL divergence (original ‖ changed) a position with these tensors in these types and all others as they
  // are. Loads the whole model again.
  [[nodiscard]] Result<double> effect(const std::map<std::size_t, DType>& types) const;

 private:
  Calibration(const ModelFiles& files, std::vector<std::int32_t> ids, const CalibrationOptions& options)
      : files_(&files), ids_(std::move(ids)), options_(options) {}
  Status run(const ModelWeights& weights, const std::function<void(std::size_t, std::span<const float>)>& on_row) const;

  const ModelFiles* files_;
  std::vector<std::int32_t> ids_;
  CalibrationOptions options_;
  std::vector<float> logits_;  // [ids, vocabulary]
};

}  // namespace myriad
