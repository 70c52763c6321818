#include "model/gguf_config.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "model/config_fields.h"
#include "model/rope.h"

namespace myriad {
namespace {

constexpr std::string_view kArchitectures[] = {"llama",     "qwen2",       "qwen3",  "qwen3moe",
                                               "deepseek2", "kimi-linear", "kimi-k3"};

// The keys of one architecture. The first failure is kept, as in Fields.
class Keys {
 public:
  Keys(const GgufFile& file, std::string architecture, std::optional<Error>& error)
      : file_(file), prefix_(std::move(architecture) + "."), error_(error) {}

  [[nodiscard]] bool has(std::string_view key) const { return file_.metadata().has(prefix_ + std::string(key)); }
  std::size_t size(std::string_view key, std::size_t min, std::size_t max) {
    return bounded(key, take(file_.metadata().require<std::uint64_t>(prefix_ + std::string(key)), min), min, max);
  }
  std::size_t size_or(std::string_view key, std::size_t otherwise, std::size_t min, std::size_t max) {
    return has(key) ? size(key, min, max) : otherwise;
  }
  float number(std::string_view key, float otherwise, double min, double max) {
    const float v = take(file_.metadata().get_or<float>(prefix_ + std::string(key), otherwise), otherwise);
    if (v >= min && v <= max) return v;
    refuse(Code::corrupt, "{}{} is {}, expected a number from {} to {}", prefix_, key, v, min, max);
    return otherwise;
  }
  bool flag(std::string_view key, bool otherwise) {
    return take(file_.metadata().get_or<bool>(prefix_ + std::string(key), otherwise), otherwise);
  }
  std::string text(std::string_view key, std::string_view otherwise) {
    return std::string(
        take(file_.metadata().get_or<std::string_view>(prefix_ + std::string(key), otherwise), otherwise));
  }
  // How many blocks the file has: the layers, and behind them those that predict further tokens (MTP).
  void set_blocks(std::size_t blocks) { blocks_ = blocks; }
  // One number a block, or one for all; those of the layers, the first blocks.
  std::vector<std::uint64_t> per_layer(std::string_view key, std::size_t layers) {
    auto values = take(file_.metadata().get_per_layer<std::uint64_t>(prefix_ + std::string(key), blocks_),
                       std::optional<std::vector<std::uint64_t>>());
    if (values) {
      values->resize(layers);
      return std::move(*values);
    }
    refuse(Code::corrupt, "the key {}{} is missing", prefix_, key);
    return std::vector<std::uint64_t>(layers, 1);
  }
  // The one number that all layers share.
  std::size_t uniform(std::string_view key, std::size_t layers, std::size_t min, std::size_t max) {
    const auto values = per_layer(key, layers);
    if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end())
      refuse(Code::unsupported, "{}{} differs from layer to layer, expected one number", prefix_, key);
    return bounded(key, values.empty() ? min : values.front(), min, max);
  }
  template <class... Args>
  void refuse(Code code, fmt::format_string<Args...> format, Args&&... args) {
    if (!error_)
      error_ =
          Error{code,
                fmt::format("reading {}: ", file_.path().string()) + fmt::format(format, std::forward<Args>(args)...),
                {},
                {}};
  }

 private:
  std::size_t bounded(std::string_view key, std::uint64_t v, std::size_t min, std::size_t max) {
    if (v >= min && v <= max) return v;
    refuse(v > max ? Code::limit : Code::corrupt, "{}{} is {}, expected an integer from {} to {}", prefix_, key, v, min,
           max);
    return min;
  }
  template <class T, class U>
  T take(Result<T> result, U otherwise) {
    if (result) return std::move(*result);
    if (!error_) error_ = std::move(result).error();
    return T(otherwise);
  }

  const GgufFile& file_;
  std::string prefix_;
  std::optional<Error>& error_;
  std::size_t blocks_ = 0;
};

class Reader {
 public:
  Reader(const GgufFile& file, std::string architecture)
      : file_(file), arch_(architecture), keys_(file, architecture, error_) {}

