// A model directory in the Hugging Face layout: config.json, one or many *.safetensors, perhaps
// model.safetensors.index.json.
//
// Opening reads the config and the headers only; weights are read by pread when they are asked for, never mapped. All
// 497,220 tensors of Kimi K3 are indexed in well under 200 MB. Files are foreign: every failure names the file and the
// tensor, what was found and what was expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "quant/formats.h"

namespace myriad {

inline constexpr std::size_t kMaxShards = 10'000;
inline constexpr std::size_t kMaxTensors = std::size_t{1} << 23;         // in a checkpoint
inline constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{1} << 30;  // of model.safetensors.index.json

// One stored tensor. Views live as long as the Checkpoint that gave it (moving that one keeps them valid).
struct TensorInfo {
  std::string_view name;         // without the prefix `language_model.`
  std::string_view stored_name;  // as in the file
  std::span<const std::uint64_t> shape;
  std::uint64_t offset = 0;  // in its file, absolute
  std::uint64_t bytes = 0;
  StorageType type = StorageType::u8;
  std::uint32_t shard = 0;  // see Checkpoint::shard_name
  [[nodiscard]] std::uint64_t elements() const;
};

class ShardFiles;  // the open files behind a checkpoint (internal)

// A matrix `X` may be stored as
//   X.weight                             BF16, F16 or F32 [rows, cols]
//   X.weight_packed and X.weight_scale   MXFP4: U8 [rows, cols/2], U8 or F8_E8M0 [rows, cols/32]
//   X.weight_TYPE                        U8 [rows, row_bytes(TYPE, cols)]: rows of a quantised type as quant/formats.h
//   has
//                                        them, TYPE being its name (q4_0, i8_row, …); what `myriad quantize` writes
inline constexpr std::string_view kPackedSuffix = ".weight_packed", kScaleSuffix = ".weight_scale";
// ".weight_q4_0"
std::string quantized_suffix(DType t);
// The type that ends a name in this way; nothing for any other name.
std::optional<DType> type_of_suffix(std::string_view tensor);

// A weight matrix [rows, cols] as it is stored.
// Keeps the files open by itself, so it may outlive its Checkpoint. Thread-safe.
class MatrixSource {
 public:
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::size_t cols() const { return cols_; }
  [[nodiscard]] const std::string& name() const { return name_; }  // without ".weight"
  // Bytes in the file: of all rows, scales included.
  [[nodiscard]] std::uint64_t stored_bytes() const;

  // Rows r0 <= r < r1 in host byte order; `out` has exactly (r1−r0)·cols values. Each is for its own dtype() only
  // (invalid_argument otherwise). Errors besides: io, corrupt (truncated file).
  // As they are stored, (r1−r0)·row_bytes(dtype(), cols()) bytes; not for mxfp4.
  Status read_rows(std::size_t r0, std::size_t r1, std::span<std::byte> out) const;
  Status read_rows_bf16(std::size_t r0, std::size_t r1, std::span<std::uint16_t> out) const;
  Status read_rows_f32(std::size_t r0, std::size_t r1, std::span<float> out) const;
  // codes [r1−r0, cols/2] (low nibble = even column), scales [r1−r0, cols/32] (E8M0). A scale of 255 (NaN) is corrupt
  // and names the row.
  Status read_rows_mxfp4(std::size_t r0, std::size_t r1, std::span<std::uint8_t> codes,
                         std::span<std::uint8_t> scales) const;
  // Any dtype, widened (exactly) to f32: for vectors stored as matrices, interpreters and tests.
  Status read_rows_widened(std::size_t r0, std::size_t r1, std::span<float> out) const;

 private:
  friend class Checkpoint;
  struct Extent {  // bytes of a file
    std::uint32_t shard = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  Status check_rows(std::size_t r0, std::size_t r1, DType wanted, std::size_t room) const;
  Status read(const Extent& extent, std::uint64_t offset, std::span<std::byte> out) const;

