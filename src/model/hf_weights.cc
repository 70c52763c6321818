#include "model/hf_weights.h"

#include <algorithm>

#include "base/bytes.h"

namespace myriad {
namespace {

std::string layer_name(OpRef op, std::string_view rest) {
  return fmt::format("model.layers.{}.{}", op.layer, rest);
}

std::string attention(OpRef op, std::string_view rest) {
  return layer_name(op, fmt::format("self_attn.{}", rest));
}

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
  MYRIAD_TRY_STATUS(weights.take_types([&](OpRef op, MatrixRole role) { return weights.stored_type(op, role); }));
  return weights;
}

// Below `mlp` or, as Kimi and Mixtral have it, `block_sparse_moe`.
std::string HfWeights::ffn(OpRef op, std::string_view rest) const {
  if (config().is_moe(op.layer)) {
    const std::string sparse = layer_name(op, "block_sparse_moe.");
    if (checkpoint_.find_matrix(sparse + "gate")) return sparse + std::string(rest);
  }
  return layer_name(op, fmt::format("mlp.{}", rest));
}

std::string HfWeights::expert(OpRef op, MatrixRole role) const {
  const std::string stem = ffn(op, fmt::format("experts.{}.", op.index));
  const bool long_names = checkpoint_.find_matrix(stem + "down_proj").has_value();
  switch (role) {
    case MatrixRole::gate:
      return stem + (long_names ? "gate_proj" : "w1");
    case MatrixRole::up:
      return stem + (long_names ? "up_proj" : "w3");
    default:
      return stem + (long_names ? "down_proj" : "w2");
  }
}

std::string HfWeights::tensor(OpRef op, MatrixRole role) const {
  const bool gate = role == MatrixRole::gate;
  switch (op.role) {
    case OpRole::embed:
      return "model.embed_tokens";
    case OpRole::head:
      return config().tied_embeddings ? "model.embed_tokens" : "lm_head";
    case OpRole::attn_q_a:
      return attention(op, "q_a_proj");
    case OpRole::attn_kv_a:
      return attention(op, "kv_a_proj_with_mqa");
    case OpRole::attn_o:
      return attention(op, "o_proj");
    case OpRole::router:
      return ffn(op, "gate");
    case OpRole::latent_down:
      return ffn(op, "routed_expert_down_proj");
    case OpRole::latent_up:
      return ffn(op, "routed_expert_up_proj");
    case OpRole::shared_up:
      return ffn(op, gate ? "shared_experts.gate_proj" : "shared_experts.up_proj");
    case OpRole::shared_down:
      return ffn(op, "shared_experts.down_proj");
    case OpRole::dense_up:
      return ffn(op, gate ? "gate_proj" : "up_proj");
    case OpRole::dense_down:
      return ffn(op, "down_proj");
    case OpRole::expert:
      return expert(op, role);
    default:
      break;
  }
  switch (role) {
    case MatrixRole::q:
      return attention(op, config().attention[op.layer] == AttentionKind::mla && config().mla.q_lora_rank != 0
                               ? "q_b_proj"
                               : "q_proj");
    case MatrixRole::k:
      return attention(op, "k_proj");
    case MatrixRole::v:
      return attention(op, "v_proj");
    case MatrixRole::f_a:
      return attention(op, "f_a_proj");
    case MatrixRole::f_b:
      return attention(op, "f_b_proj");
    case MatrixRole::b:
      return attention(op, "b_proj");
    case MatrixRole::g:
      return attention(op, "g_proj");
    case MatrixRole::g_a:
      return attention(op, "g_a_proj");
    case MatrixRole::g_b:
      return attention(op, "g_b_proj");
    default:
      return attention(op, "kv_b_proj");
  }
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
  const auto whole = [&](const std::string& name) { return checkpoint_.read_vector(name, n); };
  switch (role) {
    case VectorRole::norm:
      if (op.role == OpRole::final_lead) return whole("model.norm.weight");
      return whole(
          layer_name(op, op.role == OpRole::attn_lead ? "input_layernorm.weight" : "post_attention_layernorm.weight"));
    case VectorRole::res_score: {
      const std::string stem = op.role == OpRole::final_lead
                                   ? "model.output_attn_res"
                                   : layer_name(op, op.role == OpRole::attn_lead ? "self_attention_res" : "mlp_res");
      MYRIAD_TRY(std::vector<float> norm, whole(stem + "_norm.weight"));
      MYRIAD_TRY(const std::vector<float> proj, whole(stem + "_proj.weight"));
      for (std::size_t i = 0; i < n; ++i) norm[i] *= proj[i];
      return norm;
    }
    case VectorRole::q_a_norm:
      return whole(attention(op, "q_a_layernorm.weight"));
    case VectorRole::kv_a_norm:
      return whole(attention(op, "kv_a_layernorm.weight"));
    case VectorRole::latent_norm:
      return whole(ffn(op, "routed_expert_norm.weight"));
    case VectorRole::router_bias:
      return whole(ffn(op, "gate.e_score_correction_bias"));
    case VectorRole::conv_q:
      return checkpoint_.read_conv(op.layer, 'q');
    case VectorRole::conv_k:
      return checkpoint_.read_conv(op.layer, 'k');
    case VectorRole::conv_v:
      return checkpoint_.read_conv(op.layer, 'v');
    case VectorRole::a_log:
      return checkpoint_.read_a_log(op.layer);
    case VectorRole::dt_bias:
      return whole(attention(op, "dt_bias"));
    case VectorRole::o_norm:
      return whole(attention(op, "o_norm.weight"));
    case VectorRole::q_bias:
      return whole(attention(op, "q_proj.bias"));
    case VectorRole::k_bias:
      return whole(attention(op, "k_proj.bias"));
    case VectorRole::v_bias:
      return whole(attention(op, "v_proj.bias"));
    case VectorRole::q_norm:
      return whole(attention(op, "q_norm.weight"));
    case VectorRole::k_norm:
      return whole(attention(op, "k_norm.weight"));
  }
  return fail(Code::internal, "reading a vector: unknown role {}", static_cast<int>(role));
}

Result<std::vector<std::string>> HfWeights::write_tokenizer_files(const std::filesystem::path& directory) const {
  std::vector<std::string> names;
  for (const char* name : {"config.json", "tiktoken.model", "tokenizer.json", "tokenizer.model",
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
