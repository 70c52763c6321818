#include "convert/model_files.h"

#include <algorithm>
#include <unordered_map>

#include "base/bytes.h"
#include "base/sha256.h"
#include "convert/gguf_layout.h"

namespace myriad {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::size_t kPiece = std::size_t{4} << 20;  // bytes that are read at once

// The directory's name, for general.name.
std::string model_name(const std::filesystem::path& directory) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(directory, error).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::optional<DType> float_type(StorageType type) {
  switch (type) {
    case StorageType::bf16:
      return DType::bf16;
    case StorageType::f16:
      return DType::f16;
    case StorageType::f32:
      return DType::f32;
    default:
      return std::nullopt;
  }
}

// The reverse of transposed_heads and values_of_heads, in f32: of every head its keys' rows, then its values'.
WeightMatrix whole_kv_b(std::string name, const WeightMatrix& k_b, const WeightMatrix& v_b, const HeadSplit& split) {
  const std::size_t rank = v_b.cols();
  const auto read = [k_b, v_b, split, rank](std::size_t first, std::size_t n, std::span<std::byte> out) -> Status {
    std::vector<float> keys(rank * split.keys), row(rank);
    std::size_t held = ~std::size_t{0};
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t h = (first + i) / split.rows(), r = (first + i) % split.rows();
      if (r < split.keys) {
        if (h != held) MYRIAD_TRY_STATUS(k_b.read_rows_f32(h * rank, rank, keys));
        held = h;
        for (std::size_t c = 0; c < rank; ++c) row[c] = keys[c * split.keys + r];
      } else {
        MYRIAD_TRY_STATUS(v_b.read_rows_f32(h * split.values + r - split.keys, 1, row));
      }
      for (std::size_t c = 0; c < rank; ++c) store_le(out.data() + (i * rank + c) * sizeof(float), row[c]);
    }
    return {};
  };
  return WeightMatrix(std::move(name), DType::f32, split.heads * split.rows(), rank, read);
}

}  // namespace

Result<ModelFiles> ModelFiles::open(const std::filesystem::path& path, std::optional<FileKind> target) {
  ModelFiles files;
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    return fail(Code::not_found, "opening the model {}: there is no such file or directory", path.string());
  if (std::filesystem::is_regular_file(path, none)) {
    MYRIAD_TRY(GgufWeights weights, GgufWeights::open(path));
    files.gguf_ = std::make_unique<GgufWeights>(std::move(weights));
    if (target == FileKind::directory) {
      files.restructured_ = true;
      MYRIAD_TRY_STATUS(files.restructure_gguf());
      return files;
    }
    files.list_gguf();
  } else {
    MYRIAD_TRY(HfWeights weights, HfWeights::open(path));
    files.directory_ = std::make_unique<HfWeights>(std::move(weights));
    if (target == FileKind::gguf) {
      const HfWeights& from = *files.directory_;
      files.restructured_ = true;
      MYRIAD_TRY(files.description_, describe_as_gguf(from.path(), from.checkpoint().config_json(), from.config(),
                                                      model_name(from.path())));
      MYRIAD_TRY(files.tensors_, gguf_tensors(from, *files.description_));
      return files;
    }
    files.list_directory();
  }
  MYRIAD_TRY_STATUS(files.find_uses());
  return files;
}

const ModelWeights& ModelFiles::weights() const {
  if (directory_) return *directory_;
  return *gguf_;
}

