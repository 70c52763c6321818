#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "quant/blocks.h"

namespace myriad {

Status WeightMatrix::read_rows(std::size_t first, std::size_t n, std::span<std::byte> out) const {
  if (first > rows_ || n > rows_ - first || out.size() != n * row_bytes())
    return fail(Code::invalid_argument, "reading rows [{}, {}) of {} [{}, {}] into {} bytes", first, first + n, name_,
                rows_, cols_, out.size());
  MYRIAD_TRY_STATUS(read_(first, n, out));
  const auto bad = find_not_finite(dtype_, out, n, cols_);
  if (!bad) return {};
  std::vector<float> row(cols_);
  dequantize(dtype_, out.data() + *bad * row_bytes(), cols_, row.data());
  const auto at = std::ranges::find_if(row, [](float v) { return !std::isfinite(v); });
  if (at == row.end())
    return fail(Code::corrupt, "reading {}: row {} has a scale that is no finite number; is the file damaged?", name_,
                first + *bad);
  return fail(Code::corrupt, "reading {}: row {} column {} is {}, expected a finite number; is the file damaged?",
              name_, first + *bad, at - row.begin(), *at);
}

Result<std::vector<float>> finite_vector(const ModelWeights& weights, OpRef op, VectorRole role) {
  MYRIAD_TRY(std::vector<float> values, weights.vector(op, role));
  // a_log: the logarithm of a decay of nothing at all is −∞
  const auto bad = std::ranges::find_if(
      values, [role](float v) { return !std::isfinite(v) && !(role == VectorRole::a_log && v < 0); });
  if (bad != values.end())
    return fail(Code::corrupt,
                "reading a vector of {} from {}: value {} of {} is {}, expected a finite number; is the file damaged?",
                PartSpec{op, 0, 1}.name(), weights.path().string(), bad - values.begin(), values.size(), *bad);
  return values;
}

Status WeightMatrix::read_rows_f32(std::size_t first, std::size_t n, std::span<float> out) const {
  if (out.size() != n * cols_)
    return fail(Code::invalid_argument, "reading {} rows of {} into room for {} values", n, name_, out.size());
  const std::size_t step = std::max<std::size_t>(1, (std::size_t{1} << 20) / row_bytes());
  std::vector<std::byte> raw;
  for (std::size_t done = 0; done < n; done += step) {
    const std::size_t now = std::min(step, n - done);
    raw.resize(now * row_bytes());
    MYRIAD_TRY_STATUS(read_rows(first + done, now, raw));
    for (std::size_t r = 0; r < now; ++r)
      dequantize(dtype_, raw.data() + r * row_bytes(), cols_, out.data() + (done + r) * cols_);
  }
  return {};
}

Result<WeightMatrix> transposed_heads(const WeightMatrix& from, const HeadSplit& split) {
  if (is_quantized(from.dtype()))
    return fail(Code::unsupported, "{}: rows of {} cannot be transposed as they are", from.name(),
                dtype_name(from.dtype()));
  const std::size_t value = block_bytes(from.dtype()), rank = from.cols();
  const auto read = [from, split, value, rank](std::size_t first, std::size_t n, std::span<std::byte> out) -> Status {
    std::vector<std::byte> head(split.keys * rank * value);
    std::size_t held = ~std::size_t{0};
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t h = (first + i) / rank, r = (first + i) % rank;
      if (h != held) MYRIAD_TRY_STATUS(from.read_rows(h * split.rows(), split.keys, head));
      held = h;
      for (std::size_t c = 0; c < split.keys; ++c)
        std::copy_n(head.data() + (c * rank + r) * value, value, out.data() + (i * split.keys + c) * value);
    }
    return {};
  };
  return WeightMatrix(from.name(), from.dtype(), split.heads * rank, split.keys, read);
}

WeightMatrix values_of_heads(const WeightMatrix& from, const HeadSplit& split) {
  const auto read = [from, split](std::size_t first, std::size_t n, std::span<std::byte> out) -> Status {
    const std::size_t bytes = from.row_bytes();
    for (std::size_t done = 0; done < n;) {
      const std::size_t h = (first + done) / split.values, r = (first + done) % split.values;
      const std::size_t now = std::min(n - done, split.values - r);
      MYRIAD_TRY_STATUS(from.read_rows(h * split.rows() + split.keys + r, now, out.subspan(done * bytes, now * bytes)));
      done += now;
    }
    return {};
  };
  return WeightMatrix(from.name(), from.dtype(), split.heads * split.values, from.cols(), read);
}

WeightMatrix as_f32(const WeightMatrix& from) {
  const auto read = [from](std::size_t first, std::size_t n, std::span<std::byte> out) -> Status {
    std::vector<float> values(n * from.cols());
    MYRIAD_TRY_STATUS(from.read_rows_f32(first, n, values));
    little_in_place(std::span(values));
    std::memcpy(out.data(), values.data(), out.size());
    return {};
  };
  return WeightMatrix(from.name(), DType::f32, from.rows(), from.cols(), read);
}

ModelWeights::Shape ModelWeights::shape(OpRef ref, MatrixRole role) const {
  const Operator* op = graph_.find(ref);
  if (op != nullptr)
    for (const auto& m : op->matrices)
      if (m.role == role) return {std::size_t{m.rows_per_unit} * op->extent + m.rows, m.k};
  return {0, 0};
}

std::size_t ModelWeights::size(OpRef ref, VectorRole role) const {
  const Operator* op = graph_.find(ref);
  if (op != nullptr)
    for (const auto& v : op->vectors)
      if (v.role == role) return std::size_t{v.per_unit} * op->extent + v.fixed;
  return 0;
}

Status ModelWeights::take_types(const std::function<std::optional<DType>(OpRef, MatrixRole)>& type_of) {
  ModelConfig config = graph_.config();
  for (const auto& op : graph_.operators()) {
    if (op.ref.index != 0) continue;
    for (const auto& m : op.matrices)
      if (const auto found = type_of(op.ref, m.role); found && *found != m.dtype)
        config.dtypes[{op.ref.layer, op.ref.role, m.role}] = *found;
  }
  if (config.dtypes.size() == graph_.config().dtypes.size()) return {};
  MYRIAD_TRY(graph_, Graph::build(config));
  return {};
}

Status ModelWeights::verify_complete() const {
  for (const auto& op : graph_.operators()) {
    for (const auto& m : op.matrices) MYRIAD_TRY_STATUS(matrix(op.ref, m.role));
    for (const auto& v : op.vectors) MYRIAD_TRY_STATUS(vector(op.ref, v.role));
  }
  return {};
}

}  // namespace myriad