  Result<RopeSettings> read_rope_settings(std::size_t dims, std::size_t max_positions) {
    c_.max_positions = max_positions;
    RopeSettings settings = rope_settings(dims);
    if (error_) return std::unexpected(std::move(*error_));
    return settings;
  }

  Result<ModelConfig> read() {
    c_.architecture = arch_;
    c_.hidden = keys_.size("embedding_length", 1, kMaxHidden);
    const std::size_t layers = read_layers();
    c_.vocab = keys_.size_or("vocab_size", embedding_rows(), 1, kMaxVocab);
    c_.max_positions = keys_.size("context_length", 1, std::size_t{1} << 40);
    c_.rms_norm_eps = keys_.number("attention.layer_norm_rms_epsilon", 1e-5F, 1e-12, 0.1);
    c_.lora_norm_eps = own_epsilon(kGgufLoraEpsilon);
    c_.tied_embeddings = file_.find("output.weight") == nullptr;
    c_.trunk_dtype = DType::f32;
    c_.f32_residual = true;  // as llama.cpp has it
    if (is_kimi()) {
      read_kimi(layers);
    } else if (arch_ == "deepseek2") {
      c_.attention.assign(layers, AttentionKind::mla);
      read_mla(layers);
      read_deepseek_rope();
      read_moe(layers);
    } else {
      c_.attention.assign(layers, AttentionKind::gqa);
      read_gqa(layers);
      read_moe(layers);
    }
    if (c_.dense_layers != 0) c_.intermediate = keys_.uniform("feed_forward_length", layers, 1, kMaxHidden);
    read_tokens();
    refuse_what_nothing_runs();
    if (!error_) {
      const Json nothing = Json::object();
      Fields none(nothing, "", error_);
      check_whole(none, c_);
    }
    if (error_) return std::unexpected(std::move(*error_));
    return std::move(c_);
  }

 private:
  [[nodiscard]] bool is_kimi() const { return arch_ == "kimi-k3" || arch_ == "kimi-linear"; }

  // llama.cpp has one epsilon for all norms. Myriad writes the others where a model has others.
  float own_epsilon(std::string_view key) {
    auto own = file_.metadata().get<float>(key);
    if (!own) {
      if (!error_) error_ = std::move(own).error();
      return c_.rms_norm_eps;
    }
    const float epsilon = own->value_or(c_.rms_norm_eps);
    if (epsilon >= 1e-12F && epsilon <= 0.1F) return epsilon;
    keys_.refuse(Code::corrupt, "{} is {}, expected a number from 1e-12 to 0.1", key, epsilon);
    return c_.rms_norm_eps;
  }

  // llama.cpp counts the blocks of multi-token prediction, which nothing runs, in block_count.
  std::size_t read_layers() {
    const std::size_t blocks = keys_.size("block_count", 1, kMaxLayers);
    keys_.set_blocks(blocks);
    c_.nextn_predict_layers = keys_.size_or("nextn_predict_layers", 0, 0, kMaxLayers);
    if (c_.nextn_predict_layers < blocks) return blocks - c_.nextn_predict_layers;
    keys_.refuse(Code::corrupt, "{0}.nextn_predict_layers is {1} of {0}.block_count = {2}, expected fewer", arch_,
                 c_.nextn_predict_layers, blocks);
    return blocks;
  }

  [[nodiscard]] std::size_t embedding_rows() const {
    const GgufTensor* t = file_.find("token_embd.weight");
    return t == nullptr ? 0 : t->rows();
  }

