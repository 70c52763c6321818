// Where a model's weights come from, whatever the file format: matrices and vectors by the operator that holds them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/graph.h"
#include "model/inspect.h"
#include "quant/formats.h"

namespace myriad {

// A weight matrix [rows, cols] in row storage (quant/formats.h): each row is cols/block_values blocks, little-endian.
// Keeps what it reads from open by itself. Thread-safe.
class WeightMatrix {
 public:
  // Rows [first, first + n), exactly n · row_bytes() bytes. Errors: io, corrupt.
  using Read = std::function<Status(std::size_t first, std::size_t n, std::span<std::byte> out)>;
  WeightMatrix(std::string name, DType dtype, std::size_t rows, std::size_t cols, Read read)
      : name_(std::move(name)), dtype_(dtype), rows_(rows), cols_(cols), read_(std::move(read)) {}

  [[nodiscard]] const std::string& name() const { return name_; }  // in the file, for messages
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::size_t cols() const { return cols_; }
  [[nodiscard]] std::size_t row_bytes() const { return myriad::row_bytes(dtype_, cols_); }
  Status read_rows(std::size_t first, std::size_t n, std::span<std::byte> out) const;
  // Widened to f32, n · cols() values.
  Status read_rows_f32(std::size_t first, std::size_t n, std::span<float> out) const;

 private:
  std::string name_;
  DType dtype_;
  std::size_t rows_, cols_;
  Read read_;
};

// kv_b of MLA: for every head `keys` rows that make keys of the latent, then `values` rows that make values.
struct HeadSplit {
  std::size_t heads, keys, values;
  [[nodiscard]] std::size_t rows() const { return keys + values; }
};
// The key half transposed per head, [heads · rank, keys], in the same type. Errors: unsupported for quantised types,
// whose blocks run along the rows (as_f32 first).
Result<WeightMatrix> transposed_heads(const WeightMatrix& kv_b, const HeadSplit& split);
// The value half, [heads · values, rank].
WeightMatrix values_of_heads(const WeightMatrix& kv_b, const HeadSplit& split);
// The same values as f32.
WeightMatrix as_f32(const WeightMatrix& from);

class ModelWeights {
 public:
  virtual ~ModelWeights() = default;
  // With `dtypes` filled from what the files hold.
  [[nodiscard]] const ModelConfig& config() const { return graph_.config(); }
  [[nodiscard]] const Graph& graph() const { return graph_; }
  // A whole matrix of an operator: all units' rows one after the other, of an expert that expert's. MatrixRole::k_b is
  // [heads · kv_lora_rank, qk_nope] (transposed per head), v_b [heads · v_dim, kv_lora_rank]. Errors: not_found,
  // corrupt, unsupported, naming file and tensor.
  [[nodiscard]] virtual Result<WeightMatrix> matrix(OpRef op, MatrixRole role) const = 0;
  // A whole vector, all units' values; a_log as its logarithm, res_score as norm ⊙ proj.
  [[nodiscard]] virtual Result<std::vector<float>> vector(OpRef op, VectorRole role) const = 0;
  // Writes the small files by which a cut directory carries tokenizer and chat template; their names.
  [[nodiscard]] virtual Result<std::vector<std::string>> write_tokenizer_files(
      const std::filesystem::path& directory) const = 0;
  // What the files hold, by category.
  [[nodiscard]] virtual Inventory inventory() const = 0;
  // The file or directory.
  [[nodiscard]] virtual std::filesystem::path path() const = 0;

  // Whether everything that the graph demands is there in a usable type and the right shape. Reads little data.
  [[nodiscard]] Status verify_complete() const;

 protected:
  explicit ModelWeights(Graph graph) : graph_(std::move(graph)) {}
  struct Shape {
    std::size_t rows, cols;
  };
  [[nodiscard]] Shape shape(OpRef op, MatrixRole role) const;
  [[nodiscard]] std::size_t size(OpRef op, VectorRole role) const;
  // Asks `type_of` for every matrix (of experts the first of a layer) and builds the graph anew with what it says.
  // nullopt leaves the config's default.
  Status take_types(const std::function<std::optional<DType>(OpRef, MatrixRole)>& type_of);

 private:
  Graph graph_;
};

// weights.vector() with finite values (a_log: or −∞). Errors: corrupt, and those of vector().
Result<std::vector<float>> finite_vector(const ModelWeights& weights, OpRef op, VectorRole role);

}  // namespace myriad
