#include "convert/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "convert/gguf_output.h"
#include "model/config_fields.h"
#include "model/safetensors_writer.h"
#include "part/file_io.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{4} << 20;  // bytes of a copy

// What belongs to a model besides config and weights.
bool is_kept_file(const std::string& name) {
  static constexpr std::array<std::string_view, 13> kNames = {"tokenizer.json",
                                                              "tokenizer_config.json",
                                                              "tokenizer.model",
                                                              "tiktoken.model",
                                                              "vocab.json",
                                                              "merges.txt",
                                                              "special_tokens_map.json",
                                                              "added_tokens.json",
                                                              "generation_config.json",
                                                              "chat_template.jinja",
                                                              "chat_template.json",
                                                              "preprocessor_config.json",
                                                              "LICENSE"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() || name.ends_with(".tiktoken");
}

class DirectoryOutput final : public QuantizedOutput {
 public:
  DirectoryOutput(const ModelFiles& files, const std::vector<TensorPlan>& plan, fs::path path)
      : files_(files),
        plan_(plan),
        path_(std::move(path)),
        partial_(partial_path(path_)),
        writer_(partial_, {.resumable = true}) {}

  Status declare() {
    for (std::size_t i = 0; i < plan_.size(); ++i) {
      first_.push_back(declared_.size());
      for (Piece& p : pieces_of(i)) {
        MYRIAD_TRY_STATUS(writer_.declare(p.name, p.type, p.shape));
        declared_.push_back(std::move(p));
      }
    }
    first_.push_back(declared_.size());
    return {};
  }
  [[nodiscard]] std::uint64_t bytes() const override { return writer_.bytes(); }

  Result<std::size_t> begin() override {
    std::error_code error;
    fs::create_directories(partial_, error);
    if (error) return fail(Code::io, "creating {}: {}", partial_.string(), error.message());
    MYRIAD_TRY(there_, writer_.begin());
    // Of a pair whose codes are there but whose scales are not, the codes are made again and not written.
    return static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), there_) - first_.begin()) - 1;
  }

  Status write_rows(std::size_t tensor, std::span<const std::byte> rows) override {
    if (plan_[tensor].type.value_or(files_.tensors()[tensor].dtype.value_or(DType::f32)) != DType::mxfp4)
      return put(first_[tensor], rows);
    return write_mxfp4(tensor, rows);
  }

  Status copy(std::size_t tensor) override {
    if (files_.restructured())
      return files_.for_each_piece(files_.tensors()[tensor],
                                   [&](std::span<const std::byte> rows) { return write_rows(tensor, rows); });
    const Checkpoint& checkpoint = files_.directory()->checkpoint();
    std::vector<std::byte> piece;
    for (std::size_t p = first_[tensor]; p < first_[tensor + 1]; ++p) {
      const TensorInfo& t = *declared_[p].from;
      if (t.bytes == 0) MYRIAD_TRY_STATUS(put(p, {}));
      for (std::uint64_t done = 0; done < t.bytes; done += piece.size()) {
        piece.resize(std::min<std::uint64_t>(kPiece, t.bytes - done));
        MYRIAD_TRY_STATUS(checkpoint.read(t, done, piece));
        MYRIAD_TRY_STATUS(put(p, piece));
      }
    }
    return {};
  }

  Status finish() override {
    MYRIAD_TRY_STATUS(writer_.finish());
    MYRIAD_TRY_STATUS(copy_small_files());
    MYRIAD_TRY_STATUS(write_config());
    std::error_code error;
    fs::rename(partial_, path_, error);
    if (error) return fail(Code::io, "renaming {} to {}: {}", partial_.string(), path_.string(), error.message());
    return {};
  }

 private:
  struct Piece {
    std::string name;
    StorageType type = StorageType::u8;
    std::vector<std::uint64_t> shape;
    const TensorInfo* from = nullptr;  // of a copy
  };

  // A matrix in a type that it does not have in a directory.
  static std::vector<Piece> pieces_in(const std::string& stem, DType type, std::uint64_t rows, std::uint64_t cols) {
    switch (type) {
      case DType::f32:
        return {{stem + ".weight", StorageType::f32, {rows, cols}}};
      case DType::f16:
        return {{stem + ".weight", StorageType::f16, {rows, cols}}};
      case DType::bf16:
        return {{stem + ".weight", StorageType::bf16, {rows, cols}}};
      case DType::mxfp4:
        return {{stem + std::string(kPackedSuffix), StorageType::u8, {rows, cols / 2}},
                {stem + std::string(kScaleSuffix), StorageType::u8, {rows, cols / kGroup}}};
      default:
        return {{stem + quantized_suffix(type), StorageType::u8, {rows, row_bytes(type, cols)}}};
    }
  }

  // The stored tensors of an input tensor, as they will be.
  std::vector<Piece> pieces_of(std::size_t i) const {
    const InputTensor& in = files_.tensors()[i];
    if (files_.restructured()) {
      if (!in.dtype) return {{in.name, StorageType::f32, in.shape}};
      return pieces_in(in.name, plan_[i].type.value_or(*in.dtype), in.rows, in.cols);
    }
    const Checkpoint& checkpoint = files_.directory()->checkpoint();
    const auto found = in.dtype ? checkpoint.find_matrix(in.name) : std::nullopt;
    const auto as_it_is = [](const TensorInfo& t) {
      return Piece{std::string(t.stored_name), t.type, {t.shape.begin(), t.shape.end()}, &t};
    };
    if (!plan_[i].type) {
      if (!found) return {as_it_is(*checkpoint.find(in.name))};
      std::vector<Piece> pieces = {as_it_is(*found->values)};
      if (found->scales != nullptr) pieces.push_back(as_it_is(*found->scales));
      return pieces;
    }
    const std::string stem(found->values->stored_name.substr(0, found->values->stored_name.rfind(".weight")));
    return pieces_in(stem, *plan_[i].type, in.rows, in.cols);
  }

  Status put(std::size_t piece, std::span<const std::byte> bytes) {
    return piece < there_ ? Status{} : writer_.append(declared_[piece].name, bytes);
  }

  // Blocks of 17 bytes to the pair of tensors: the reverse of read_mxfp4_blocks of model/hf_weights.cc. The scales, a
  // seventeenth of the tensor, wait until the codes are written.
  Status write_mxfp4(std::size_t tensor, std::span<const std::byte> rows) {
    constexpr std::size_t kBlock = block_bytes(DType::mxfp4);
    std::vector<std::byte> codes;
    codes.reserve(rows.size() / kBlock * 16);
    for (std::size_t b = 0; b < rows.size(); b += kBlock) {
      scales_.push_back(rows[b]);
      const auto code = [&](std::size_t i) {
        return std::to_integer<unsigned>(rows[b + 1 + i % 16]) >> (i < 16 ? 0 : 4) & 15U;
      };
      for (std::size_t i = 0; i < 16; ++i) codes.push_back(static_cast<std::byte>(code(2 * i) | code(2 * i + 1) << 4));
    }
    MYRIAD_TRY_STATUS(put(first_[tensor], codes));
    const InputTensor& in = files_.tensors()[tensor];
    if (scales_.size() < in.rows * in.cols / kGroup) return {};
    MYRIAD_TRY_STATUS(put(first_[tensor] + 1, scales_));
    scales_.clear();
    return {};
  }

  Status copy_small_files() const {
    if (files_.restructured()) {
      MYRIAD_TRY_STATUS(files_.weights().write_tokenizer_files(partial_));
      return {};
    }
    const fs::path& from = files_.directory()->checkpoint().directory();
    std::error_code error;
    for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      std::error_code one;
      if (!is_kept_file(name) || !it->is_regular_file(one)) continue;
      fs::copy_file(it->path(), partial_ / name, fs::copy_options::overwrite_existing, one);
      if (one) return fail(Code::io, "copying {} to {}: {}", it->path().string(), partial_.string(), one.message());
    }
    if (error) return fail(Code::io, "listing {}: {}", from.string(), error.message());
    return {};
  }

  // The original's, with a quantization_config that says whose format this is; the headers say the rest.
  Status write_config() const {
    ModelConfig own = files_.weights().config();
    own.dtypes.clear();  // as the headers say
    auto config = nlohmann::ordered_json::parse(files_.restructured() ? config_to_json(own)
                                                                      : files_.directory()->checkpoint().config_json());
    std::map<std::string, std::uint64_t> matrices;
    for (std::size_t i = 0; i < plan_.size(); ++i) {
      const InputTensor& t = files_.tensors()[i];
      if (t.uses.empty()) continue;
      ++matrices[std::string(dtype_name(plan_[i].type.value_or(*t.dtype)))];
    }
    const nlohmann::ordered_json quantization = {{"quant_method", kOwnQuantMethod},
                                                 {"format", "weight_TYPE: U8 [rows, bytes of a row]"},
                                                 {"matrices", matrices}};
    config.erase("quantization_config");
    const bool nested = config.contains("text_config") && config["text_config"].is_object();
    (nested ? config["text_config"] : config)["quantization_config"] = quantization;
    const std::string text = config.dump(1) + "\n";
    return write_file_atomically(partial_ / "config.json", std::as_bytes(std::span(text)));
  }

  const ModelFiles& files_;
  const std::vector<TensorPlan> plan_;
  fs::path path_, partial_;
  SafetensorsWriter writer_;
  std::vector<Piece> declared_;
  std::vector<std::size_t> first_;  // of an input tensor, in declared_; one more at the end
  std::size_t there_ = 0;           // pieces that an earlier run wrote
  std::vector<std::byte> scales_;
};

}  // namespace

