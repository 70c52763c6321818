#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "model/config_fields.h"

namespace myriad {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::string_view kSupported =
    "supported are Kimi K3 (model_type \"kimi_k3\" with a text_config), Kimi Linear (\"kimi_linear\"), llama, mistral, "
    "mixtral, qwen2, qwen3, qwen3_moe, deepseek_v3 and kimi_k2";

// Nesting of brackets outside of strings, so that a hostile file is refused before anything is built from it.
bool too_deep(std::string_view json) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

// The 1-based layer lists; every layer must be in exactly one of them.
void read_attention_kinds(Fields& linear, std::size_t layers, std::vector<AttentionKind>& out) {
  std::vector<char> seen(layers, 0);
  out.assign(layers, AttentionKind::mla);
  for (const auto& [name, kind] :
       {std::pair{"kda_layers", AttentionKind::kda}, std::pair{"full_attn_layers", AttentionKind::mla}}) {
    const Json* list = linear.get(name);
    if (list == nullptr || !list->is_array()) {
      linear.expected(name, list, "a list of 1-based layer numbers");
      return;
    }
    for (const Json& v : *list) {
      if (!v.is_number_unsigned() || v.get<std::uint64_t>() < 1 || v.get<std::uint64_t>() > layers) {
        linear.refuse(Code::corrupt, "{} holds {}, expected layer numbers from 1 to num_hidden_layers = {}",
                      linear.path(name), found(v), layers);
        return;
      }
      const std::size_t at = v.get<std::uint64_t>() - 1;
      if (seen[at] != 0) {
        linear.refuse(Code::corrupt,
                      "layer {} (1-based) is named twice in {}kda_layers and full_attn_layers, expected once", at + 1,
                      linear.path(""));
        return;
      }
      seen[at] = 1;
      out[at] = kind;
    }
  }
  const auto gap = std::find(seen.begin(), seen.end(), 0);
  if (gap != seen.end())
    linear.refuse(Code::corrupt,
                  "layer {} (1-based) is neither in {}kda_layers nor in full_attn_layers, expected in exactly one",
                  gap - seen.begin() + 1, linear.path(""));
}

KdaConfig read_kda(Fields& linear) {
  KdaConfig kda;
  kda.heads = linear.size("num_heads", 1, kMaxHeads);
  kda.head_dim = linear.size("head_dim", 1, kMaxHeadDim);
  kda.conv_taps = linear.size("short_conv_kernel_size", 1, kMaxConvTaps);
  if (linear.has("gate_lower_bound")) {
    const float bound = linear.number("gate_lower_bound", -1000, 0);
    if (bound == 0) linear.expected("gate_lower_bound", linear.get("gate_lower_bound"), "a number below 0");
    kda.gate_lower_bound = bound;
  }
  kda.full_rank_gate = linear.flag_or("use_full_rank_gate", false);
  if (kda.width() > kMaxHidden)
    linear.refuse(Code::limit, "{} · head_dim is {}, expected at most {}", linear.path("num_heads"), kda.width(),
                  kMaxHidden);
  return kda;
}

MlaConfig read_mla(Fields& text) {
  MlaConfig mla;
  mla.heads = text.size("num_attention_heads", 1, kMaxHeads);
  if (const Json* kv = text.get("num_key_value_heads"); kv != nullptr && *kv != mla.heads)
    text.expected("num_key_value_heads", kv,
                  fmt::format("num_attention_heads = {} (the latent serves every head)", mla.heads), Code::unsupported);
  mla.q_lora_rank = text.size_or("q_lora_rank", 0, 0, kMaxHidden);
  mla.kv_lora_rank = text.size("kv_lora_rank", 1, kMaxHidden);
  mla.qk_nope_dim = text.size("qk_nope_head_dim", 1, kMaxHeadDim);
  mla.qk_rope_dim = text.size("qk_rope_head_dim", 0, kMaxHeadDim);
  mla.v_dim = text.size("v_head_dim", 1, kMaxHeadDim);
  mla.output_gate = text.flag_or("mla_use_output_gate", false);
  if (!text.flag_or("mla_use_nope", false))
    text.expected("mla_use_nope", text.get("mla_use_nope"), "true: rotary positions in MLA are not supported",
                  Code::unsupported);
  for (const std::size_t width : {mla.heads * mla.qk_dim(), mla.heads * (mla.qk_nope_dim + mla.v_dim), mla.cache_dim()})
    if (width > kMaxHidden)
      text.refuse(
          Code::limit,
          "num_attention_heads = {} with the head sizes of MLA gives a vector of {} values, expected at most {}",
          mla.heads, width, kMaxHidden);
  return mla;
}

MoeConfig read_moe(Fields& text) {
  MoeConfig moe;
  moe.experts = text.size("num_experts", 1, kMaxExperts);
  moe.top_k = text.size("num_experts_per_token", 1, kMaxExperts);
  if (moe.top_k > moe.experts)
    text.refuse(Code::corrupt, "{} is {}, expected at most num_experts = {}", text.path("num_experts_per_token"),
                moe.top_k, moe.experts);
  moe.shared_experts = text.size_or("num_shared_experts", 0, 0, kMaxExperts);
  moe.intermediate = text.size("moe_intermediate_size", 1, kMaxHidden);
  if (moe.shared_intermediate() > kMaxHidden)
    text.refuse(Code::limit, "num_shared_experts · moe_intermediate_size is {}, expected at most {}",
                moe.shared_intermediate(), kMaxHidden);
  moe.latent = text.size_or("routed_expert_hidden_size", 0, 0, kMaxHidden);
  moe.latent_norm = moe.latent != 0 && text.flag_or("latent_moe_use_norm", false);
  moe.renormalize = text.flag("moe_renormalize");
  moe.scaling_factor = text.number("routed_scaling_factor", 1e-6, 1e6);

  if (const std::string router = text.text("moe_router_activation_func"); router != "sigmoid")
    text.expected("moe_router_activation_func", text.get("moe_router_activation_func"), "\"sigmoid\"",
                  Code::unsupported);
  if (text.size_or("moe_layer_freq", 1, 0, kMaxLayers) != 1)
    text.expected("moe_layer_freq", text.get("moe_layer_freq"), "1: interleaved dense layers are not supported",
                  Code::unsupported);
  for (const char* groups : {"num_expert_group", "topk_group"})
    if (text.size_or(groups, 1, 0, kMaxExperts) != 1)
      text.expected(groups, text.get(groups), "1: routing in groups of experts is not supported", Code::unsupported);
  if (const Json* method = text.get("topk_method"); method != nullptr && *method != "noaux_tc")
    text.expected("topk_method", method, "\"noaux_tc\" (a bias for the selection only)", Code::unsupported);
  return moe;
}

ActivationSpec read_activation(Fields& text) {
  const std::string act = text.text("hidden_act");
  if (act == "situ")
    return {ActivationKind::situ, text.number("activation_situ_beta", 1e-3, 1e6),
            text.number("activation_situ_linear_beta", 1e-3, 1e6)};
  if (act != "silu") text.expected("hidden_act", text.get("hidden_act"), "\"silu\" or \"situ\"", Code::unsupported);
  return {};
}

ExpertFormat read_expert_format(Fields& holder) {
  if (!holder.has("quantization_config") || has_own_quantization(holder)) return ExpertFormat::plain;
  Fields quantization = holder.object("quantization_config");
  constexpr std::string_view kPacked = "mxfp4-pack-quantized";
  if (const Json* format = quantization.get("format"); format == nullptr || *format != kPacked) {
    quantization.expected("format", format,
                          "\"mxfp4-pack-quantized\" (or no quantization_config, for BF16 and F32 weights)",
                          Code::unsupported);
    return ExpertFormat::plain;
  }
  if (!quantization.has("config_groups")) return ExpertFormat::mxfp4;
  Fields groups = quantization.object("config_groups");
  if (!groups.has("group_0")) return ExpertFormat::mxfp4;
  Fields group = groups.object("group_0");
  if (!group.has("weights")) return ExpertFormat::mxfp4;
  Fields weights = group.object("weights");
  for (const auto& [name, value] :
       {std::pair<const char*, Json>{"num_bits", 4}, {"group_size", kGroup}, {"type", "float"}})
    if (const Json* v = weights.get(name); v != nullptr && *v != value)
      weights.expected(name, v, value.dump() + ", as MXFP4 has", Code::unsupported);
  return ExpertFormat::mxfp4;
}

ModelConfig read_model(Fields& text, Fields& top) {
  ModelConfig c;
  c.hidden = text.size("hidden_size", 1, kMaxHidden);
  c.vocab = text.size("vocab_size", 1, kMaxVocab);
  const std::size_t layers = text.size("num_hidden_layers", 1, kMaxLayers);
  Fields linear = text.object("linear_attn_config");
  read_attention_kinds(linear, layers, c.attention);
  if (c.layers_of(AttentionKind::kda) != 0) c.kda = read_kda(linear);
  if (c.layers_of(AttentionKind::mla) != 0) c.mla = read_mla(text);

  c.dense_layers = text.size("first_k_dense_replace", 0, layers);
  if (c.dense_layers != 0) c.intermediate = text.size("intermediate_size", 1, kMaxHidden);
  if (c.dense_layers < layers) {
    c.moe = read_moe(text);
    c.expert_format = read_expert_format(text.has("quantization_config") ? text : top);
  }
  c.trunk_dtype = read_trunk_dtype(text, top);
  c.activation = read_activation(text);
  c.attn_res_block_size = text.size_or("attn_res_block_size", 0, 0, kMaxLayers);
  c.rms_norm_eps = text.number("rms_norm_eps", 1e-12, 0.1);
  c.max_positions =
      text.size(text.has("max_position_embeddings") || !text.has("model_max_length") ? "max_position_embeddings"
                                                                                     : "model_max_length",
                1, std::size_t{1} << 40);
  c.nextn_predict_layers = text.size_or("num_nextn_predict_layers", 0, 0, kMaxLayers);
  for (Fields* holder : {&text, &top})
    if (holder->flag_or("tie_word_embeddings", false))
      holder->expected("tie_word_embeddings", holder->get("tie_word_embeddings"),
                       "false: lm_head must have weights of its own", Code::unsupported);
  c.bos_token = one_token(read_tokens(text, top, "bos_token_id", c.vocab));
  c.eos_tokens = read_tokens(text, top, "eos_token_id", c.vocab);
  c.pad_token = one_token(read_tokens(text, top, "pad_token_id", c.vocab));
  check_whole(text, c);
  return c;
}

std::string architecture_of(const Json& top, const std::string& model_type) {
  const auto list = top.find("architectures");
  if (list != top.end() && list->is_array() && !list->empty() && list->front().is_string()) {
    auto name = list->front().get<std::string>();
    if (!name.empty() && name.size() <= 128) return name;
  }
  return model_type;
}

}  // namespace

