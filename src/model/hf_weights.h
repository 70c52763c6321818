// The weights of a Hugging Face checkpoint, under the names that its family gives them.
#pragma once

#include <filesystem>

#include "model/checkpoint.h"
#include "model/hf_names.h"
#include "model/weights.h"

namespace myriad {

class HfWeights final : public ModelWeights {
 public:
  // Reads config and headers. Errors: as Checkpoint::open; unsupported when a tensor of the model is there that no
  // operator takes (see unused_by_design), since what it stands for would be left out in silence.
  static Result<HfWeights> open(const std::filesystem::path& directory);

  [[nodiscard]] Result<WeightMatrix> matrix(OpRef op, MatrixRole role) const override;
  [[nodiscard]] Result<std::vector<float>> vector(OpRef op, VectorRole role) const override;
  [[nodiscard]] Result<std::vector<std::string>> write_tokenizer_files(
      const std::filesystem::path& directory) const override;
  [[nodiscard]] Inventory inventory() const override { return take_inventory(checkpoint_); }
  [[nodiscard]] std::filesystem::path path() const override { return checkpoint_.directory(); }
  [[nodiscard]] const Checkpoint& checkpoint() const { return checkpoint_; }
  // The matrix of this name in the file, without ".weight…".
  [[nodiscard]] Result<WeightMatrix> stored(const std::string& name, std::size_t rows, std::size_t cols) const;

 private:
  HfWeights(Checkpoint checkpoint, Graph graph) : ModelWeights(std::move(graph)), checkpoint_(std::move(checkpoint)) {}
  // How this file names what the operator's layer has.
  [[nodiscard]] HfNaming naming(OpRef op) const;
  [[nodiscard]] std::string tensor(OpRef op, MatrixRole role) const;
  // What the headers say of a matrix; nothing if it is missing, which is said when it is asked for.
  [[nodiscard]] std::optional<DType> stored_type(OpRef op, MatrixRole role) const;

  // Tensors that the operators do not take though they may be there: other models of the same checkpoint (K3's vision),
  // layers of multi-token prediction, and what the config says too.
  [[nodiscard]] bool unused_by_design(std::string_view name) const;
  [[nodiscard]] Status refuse_unused() const;

  Checkpoint checkpoint_;
};

}  // namespace myriad
