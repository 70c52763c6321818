// A ModelConfig as JSON of our own: what manifests and assignments carry, whatever file the model came from.
#include <bit>
#include <iterator>
#include <map>

#include "model/config_fields.h"

namespace myriad {
namespace {

constexpr int kVersion = 1;
constexpr std::size_t kMaxTypeRuns = 65536;

// f32 exactly, as its bits: no decimal could be read back differently.
Json bits(float v) {
  return std::bit_cast<std::uint32_t>(v);
}

float read_bits(Fields& f, std::string_view name, double min, double max) {
  const auto v = std::bit_cast<float>(static_cast<std::uint32_t>(f.size(name, 0, 0xffffffff)));
  if (v >= min && v <= max) return v;
  f.refuse(Code::corrupt, "{} stands for {}, expected a number from {} to {}", f.path(name), v, min, max);
  return static_cast<float>(min);
}

Json kda_json(const KdaConfig& k) {
  Json j = {{"heads", k.heads},
            {"head_dim", k.head_dim},
            {"taps", k.conv_taps},
            {"full_rank_gate", k.full_rank_gate},
            {"l2_norm_eps", bits(k.l2_norm_eps)}};
  if (k.gate_lower_bound) j["gate_lower_bound"] = bits(*k.gate_lower_bound);
  return j;
}

KdaConfig read_kda(Fields f) {
  KdaConfig k;
  k.heads = f.size("heads", 1, kMaxHeads);
  k.head_dim = f.size("head_dim", 1, kMaxHeadDim);
  k.conv_taps = f.size("taps", 1, kMaxConvTaps);
  k.full_rank_gate = f.flag("full_rank_gate");
  if (f.has("l2_norm_eps")) k.l2_norm_eps = read_bits(f, "l2_norm_eps", 1e-13, 0.2);
  if (f.has("gate_lower_bound")) k.gate_lower_bound = read_bits(f, "gate_lower_bound", -1000, 0);
  return k;
}

Json mla_json(const MlaConfig& m) {
  return {{"heads", m.heads},      {"q_lora_rank", m.q_lora_rank}, {"kv_lora_rank", m.kv_lora_rank},
          {"nope", m.qk_nope_dim}, {"rope", m.qk_rope_dim},        {"v", m.v_dim},
          {"gate", m.output_gate}};
}

MlaConfig read_mla(Fields f) {
  MlaConfig m;
  m.heads = f.size("heads", 1, kMaxHeads);
  m.q_lora_rank = f.size("q_lora_rank", 0, kMaxHidden);
  m.kv_lora_rank = f.size("kv_lora_rank", 1, kMaxHidden);
  m.qk_nope_dim = f.size("nope", 1, kMaxHeadDim);
  m.qk_rope_dim = f.size("rope", 0, kMaxHeadDim);
  m.v_dim = f.size("v", 1, kMaxHeadDim);
  m.output_gate = f.flag("gate");
  return m;
}

Json gqa_json(const GqaConfig& g) {
  return {{"heads", g.heads},
          {"kv_heads", g.kv_heads},
          {"head_dim", g.head_dim},
          {"bias", g.qkv_bias},
          {"norm", g.qk_norm}};
}

GqaConfig read_gqa(Fields f) {
  GqaConfig g;
  g.heads = f.size("heads", 1, kMaxHeads);
  g.kv_heads = f.size("kv_heads", 1, g.heads);
  g.head_dim = f.size("head_dim", 1, kMaxHeadDim);
  g.qkv_bias = f.flag("bias");
  g.qk_norm = f.flag("norm");
  if (g.heads % g.kv_heads != 0)
    f.refuse(Code::corrupt, "{} query heads are no multiple of {} key heads", g.heads, g.kv_heads);
  return g;
}

Json moe_json(const MoeConfig& m) {
  return {{"experts", m.experts},
          {"top_k", m.top_k},
          {"shared", m.shared_experts},
          {"intermediate", m.intermediate},
          {"latent", m.latent},
          {"latent_norm", m.latent_norm},
          {"renormalize", m.renormalize},
          {"renormalize_one", m.renormalize_one},
          {"scale", bits(m.scaling_factor)},
          {"score", static_cast<int>(m.score)},
          {"bias", m.selection_bias},
          {"groups", m.groups},
          {"top_groups", m.top_groups}};
}

MoeConfig read_moe(Fields f) {
  MoeConfig m;
  m.experts = f.size("experts", 1, kMaxExperts);
  m.top_k = f.size("top_k", 1, m.experts);
  m.shared_experts = f.size("shared", 0, kMaxExperts);
  m.intermediate = f.size("intermediate", 1, kMaxHidden);
  m.latent = f.size("latent", 0, kMaxHidden);
  m.latent_norm = f.flag("latent_norm");
  m.renormalize = f.flag("renormalize");
  m.renormalize_one = f.flag_or("renormalize_one", false);
  m.scaling_factor = read_bits(f, "scale", 1e-6, 1e6);
  m.score = static_cast<RouterScore>(f.size("score", 0, 1));
  m.selection_bias = f.flag("bias");
  m.groups = f.size("groups", 1, m.experts);
  m.top_groups = f.size("top_groups", 1, m.groups);
  if (m.experts % m.groups != 0 || m.top_groups * (m.experts / m.groups) < m.top_k)
    f.refuse(Code::corrupt, "{} of {} groups cannot give {} of {} experts", m.top_groups, m.groups, m.top_k, m.experts);
  return m;
}

Json rope_json(const RopeConfig& r) {
  Json frequencies = Json::array();
  for (const float v : r.frequencies) frequencies.push_back(bits(v));
  return {{"order", static_cast<int>(r.order)}, {"frequencies", frequencies}, {"magnitude", bits(r.magnitude)}};
}

RopeConfig read_rope(Fields f) {
  RopeConfig r;
  r.order = static_cast<RopeOrder>(f.size("order", 0, 1));
  r.magnitude = read_bits(f, "magnitude", 0, 1e6);
  const Json* list = f.get("frequencies");
  if (list == nullptr || !list->is_array() || list->size() > kMaxHeadDim / 2) {
    f.expected("frequencies", list, "a list of frequencies");
    return r;
  }
  for (const Json& v : *list) {
    const bool good = v.is_number_unsigned() && v.get<std::uint64_t>() <= 0xffffffff;
    const float x = good ? std::bit_cast<float>(v.get<std::uint32_t>()) : -1;
    if (!(x >= 0 && x <= 64)) {
      f.expected("frequencies", &v, "bits of a number from 0 to 64");
      return r;
    }
    r.frequencies.push_back(x);
  }
  return r;
}

// Runs of layers with one type: [first, last, operator, matrix, type].
Json dtypes_json(const ModelConfig& c) {
  std::map<std::pair<OpRole, MatrixRole>, std::map<std::uint16_t, DType>> by_matrix;
  for (const auto& [key, type] : c.dtypes) by_matrix[{key.role, key.matrix}][key.layer] = type;
  Json runs = Json::array();
  for (const auto& [matrix, layers] : by_matrix) {
    for (auto it = layers.begin(); it != layers.end();) {
      const auto [first, type] = *it;
      std::uint16_t last = first;
      for (++it; it != layers.end() && it->first == last + 1 && it->second == type; ++it) last = it->first;
      runs.push_back(
          {first, last, static_cast<int>(matrix.first), static_cast<int>(matrix.second), static_cast<int>(type)});
    }
  }
  return runs;
}

void read_dtypes(Fields& f, ModelConfig& c) {
  const Json* runs = f.get("dtypes");
  if (runs == nullptr || !runs->is_array() || runs->size() > kMaxTypeRuns)
    return f.expected("dtypes", runs, fmt::format("a list of at most {} runs", kMaxTypeRuns));
  const std::uint64_t most[] = {c.layers() - 1, c.layers() - 1, static_cast<int>(OpRole::head),
                                static_cast<int>(MatrixRole::v_b), kDTypes - 1};
  for (const Json& run : *runs) {
    bool good = run.is_array() && run.size() == std::size(most);
    for (std::size_t i = 0; good && i < std::size(most); ++i)
      good = run[i].is_number_unsigned() && run[i].get<std::uint64_t>() <= most[i];
    if (!good) return f.expected("dtypes", &run, "[first layer, last layer, operator, matrix, type]");
    for (auto layer = run[0].get<std::uint16_t>(); layer <= run[1].get<std::uint16_t>(); ++layer)
      c.dtypes[{layer, static_cast<OpRole>(run[2].get<int>()), static_cast<MatrixRole>(run[3].get<int>())}] =
          static_cast<DType>(run[4].get<int>());
  }
}

}  // namespace

std::string config_to_json(const ModelConfig& c) {
  Json attention = Json::array();
  for (const auto kind : c.attention) attention.push_back(static_cast<int>(kind));
  Json j = {{"model_type", kOwnModelType},
            {"version", kVersion},
            {"architecture", c.architecture},
            {"hidden", c.hidden},
            {"vocab", c.vocab},
            {"attention", attention},
            {"dense_layers", c.dense_layers},
            {"intermediate", c.intermediate},
            {"expert_format", static_cast<int>(c.expert_format)},
            {"trunk_dtype", static_cast<int>(c.trunk_dtype)},
            {"dtypes", dtypes_json(c)},
            {"activation", static_cast<int>(c.activation.kind)},
            {"beta", bits(c.activation.beta)},
            {"linear_beta", bits(c.activation.linear_beta)},
            {"f32_residual", c.f32_residual},
            {"attn_res_block_size", c.attn_res_block_size},
            {"rms_norm_eps", bits(c.rms_norm_eps)},
            {"lora_norm_eps", bits(c.lora_norm_eps)},
            {"softmax_scale", bits(c.softmax_scale)},
            {"tied_embeddings", c.tied_embeddings},
            {"max_positions", c.max_positions},
            {"eos_token_id", c.eos_tokens}};
  if (c.layers_of(AttentionKind::kda) != 0) j["kda"] = kda_json(c.kda);
  if (c.layers_of(AttentionKind::mla) != 0) j["mla"] = mla_json(c.mla);
  if (c.layers_of(AttentionKind::gqa) != 0) j["gqa"] = gqa_json(c.gqa);
  if (!c.rope.frequencies.empty()) j["rope"] = rope_json(c.rope);
  if (c.dense_layers < c.layers()) j["moe"] = moe_json(c.moe);
  if (c.attention_window != 0) j["attention_window"] = c.attention_window;
  if (c.bos_token) j["bos_token_id"] = *c.bos_token;
  if (c.pad_token) j["pad_token_id"] = *c.pad_token;
  return j.dump();
}

Result<ModelConfig> config_from_json(const Json& root) {
  std::optional<Error> error;
  Fields f(root, "", error);
  if (f.size("version", 1, 1000) != kVersion)
    return fail(Code::unsupported, "reading a model's config: version {}, expected {}; cut the model anew",
                found(root["version"]), kVersion);
  ModelConfig c;
  c.architecture = f.text("architecture");
  if (c.architecture.size() > 128) c.architecture.resize(128);
  c.hidden = f.size("hidden", 1, kMaxHidden);
  c.vocab = f.size("vocab", 1, kMaxVocab);
  const Json* kinds = f.get("attention");
  if (kinds == nullptr || !kinds->is_array() || kinds->empty() || kinds->size() > kMaxLayers)
    f.expected("attention", kinds, "a list of one kind a layer");
  else
    for (const Json& kind : *kinds) {
      const bool good = kind.is_number_unsigned() && kind.get<std::uint64_t>() <= 2;
      if (!good) f.expected("attention", &kind, "0, 1 or 2");
      c.attention.push_back(good ? static_cast<AttentionKind>(kind.get<int>()) : AttentionKind::gqa);
    }
  if (error) return std::unexpected(std::move(*error));
  if (c.layers_of(AttentionKind::kda) != 0) c.kda = read_kda(f.object("kda"));
  if (c.layers_of(AttentionKind::mla) != 0) c.mla = read_mla(f.object("mla"));
  if (c.layers_of(AttentionKind::gqa) != 0) c.gqa = read_gqa(f.object("gqa"));
  if (f.has("rope")) c.rope = read_rope(f.object("rope"));
  c.dense_layers = f.size("dense_layers", 0, c.layers());
  c.intermediate = f.size("intermediate", c.dense_layers != 0 ? 1 : 0, kMaxHidden);
  if (c.dense_layers < c.layers()) c.moe = read_moe(f.object("moe"));
  c.expert_format = static_cast<ExpertFormat>(f.size("expert_format", 0, 1));
  c.trunk_dtype = static_cast<DType>(f.size("trunk_dtype", 0, kDTypes - 1));
  read_dtypes(f, c);
  c.activation.kind = static_cast<ActivationKind>(f.size("activation", 0, 1));
  c.activation.beta = read_bits(f, "beta", 0, 1e6);
  c.activation.linear_beta = read_bits(f, "linear_beta", 0, 1e6);
  c.f32_residual = f.has("f32_residual") && f.flag("f32_residual");  // cuts before it have none
  c.attn_res_block_size = f.size("attn_res_block_size", 0, kMaxLayers);
  c.rms_norm_eps = read_bits(f, "rms_norm_eps", 1e-13, 0.2);
  c.lora_norm_eps = read_bits(f, "lora_norm_eps", 1e-13, 0.2);
  c.softmax_scale = read_bits(f, "softmax_scale", 0, 1e6);
  c.tied_embeddings = f.flag("tied_embeddings");
  c.max_positions = f.size("max_positions", 1, std::size_t{1} << 40);
  c.attention_window = f.size_or("attention_window", 0, 1, std::size_t{1} << 40);
  c.bos_token = one_token(read_tokens(f, f, "bos_token_id", c.vocab));
  c.eos_tokens = read_tokens(f, f, "eos_token_id", c.vocab);
  c.pad_token = one_token(read_tokens(f, f, "pad_token_id", c.vocab));
  for (const std::size_t width : {c.kda.width(), c.gqa.width(), c.mla.heads * c.mla.qk_dim(), c.mla.value_width(),
                                  c.mla.cache_dim(), c.moe.shared_intermediate()})
    if (width > kMaxHidden)
      f.refuse(Code::limit, "the sizes make a vector of {} values, expected at most {}", width, kMaxHidden);
  if (c.rope.dims() > (c.gqa.heads != 0 ? c.gqa.head_dim : c.mla.qk_rope_dim))
    f.refuse(Code::corrupt, "{} channels are to turn, a head has fewer", c.rope.dims());
  check_whole(f, c);
  if (error) return std::unexpected(std::move(*error));
  return c;
}

}  // namespace myriad
