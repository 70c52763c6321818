#include "convert/gguf_layout.h"

#include <algorithm>
#include <cmath>

#include "model/gguf_names.h"

namespace myriad {
namespace {

// Rows of heads whose channels i and i + d/2 turn together, as rows whose channels 2i and 2i + 1 do: row 2i + j of a
// head is row i + j·d/2.
WeightMatrix with_paired_channels(const WeightMatrix& from, std::size_t heads) {
  const std::size_t rows = from.rows() / heads;  // of a head
  const auto read = [from, rows](std::size_t first, std::size_t n, std::span<std::byte> out) -> Status {
    const std::size_t bytes = from.row_bytes();
    std::vector<std::byte> head(rows * bytes);
    std::size_t held = ~std::size_t{0};
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t h = (first + i) / rows, r = (first + i) % rows;
      if (h != held) MYRIAD_TRY_STATUS(from.read_rows(h * rows, rows, head));
      held = h;
      std::copy_n(head.data() + (r / 2 + r % 2 * (rows / 2)) * bytes, bytes, out.data() + i * bytes);
    }
    return {};
  };
  return WeightMatrix(from.name(), from.dtype(), from.rows(), from.cols(), read);
}

// Matrices of one shape and type, one after the other.
WeightMatrix stacked(std::vector<WeightMatrix> parts) {
  const WeightMatrix& first = parts.front();
  const std::size_t all = first.rows() * parts.size();
  const auto shared = std::make_shared<const std::vector<WeightMatrix>>(std::move(parts));
  const auto read = [shared](std::size_t begin, std::size_t n, std::span<std::byte> out) -> Status {
    const std::size_t rows = shared->front().rows(), bytes = shared->front().row_bytes();
    for (std::size_t done = 0; done < n;) {
      const std::size_t part = (begin + done) / rows, r = (begin + done) % rows;
      const std::size_t now = std::min(n - done, rows - r);
      MYRIAD_TRY_STATUS((*shared)[part].read_rows(r, now, out.subspan(done * bytes, now * bytes)));
      done += now;
    }
    return {};
  };
  const WeightMatrix& front = shared->front();
  return WeightMatrix(front.name(), front.dtype(), all, front.cols(), read);
}

// As one that a GGUF file can hold: Myriad's own types become F32, and so does a router, which llama.cpp has in F32.
WeightMatrix storable(WeightMatrix from, OpRole role) {
  const bool as_it_is = ggml_type_of(from.dtype()) && role != OpRole::router;
  return as_it_is || from.dtype() == DType::f32 ? from : as_f32(from);
}

Result<WeightMatrix> experts(const ModelWeights& weights, OpRef op, MatrixRole role) {
  std::vector<WeightMatrix> parts;
  bool same = true;
  for (std::size_t e = 0; e < weights.config().moe.experts; ++e) {
    MYRIAD_TRY(WeightMatrix part, weights.matrix({op.layer, OpRole::expert, static_cast<std::uint16_t>(e)}, role));
    same = same && (parts.empty() || part.dtype() == parts.front().dtype());
    parts.push_back(std::move(part));
  }
  for (WeightMatrix& part : parts) part = same ? storable(std::move(part), OpRole::expert) : as_f32(part);
  return stacked(std::move(parts));
}

std::vector<std::uint64_t> dims_of(const ModelConfig& config, const InputTensor& t) {
  const MlaConfig& mla = config.mla;
  if (t.op.role == OpRole::expert) return {t.cols, t.rows / config.moe.experts, config.moe.experts};
  if (t.matrix == MatrixRole::k_b) return {t.cols, mla.kv_lora_rank, mla.heads};
  if (t.matrix == MatrixRole::v_b) return {t.cols, mla.v_dim, mla.heads};
  return {t.cols, t.rows};
}

Result<InputTensor> vector_tensor(const ModelConfig& config, const GgufDescription& description, OpRef op,
                                  VectorRole role, std::uint64_t n) {
  const auto names = gguf_vector_names(op, role);
  if (names.empty()) return fail(Code::internal, "naming a vector: unknown role {}", static_cast<int>(role));
  InputTensor t{.name = names.front(), .stored_as = "f32", .bytes = n * sizeof(float), .op = op, .vector = role};
  t.shape = {n};
  if (role == VectorRole::conv_q || role == VectorRole::conv_k || role == VectorRole::conv_v)
    t.shape = {config.kda.conv_taps, 1, config.kda.width()};
  if (role == VectorRole::a_log && description.architecture == "kimi-linear") t.shape = {1, n};
  return t;
}

}  // namespace

