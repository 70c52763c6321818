#include "model/gguf_weights.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/bytes.h"
#include "model/gguf_config.h"
#include "model/gguf_names.h"
#include "model/gguf_tokenizer.h"
#include "model/gguf_writer.h"
#include "quant/blocks.h"

namespace myriad {
namespace {

std::string block(OpRef op, std::string_view rest) {
  return fmt::format("blk.{}.{}", op.layer, rest);
}

// Of a name "blk.LAYER.REST": the layer, and the rest with its dot; nothing for other names.
struct InBlock {
  std::size_t layer = 0;
  std::string_view rest;
};
std::optional<InBlock> in_block_of(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return std::nullopt;
  name.remove_prefix(kBlock.size());
  InBlock in;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), in.layer);
  if (error != std::errc()) return std::nullopt;
  in.rest = name.substr(static_cast<std::size_t>(end - name.data()));
  return in;
}

// Of AttnRes as forks have it, not multiplied yet: a norm and a projection instead of the score.
std::array<std::string, 2> res_factors(OpRef op) {
  const std::string score = gguf_vector_names(op, VectorRole::res_score).front();
  const std::string stem = score.substr(0, score.rfind("_score"));
  return {stem + "_norm.weight", stem + "_proj.weight"};
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

std::optional<GgmlType> ggml_type_of(DType type) {
  for (const GgmlTypeInfo& info : ggml_types())
    if (dtype_of(info.type) == type) return info.type;
  return std::nullopt;
}

Result<GgufWeights> GgufWeights::open(const std::filesystem::path& path) {
  MYRIAD_TRY(GgufFile file, GgufFile::open(path));
  MYRIAD_TRY(const ModelConfig config, gguf_config(file));
  MYRIAD_TRY(Graph graph, Graph::build(config));
  GgufWeights weights(std::move(file), std::move(graph));
  MYRIAD_TRY_STATUS(weights.refuse_unused());
  MYRIAD_TRY_STATUS(weights.take_types([&](OpRef op, MatrixRole role) { return weights.stored_type(op, role); }));
  return weights;
}

bool GgufWeights::unused_by_design(std::string_view name) const {
  if (name == "rope_freqs.weight") return true;  // config().rope has it
  const auto in = in_block_of(name);
  if (!in) return false;
  if (in->layer >= config().layers()) return in->layer < config().layers() + config().nextn_predict_layers;
  if (in->rest == ".attn_rot_embd.weight" || in->rest == ".attn_rot_embd") return true;  // frequencies, of old files
  // Some converters wrote the whole kv_b beside its halves.
  return in->rest == ".attn_kv_b.weight" && config().attention[in->layer] == AttentionKind::mla;
}

Status GgufWeights::refuse_unused() const {
  const std::span<const GgufTensor> tensors = file_.tensors();
  std::vector<bool> used(tensors.size());
  const auto use = [&](const GgufTensor* t) {
    if (t != nullptr) used[static_cast<std::size_t>(t - tensors.data())] = true;
  };
  bool stacked = false;  // this layer's experts, in one tensor
  for (const Operator& op : graph().operators()) {
    if (op.ref.role == OpRole::expert && op.ref.index != 0 && stacked) continue;
    for (const auto& m : op.matrices) {
      const Place p = place(op.ref, m.role);
      use(p.tensor);
      stacked = p.tensor != nullptr && p.tensor->rank > 2;
    }
    for (const auto& v : op.vectors) {
      use(find(gguf_vector_names(op.ref, v.role)));
      if (v.role != VectorRole::res_score) continue;
      for (const std::string& factor : res_factors(op.ref)) use(find({factor}));
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (used[i] || unused_by_design(tensors[i].name)) continue;
    return fail(
        Code::unsupported,
        "reading {}: nothing takes the tensor {}, {} {}; a model of {} with {} layers as the metadata describes "
        "it has none, and without it the results would be wrong: the file is damaged, or of a variant that is "
        "not supported; convert the model anew, or use another file of it",
        file_.path().string(), tensors[i].name, ggml_type_text(tensors[i].type), gguf_dims_text(tensors[i].dims()),
        config().architecture, config().layers());
  }
  return {};
}

const GgufTensor* GgufWeights::find(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (const GgufTensor* t = file_.find(name); t != nullptr) return t;
    if (name.ends_with(".weight"))
      if (const GgufTensor* t = file_.find(name.substr(0, name.size() - 7)); t != nullptr) return t;
  }
  return nullptr;
}

GgufWeights::Place GgufWeights::place(OpRef op, MatrixRole role) const {
  const auto looked_for = [&](const std::vector<std::string>& names) {
    return names.empty() ? Place{} : Place{find(names), 0, names.front()};
  };
  Place p = looked_for(gguf_matrix_names(config(), op, role));
  if (op.role != OpRole::expert) return p;
  if (p.tensor != nullptr) {
    p.first_row = op.index * p.tensor->sizes[1];
    return p;
  }
  // In old files a tensor each.
  const std::string_view which = role == MatrixRole::gate ? "gate" : role == MatrixRole::up ? "up" : "down";
  return looked_for({block(op, fmt::format("ffn_{}.{}.weight", which, op.index))});
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

Result<std::vector<float>> GgufWeights::numbers(const std::vector<std::string>& names, std::size_t n) const {
  const GgufTensor* t = find(names);
  const std::string where = file_.path().string();
  if (t == nullptr)
    return fail(Code::not_found, "{}: there is no tensor {}, expected {} values", where, names.front(), n);
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
  const std::vector<std::string> names = gguf_vector_names(op, role);
  if (names.empty()) return fail(Code::internal, "reading a vector: unknown role {}", static_cast<int>(role));
  if (role == VectorRole::res_score && find(names) == nullptr) {
    if (const auto factors = res_factors(op); find({factors[0]}) != nullptr) {
      MYRIAD_TRY(std::vector<float> norm, numbers({factors[0]}, n));
      MYRIAD_TRY(const std::vector<float> proj, numbers({factors[1]}, n));
      for (std::size_t i = 0; i < n; ++i) norm[i] *= proj[i];
      return norm;
    }
  }
  MYRIAD_TRY(std::vector<float> values, numbers(names, n));
  // −exp(A_log), of some converters without the sign.
  if (role == VectorRole::a_log)
    for (float& v : values) v = std::log(std::abs(v));
  return values;
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
  const auto in = in_block_of(name);
  if (!in || in->layer >= config.layers()) return Category::other;
  const std::size_t layer = in->layer;
  name = in->rest;
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
