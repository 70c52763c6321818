#include "convert/overlay.h"

#include <algorithm>

#include "convert/quantize_model.h"

namespace myriad {

Result<OverlaidWeights> OverlaidWeights::create(const ModelFiles& files, const std::map<std::size_t, DType>& types) {
  ModelConfig config = files.weights().config();
  std::map<ModelConfig::MatrixKey, Replaced> replaced;
  for (const auto& [place, type] : types) {
    const InputTensor& t = files.tensors()[place];
    const auto has = [&](MatrixRole role) {
      return std::any_of(t.uses.begin(), t.uses.end(), [&](const auto& use) { return use.matrix == role; });
    };
    const bool both = has(MatrixRole::k_b) && has(MatrixRole::v_b);
    // The transposed half has no blocks along its rows; see HfWeights::matrix.
    for (const auto& use : t.uses) {
      config.dtypes[use] = both && use.matrix == MatrixRole::k_b ? DType::f32 : type;
      replaced[use] = {&t, type, both};
    }
  }
  MYRIAD_TRY(Graph graph, Graph::build(config));
  OverlaidWeights weights(files, std::move(graph));
  weights.replaced_ = std::move(replaced);
  return weights;
}

Result<WeightMatrix> OverlaidWeights::matrix(OpRef op, MatrixRole role) const {
  MYRIAD_TRY(WeightMatrix original, files_->weights().matrix(op, role));
  const auto found = replaced_.find({op.layer, op.role, role});
  if (found == replaced_.end()) return original;
  const Replaced& r = found->second;
  if (!r.both_halves) return quantized_on_read(original, r.type);
  MYRIAD_TRY(const WeightMatrix kv_b, files_->matrix(*r.tensor));
  const WeightMatrix rows = quantized_on_read(kv_b, r.type);
  const HeadSplit split{config().mla.heads, config().mla.qk_nope_dim, config().mla.v_dim};
  return role == MatrixRole::v_b ? values_of_heads(rows, split) : transposed_heads(as_f32(rows), split);
}

}  // namespace myriad