bool is_gguf_name(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return extension == ".gguf";
}

fs::path partial_path(const fs::path& path) {
  fs::path partial = path;
  partial += ".partial";
  return partial;
}

Status remove_partial(const fs::path& path) {
  std::error_code error;
  fs::remove_all(partial_path(path), error);
  if (error) return fail(Code::io, "removing {}: {}", partial_path(path).string(), error.message());
  return {};
}

Result<std::unique_ptr<QuantizedOutput>> QuantizedOutput::create(const ModelFiles& files,
                                                                 const std::vector<TensorPlan>& plan,
                                                                 const fs::path& path) {
  const bool to_file = is_gguf_name(path);
  if (to_file != (files.target() == FileKind::gguf))
    return fail(Code::invalid_argument, "writing {}: the tensors of {} were asked for as those of {}", path.string(),
                files.weights().path().string(), to_file ? "a directory" : "a GGUF file");
  if (!to_file) {
    auto out = std::make_unique<DirectoryOutput>(files, plan, path);
    MYRIAD_TRY_STATUS(out->declare());
    return out;
  }
  for (std::size_t i = 0; i < plan.size(); ++i)
    if (plan[i].type && !in_gguf(*plan[i].type))
      return fail(Code::unsupported,
                  "writing {}: tensor {} as {}, which no GGUF file can hold; name a directory (without .gguf), or take "
                  "q8_0 or q4_0",
                  path.string(), files.tensors()[i].name, dtype_name(*plan[i].type));
  return create_gguf_output(files, plan, path);
}

}  // namespace myriad
