// config.json of the families around Llama: grouped-query attention or MLA with rotary positions, dense FFN or MoE.
#include <algorithm>
#include <cmath>

#include "model/config_fields.h"
#include "model/rope.h"

namespace myriad {
namespace {

void refuse_true(Fields& top, std::string_view name, std::string_view why) {
  if (top.flag_or(name, false)) top.expected(name, top.get(name), fmt::format("false: {}", why), Code::unsupported);
}

// `rope_scaling` (or the newer `rope_parameters`) and `rope_theta`.
RopeDescription read_rope(Fields& top, std::size_t dims, std::size_t max_positions) {
  RopeDescription rope;
  RopeSettings& s = rope.settings;
  s.dims = dims;
  if (dims % 2 != 0) top.refuse(Code::unsupported, "{} channels of a head turn, expected an even number", dims);
  const bool newer = top.has("rope_parameters");
  const std::string_view name = newer ? "rope_parameters" : "rope_scaling";
  const auto base = [&](Fields& holder) { return static_cast<double>(holder.number("rope_theta", 1, 1e12)); };
  // Some families turn only the first channels of a head; these turn all of what `dims` says.
  const auto refuse_partial = [&](Fields& holder) {
    if (holder.has("partial_rotary_factor") && holder.number("partial_rotary_factor", 0, 1) != 1)
      holder.expected("partial_rotary_factor", holder.get("partial_rotary_factor"),
                      "1: heads that turn in part are not supported", Code::unsupported);
  };
  refuse_partial(top);
  if (!top.has(name)) {
    s.base = top.has("rope_theta") ? base(top) : 10000;
    return rope;
  }
  Fields scaling = top.object(name);
  refuse_partial(scaling);
  s.base = scaling.has("rope_theta") ? base(scaling) : top.has("rope_theta") ? base(top) : 10000;
  const std::string_view kind_name = scaling.has("rope_type") || !scaling.has("type") ? "rope_type" : "type";
  const std::string kind = scaling.has(kind_name) || !newer ? scaling.text(kind_name) : "default";
  if (kind == "default") return rope;
  s.factor = scaling.number("factor", 1, 1e6);
  const auto number_or = [&](std::string_view field, double otherwise) {
    return scaling.has(field) ? static_cast<double>(scaling.number(field, -1e6, 1e6)) : otherwise;
  };
  const auto original = [&] {
    return scaling.has("original_max_position_embeddings")
               ? static_cast<double>(scaling.size("original_max_position_embeddings", 1, std::size_t{1} << 32))
               : static_cast<double>(max_positions);
  };
  if (kind == "linear") {
    s.scaling = RopeScaling::linear;
  } else if (kind == "yarn") {
    s.scaling = RopeScaling::yarn;
    s.original_context = original();
    s.beta_fast = number_or("beta_fast", 32);
    s.beta_slow = number_or("beta_slow", 1);
    s.whole_pairs = scaling.flag_or("truncate", true);
    const double all = number_or("mscale_all_dim", 0), some = number_or("mscale", 0);
    if (scaling.has("attention_factor"))
      rope.magnitude = scaling.number("attention_factor", 1e-6, 1e6);
    else if (all != 0 && some != 0)
      rope.magnitude = yarn_magnitude(s.factor, some) / yarn_magnitude(s.factor, all);
    else
      rope.magnitude = yarn_magnitude(s.factor);
    if (all != 0) rope.score_magnitude = yarn_magnitude(s.factor, all);
  } else if (kind == "llama3") {
    s.scaling = RopeScaling::llama3;
    s.original_context = original();
    s.low_frequency_factor = number_or("low_freq_factor", 1);
    s.high_frequency_factor = number_or("high_freq_factor", 4);
    if (s.high_frequency_factor <= s.low_frequency_factor)
      scaling.expected("high_freq_factor", scaling.get("high_freq_factor"), "a number above low_freq_factor");
  } else {
    scaling.expected(kind_name, scaling.get(kind_name), "\"default\", \"linear\", \"yarn\" or \"llama3\"",
                     Code::unsupported);
  }
  return rope;
}

void take_rope(ModelConfig& c, const RopeDescription& rope, RopeOrder order) {
  c.rope.order = order;
  c.rope.frequencies = rope_frequencies(rope.settings);
  c.rope.magnitude = static_cast<float>(rope.magnitude);
}

GqaConfig read_gqa(Fields& top, std::size_t hidden, std::string_view type) {
  GqaConfig gqa;
  gqa.heads = top.size("num_attention_heads", 1, kMaxHeads);
  gqa.kv_heads = top.size_or("num_key_value_heads", gqa.heads, 1, kMaxHeads);
  if (gqa.heads % gqa.kv_heads != 0)
    top.refuse(Code::corrupt, "num_attention_heads = {} is no multiple of num_key_value_heads = {}", gqa.heads,
               gqa.kv_heads);
  gqa.head_dim = top.size_or("head_dim", std::max<std::size_t>(1, hidden / gqa.heads), 1, kMaxHeadDim);
  if (gqa.width() > kMaxHidden)
    top.refuse(Code::limit, "num_attention_heads · head_dim is {}, expected at most {}", gqa.width(), kMaxHidden);
  gqa.qkv_bias = type == "qwen2";
  gqa.qk_norm = type.starts_with("qwen3");
  refuse_true(top, "attention_bias", "biases of the output projection are not supported");
  refuse_true(top, "mlp_bias", "biases in the FFN are not supported");
  return gqa;
}

MoeConfig read_mixtral(Fields& top) {
  MoeConfig moe;
  moe.experts = top.size("num_local_experts", 1, kMaxExperts);
  moe.top_k = top.size("num_experts_per_tok", 1, kMaxExperts);
  moe.intermediate = top.size("intermediate_size", 1, kMaxHidden);
  moe.score = RouterScore::softmax;
  moe.selection_bias = false;
  moe.renormalize = true;
  return moe;
}

MoeConfig read_qwen_moe(Fields& top) {
  MoeConfig moe;
  moe.experts = top.size(top.has("num_local_experts") && !top.has("num_experts") ? "num_local_experts" : "num_experts",
                         1, kMaxExperts);
  moe.top_k = top.size("num_experts_per_tok", 1, kMaxExperts);
  moe.intermediate = top.size("moe_intermediate_size", 1, kMaxHidden);
  moe.score = RouterScore::softmax;
  moe.selection_bias = false;
  moe.renormalize = top.flag_or("norm_topk_prob", false);
  if (top.size_or("decoder_sparse_step", 1, 0, kMaxLayers) != 1)
    top.expected("decoder_sparse_step", top.get("decoder_sparse_step"), "1: dense layers between are not supported",
                 Code::unsupported);
  if (const Json* dense = top.get("mlp_only_layers"); dense != nullptr && !dense->empty())
    top.expected("mlp_only_layers", dense, "an empty list: dense layers between are not supported", Code::unsupported);
  return moe;
}

MoeConfig read_deepseek_moe(Fields& top) {
  MoeConfig moe;
  moe.experts = top.size("n_routed_experts", 1, kMaxExperts);
  moe.top_k = top.size("num_experts_per_tok", 1, kMaxExperts);
  moe.intermediate = top.size("moe_intermediate_size", 1, kMaxHidden);
  moe.shared_experts = top.size_or("n_shared_experts", 0, 0, kMaxExperts);
  moe.renormalize = top.flag_or("norm_topk_prob", true);
  moe.scaling_factor = top.has("routed_scaling_factor") ? top.number("routed_scaling_factor", 1e-6, 1e6) : 1;
  moe.groups = top.size_or("n_group", 1, 1, kMaxExperts);
  moe.top_groups = top.size_or("topk_group", 1, 1, kMaxExperts);
  if (const Json* score = top.get("scoring_func"); score != nullptr && *score != "sigmoid")
    top.expected("scoring_func", score, "\"sigmoid\"", Code::unsupported);
  if (const Json* method = top.get("topk_method"); method != nullptr && *method != "noaux_tc")
    top.expected("topk_method", method, "\"noaux_tc\" (a bias for the selection only)", Code::unsupported);
  if (top.size_or("moe_layer_freq", 1, 0, kMaxLayers) != 1)
    top.expected("moe_layer_freq", top.get("moe_layer_freq"), "1: dense layers between are not supported",
                 Code::unsupported);
  return moe;
}

void check_moe(Fields& top, const MoeConfig& moe) {
  if (moe.experts == 0) return;
  if (moe.top_k > moe.experts)
    top.refuse(Code::corrupt, "num_experts_per_tok is {}, expected at most the {} experts", moe.top_k, moe.experts);
  if (moe.shared_intermediate() > kMaxHidden)
    top.refuse(Code::limit, "the shared experts together are {} wide, expected at most {}", moe.shared_intermediate(),
               kMaxHidden);
  if (moe.experts % moe.groups != 0 || moe.top_groups > moe.groups ||
      moe.top_groups * (moe.experts / moe.groups) < moe.top_k)
    top.refuse(Code::corrupt, "{} of {} groups of experts cannot give {} of {} experts", moe.top_groups, moe.groups,
               moe.top_k, moe.experts);
}

MlaConfig read_deepseek_mla(Fields& top) {
  MlaConfig mla;
  mla.heads = top.size("num_attention_heads", 1, kMaxHeads);
  mla.q_lora_rank = top.size_or("q_lora_rank", 0, 0, kMaxHidden);
  mla.kv_lora_rank = top.size("kv_lora_rank", 1, kMaxHidden);
  mla.qk_nope_dim = top.size("qk_nope_head_dim", 1, kMaxHeadDim);
  mla.qk_rope_dim = top.size("qk_rope_head_dim", 1, kMaxHeadDim);
  mla.v_dim = top.size("v_head_dim", 1, kMaxHeadDim);
  for (const std::size_t width : {mla.heads * mla.qk_dim(), mla.heads * (mla.qk_nope_dim + mla.v_dim), mla.cache_dim()})
    if (width > kMaxHidden)
      top.refuse(Code::limit, "the head sizes of MLA give a vector of {} values, expected at most {}", width,
                 kMaxHidden);
  refuse_true(top, "attention_bias", "biases in attention are not supported");
  return mla;
}

}  // namespace

bool is_llama_family(std::string_view type) {
  static constexpr std::string_view kTypes[] = {"llama", "mistral",   "mixtral",     "qwen2",
                                                "qwen3", "qwen3_moe", "deepseek_v3", "kimi_k2"};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

Result<std::optional<RopeDescription>> describe_rope(std::string_view config_json) {
  MYRIAD_TRY(const ModelConfig config, parse_config(config_json));  // all else that may be wrong with it
  const Json root = Json::parse(config_json);
  const auto type = root["model_type"].get<std::string>();
  if (type == kOwnModelType) return std::optional<RopeDescription>();
  if (!is_llama_family(type)) return std::optional(RopeDescription{});
  std::optional<Error> error;
  Fields top(root, "", error);
  const auto max_positions = top.size("max_position_embeddings", 1, std::size_t{1} << 40);
  RopeDescription rope = read_rope(top, config.rope.dims(), max_positions);
  if (error) return std::unexpected(std::move(*error));
  return std::optional(std::move(rope));
}

ModelConfig read_llama_family(Fields& top, std::string_view type) {
  ModelConfig c;
  c.hidden = top.size("hidden_size", 1, kMaxHidden);
  c.vocab = top.size("vocab_size", 1, kMaxVocab);
  const std::size_t layers = top.size("num_hidden_layers", 1, kMaxLayers);
  c.max_positions = top.size("max_position_embeddings", 1, std::size_t{1} << 40);
  const bool deepseek = type == "deepseek_v3" || type == "kimi_k2";
  c.attention.assign(layers, deepseek ? AttentionKind::mla : AttentionKind::gqa);
  if (deepseek) {
    c.mla = read_deepseek_mla(top);
    const RopeDescription rope = read_rope(top, c.mla.qk_rope_dim, c.max_positions);
    take_rope(c, rope, top.flag_or("rope_interleave", true) ? RopeOrder::pairs : RopeOrder::halves);
    const double score = rope.score_magnitude * rope.score_magnitude;
    if (score != 1) c.softmax_scale = static_cast<float>(score / std::sqrt(static_cast<double>(c.mla.qk_dim())));
    c.dense_layers = top.size_or("first_k_dense_replace", 0, 0, layers);
  } else {
    c.gqa = read_gqa(top, c.hidden, type);
    take_rope(c, read_rope(top, c.gqa.head_dim, c.max_positions), RopeOrder::halves);
    c.dense_layers = type == "mixtral" || type == "qwen3_moe" ? 0 : layers;
  }
  if (c.dense_layers != 0) c.intermediate = top.size("intermediate_size", 1, kMaxHidden);
  if (c.dense_layers < layers) {
    c.moe = deepseek ? read_deepseek_moe(top) : type == "mixtral" ? read_mixtral(top) : read_qwen_moe(top);
    check_moe(top, c.moe);
    // The file's own quantisations (FP8 blocks, INT4 groups) are another matter.
  }
  if (top.has("quantization_config") && !has_own_quantization(top))
    top.expected("quantization_config", top.get("quantization_config"),
                 "none: BF16, F16 or F32 weights; use a GGUF file for quantised ones", Code::unsupported);
  if (top.has("sliding_window") && top.flag_or("use_sliding_window", type == "mistral" || type == "mixtral"))
    c.attention_window = top.size("sliding_window", 1, std::size_t{1} << 40);
  c.nextn_predict_layers = top.size_or("num_nextn_predict_layers", 0, 0, kMaxLayers);
  c.trunk_dtype = read_trunk_dtype(top, top);
  if (const std::string act = top.has("hidden_act") ? top.text("hidden_act") : "silu"; act != "silu")
    top.expected("hidden_act", top.get("hidden_act"), "\"silu\"", Code::unsupported);
  c.rms_norm_eps = top.number("rms_norm_eps", 1e-12, 0.1);
  c.tied_embeddings = top.flag_or("tie_word_embeddings", false);
  c.bos_token = one_token(read_tokens(top, top, "bos_token_id", c.vocab));
  c.eos_tokens = read_tokens(top, top, "eos_token_id", c.vocab);
  c.pad_token = one_token(read_tokens(top, top, "pad_token_id", c.vocab));
  return c;
}

}  // namespace myriad