  std::shared_ptr<const ShardFiles> files_;
  std::string name_;
  DType dtype_ = DType::bf16;
  std::size_t rows_ = 0;
  std::size_t cols_ = 0;
  Extent values_;  // of the codes, for mxfp4
  Extent scales_;
};

class Checkpoint {
 public:
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;
  Checkpoint(const Checkpoint&) = delete;  // TensorInfo points into this one
  Checkpoint& operator=(const Checkpoint&) = delete;

  // `dir` holds config.json and the shards: those that model.safetensors.index.json names if there is one, else every
  // *.safetensors.
  static Result<Checkpoint> open(const std::filesystem::path& dir);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const std::string& config_json() const { return config_json_; }  // the file's own text
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  [[nodiscard]] std::string_view prefix() const { return prefix_; }  // "language_model." or ""
  [[nodiscard]] std::size_t shards() const;
  [[nodiscard]] std::string shard_name(std::uint32_t shard) const;

  // All tensors, in ascending order of name.
  [[nodiscard]] std::span<const TensorInfo> tensors() const { return tensors_; }
  // nullptr if there is none. `name` without prefix: "model.layers.0.self_attn.q_proj.weight". O(log n).
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  // The tensor, with one of the types and exactly this shape, or an error that says what is wrong with it.
  [[nodiscard]] Result<const TensorInfo*> require(std::string_view name, std::initializer_list<StorageType> types,
                                                  std::initializer_list<std::uint64_t> shape) const;

  // Raw little-endian bytes [offset, offset + out.size()) of the tensor. Thread-safe.
  Status read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const;
  // Elements from `first` on, widened to f32. The tensor is BF16 or F32 (unsupported otherwise).
  Status read_f32(const TensorInfo& tensor, std::uint64_t first, std::span<float> out) const;

  // How the matrix `name` is stored, unchecked; nothing if it is not there.
  struct StoredMatrix {
    DType dtype = DType::bf16;
    const TensorInfo* values = nullptr;
    const TensorInfo* scales = nullptr;  // of mxfp4; nullptr if they are missing
  };
  [[nodiscard]] std::optional<StoredMatrix> find_matrix(std::string_view name) const;
  // The matrix `name`, checked to be [rows, cols].
  [[nodiscard]] Result<MatrixSource> matrix(std::string_view name, std::size_t rows, std::size_t cols) const;
  // A whole vector `name` of `n` values, BF16 or F32. Dimensions of 1 are ignored ([1, n], [n, 1, …]).
  [[nodiscard]] Result<std::vector<float>> read_vector(std::string_view name, std::size_t n) const;
  // A_log of a KDA layer: one value a head; flattened, zero padding at its end dropped (spec §2.2).
  [[nodiscard]] Result<std::vector<float>> read_a_log(std::size_t layer) const;
  // conv1d weights [width, taps] of stream 'q', 'k' or 'v' of a KDA layer; stored as [width, 1, taps] or [width, taps].
  [[nodiscard]] Result<std::vector<float>> read_conv(std::size_t layer, char stream) const;

  // Whether every tensor that the config demands is there in a usable type and the right shape (spec §2.2, §2.5). Reads
  // no data.
  [[nodiscard]] Status verify_complete() const;

 private:
  friend struct CheckpointBuilder;
  Checkpoint() = default;
  // A tensor that holds n values when dimensions of 1 are dropped, BF16 or F32.
  [[nodiscard]] Result<const TensorInfo*> require_vector(std::string_view name, std::size_t n) const;
  [[nodiscard]] Result<const TensorInfo*> require_a_log(std::size_t layer) const;
  [[nodiscard]] Result<const TensorInfo*> require_conv(std::size_t layer, char stream) const;
  [[nodiscard]] Error missing(std::string_view name, std::string_view expected) const;

  ModelConfig config_;
  std::string config_json_;
  std::filesystem::path directory_;
  std::string prefix_;
  std::shared_ptr<const ShardFiles> files_;
  // Names and shapes of one shard each; TensorInfo points into them.
  std::vector<std::vector<char>> names_;
  std::vector<std::vector<std::uint64_t>> dims_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace myriad
