// A model with some of its matrices in other types, quantised as they are read: what it would be after quantising.
#pragma once

#include <map>

#include "convert/model_files.h"

namespace myriad {

class OverlaidWeights final : public ModelWeights {
 public:
  // `types`: of these tensors (by their place in files.tensors()), in whose type their rows are whole blocks; of a
  // layer's experts, all or none. `files` must outlive this object and what it gives.
  static Result<OverlaidWeights> create(const ModelFiles& files, const std::map<std::size_t, DType>& types);

  [[nodiscard]] Result<WeightMatrix> matrix(OpRef op, MatrixRole role) const override;
  [[nodiscard]] Result<std::vector<float>> vector(OpRef op, VectorRole role) const override {
    return files_->weights().vector(op, role);
  }
  [[nodiscard]] Result<std::vector<std::string>> write_tokenizer_files(
      const std::filesystem::path& directory) const override {
    return files_->weights().write_tokenizer_files(directory);
  }
  [[nodiscard]] Inventory inventory() const override { return files_->weights().inventory(); }
  [[nodiscard]] std::filesystem::path path() const override { return files_->weights().path(); }

 private:
  struct Replaced {
    const InputTensor* tensor = nullptr;
    DType type = DType::q8_0;
    bool both_halves = false;  // kv_b of MLA whole: keys and values in one tensor
  };
  OverlaidWeights(const ModelFiles& files, Graph graph) : ModelWeights(std::move(graph)), files_(&files) {}

  const ModelFiles* files_;
  std::map<ModelConfig::MatrixKey, Replaced> replaced_;
};

}  // namespace myriad
