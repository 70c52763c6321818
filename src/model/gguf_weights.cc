#include "model/gguf_weights.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/bytes.h"
#include "model/gguf_config.h"
#include "model/gguf_tokenizer.h"
#include "model/gguf_writer.h"
#include "quant/blocks.h"

namespace myriad {
namespace {

std::string block(OpRef op, std::string_view rest) {
  return fmt::format("blk.{}.{}", op.layer, rest);
}

}  // namespace

std::optional<DType> dtype_of(GgmlType type) {
  switch (type) {
    case GgmlType::f32:
      return DType::f32;
    case GgmlType::f16:
      return DType::f16;
    case GgmlType::bf16:
      return DType::bf16;
    case GgmlType::q4_0:
      return DType::q4_0;
    case GgmlType::q4_1:
      return DType::q4_1;
    case GgmlType::q5_0:
      return DType::q5_0;
    case GgmlType::q5_1:
      return DType::q5_1;
    case GgmlType::q8_0:
      return DType::q8_0;
    case GgmlType::q2_k:
      return DType::q2_k;
    case GgmlType::q3_k:
      return DType::q3_k;
    case GgmlType::q4_k:
      return DType::q4_k;
    case GgmlType::q5_k:
      return DType::q5_k;
    case GgmlType::q6_k:
      return DType::q6_k;
    case GgmlType::q8_k:
      return DType::q8_k;
    case GgmlType::iq4_nl:
      return DType::iq4_nl;
    case GgmlType::iq4_xs:
      return DType::iq4_xs;
    case GgmlType::mxfp4:
      return DType::mxfp4;
    default:
      return std::nullopt;
  }
}

Result<GgufWeights> GgufWeights::open(const std::filesystem::path& path) {
  MYRIAD_TRY(GgufFile file, GgufFile::open(path));
  MYRIAD_TRY(const ModelConfig config, gguf_config(file));
  MYRIAD_TRY(Graph graph, Graph::build(config));
  GgufWeights weights(std::move(file), std::move(graph));
  MYRIAD_TRY_STATUS(weights.take_types([&](OpRef op, MatrixRole role) { return weights.stored_type(op, role); }));
  return weights;
}

const GgufTensor* GgufWeights::find(std::initializer_list<std::string> names) const {
  for (const std::string& name : names) {
    if (const GgufTensor* t = file_.find(name); t != nullptr) return t;
    if (name.ends_with(".weight"))
      if (const GgufTensor* t = file_.find(name.substr(0, name.size() - 7)); t != nullptr) return t;
  }
  return nullptr;
}

GgufWeights::Place GgufWeights::place(OpRef op, MatrixRole role) const {
  const auto whole = [&](std::initializer_list<std::string> names) { return Place{find(names), 0, *names.begin()}; };
  const auto in_block = [&](std::string_view rest) { return whole({block(op, fmt::format("{}.weight", rest))}); };
  const bool gate = role == MatrixRole::gate;
  switch (op.role) {
    case OpRole::embed:
      return whole({"token_embd.weight"});
    case OpRole::head:
      return config().tied_embeddings ? whole({"token_embd.weight"}) : whole({"output.weight"});
    case OpRole::attn_q_a:
      return in_block("attn_q_a");
    case OpRole::attn_kv_a:
      return in_block("attn_kv_a_mqa");
    case OpRole::attn_o:
      return in_block("attn_output");
    case OpRole::router:
      return in_block("ffn_gate_inp");
    case OpRole::latent_down:
      return whole({block(op, "ffn_routed_down.weight"), block(op, "ffn_latent_down.weight")});
    case OpRole::latent_up:
      return whole({block(op, "ffn_routed_up.weight"), block(op, "ffn_latent_up.weight")});
    case OpRole::shared_up:
      return in_block(gate ? "ffn_gate_shexp" : "ffn_up_shexp");
    case OpRole::shared_down:
      return in_block("ffn_down_shexp");
    case OpRole::dense_up:
      return in_block(gate ? "ffn_gate" : "ffn_up");
    case OpRole::dense_down:
      return in_block("ffn_down");
    case OpRole::expert: {
      // All experts in one tensor; in old files one tensor each.
      const std::string_view which = gate ? "gate" : role == MatrixRole::up ? "up" : "down";
      Place p = in_block(fmt::format("ffn_{}_exps", which));
      if (p.tensor == nullptr) return in_block(fmt::format("ffn_{}.{}", which, op.index));
      p.first_row = op.index * p.tensor->sizes[1];
      return p;
    }
    default:
      break;
  }
  switch (role) {
    case MatrixRole::q:
      return in_block(config().attention[op.layer] == AttentionKind::mla && config().mla.q_lora_rank != 0 ? "attn_q_b"
                                                                                                          : "attn_q");
    case MatrixRole::k:
      return in_block("attn_k");
    case MatrixRole::v:
      return in_block("attn_v");
    case MatrixRole::f_a:
      return in_block("ssm_f_a");
    case MatrixRole::f_b:
      return in_block("ssm_f_b");
    case MatrixRole::b:
      return in_block("ssm_beta");
    case MatrixRole::g:
      return in_block(config().attention[op.layer] == AttentionKind::mla ? "attn_gate" : "ssm_g");
    case MatrixRole::g_a:
      return in_block("ssm_g_a");
    case MatrixRole::g_b:
      return in_block("ssm_g_b");
    case MatrixRole::k_b:
      return in_block("attn_k_b");
    case MatrixRole::v_b:
      return in_block("attn_v_b");
    default:
      return {};
  }
}

Result<WeightMatrix> GgufWeights::stored(const Place& p, std::size_t rows, std::size_t cols) const {
  const std::string where = file_.path().string();
  if (p.tensor == nullptr)
    return fail(Code::not_found, "{}: there is no tensor {}, expected one of [{}, {}]", where, p.name, cols, rows);
  const GgufTensor& t = *p.tensor;
  const auto dtype = dtype_of(t.type);
  if (!dtype)
    return fail(Code::unsupported,
                "{}: tensor {} is of {}, a type that is not run; convert the model to a type such as "
                "Q4_K, Q8_0 or F16",
                where, t.name, ggml_type_text(t.type));
  const bool experts = p.first_row != 0 || t.rank > 2;
  if (t.row() != cols || (experts ? p.first_row + rows > t.rows() : t.rows() != rows))
    return fail(Code::corrupt, "{}: tensor {} is {}, expected rows of {} values, {} of them", where, t.name,
                gguf_dims_text(t.dims()), cols, p.first_row + rows);
  const std::uint64_t row = row_bytes(*dtype, cols), first_row = p.first_row;
  return WeightMatrix(std::string(t.name), *dtype, rows, cols,
                      [file = file_, &t, row, first_row](std::size_t first, std::size_t n, std::span<std::byte> out) {
                        (void)n;
                        return file.read(t, (first_row + first) * row, out);
                      });
}

std::optional<DType> GgufWeights::stored_type(OpRef op, MatrixRole role) const {
  const Place p = place(op, role);
  if (p.tensor != nullptr) return dtype_of(p.tensor->type);
  if (role != MatrixRole::k_b && role != MatrixRole::v_b) return std::nullopt;
  const GgufTensor* kv_b = find({block(op, "attn_kv_b.weight")});
  if (kv_b == nullptr) return std::nullopt;
  const auto dtype = dtype_of(kv_b->type);
  return dtype && role == MatrixRole::k_b && is_quantized(*dtype) ? DType::f32 : dtype;
}

Result<WeightMatrix> GgufWeights::matrix(OpRef op, MatrixRole role) const {
  const Shape wanted = shape(op, role);
  const Place p = place(op, role);
  const bool head_half = role == MatrixRole::k_b || role == MatrixRole::v_b;
  if (p.tensor != nullptr || !head_half) return stored(p, wanted.rows, wanted.cols);
  // Older files have kv_b whole.
  const HeadSplit split{config().mla.heads, config().mla.qk_nope_dim, config().mla.v_dim};
  const std::string name = block(op, "attn_kv_b.weight");
  const Place legacy{find({name}), 0, fmt::format("{} (or {})", p.name, name)};
  MYRIAD_TRY(const WeightMatrix kv_b, stored(legacy, split.heads * split.rows(), config().mla.kv_lora_rank));
  if (role == MatrixRole::v_b) return values_of_heads(kv_b, split);
  return transposed_heads(is_quantized(kv_b.dtype()) ? as_f32(kv_b) : kv_b, split);
}

Result<std::vector<float>> GgufWeights::numbers(std::initializer_list<std::string> names, std::size_t n) const {
  const GgufTensor* t = find(names);
  const std::string where = file_.path().string();
  if (t == nullptr)
    return fail(Code::not_found, "{}: there is no tensor {}, expected {} values", where, *names.begin(), n);
  const auto dtype = dtype_of(t->type);
  if (!dtype || t->elements() != n)
    return fail(dtype ? Code::corrupt : Code::unsupported, "{}: tensor {} is {} {}, expected {} values of f32", where,
                t->name, ggml_type_text(t->type), gguf_dims_text(t->dims()), n);
  std::vector<std::byte> raw(t->bytes);
  MYRIAD_TRY_STATUS(file_.read(*t, 0, raw));
  std::vector<float> out(n);
  dequantize(*dtype, raw.data(), n, out.data());
  return out;
}

Result<std::vector<float>> GgufWeights::vector(OpRef op, VectorRole role) const {
  const std::size_t n = size(op, role);
  const auto in_block = [&](std::string_view rest) { return numbers({block(op, rest)}, n); };
  switch (role) {
    case VectorRole::norm:
      if (op.role == OpRole::final_lead) return numbers({"output_norm.weight"}, n);
      return in_block(op.role == OpRole::attn_lead ? "attn_norm.weight" : "ffn_norm.weight");
    case VectorRole::res_score: {
      const std::string stem = op.role == OpRole::final_lead  ? "output_res"
                               : op.role == OpRole::attn_lead ? block(op, "attn_res")
                                                              : block(op, "ffn_res");
      if (find({stem + "_score.weight"}) != nullptr || find({stem + "_norm.weight"}) == nullptr)
        return numbers({stem + "_score.weight"}, n);
      MYRIAD_TRY(std::vector<float> norm, numbers({stem + "_norm.weight"}, n));
      MYRIAD_TRY(const std::vector<float> proj, numbers({stem + "_proj.weight"}, n));
      for (std::size_t i = 0; i < n; ++i) norm[i] *= proj[i];
      return norm;
    }
    case VectorRole::q_a_norm:
      return in_block("attn_q_a_norm.weight");
    case VectorRole::kv_a_norm:
      return in_block("attn_kv_a_norm.weight");
    case VectorRole::latent_norm:
      return numbers({block(op, "ffn_routed_norm.weight"), block(op, "ffn_norm_exps.weight")}, n);
    case VectorRole::router_bias:
      return numbers({block(op, "exp_probs_b.bias"), block(op, "exp_probs_b")}, n);
    case VectorRole::conv_q:
      return in_block("ssm_conv1d_q.weight");
    case VectorRole::conv_k:
      return in_block("ssm_conv1d_k.weight");
    case VectorRole::conv_v:
      return in_block("ssm_conv1d_v.weight");
    case VectorRole::a_log: {
      // −exp(A_log), of some converters without the sign.
      MYRIAD_TRY(std::vector<float> a, in_block("ssm_a.weight"));
      for (float& v : a) v = std::log(std::abs(v));
      return a;
    }
    case VectorRole::dt_bias:
      return in_block("ssm_dt.bias");
    case VectorRole::o_norm:
      return in_block("ssm_norm.weight");
    case VectorRole::q_bias:
      return in_block("attn_q.bias");
    case VectorRole::k_bias:
      return in_block("attn_k.bias");
    case VectorRole::v_bias:
      return in_block("attn_v.bias");
    case VectorRole::q_norm:
      return in_block("attn_q_norm.weight");
    case VectorRole::k_norm:
      return in_block("attn_k_norm.weight");
  }
  return fail(Code::internal, "reading a vector: unknown role {}", static_cast<int>(role));
}

Result<std::vector<std::string>> GgufWeights::write_tokenizer_files(const std::filesystem::path& directory) const {
  GgufWriter out(directory / kGgufTokenizerName, {});
  MYRIAD_TRY_STATUS(out.copy_metadata(file_.metadata()));
  MYRIAD_TRY(const std::size_t there, out.begin());
  (void)there;
  MYRIAD_TRY_STATUS(out.finish());
  return std::vector<std::string>{kGgufTokenizerName};
}

namespace {

Category gguf_category(std::string_view name, const ModelConfig& config) {
  if (name.starts_with("token_embd.")) return Category::embedding;
  if (name == "output.weight") return Category::lm_head;
  if (name.starts_with("output_")) return Category::final_norms;
  if (!name.starts_with("blk.")) return Category::other;
  name.remove_prefix(4);
  std::size_t layer = config.layers();
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || layer >= config.layers()) return Category::other;
  name.remove_prefix(static_cast<std::size_t>(end - name.data()));
  if (name.starts_with(".attn_res") || name.starts_with(".ffn_res")) return Category::attn_res;
  if (name.starts_with(".attn_norm.") || name.starts_with(".ffn_norm.")) return Category::layer_norms;
  if (name.starts_with(".attn_") || name.starts_with(".ssm_"))
    return config.attention[layer] == AttentionKind::kda   ? Category::kda_attention
           : config.attention[layer] == AttentionKind::mla ? Category::mla_attention
                                                           : Category::gqa_attention;
  if (name.starts_with(".ffn_gate_inp") || name.starts_with(".exp_probs")) return Category::router;
  if (name.find("_exps") != std::string_view::npos) return Category::routed_experts;
  if (name.find("_shexp") != std::string_view::npos) return Category::shared_experts;
  if (name.starts_with(".ffn_routed") || name.starts_with(".ffn_latent")) return Category::latent;
  return name.starts_with(".ffn_") ? Category::dense_ffn : Category::other;
}

}  // namespace

Inventory GgufWeights::inventory() const {
  Inventory inventory;
  inventory.config = config();
  inventory.shards = file_.parts();
  inventory.state = state_bytes(config());
  for (const GgufTensor& t : file_.tensors()) {
    inventory.categories[static_cast<std::size_t>(gguf_category(t.name, config()))] += {1, t.bytes, t.elements()};
    TypeTally& type = inventory.types[ggml_type_text(t.type)];
    type.runs = dtype_of(t.type).has_value();
    type.tensors += 1;
    type.elements += t.elements();
    type.bytes += t.bytes;
  }
  return inventory;
}

}  // namespace myriad
