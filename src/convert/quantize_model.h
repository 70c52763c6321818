// Quantises a model's files tensor by tensor: reads rows, writes rows of the planned type, measures what was lost.
#pragma once

#include <functional>
#include <optional>

#include "convert/journal.h"
#include "convert/output.h"
#include "kernels/thread_pool.h"

namespace myriad {

struct QuantizeProgress {
  std::uint64_t bytes_done = 0, bytes = 0;  // of the input
  const InputTensor* tensor = nullptr;      // that is being worked on
};

// Writes `out`, of which an earlier run may have written the beginning; the errors of all tensors that change come to
// stand in `journal`. Memory: pieces of rows, a few MiB, whatever the model's size. Errors: those of the files, and
// corrupt for a value that no type can hold; each names the tensor.
Status quantize_model(const ModelFiles& files, const std::vector<TensorPlan>& plan, QuantizedOutput& out,
                      Journal& journal, ThreadPool& pool, const std::function<void(const QuantizeProgress&)>& progress);

// Rows of `from` as `type`, quantised when they are read: a matrix that no file holds.
WeightMatrix quantized_on_read(const WeightMatrix& from, DType type, std::optional<float> scale = std::nullopt);

// What the type costs the matrix. Reads it whole.
Result<ErrorSums> errors_of(const WeightMatrix& matrix, DType type, ThreadPool& pool,
                            std::optional<float> scale = std::nullopt);

// The scale that all rows share. Reads the whole matrix.
Result<float> scale_of_matrix(const WeightMatrix& matrix);

// f32 values of a piece of rows.
inline constexpr std::size_t kPieceValues = std::size_t{1} << 20;

}  // namespace myriad
