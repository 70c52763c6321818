// A model's files as quantising sees them: tensors of rows that can be read as numbers, and what else lies beside them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/gguf_settings.h"
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
  // For a directory that of a vector; for a GGUF file of every tensor, the contiguous dimension first.
  std::vector<std::uint64_t> shape;
};

enum class FileKind : std::uint8_t { directory, gguf };

class ModelFiles {
 public:
  // A Hugging Face directory or a GGUF file, to be written as a model of the kind `target` (nothing: of its own kind).
  // Reads headers. Where the kinds differ the tensors are those that the other kind has, under its names: in a
  // directory an expert each and kv_b of MLA whole, in a GGUF file as gguf_layout.h says. Errors: as HfWeights::open,
  // GgufWeights::open and describe_as_gguf.
  static Result<ModelFiles> open(const std::filesystem::path& path, std::optional<FileKind> target = std::nullopt);

  [[nodiscard]] const ModelWeights& weights() const;
  // One of these two is there.
  [[nodiscard]] const HfWeights* directory() const { return directory_.get(); }
  [[nodiscard]] const GgufWeights* gguf() const { return gguf_.get(); }
  // In the order of their names.
  [[nodiscard]] const std::vector<InputTensor>& tensors() const { return tensors_; }
  [[nodiscard]] bool restructured() const { return restructured_; }
  // What the tensors are made for.
  [[nodiscard]] FileKind target() const {
    return (gguf_ != nullptr) != restructured_ ? FileKind::gguf : FileKind::directory;
  }
  // The metadata of a directory that is restructured; nullptr: it is none.
  [[nodiscard]] const GgufDescription* description() const { return description_ ? &*description_ : nullptr; }
  // [rows, cols] of a tensor with a dtype.
  [[nodiscard]] Result<WeightMatrix> matrix(const InputTensor& tensor) const;
  // The values of a vector of a restructured model.
  [[nodiscard]] Result<std::vector<float>> values(const InputTensor& tensor) const;
  // The bytes of a tensor of a restructured model as they are stored, in pieces of a few MiB (rows are never torn).
  Status for_each_piece(const InputTensor& tensor, const std::function<Status(std::span<const std::byte>)>& take) const;
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
  std::optional<GgufDescription> description_;
  bool restructured_ = false;
};

}  // namespace myriad
