#include "model/hf_weights.h"

#include <algorithm>
#include <charconv>

#include "base/bytes.h"

namespace myriad {
namespace {

// Rows of the pair of tensors that hold MXFP4, as blocks: within a block of 32 the file pairs columns (2j, 2j + 1), the
// block (j, j + 16).
Status read_mxfp4_blocks(const MatrixSource& source, std::size_t first, std::size_t n, std::span<std::byte> out) {
  const std::size_t groups = source.cols() / kGroup;
  std::vector<std::uint8_t> codes(n * source.cols() / 2), scales(n * groups);
  MYRIAD_TRY_STATUS(source.read_rows_mxfp4(first, first + n, codes, scales));
  for (std::size_t g = 0; g < n * groups; ++g) {
    std::byte* block = out.data() + g * block_bytes(DType::mxfp4);
    const std::uint8_t* from = codes.data() + g * 16;
    const auto code = [&](std::size_t i) { return from[i / 2] >> (i % 2 * 4) & 15; };
    block[0] = static_cast<std::byte>(scales[g]);
    for (std::size_t j = 0; j < 16; ++j) block[1 + j] = static_cast<std::byte>(code(j) | code(j + 16) << 4);
  }
  return {};
}

}  // namespace

Result<HfWeights> HfWeights::open(const std::filesystem::path& directory) {
  MYRIAD_TRY(Checkpoint checkpoint, Checkpoint::open(directory));
  MYRIAD_TRY(Graph graph, Graph::build(checkpoint.config()));
  HfWeights weights(std::move(checkpoint), std::move(graph));
  MYRIAD_TRY_STATUS(weights.refuse_unused());
  MYRIAD_TRY_STATUS(weights.take_types([&](OpRef op, MatrixRole role) { return weights.stored_type(op, role); }));
  return weights;
}

bool HfWeights::unused_by_design(std::string_view name) const {
  constexpr std::string_view kModel = "model.", kHead = "lm_head.", kLayers = "model.layers.";
  if (name.starts_with(kHead)) return config().tied_embeddings;  // the embedding's values once more
  const bool predicts = config().nextn_predict_layers != 0;
  if (name.starts_with("mtp.") || name.starts_with("model.mtp")) return predicts;
  if (!name.starts_with(kModel)) return true;
  if (name.ends_with(".rotary_emb.inv_freq")) return true;  // frequencies, of old files
  if (!name.starts_with(kLayers)) return false;
  name.remove_prefix(kLayers.size());
  std::size_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && layer >= config().layers() &&
         layer < config().layers() + config().nextn_predict_layers;
}

Status HfWeights::refuse_unused() const {
  const std::span<const TensorInfo> tensors = checkpoint_.tensors();
  std::vector<bool> used(tensors.size());
  const auto use = [&](const TensorInfo* t) {
    if (t != nullptr) used[static_cast<std::size_t>(t - tensors.data())] = true;
  };
  HfNaming layer_naming;
  for (const Operator& op : graph().operators()) {
    const bool moe =
        op.ref.role >= OpRole::ffn_lead && op.ref.role <= OpRole::latent_up && config().is_moe(op.ref.layer);
    if (moe && op.ref.role == OpRole::ffn_lead) layer_naming = naming({op.ref.layer, OpRole::expert, 0});
    const HfNaming& naming = moe ? layer_naming : HfNaming{};
    for (const auto& m : op.matrices)
      if (const auto found = checkpoint_.find_matrix(hf_matrix_name(config(), op.ref, m.role, naming))) {
        use(found->values);
        use(found->scales);
      }
    for (const auto& v : op.vectors) {
      const std::string name = hf_vector_name(op.ref, v.role, naming);
      use(checkpoint_.find(name));
      if (v.role != VectorRole::res_score) continue;
      use(checkpoint_.find(name + "_norm.weight"));
      use(checkpoint_.find(name + "_proj.weight"));
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (used[i] || unused_by_design(tensors[i].name)) continue;
    return fail(
        Code::unsupported,
        "opening {}: nothing takes the tensor {} in {}; a model of {} with {} layers as config.json describes it "
        "has none, and without it the results would be wrong: is num_hidden_layers right, and are weights and "
        "config.json of the same model? If so, this variant is not supported",
        checkpoint_.directory().string(), tensors[i].stored_name, checkpoint_.shard_name(tensors[i].shard),
        config().architecture, config().layers());
  }
  return {};
}

HfNaming HfWeights::naming(OpRef op) const {
  HfNaming naming;
  naming.sparse_moe =
      checkpoint_.find_matrix(hf_matrix_name(config(), {op.layer, OpRole::router, 0}, MatrixRole::weight, naming))
          .has_value();
  if (op.role == OpRole::expert) {
    naming.long_expert_names = true;
    naming.long_expert_names =
        checkpoint_.find_matrix(hf_matrix_name(config(), op, MatrixRole::down, naming)).has_value();
  }
  return naming;
}

std::string HfWeights::tensor(OpRef op, MatrixRole role) const {
  return hf_matrix_name(config(), op, role, config().is_moe(op.layer) ? naming(op) : HfNaming{});
}

Result<WeightMatrix> HfWeights::stored(const std::string& name, std::size_t rows, std::size_t cols) const {
  MYRIAD_TRY(const MatrixSource source, checkpoint_.matrix(name, rows, cols));
  return WeightMatrix(name, source.dtype(), rows, cols,
                      [source](std::size_t first, std::size_t n, std::span<std::byte> out) -> Status {
                        if (source.dtype() == DType::mxfp4) return read_mxfp4_blocks(source, first, n, out);
                        return source.read_rows(first, first + n, out);
                      });
}

Result<WeightMatrix> HfWeights::matrix(OpRef op, MatrixRole role) const {
  const Shape wanted = shape(op, role);
  if (role != MatrixRole::k_b && role != MatrixRole::v_b) return stored(tensor(op, role), wanted.rows, wanted.cols);
  const HeadSplit split{config().mla.heads, config().mla.qk_nope_dim, config().mla.v_dim};
  MYRIAD_TRY(const WeightMatrix kv_b, stored(tensor(op, role), split.heads * split.rows(), config().mla.kv_lora_rank));
  if (role == MatrixRole::v_b) return values_of_heads(kv_b, split);
  return transposed_heads(is_quantized(kv_b.dtype()) ? as_f32(kv_b) : kv_b, split);
}

Result<std::vector<float>> HfWeights::vector(OpRef op, VectorRole role) const {
  const std::size_t n = size(op, role);
  const std::string name = hf_vector_name(op, role, config().is_moe(op.layer) ? naming(op) : HfNaming{});
  switch (role) {
    case VectorRole::res_score: {
      MYRIAD_TRY(std::vector<float> norm, checkpoint_.read_vector(name + "_norm.weight", n));
      MYRIAD_TRY(const std::vector<float> proj, checkpoint_.read_vector(name + "_proj.weight", n));
      for (std::size_t i = 0; i < n; ++i) norm[i] *= proj[i];
      return norm;
    }
    case VectorRole::conv_q:
      return checkpoint_.read_conv(op.layer, 'q');
    case VectorRole::conv_k:
      return checkpoint_.read_conv(op.layer, 'k');
    case VectorRole::conv_v:
      return checkpoint_.read_conv(op.layer, 'v');
    case VectorRole::a_log:
      return checkpoint_.read_a_log(op.layer);
    default:
      return checkpoint_.read_vector(name, n);
  }
}

Result<std::vector<std::string>> HfWeights::write_tokenizer_files(const std::filesystem::path& directory) const {
  std::vector<std::string> names;
  for (const char* name : {"config.json", "tokenizer.gguf", "tiktoken.model", "tokenizer.json", "tokenizer.model",
                           "tokenizer_config.json", "chat_template.jinja"}) {
    std::error_code error;
    const auto from = checkpoint_.directory() / name;
    if (!std::filesystem::exists(from, error)) continue;
    const auto partial = directory / (std::string(name) + ".partial");
    std::filesystem::copy_file(from, partial, std::filesystem::copy_options::overwrite_existing, error);
    if (!error) std::filesystem::rename(partial, directory / name, error);
    if (error) return fail(Code::io, "copying {} to {}: {}", from.string(), directory.string(), error.message());
    names.emplace_back(name);
  }
  return names;
}

std::optional<DType> HfWeights::stored_type(OpRef op, MatrixRole role) const {
  const auto found = checkpoint_.find_matrix(tensor(op, role));
  if (!found) return std::nullopt;
  // Whose rows are quantised has no type of its own for the transposed half; see matrix().
  if (is_quantized(found->dtype)) return role == MatrixRole::k_b ? DType::f32 : found->dtype;
  // In a checkpoint with an F32 trunk the BF16 matrices are widened, which is exact (Checkpoint::open says so).
  if (config().dtype_of(op.layer, op.role, role) == DType::f32) return std::nullopt;
  switch (found->values->type) {
    case StorageType::f32:
      return DType::f32;
    case StorageType::f16:
      return DType::f16;
    case StorageType::bf16:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

}  // namespace myriad