  void read_gqa(std::size_t layers) {
    GqaConfig& g = c_.gqa;
    g.heads = keys_.uniform("attention.head_count", layers, 1, kMaxHeads);
    g.kv_heads =
        keys_.has("attention.head_count_kv") ? keys_.uniform("attention.head_count_kv", layers, 1, kMaxHeads) : g.heads;
    g.head_dim = keys_.size_or("attention.key_length", std::max<std::size_t>(1, c_.hidden / g.heads), 1, kMaxHeadDim);
    if (keys_.size_or("attention.value_length", g.head_dim, 1, kMaxHeadDim) != g.head_dim)
      keys_.refuse(Code::unsupported, "keys of {} and values of another length", g.head_dim);
    if (g.heads % g.kv_heads != 0)
      keys_.refuse(Code::corrupt, "{} query heads are no multiple of {} key heads", g.heads, g.kv_heads);
    if (g.width() > kMaxHidden)
      keys_.refuse(Code::limit, "{} heads of {} make a vector of {} values, expected at most {}", g.heads, g.head_dim,
                   g.width(), kMaxHidden);
    for (std::size_t l = 0; l < layers; ++l)
      for (const char part : {'q', 'k', 'v'})
        if (file_.find(fmt::format("blk.{}.attn_{}.bias", l, part)) != nullptr) g.qkv_bias = true;
    g.qk_norm = arch_.starts_with("qwen3");
    const std::size_t dims = keys_.size_or("rope.dimension_count", g.head_dim, 0, g.head_dim);
    read_rope(dims, arch_ == "llama" ? RopeOrder::pairs : RopeOrder::halves);
  }

  RopeSettings rope_settings(std::size_t dims) {
    RopeSettings s;
    s.dims = dims;
    if (dims % 2 != 0) keys_.refuse(Code::unsupported, "{} channels of a head turn, expected an even number", dims);
    s.base = keys_.number("rope.freq_base", 10000, 1, 1e12);
    const std::string kind = keys_.text("rope.scaling.type", "");
    s.factor = keys_.number("rope.scaling.factor", keys_.number("rope.scale_linear", 1, 0, 1e6), 0, 1e6);
    if (s.factor == 0 || kind == "none") s.factor = 1;
    if (kind == "yarn") {
      s.scaling = RopeScaling::yarn;
      s.original_context = static_cast<double>(
          keys_.size_or("rope.scaling.original_context_length", c_.max_positions, 1, std::size_t{1} << 40));
      s.beta_fast = keys_.number("rope.scaling.yarn_beta_fast", 32, 0, 1e6);
      s.beta_slow = keys_.number("rope.scaling.yarn_beta_slow", 1, 0, 1e6);
      // llama.cpp knows these four of other architectures only. The betas and the mix belong to the model's own formula
      // and converters copy them, so they are obeyed; yarn_attn_factor would come on top of what attn_factor says.
      if (const float mixed = keys_.number("rope.scaling.yarn_ext_factor", 1, -1e6, 1e6); mixed != 1)
        keys_.refuse(Code::unsupported, "rope.scaling.yarn_ext_factor is {}; only 1 is supported", mixed);
    } else if (kind == "linear" || (kind.empty() && s.factor != 1)) {
      s.scaling = RopeScaling::linear;
    } else if (!kind.empty() && kind != "none") {
      keys_.refuse(Code::unsupported, "rope.scaling.type is {}, expected none, linear or yarn", gguf_printable(kind));
    }
    return s;
  }

  // As llama.cpp: attn_factor multiplies cosine and sine whatever the scaling, and YaRN's own magnitude comes on top.
  RopeSettings read_rope(std::size_t dims, RopeOrder order) {
    RopeSettings s = rope_settings(dims);
    const std::vector<float> divisors = rope_divisors(dims);
    s.divisors = divisors;
    c_.rope.order = order;
    c_.rope.frequencies = rope_frequencies(s);
    c_.rope.magnitude = attention_factor();
    if (s.scaling == RopeScaling::yarn) c_.rope.magnitude *= yarn_magnitude(s.factor);
    s.divisors = {};
    return s;
  }

  float attention_factor() { return keys_.number("rope.scaling.attn_factor", 1, 1e-6, 1e6); }

  // Llama 3's frequency factors.
  std::vector<float> rope_divisors(std::size_t dims) {
    const GgufTensor* t = file_.find("rope_freqs.weight");
    if (t == nullptr) return {};
    std::vector<float> out(dims / 2);
    if (t->type != GgmlType::f32 || t->elements() != out.size()) {
      keys_.refuse(Code::corrupt, "rope_freqs.weight is {} {}, expected f32 [{}]", ggml_type_text(t->type),
                   gguf_dims_text(t->dims()), out.size());
      return {};
    }
    if (const Status status = file_.read(*t, 0, std::as_writable_bytes(std::span(out))); !status)
      keys_.refuse(status.error().code, "{}", status.error().message);
    little_in_place(std::span(out));
    for (const float v : out)
      if (!(v > 0 && v < 1e9F)) keys_.refuse(Code::corrupt, "rope_freqs.weight holds {}, expected factors above 0", v);
    return out;
  }