void ModelFiles::list_directory() {
  const Checkpoint& checkpoint = directory_->checkpoint();
  for (const TensorInfo& t : checkpoint.tensors()) {
    InputTensor in{.name = std::string(t.name), .stored_as = std::string(storage_type_name(t.type)), .bytes = t.bytes};
    const auto stem = [&](std::string_view suffix) { return in.name.substr(0, in.name.size() - suffix.size()); };
    if (t.name.ends_with(kScaleSuffix)) {
      // told of with its codes
      if (checkpoint.find(stem(kScaleSuffix) + std::string(kPackedSuffix)) != nullptr) continue;
    } else if (t.name.ends_with(kPackedSuffix) && t.shape.size() == 2) {
      const TensorInfo* scales = checkpoint.find(stem(kPackedSuffix) + std::string(kScaleSuffix));
      if (scales != nullptr) {
        in.name = stem(kPackedSuffix);
        in.bytes += scales->bytes;
        in.dtype = DType::mxfp4;
        in.rows = t.shape[0];
        in.cols = t.shape[1] * 2;
      }
    } else if (const auto type = type_of_suffix(t.name); type && t.shape.size() == 2) {
      in.name = stem(quantized_suffix(*type));
      in.dtype = *type;
      in.rows = t.shape[0];
      const std::uint64_t scale = *type == DType::i8_row ? kRowScaleBytes : 0;
      in.cols = t.shape[1] <= scale ? 0 : (t.shape[1] - scale) / block_bytes(*type) * block_values(*type);
    } else if (t.name.ends_with(kWeight) && t.shape.size() == 2 && float_type(t.type)) {
      in.name = stem(kWeight);
      in.dtype = float_type(t.type);
      in.rows = t.shape[0];
      in.cols = t.shape[1];
    }
    if (in.dtype) in.stored_as = dtype_name(*in.dtype);
    tensors_.push_back(std::move(in));
  }
}

void ModelFiles::list_gguf() {
  for (const GgufTensor& t : gguf_->file().tensors()) {
    InputTensor in{.name = std::string(t.name), .stored_as = ggml_type_text(t.type), .bytes = t.bytes};
    in.dtype = dtype_of(t.type);
    in.rows = t.rows();
    in.cols = t.row();
    if (in.dtype) in.stored_as = dtype_name(*in.dtype);
    tensors_.push_back(std::move(in));
  }
}

Status ModelFiles::restructure_gguf() {
  const ModelConfig& config = weights().config();
  for (const Operator& op : weights().graph().operators()) {
    for (const auto& m : op.matrices) {
      if (op.ref.role == OpRole::head && config.tied_embeddings) continue;  // the embedding
      if (m.role == MatrixRole::v_b) continue;                              // comes with k_b
      MYRIAD_TRY(const WeightMatrix matrix, weights().matrix(op.ref, m.role));
      InputTensor in{.name = hf_matrix_name(config, op.ref, m.role, {}), .op = op.ref, .matrix = m.role};
      in.dtype = matrix.dtype();
      in.rows = matrix.rows();
      in.cols = matrix.cols();
      in.uses = {{op.ref.layer, op.ref.role, m.role}};
      if (m.role == MatrixRole::k_b) {
        const HeadSplit split{config.mla.heads, config.mla.qk_nope_dim, config.mla.v_dim};
        in.dtype = DType::f32;
        in.rows = split.heads * split.rows();
        in.cols = config.mla.kv_lora_rank;
        in.uses.push_back({op.ref.layer, op.ref.role, MatrixRole::v_b});
      }
      if (op.ref.role == OpRole::embed && config.tied_embeddings)
        in.uses.push_back({0, OpRole::head, MatrixRole::weight});
      in.bytes = in.rows * row_bytes(*in.dtype, in.cols);
      in.stored_as = dtype_name(*in.dtype);
      tensors_.push_back(std::move(in));
    }
    for (const auto& v : op.vectors) {
      const std::uint64_t n = std::uint64_t{v.per_unit} * op.extent + v.fixed;
      InputTensor in{.name = hf_vector_name(op.ref, v.role, {}), .stored_as = "f32", .bytes = n * sizeof(float)};
      in.op = op.ref;
      in.vector = v.role;
      in.shape = {n};
      if (v.role == VectorRole::conv_q || v.role == VectorRole::conv_k || v.role == VectorRole::conv_v)
        in.shape = {config.kda.width(), config.kda.conv_taps};
      if (v.role != VectorRole::res_score) {
        tensors_.push_back(std::move(in));
        continue;
      }
      // Stored as a norm and a projection, which are multiplied: the score and ones.
      InputTensor ones = in;
      in.name += "_norm.weight";
      ones.name += "_proj.weight";
      tensors_.push_back(std::move(in));
      tensors_.push_back(std::move(ones));
    }
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const InputTensor& a, const InputTensor& b) { return a.name < b.name; });
  return {};
}

Result<std::vector<float>> ModelFiles::values(const InputTensor& tensor) const {
  if (description_) return gguf_values(weights(), *description_, tensor);
  if (tensor.vector == VectorRole::res_score && tensor.name.ends_with("_proj.weight"))
    return std::vector<float>(tensor.bytes / sizeof(float), 1.0F);
  return finite_vector(weights(), tensor.op, *tensor.vector);
}