std::string_view attention_kind_name(AttentionKind kind) {
  return kind == AttentionKind::kda ? "KDA" : kind == AttentionKind::mla ? "MLA" : "GQA";
}

std::size_t ModelConfig::layers_of(AttentionKind kind) const {
  return static_cast<std::size_t>(std::count(attention.begin(), attention.end(), kind));
}

Status check_window(const ModelConfig& config, std::uint64_t positions) {
  if (config.attention_window == 0 || positions <= config.attention_window) return {};
  return fail(Code::invalid_argument,
              "a context of {} positions is wanted of a model ({}) that attends in a sliding window of {}: what leaves "
              "the window is not forgotten here, so the context can be at most {}: ask for no more than that with "
              "--context or --window, or by prompt and new tokens together",
              positions, config.architecture, config.attention_window, config.attention_window);
}

DType ModelConfig::dtype_of(std::size_t layer, OpRole role, MatrixRole matrix) const {
  const auto it = dtypes.find({static_cast<std::uint16_t>(layer), role, matrix});
  if (it != dtypes.end()) return it->second;
  return role == OpRole::expert && expert_format == ExpertFormat::mxfp4 ? DType::mxfp4 : trunk_dtype;
}

Result<ModelConfig> parse_config(std::string_view json) {
  if (json.size() > kMaxConfigBytes)
    return fail(Code::limit, "reading config.json: {} bytes, expected at most {}", json.size(), kMaxConfigBytes);
  if (too_deep(json)) return fail(Code::limit, "reading config.json: nested more than {} deep", kMaxDepth);
  Json root;
  try {
    root = Json::parse(json);
  } catch (const Json::exception& e) {
    return fail(Code::corrupt, "reading config.json: not JSON: {}", e.what());
  }
  if (!root.is_object()) return fail(Code::corrupt, "reading config.json: found {}, expected an object", found(root));

  std::optional<Error> error;
  Fields top(root, "", error);
  const std::string type = top.text("model_type");
  if (error) return fail(Code::unsupported, "{}; {}", error->message, kSupported);
  if (type == kOwnModelType) return config_from_json(root);
  if (is_llama_family(type)) {
    ModelConfig config = read_llama_family(top, type);
    check_whole(top, config);
    if (error) return std::unexpected(std::move(*error));
    config.architecture = architecture_of(root, type);
    return config;
  }
  if (type != "kimi_k3" && type != "kimi_linear")
    return fail(Code::unsupported,
                "reading config.json: model_type is {} (architecture {}), which nothing here runs; {}",
                found(Json(type)), found(Json(architecture_of(root, type))), kSupported);
  Fields text = type == "kimi_k3" ? top.object("text_config") : top;
  if (const Json* inner = text.get("model_type"); inner != nullptr && *inner != "kimi_linear")
    if (type == "kimi_k3") text.expected("model_type", inner, "\"kimi_linear\"", Code::unsupported);
  if (error) return std::unexpected(std::move(*error));
  ModelConfig config = read_model(text, top);
  if (error) return std::unexpected(std::move(*error));
  config.architecture = architecture_of(root, type);
  return config;
}

}  // namespace myriad