  void read_mla(std::size_t layers) {
    MlaConfig& m = c_.mla;
    m.heads = is_kimi() ? mla_heads(layers) : keys_.uniform("attention.head_count", layers, 1, kMaxHeads);
    m.q_lora_rank = keys_.size_or("attention.q_lora_rank", 0, 0, kMaxHidden);
    m.kv_lora_rank = keys_.size("attention.kv_lora_rank", 1, kMaxHidden);
    m.qk_rope_dim = keys_.size("rope.dimension_count", 0, kMaxHeadDim);
    const bool absorbed = keys_.has("attention.key_length_mla");  // else the lengths are those of whole heads
    const std::size_t key = absorbed ? keys_.size("attention.key_length_mla", 1, kMaxHeadDim)
                                     : keys_.size("attention.key_length", 1, kMaxHeadDim);
    m.v_dim = absorbed ? keys_.size("attention.value_length_mla", 1, kMaxHeadDim)
                       : keys_.size("attention.value_length", 1, kMaxHeadDim);
    if (key <= m.qk_rope_dim)
      keys_.refuse(Code::corrupt, "keys of {} values with {} of them shared", key, m.qk_rope_dim);
    else
      m.qk_nope_dim = key - m.qk_rope_dim;
    for (const std::size_t width : {m.heads * m.qk_dim(), m.heads * (m.qk_nope_dim + m.v_dim), m.cache_dim()})
      if (width > kMaxHidden)
        keys_.refuse(Code::limit, "the head sizes of MLA give a vector of {} values, expected at most {}", width,
                     kMaxHidden);
  }

  // head_count may be a list with 0 on the layers that are not MLA.
  std::size_t mla_heads(std::size_t layers) {
    const auto counts = keys_.per_layer("attention.head_count", layers);
    for (std::size_t l = 0; l < layers; ++l)
      if (c_.attention[l] == AttentionKind::mla) {
        if (counts[l] >= 1 && counts[l] <= kMaxHeads) return counts[l];
        keys_.refuse(Code::corrupt, "attention.head_count of layer {} is {}, expected 1 to {}", l, counts[l],
                     kMaxHeads);
      }
    return 1;
  }

  // Of the whole head's scores, as llama.cpp has it for this architecture: with the key yarn_log_multiplier (of which
  // the converter makes 0.1·mscale_all_dim) YaRN's own magnitude of cosine and sine is divided out again, and
  // (1 + multiplier·ln(factor))² scales the scores instead; a linear scaling, which multiplies nothing elsewhere, has
  // both in the scores.
  void read_deepseek_rope() {
    const RopeSettings s = read_rope(c_.mla.qk_rope_dim, RopeOrder::pairs);
    const double attention = attention_factor(), own = yarn_magnitude(s.factor);
    const double multiplier = keys_.number("rope.scaling.yarn_log_multiplier", 0, -1e3, 1e3);
    const double stretch = 1 + multiplier * std::log(s.factor);
    double magnitude = attention;
    if (s.scaling == RopeScaling::linear) magnitude *= own * stretch;
    if (s.scaling == RopeScaling::yarn) magnitude *= multiplier != 0 ? double{static_cast<float>(stretch)} : own;
    if (s.scaling == RopeScaling::yarn && multiplier != 0) c_.rope.magnitude = static_cast<float>(attention);
    if (static_cast<float>(magnitude) != 1)
      c_.softmax_scale = static_cast<float>(magnitude * magnitude / std::sqrt(static_cast<double>(c_.mla.qk_dim())));
  }

