#include "convert/quantize_model.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "quant/blocks.h"
#include "quant/quantize.h"

namespace myriad {
namespace {

constexpr std::size_t kGrainValues = 4096;  // that a thread takes at least

// Buffers for one piece of rows, used again and again.
struct Piece {
  std::vector<float> values, restored;
  std::vector<std::byte> rows;
};

// values → rows, and what that cost.
Status quantize_piece(DType type, std::size_t cols, std::size_t first_row, std::optional<float> scale, Piece& piece,
                      ThreadPool& pool, ErrorSums& sums) {
  const std::size_t n = piece.values.size() / cols, bytes = row_bytes(type, cols);
  piece.rows.resize(n * bytes);
  piece.restored.resize(piece.values.size());
  std::mutex mutex;
  std::optional<Error> error;
  std::size_t error_row = n;
  pool.parallel(n, std::max<std::size_t>(1, kGrainValues / cols), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      const auto to = std::span(piece.rows).subspan(r * bytes, bytes);
      Status status =
          quantize_rows(type, std::span(piece.values).subspan(r * cols, cols), cols, to, first_row + r, scale);
      if (!status) {
        const std::lock_guard lock(mutex);
        if (r < error_row) error = std::move(status).error();
        error_row = std::min(r, error_row);
        return;
      }
      dequantize(type, to.data(), cols, piece.restored.data() + r * cols);
    }
  });
  if (error) return std::unexpected(std::move(*error));
  sums.add(piece.values, piece.restored);  // by one thread: the order of the sums is fixed
  return {};
}

std::size_t rows_of_piece(std::size_t cols) {
  return std::max<std::size_t>(1, kPieceValues / std::max<std::size_t>(cols, 1));
}

// A value that no type can hold is the model's fault, not the caller's.
std::unexpected<Error> blame_tensor(Error error, std::string_view name) {
  if (error.code == Code::invalid_argument) error.code = Code::corrupt;
  return std::unexpected(std::move(error).within(fmt::format("quantising tensor {}", name)));
}

}  // namespace

Result<float> scale_of_matrix(const WeightMatrix& matrix) {
  float largest = 0;
  std::vector<float> values;
  const std::size_t step = rows_of_piece(matrix.cols());
  for (std::size_t r = 0; r < matrix.rows(); r += step) {
    const std::size_t n = std::min(step, matrix.rows() - r);
    values.resize(n * matrix.cols());
    MYRIAD_TRY_STATUS(matrix.read_rows_f32(r, n, values));
    for (const float v : values)
      if (std::isfinite(v)) largest = std::max(largest, std::abs(v));  // others are found when they are quantised
  }
  return int8_scale(largest);
}

Result<ErrorSums> errors_of(const WeightMatrix& matrix, DType type, ThreadPool& pool, std::optional<float> scale) {
  ErrorSums sums;
  Piece piece;
  const std::size_t step = rows_of_piece(matrix.cols());
  for (std::size_t r = 0; r < matrix.rows(); r += step) {
    const std::size_t n = std::min(step, matrix.rows() - r);
    piece.values.resize(n * matrix.cols());
    MYRIAD_TRY_STATUS(matrix.read_rows_f32(r, n, piece.values));
    if (Status status = quantize_piece(type, matrix.cols(), r, scale, piece, pool, sums); !status)
      return blame_tensor(std::move(status).error(), matrix.name());
  }
  return sums;
}

WeightMatrix quantized_on_read(const WeightMatrix& from, DType type, std::optional<float> scale) {
  return WeightMatrix(from.name(), type, from.rows(), from.cols(),
                      [from, type, scale](std::size_t first, std::size_t n, std::span<std::byte> out) -> Status {
                        const std::size_t step = rows_of_piece(from.cols()), bytes = row_bytes(type, from.cols());
                        std::vector<float> values;
                        for (std::size_t done = 0; done < n;) {
                          const std::size_t now = std::min(step, n - done);
                          values.resize(now * from.cols());
                          MYRIAD_TRY_STATUS(from.read_rows_f32(first + done, now, values));
                          Status status = quantize_rows(type, values, from.cols(),
                                                        out.subspan(done * bytes, now * bytes), first + done, scale);
                          if (!status) return blame_tensor(std::move(status).error(), from.name());
                          done += now;
                        }
                        return {};
                      });
}

Status quantize_model(const ModelFiles& files, const std::vector<TensorPlan>& plan, QuantizedOutput& out,
                      Journal& journal, ThreadPool& pool,
                      const std::function<void(const QuantizeProgress&)>& progress) {
  const auto& tensors = files.tensors();
  QuantizeProgress at;
  for (const InputTensor& t : tensors) at.bytes += t.bytes;
  MYRIAD_TRY(const std::size_t there, out.begin());
  Piece piece;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const InputTensor& t = tensors[i];
    at.tensor = &t;
    progress(at);
    if (i < there) {
      at.bytes_done += t.bytes;
      continue;
    }
    if (!plan[i].type) {
      MYRIAD_TRY_STATUS(out.copy(i));
      at.bytes_done += t.bytes;
      continue;
    }
    MYRIAD_TRY(const WeightMatrix matrix, files.matrix(t));
    std::optional<float> scale;
    if (plan[i].one_scale) {
      MYRIAD_TRY(scale, scale_of_matrix(matrix));
    }
    ErrorSums sums;
    const std::size_t step = rows_of_piece(t.cols);
    const std::uint64_t before = at.bytes_done;
    for (std::size_t r = 0; r < t.rows; r += step) {
      const std::size_t n = std::min(step, t.rows - r);
      piece.values.resize(n * t.cols);
      MYRIAD_TRY_STATUS(matrix.read_rows_f32(r, n, piece.values));
      if (Status status = quantize_piece(*plan[i].type, t.cols, r, scale, piece, pool, sums); !status)
        return blame_tensor(std::move(status).error(), t.name);
      // Noted before the tensor is whole, so that of every whole tensor the error is known.
      if (r + n == t.rows) MYRIAD_TRY_STATUS(journal.put_error(t.name, sums));
      MYRIAD_TRY_STATUS(out.write_rows(i, piece.rows));
      at.bytes_done = before + t.bytes * (r + n) / t.rows;
      progress(at);
    }
  }
  at.tensor = nullptr;
  at.bytes_done = at.bytes;
  progress(at);
  return out.finish();
}

}  // namespace myriad
