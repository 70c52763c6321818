// A model's files as quantising sees them: tensors of rows that can be read as numbers, and what else lies beside them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/gguf_weights.h"
#include "model/hf_weights.h"

namespace myriad {

// One tensor, or the pair of tensors that hold MXFP4 in the Hugging Face layout.
struct InputTensor {
  std::string name;            // HF: of a matrix without ".weight…", else whole; GGUF: the tensor's
  std::string stored_as;       // for people: "bf16", "mxfp4", "q4_0", "I64"
  std::uint64_t bytes = 0;     // in the file
  std::optional<DType> dtype;  // of its rows; nothing for what cannot be read as rows of numbers
  std::size_t rows = 0, cols = 0;
  // The matrices of the model that are made of it; none: a vector, or something that the model does not use.
  std::vector<ModelConfig::MatrixKey> uses;
  // Of a model that is restructured: what holds it.
  OpRef op;
  MatrixRole matrix = MatrixRole::weight;
  std::optional<VectorRole> vector;
  std::vector<std::uint64_t> shape;  // of a vector
};

class ModelFiles {
 public:
  // A Hugging Face directory or a GGUF file. Reads headers. With `restructure` the tensors of a GGUF file are those
  // that a directory would have: an expert each, keys and values of MLA in one, under Hugging Face's names. Errors: as
  // HfWeights::open and GgufWeights::open.
  static Result<ModelFiles> open(const std::filesystem::path& path, bool restructure = false);

  [[nodiscard]] const ModelWeights& weights() const;
  // One of these two is there.
  [[nodiscard]] const HfWeights* directory() const { return directory_.get(); }
  [[nodiscard]] const GgufWeights* gguf() const { return gguf_.get(); }
  // In the order of their names.
  [[nodiscard]] const std::vector<InputTensor>& tensors() const { return tensors_; }
  [[nodiscard]] bool restructured() const { return restructured_; }
  // [rows, cols] of a tensor with a dtype.
  [[nodiscard]] Result<WeightMatrix> matrix(const InputTensor& tensor) const;
  // The values of a vector of a restructured model.
  [[nodiscard]] Result<std::vector<float>> values(const InputTensor& tensor) const;
  // SHA-256 over the config and the names, sizes and times of the weights' files, in hexadecimal.
  [[nodiscard]] Result<std::string> fingerprint() const;

 private:
  ModelFiles() = default;
  void list_directory();
  void list_gguf();
  Status restructure_gguf();
  Status find_uses();

  std::unique_ptr<HfWeights> directory_;
  std::unique_ptr<GgufWeights> gguf_;
  std::vector<InputTensor> tensors_;
  bool restructured_ = false;
};

}  // namespace myriad