  void read_moe(std::size_t layers) {
    const std::size_t experts = keys_.size_or("expert_count", 0, 0, kMaxExperts);
    c_.dense_layers = experts == 0 ? layers : keys_.size_or("leading_dense_block_count", 0, 0, layers);
    if (c_.dense_layers == layers) return;
    MoeConfig& m = c_.moe;
    m.experts = experts;
    m.top_k = keys_.size("expert_used_count", 1, experts);
    m.intermediate = keys_.has("expert_feed_forward_length")
                         ? keys_.size("expert_feed_forward_length", 1, kMaxHidden)
                         : keys_.uniform("feed_forward_length", layers, 1, kMaxHidden);
    m.shared_experts = keys_.size_or("expert_shared_count", 0, 0, kMaxExperts);
    m.latent = keys_.size_or("expert_latent_length", 0, 0, kMaxHidden);
    const std::string first = fmt::format("blk.{}.", c_.dense_layers);
    m.latent_norm = file_.find(first + "ffn_routed_norm.weight") != nullptr ||
                    file_.find(first + "ffn_norm_exps.weight") != nullptr;
    m.selection_bias =
        file_.find(first + "exp_probs_b.bias") != nullptr || file_.find(first + "exp_probs_b") != nullptr;
    read_router(m);
    m.groups = std::max<std::size_t>(1, keys_.size_or("expert_group_count", 1, 0, experts));
    m.top_groups = std::max<std::size_t>(1, keys_.size_or("expert_group_used_count", m.groups, 0, experts));
    if (m.groups == 1) m.top_groups = 1;
    if (m.experts % m.groups != 0 || m.top_groups > m.groups || m.top_groups * (m.experts / m.groups) < m.top_k)
      keys_.refuse(Code::corrupt, "{} of {} groups of experts cannot give {} of {}", m.top_groups, m.groups, m.top_k,
                   m.experts);
    if (m.shared_intermediate() > kMaxHidden)
      keys_.refuse(Code::limit, "the shared experts are {} wide, expected at most {}", m.shared_intermediate(),
                   kMaxHidden);
  }

  // llama.cpp reads these keys only where routers differ: llama and qwen3moe are a softmax, renormalised.
  void read_router(MoeConfig& m) {
    m.score = RouterScore::softmax;
    m.renormalize = m.renormalize_one = true;
    if (arch_ == "llama" || arch_ == "qwen3moe") return;
    // 0 (or nothing) is softmax, but for the Kimis, which have only ever been sigmoid.
    const std::size_t gate = keys_.size_or("expert_gating_func", is_kimi() ? 2 : 0, 0, 100);
    if (gate > 2)
      keys_.refuse(Code::unsupported, "expert_gating_func is {}, expected 1 (softmax) or 2 (sigmoid)", gate);
    if (gate == 2) m.score = RouterScore::sigmoid;
    m.renormalize = arch_ == "kimi-linear" || keys_.flag("expert_weights_norm", false);
    m.scaling_factor = keys_.number("expert_weights_scale", 1, 0, 1e6);
    if (m.scaling_factor == 0) m.scaling_factor = 1;
  }