Status ModelFiles::for_each_piece(const InputTensor& tensor,
                                  const std::function<Status(std::span<const std::byte>)>& take) const {
  if (!tensor.dtype) {
    MYRIAD_TRY(std::vector<float> numbers, values(tensor));
    little_in_place(std::span(numbers));
    return take(std::as_bytes(std::span(numbers)));
  }
  MYRIAD_TRY(const WeightMatrix rows_of, matrix(tensor));
  const std::size_t step = std::max<std::size_t>(1, kPiece / std::max<std::size_t>(rows_of.row_bytes(), 1));
  std::vector<std::byte> rows;
  for (std::size_t r = 0; r < tensor.rows; r += step) {
    const std::size_t n = std::min(step, tensor.rows - r);
    rows.resize(n * rows_of.row_bytes());
    MYRIAD_TRY_STATUS(rows_of.read_rows(r, n, rows));
    MYRIAD_TRY_STATUS(take(rows));
  }
  return {};
}

Status ModelFiles::find_uses() {
  std::unordered_map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < tensors_.size(); ++i) places.emplace(tensors_[i].name, i);
  for (const Operator& op : weights().graph().operators())
    for (const auto& m : op.matrices) {
      MYRIAD_TRY(const WeightMatrix matrix, weights().matrix(op.ref, m.role));
      const auto at = places.find(matrix.name());
      if (at == places.end())
        return fail(Code::internal, "the matrix {} is no tensor of {}", matrix.name(), weights().path().string());
      auto& uses = tensors_[at->second].uses;
      const ModelConfig::MatrixKey key{op.ref.layer, op.ref.role, m.role};
      if (uses.empty() || uses.back() != key) uses.push_back(key);
    }
  return {};
}

Result<WeightMatrix> ModelFiles::matrix(const InputTensor& tensor) const {
  if (description_) return gguf_matrix(weights(), *description_, tensor);
  if (directory_) return directory_->stored(tensor.name, tensor.rows, tensor.cols);
  if (restructured_) {
    MYRIAD_TRY(WeightMatrix matrix, weights().matrix(tensor.op, tensor.matrix));
    if (tensor.matrix != MatrixRole::k_b) return matrix;
    MYRIAD_TRY(const WeightMatrix v_b, weights().matrix(tensor.op, MatrixRole::v_b));
    const MlaConfig& mla = weights().config().mla;
    return whole_kv_b(tensor.name, matrix, v_b, {mla.heads, mla.qk_nope_dim, mla.v_dim});
  }
  MYRIAD_TRY(const GgufTensor* t, gguf_->file().require(tensor.name));
  if (!tensor.dtype)
    return fail(Code::unsupported, "reading tensor {} as numbers: it is {}", tensor.name, tensor.stored_as);
  const std::uint64_t row = row_bytes(*tensor.dtype, tensor.cols);
  return WeightMatrix(tensor.name, *tensor.dtype, tensor.rows, tensor.cols,
                      [file = gguf_->file(), t, row](std::size_t first, std::size_t n, std::span<std::byte> out) {
                        (void)n;
                        return file.read(*t, first * row, out);
                      });
}

Result<std::string> ModelFiles::fingerprint() const {
  std::string text;
  std::vector<std::filesystem::path> paths;
  if (directory_) {
    const Checkpoint& checkpoint = directory_->checkpoint();
    text = checkpoint.config_json();
    for (std::uint32_t i = 0; i < checkpoint.shards(); ++i)
      paths.push_back(checkpoint.directory() / checkpoint.shard_name(i));
  } else {
    const GgufFile& file = gguf_->file();
    paths.push_back(file.path());
    for (std::size_t i = 0; file.parts() > 1 && i < file.parts(); ++i)
      paths.push_back(file.path().parent_path() / file.part_name(i));
  }
  for (const auto& path : paths) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error) return fail(Code::io, "reading the size of {}: {}", path.string(), error.message());
    const auto time = std::filesystem::last_write_time(path, error).time_since_epoch().count();
    text += fmt::format("\n{} {} {}", path.filename().string(), size, time);
  }
  return to_hex(sha256(std::as_bytes(std::span(text))));
}

}  // namespace myriad