Result<WeightMatrix> gguf_matrix(const ModelWeights& weights, const GgufDescription& description,
                                 const InputTensor& tensor) {
  if (tensor.op.role == OpRole::expert) return experts(weights, tensor.op, tensor.matrix);
  const ModelConfig& config = weights.config();
  MYRIAD_TRY(WeightMatrix matrix, weights.matrix(tensor.op, tensor.matrix));
  matrix = storable(std::move(matrix), tensor.op.role);
  const bool turns = description.architecture == "llama" && config.rope.order == RopeOrder::halves;
  if (turns && tensor.matrix == MatrixRole::q) return with_paired_channels(matrix, config.gqa.heads);
  if (turns && tensor.matrix == MatrixRole::k) return with_paired_channels(matrix, config.gqa.kv_heads);
  return matrix;
}

Result<std::vector<float>> gguf_values(const ModelWeights& weights, const GgufDescription& description,
                                       const InputTensor& tensor) {
  if (!tensor.vector) return description.rope_factors;
  MYRIAD_TRY(std::vector<float> values, weights.vector(tensor.op, *tensor.vector));
  if (tensor.vector == VectorRole::a_log)
    for (float& v : values) v = -static_cast<float>(std::exp(static_cast<double>(v)));
  return values;
}

Result<std::vector<InputTensor>> gguf_tensors(const ModelWeights& weights, const GgufDescription& description) {
  const ModelConfig& config = weights.config();
  std::vector<InputTensor> tensors;
  for (const Operator& op : weights.graph().operators()) {
    for (const auto& m : op.matrices) {
      if (op.ref.role == OpRole::head && config.tied_embeddings) continue;  // the embedding
      if (op.ref.index != 0) continue;                                      // comes with the first expert
      InputTensor t{.op = op.ref, .matrix = m.role};
      const auto names = gguf_matrix_names(config, op.ref, m.role);
      if (names.empty()) return fail(Code::internal, "naming a matrix: unknown role {}", static_cast<int>(m.role));
      t.name = names.front();
      MYRIAD_TRY(const WeightMatrix matrix, gguf_matrix(weights, description, t));
      t.dtype = matrix.dtype();
      t.stored_as = dtype_name(matrix.dtype());
      t.rows = matrix.rows();
      t.cols = matrix.cols();
      t.bytes = t.rows * matrix.row_bytes();
      t.shape = dims_of(config, t);
      t.uses = {{op.ref.layer, op.ref.role, m.role}};
      if (op.ref.role == OpRole::embed && config.tied_embeddings)
        t.uses.push_back({0, OpRole::head, MatrixRole::weight});
      tensors.push_back(std::move(t));
    }
    for (const auto& v : op.vectors) {
      const std::uint64_t n = std::uint64_t{v.per_unit} * op.extent + v.fixed;
      MYRIAD_TRY(InputTensor t, vector_tensor(config, description, op.ref, v.role, n));
      tensors.push_back(std::move(t));
    }
  }
  if (const std::uint64_t n = description.rope_factors.size(); n != 0)
    tensors.push_back({.name = kGgufRopeFactors, .stored_as = "f32", .bytes = n * sizeof(float), .shape = {n}});
  std::sort(tensors.begin(), tensors.end(), [](const InputTensor& a, const InputTensor& b) { return a.name < b.name; });
  return tensors;
}

}  // namespace myriad