  // Kimi Linear and K3 (spec §6.2): head_count_kv is 0 on KDA layers.
  void read_kimi(std::size_t layers) {
    for (const auto heads : keys_.per_layer("attention.head_count_kv", layers))
      c_.attention.push_back(heads == 0 ? AttentionKind::kda : AttentionKind::mla);
    if (c_.layers_of(AttentionKind::kda) != 0) {
      const std::size_t first = static_cast<std::size_t>(
          std::find(c_.attention.begin(), c_.attention.end(), AttentionKind::kda) - c_.attention.begin());
      const GgufTensor* a = file_.find(fmt::format("blk.{}.ssm_a", first));
      if (a == nullptr) a = file_.find(fmt::format("blk.{}.ssm_a.weight", first));
      c_.kda.heads = a == nullptr ? 0 : a->elements();
      if (c_.kda.heads < 1 || c_.kda.heads > kMaxHeads)
        keys_.refuse(Code::corrupt, "blk.{}.ssm_a has {} values, expected one a KDA head", first, c_.kda.heads);
      c_.kda.head_dim = keys_.size("kda.head_dim", 1, kMaxHeadDim);
      c_.kda.conv_taps = keys_.size("ssm.conv_kernel", 1, kMaxConvTaps);
      c_.kda.full_rank_gate = file_.find(fmt::format("blk.{}.ssm_g.weight", first)) != nullptr;
      c_.kda.l2_norm_eps = own_epsilon(kGgufL2Epsilon);
      if (arch_ == "kimi-k3") {
        const float bound = keys_.number("kda.gate_lower_bound", -INFINITY, -INFINITY, 0);
        if (std::isfinite(bound)) c_.kda.gate_lower_bound = bound;
      }
      if (c_.kda.width() > kMaxHidden)
        keys_.refuse(Code::limit, "KDA is {} wide, expected at most {}", c_.kda.width(), kMaxHidden);
    }
    if (c_.layers_of(AttentionKind::mla) != 0) {
      read_mla(layers);
      for (std::size_t l = 0; l < layers; ++l)
        if (c_.attention[l] == AttentionKind::mla && file_.find(fmt::format("blk.{}.attn_gate.weight", l)) != nullptr)
          c_.mla.output_gate = true;
    }
    read_moe(layers);
    c_.attn_res_block_size = keys_.size_or("attn_res.block_size", 0, 0, kMaxLayers);
    if (keys_.has("activation.situ_beta")) {
      c_.activation.kind = ActivationKind::situ;
      c_.activation.beta = keys_.number("activation.situ_beta", 1, 1e-3, 1e6);
      c_.activation.linear_beta = keys_.number("activation.situ_linear_beta", 0, 0, 1e6);
    }
  }

  // Ids beyond the vocabulary (4294967295 stands for none) are no tokens.
  std::optional<std::uint32_t> token(std::string_view name) {
    const auto id = file_.metadata().get<std::int64_t>(fmt::format("tokenizer.ggml.{}_token_id", name));
    if (!id || !*id || **id < 0 || static_cast<std::uint64_t>(**id) >= c_.vocab) return std::nullopt;
    return static_cast<std::uint32_t>(**id);
  }
  void read_tokens() {
    c_.bos_token = token("bos");
    c_.pad_token = token("padding");
    for (const char* name : {"eos", "eot", "eom"})
      if (const auto id = token(name);
          id && std::find(c_.eos_tokens.begin(), c_.eos_tokens.end(), *id) == c_.eos_tokens.end())
        c_.eos_tokens.push_back(*id);
  }

  void refuse_what_nothing_runs() {
    for (const char* key : {"attention.clamp_kqv", "attention.max_alibi_bias", "attn_logit_softcapping",
                            "final_logit_softcapping", "logit_scale", "embedding_scale", "residual_scale"})
      if (keys_.number(key, 0, -1e30, 1e30) != 0)
        keys_.refuse(Code::unsupported, "{}.{} is set, which nothing here runs", arch_, key);
    // llama.cpp lets these architectures see beyond it; up to it the results are the same.
    c_.attention_window = keys_.size_or("attention.sliding_window", 0, 0, std::size_t{1} << 40);
    if (!keys_.flag("attention.causal", true))
      keys_.refuse(Code::unsupported, "{}.attention.causal is false: a model that reads its text both ways is not run",
                   arch_);
  }

  const GgufFile& file_;
  std::string arch_;
  std::optional<Error> error_;
  Keys keys_;
  ModelConfig c_;
};

}  // namespace

Result<ModelConfig> gguf_config(const GgufFile& file) {
  MYRIAD_TRY(const std::string_view architecture, file.architecture());
  if (std::find(std::begin(kArchitectures), std::end(kArchitectures), architecture) == std::end(kArchitectures))
    return fail(
        Code::unsupported,
        "reading {}: general.architecture is {}, expected llama, qwen2, qwen3, qwen3moe, deepseek2, kimi-linear "
        "or kimi-k3",
        file.path().string(), gguf_printable(architecture));
  return Reader(file, std::string(architecture)).read();
}

Result<RopeSettings> gguf_rope_settings(const GgufFile& file, std::size_t dims, std::size_t max_positions) {
  MYRIAD_TRY(const std::string_view architecture, file.architecture());
  return Reader(file, std::string(architecture)).read_rope_settings(dims, max_positions);
}

}  // namespace myriad
