// The weights of a GGUF file, under llama.cpp's names (and those of forks where they differ).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "model/weights.h"

namespace myriad {

// The type that a matrix is run as; nothing for what nothing here multiplies.
std::optional<DType> dtype_of(GgmlType type);
// The type that a GGUF file holds such rows in; nothing for Myriad's own types.
std::optional<GgmlType> ggml_type_of(DType type);

class GgufWeights final : public ModelWeights {
 public:
  // Reads headers. Errors: as GgufFile::open and gguf_config; unsupported when a tensor is there that no operator takes
  // (see unused_by_design), since what it stands for would be left out in silence.
  static Result<GgufWeights> open(const std::filesystem::path& path);

  [[nodiscard]] Result<WeightMatrix> matrix(OpRef op, MatrixRole role) const override;
  [[nodiscard]] Result<std::vector<float>> vector(OpRef op, VectorRole role) const override;
  // tokenizer.gguf: the metadata without any tensor.
  [[nodiscard]] Result<std::vector<std::string>> write_tokenizer_files(
      const std::filesystem::path& directory) const override;
  [[nodiscard]] Inventory inventory() const override;
  [[nodiscard]] std::filesystem::path path() const override { return file_.path(); }
  [[nodiscard]] const GgufFile& file() const { return file_; }

 private:
  GgufWeights(GgufFile file, Graph graph) : ModelWeights(std::move(graph)), file_(std::move(file)) {}
  // Where a matrix is: a tensor, and from which row on.
  struct Place {
    const GgufTensor* tensor = nullptr;
    std::uint64_t first_row = 0;
    std::string name;  // the first name that was looked for
  };
  [[nodiscard]] Place place(OpRef op, MatrixRole role) const;
  // The first of these that is there; nullptr if none is.
  [[nodiscard]] const GgufTensor* find(const std::vector<std::string>& names) const;
  // Tensors that the operators do not take though they may be there: blocks of multi-token prediction, and what other
  // tensors or the metadata say too.
  [[nodiscard]] bool unused_by_design(std::string_view name) const;
  [[nodiscard]] Status refuse_unused() const;
  [[nodiscard]] Result<WeightMatrix> stored(const Place& place, std::size_t rows, std::size_t cols) const;
  [[nodiscard]] std::optional<DType> stored_type(OpRef op, MatrixRole role) const;
  [[nodiscard]] Result<std::vector<float>> numbers(const std::vector<std::string>& names, std::size_t n) const;

  GgufFile file_;
};

}  // namespace myriad
