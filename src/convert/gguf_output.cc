#include "convert/gguf_output.h"

#include <algorithm>
#include <map>

#include "model/gguf_weights.h"
#include "model/gguf_writer.h"
#include "quant/blocks.h"

namespace myriad {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;  // bytes of a copy

// general.file_type as llama.cpp numbers it, for those who show it (llama.h, enum llama_ftype).
std::optional<std::uint32_t> file_type_of(DType t) {
  switch (t) {
    case DType::f32:
      return 0;
    case DType::f16:
      return 1;
    case DType::q4_0:
      return 2;
    case DType::q4_1:
      return 3;
    case DType::q8_0:
      return 7;
    case DType::q5_0:
      return 8;
    case DType::q5_1:
      return 9;
    case DType::q4_k:
      return 14;
    case DType::q5_k:
      return 16;
    case DType::q6_k:
      return 18;
    case DType::iq4_nl:
      return 25;
    case DType::bf16:
      return 32;
    case DType::mxfp4:
      return 38;
    default:
      return std::nullopt;
  }
}

class GgufOutput final : public QuantizedOutput {
 public:
  GgufOutput(const ModelFiles& files, const std::filesystem::path& path)
      : files_(files), writer_(path, {.resumable = true}) {}

  Status declare(const std::vector<TensorPlan>& plan) {
    const auto main = main_type(plan);
    if (const auto number = main ? file_type_of(*main) : std::nullopt)
      MYRIAD_TRY_STATUS(writer_.set("general.file_type", *number));
    MYRIAD_TRY_STATUS(writer_.set("general.quantization_version", std::uint32_t{2}));
    if (const GgufDescription* description = files_.description(); description != nullptr) {
      MYRIAD_TRY_STATUS(set_all(writer_, description->settings));
      // A directory has no layers of multi-token prediction, and block_count says so.
      if (description->rest) MYRIAD_TRY_STATUS(writer_.copy_metadata(*description->rest, ".nextn_predict_layers"));
    } else {
      MYRIAD_TRY_STATUS(writer_.copy_metadata(files_.gguf()->file().metadata()));
    }
    for (std::size_t i = 0; i < plan.size(); ++i) MYRIAD_TRY_STATUS(declare(files_.tensors()[i], plan[i]));
    return {};
  }
  [[nodiscard]] std::uint64_t bytes() const override { return writer_.file_bytes(); }
  Result<std::size_t> begin() override { return writer_.begin(); }
  Status write_rows(std::size_t tensor, std::span<const std::byte> rows) override {
    return writer_.append(files_.tensors()[tensor].name, rows);
  }
  Status copy(std::size_t tensor) override {
    if (files_.restructured())
      return files_.for_each_piece(files_.tensors()[tensor],
                                   [&](std::span<const std::byte> piece) { return write_rows(tensor, piece); });
    MYRIAD_TRY(const GgufTensor* t, files_.gguf()->file().require(files_.tensors()[tensor].name));
    const auto type = dtype_of(t->type);  // of whole blocks, which can be looked at
    const std::size_t block = type ? block_bytes(*type) : 1;
    std::vector<std::byte> piece;
    for (std::uint64_t done = 0; done < t->bytes; done += piece.size()) {
      piece.resize(std::min<std::uint64_t>(kPiece / block * block, t->bytes - done));
      MYRIAD_TRY_STATUS(files_.gguf()->file().read(*t, done, piece));
      if (const auto bad =
              type ? find_not_finite(*type, piece, piece.size() / block, block_values(*type)) : std::nullopt)
        return fail(Code::corrupt, "copying {}: a value or scale at byte {} is no finite number; is the file damaged?",
                    t->name, done + *bad * block);
      MYRIAD_TRY_STATUS(writer_.append(t->name, piece));
    }
    return {};
  }
  Status finish() override { return writer_.finish(); }

 private:
  Status declare(const InputTensor& in, const TensorPlan& plan) {
    if (files_.restructured())
      return writer_.declare(in.name, *ggml_type_of(plan.type.value_or(in.dtype.value_or(DType::f32))), in.shape);
    MYRIAD_TRY(const GgufTensor* t, files_.gguf()->file().require(in.name));
    return writer_.declare(t->name, plan.type ? *ggml_type_of(*plan.type) : t->type, t->dims());
  }

  // The type that most values have; of a GGUF file of those that change, since what stays says it already.
  [[nodiscard]] std::optional<DType> main_type(const std::vector<TensorPlan>& plan) const {
    std::map<DType, std::uint64_t> values;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const InputTensor& t = files_.tensors()[i];
      const auto type = plan[i].type || !files_.restructured() ? plan[i].type : t.dtype;
      if (type) values[*type] += std::uint64_t{t.rows} * t.cols;
    }
    const auto most = std::max_element(values.begin(), values.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == values.end() ? std::nullopt : std::optional(most->first);
  }

  const ModelFiles& files_;
  GgufWriter writer_;
};

}  // namespace

Result<std::unique_ptr<QuantizedOutput>> create_gguf_output(const ModelFiles& files,
                                                            const std::vector<TensorPlan>& plan,
                                                            const std::filesystem::path& path) {
  auto out = std::make_unique<GgufOutput>(files, path);
  MYRIAD_TRY_STATUS(out->declare(plan));
  return out;
}

}  // namespace myriad
