#include "model/gguf_settings.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/gguf_config.h"
#include "model/gguf_tokenizer.h"
#include "model/model_text.h"
#include "model/shard_files.h"
#include "model/tokenizer.h"

namespace myriad {
namespace {

constexpr std::size_t kMostTokens = std::numeric_limits<std::uint32_t>::max();

std::vector<std::string_view> views_of(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

// ---- the architecture's keys

// A single expert is chosen and its weight stays its sigmoid, though those of several might be renormalised: in GGUF
// that is a model that does not renormalise.
bool stays_sigmoid(const MoeConfig& m) {
  return m.top_k == 1 && m.score == RouterScore::sigmoid && !(m.renormalize && m.renormalize_one);
}

class ConfigSettings {
 public:
  ConfigSettings(const ModelConfig& config, std::string architecture, std::vector<GgufSetting>& out)
      : c_(config), arch_(std::move(architecture)), out_(out) {}

  void add() {
    size("context_length", c_.max_positions);
    if (c_.attention_window != 0) size("attention.sliding_window", c_.attention_window);
    size("embedding_length", c_.hidden);
    size("block_count", c_.layers());
    size("vocab_size", c_.vocab);
    size("feed_forward_length", c_.intermediate != 0 ? c_.intermediate : c_.moe.intermediate);
    number("attention.layer_norm_rms_epsilon", c_.rms_norm_eps);
    if (c_.layers_of(AttentionKind::gqa) != 0) {
      size("attention.head_count", c_.gqa.heads);
      size("attention.head_count_kv", c_.gqa.kv_heads);
      size("attention.key_length", c_.gqa.head_dim);
      size("attention.value_length", c_.gqa.head_dim);
      size("rope.dimension_count", c_.rope.dims());
    } else {
      add_latent();
    }
    if (c_.dense_layers < c_.layers()) add_moe();
    if (c_.lora_norm_eps != c_.rms_norm_eps && c_.layers_of(AttentionKind::mla) != 0)
      out_.push_back({std::string(kGgufLoraEpsilon), c_.lora_norm_eps});
    if (c_.kda.l2_norm_eps != c_.rms_norm_eps && c_.layers_of(AttentionKind::kda) != 0)
      out_.push_back({std::string(kGgufL2Epsilon), c_.kda.l2_norm_eps});
  }

  // How the rotation came about. Errors: unsupported.
  Status add_rope(const RopeDescription& rope) {
    const RopeSettings& s = rope.settings;
    if (s.dims == 0) {
      if (arch_ == "kimi-linear") number("rope.freq_base", 10000);  // there although nothing turns
      return {};
    }
    number("rope.freq_base", s.base);
    const bool deepseek = arch_ == "deepseek2";
    switch (s.scaling) {
      case RopeScaling::none:
      case RopeScaling::llama3:  // in a tensor
        break;
      case RopeScaling::linear:
        text("rope.scaling.type", "linear");
        number("rope.scaling.factor", s.factor);
        // There the scores are stretched by (1 + 0.1·ln(factor))·(1 + multiplier·ln(factor)), which is to be 1.
        if (deepseek && s.factor > 1)
          number("rope.scaling.yarn_log_multiplier", (1 / double{yarn_magnitude(s.factor)} - 1) / std::log(s.factor));
        break;
      case RopeScaling::yarn: {
        text("rope.scaling.type", "yarn");
        number("rope.scaling.factor", s.factor);
        size("rope.scaling.original_context_length", static_cast<std::size_t>(s.original_context));
        if (s.beta_fast != 32) number("rope.scaling.yarn_beta_fast", s.beta_fast);
        if (s.beta_slow != 1) number("rope.scaling.yarn_beta_slow", s.beta_slow);
        if (!s.whole_pairs) return fail(Code::unsupported, "rope_scaling.truncate is false, which no key of GGUF says");
        if (deepseek && rope.score_magnitude != 1) {
          // The scores' magnitude is 1 + multiplier·ln(factor); that of cosine and sine is divided out again.
          number("rope.scaling.yarn_log_multiplier", (rope.score_magnitude - 1) / std::log(s.factor));
        } else if (const double usual = yarn_magnitude(s.factor); static_cast<float>(rope.magnitude) != usual) {
          number("rope.scaling.attn_factor", rope.magnitude / usual);
        }
        break;
      }
    }
    const bool turned_larger = deepseek && rope.magnitude != 1;
    if (turned_larger || (!deepseek && rope.score_magnitude != 1))
      return fail(Code::unsupported,
                  "rope_scaling (mscale, mscale_all_dim, attention_factor) makes {} {} times as large, which the "
                  "architecture {} of GGUF cannot say",
                  turned_larger ? "cosine and sine" : "the scores",
                  turned_larger ? rope.magnitude : rope.score_magnitude * rope.score_magnitude, arch_);
    if (s.scaling == RopeScaling::llama3 && arch_ != "llama")
      return fail(Code::unsupported, "rope_scaling is llama3, which the architecture {} of GGUF has no tensor for",
                  arch_);
    return {};
  }

 private:
  [[nodiscard]] std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }
  void size(std::string_view name, std::size_t value) {
    out_.push_back({key(name), static_cast<std::uint32_t>(std::min(value, kMostTokens))});
  }
  void number(std::string_view name, double value) { out_.push_back({key(name), static_cast<float>(value)}); }
  void flag(std::string_view name, bool value) { out_.push_back({key(name), value}); }
  void text(std::string_view name, std::string value) { out_.push_back({key(name), std::move(value)}); }

  // MLA and KDA.
  void add_latent() {
    const MlaConfig& m = c_.mla;
    const bool kimi = arch_ != "deepseek2";
    const bool has_mla = c_.layers_of(AttentionKind::mla) != 0;
    size("attention.head_count", has_mla ? m.heads : c_.kda.heads);
    if (kimi) {
      // This is how a layer's kind is said.
      std::vector<std::int32_t> kinds;
      for (const AttentionKind kind : c_.attention) kinds.push_back(kind == AttentionKind::kda ? 0 : 1);
      out_.push_back({key("attention.head_count_kv"), std::move(kinds)});
    } else {
      size("attention.head_count_kv", 1);
    }
    if (has_mla) {
      if (m.q_lora_rank != 0) size("attention.q_lora_rank", m.q_lora_rank);
      size("attention.kv_lora_rank", m.kv_lora_rank);
      size("rope.dimension_count", m.qk_rope_dim);
      size("attention.key_length", m.cache_dim());
      size("attention.value_length", m.kv_lora_rank);
      size("attention.key_length_mla", m.qk_dim());
      size("attention.value_length_mla", m.v_dim);
    }
    if (c_.layers_of(AttentionKind::kda) != 0) {
      size("ssm.conv_kernel", c_.kda.conv_taps);
      size("kda.head_dim", c_.kda.head_dim);
      if (c_.kda.gate_lower_bound) number("kda.gate_lower_bound", *c_.kda.gate_lower_bound);
    }
    if (c_.attn_res_block_size != 0) size("attn_res.block_size", c_.attn_res_block_size);
    if (c_.activation.kind == ActivationKind::situ) {
      number("activation.situ_beta", c_.activation.beta);
      number("activation.situ_linear_beta", c_.activation.linear_beta);
    }
  }

  void add_moe() {
    const MoeConfig& m = c_.moe;
    size("expert_count", m.experts);
    size("expert_used_count", m.top_k);
    size("expert_feed_forward_length", m.intermediate);
    if (arch_ == "llama" || arch_ == "qwen3moe") return;
    size("leading_dense_block_count", c_.dense_layers);
    size("expert_shared_count", m.shared_experts);
    number("expert_weights_scale", m.scaling_factor);
    if (arch_ != "kimi-linear") flag("expert_weights_norm", m.renormalize && !stays_sigmoid(m));
    size("expert_gating_func", m.score == RouterScore::sigmoid ? 2 : 1);
    if (arch_ == "deepseek2" || m.groups > 1) {
      size("expert_group_count", m.groups);
      size("expert_group_used_count", m.top_groups);
    }
    if (m.latent != 0) size("expert_latent_length", m.latent);
  }

  const ModelConfig& c_;
  std::string arch_;
  std::vector<GgufSetting>& out_;
};

// Divisors that make the frequencies of `settings` those of the model, to the last bit where a divisor in f32 can.
std::vector<float> divisors_to(const std::vector<float>& frequencies, const RopeSettings& settings) {
  std::vector<float> out(frequencies.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double plain = std::pow(settings.base, -2.0 * static_cast<double>(i) / static_cast<double>(settings.dims));
    const auto gives = [&](float divisor) { return static_cast<float>(plain / divisor) == frequencies[i]; };
    out[i] = static_cast<float>(plain / frequencies[i]);
    for (const float neighbour : {std::nextafter(out[i], 0.0F), std::nextafter(out[i], 1e30F)})
      if (!gives(out[i]) && gives(neighbour)) out[i] = neighbour;
  }
  return out;
}

// ---- the tokenizer's keys

Status add_vocabulary(GgufVocabularyTexts texts, std::vector<GgufSetting>& out) {
  const auto add = [&](std::string_view name, auto value) {
    out.push_back({fmt::format("tokenizer.ggml.{}", name), std::move(value)});
  };
  {
    // Read back, before a model's bytes are written: what was made must be what from_gguf takes.
    const auto tokens = views_of(texts.tokens), merges = views_of(texts.merges), rules = views_of(texts.rules);
    GgufVocabulary v{.model = texts.model,
                     .pre = texts.pre,
                     .tokens = tokens,
                     .types = texts.types,
                     .scores = texts.scores,
                     .merges = merges,
                     .bos = texts.bos,
                     .eos = texts.eos};
    v.unknown = texts.unknown;
    v.add_bos = texts.add_bos;
    v.add_space_prefix = texts.add_space_prefix;
    v.rules = rules;
    if (auto read = Tokenizer::from_gguf(v); !read)
      return std::unexpected(std::move(read).error().within("reading the tokenizer back as GGUF has it"));
  }
  add("model", std::move(texts.model));
  if (!texts.pre.empty()) add("pre", std::move(texts.pre));
  add("tokens", std::move(texts.tokens));
  add("token_type", std::move(texts.types));
  if (!texts.scores.empty()) add("scores", std::move(texts.scores));
  if (!texts.merges.empty()) add("merges", std::move(texts.merges));
  add("add_bos_token", texts.add_bos);
  if (texts.add_space_prefix) add("add_space_prefix", *texts.add_space_prefix);
  if (texts.unknown) add("unknown_token_id", *texts.unknown);
  if (!texts.rules.empty()) out.push_back({std::string(kGgufTokenizerRules), std::move(texts.rules)});
  return {};
}

// The token that begins a text, and those after which a reply ends: the one that the tokenizer names first, if the
// config names it too, and the config's others as ends of turn and of message.
void add_borders(const ModelConfig& config, std::optional<std::uint32_t> bos, std::optional<std::uint32_t> own,
                 std::vector<GgufSetting>& out) {
  if (!bos) bos = config.bos_token;
  if (bos) out.push_back({"tokenizer.ggml.bos_token_id", *bos});
  std::vector<std::uint32_t> ends = config.eos_tokens;
  const auto at = own ? std::find(ends.begin(), ends.end(), *own) : ends.end();
  if (at != ends.end()) std::rotate(ends.begin(), at, at + 1);
  if (ends.empty() && own) ends.push_back(*own);
  constexpr std::string_view kNames[] = {"eos", "eot", "eom"};
  for (std::size_t i = 0; i < std::min(ends.size(), std::size(kNames)); ++i)
    out.push_back({fmt::format("tokenizer.ggml.{}_token_id", kNames[i]), ends[i]});
}

Status add_tokenizer(const std::filesystem::path& directory, const ModelConfig& config, std::vector<GgufSetting>& out) {
  auto tokenizer = Tokenizer::load(directory, static_cast<std::int32_t>(config.vocab));
  if (!tokenizer) {
    if (tokenizer.error().code != Code::not_found) return std::unexpected(std::move(tokenizer).error());
    out.push_back({"tokenizer.ggml.model", "no_vocab"});
    add_borders(config, {}, {}, out);
    if (config.pad_token) out.push_back({"tokenizer.ggml.padding_token_id", *config.pad_token});
    return {};
  }
  auto texts = tokenizer->to_gguf();
  if (!texts)
    return std::unexpected(
        std::move(texts).error().within(fmt::format("writing the tokenizer in {} as GGUF has it", directory.string())));
  add_borders(config, texts->bos, texts->eos, out);
  MYRIAD_TRY_STATUS(add_vocabulary(std::move(*texts), out));
  std::string text;
  if (std::error_code none; std::filesystem::exists(directory / "tokenizer_config.json", none)) {
    MYRIAD_TRY(text, read_text_file(directory / "tokenizer_config.json", kMaxTokenizerConfigBytes));
  }
  MYRIAD_TRY(const TokenizerConfig own, parse_tokenizer_config(text));
  out.push_back({"tokenizer.ggml.add_eos_token", own.add_eos.value_or(false)});
  std::optional<std::uint32_t> pad = config.pad_token;
  if (const auto named = own.pad ? tokenizer->special_id(*own.pad) : std::nullopt; !pad && named)
    pad = static_cast<std::uint32_t>(*named);
  if (pad) out.push_back({"tokenizer.ggml.padding_token_id", *pad});
  MYRIAD_TRY(auto chat, chat_template_text(directory));
  if (chat) out.push_back({"tokenizer.chat_template", std::move(*chat)});
  return {};
}

// What a model of grouped-query attention must not have: nothing of llama.cpp's would run it.
Status check_gqa(const ModelConfig& c, std::string_view architecture) {
  const auto refuse = [&](std::string_view what) {
    return fail(Code::unsupported, "the architecture {} of GGUF, which the model's attention makes it, has no {}",
                architecture, what);
  };
  if (c.activation.kind != ActivationKind::silu) return refuse("SiTU");
  if (c.attn_res_block_size != 0) return refuse("attention residuals");
  if (c.rope.frequencies.empty()) return refuse("attention without rotation");
  if (c.dense_layers == c.layers()) return {};
  if (c.dense_layers != 0) return refuse("dense layers before those with experts");
  if (c.moe.shared_experts != 0) return refuse("shared experts");
  if (c.moe.latent != 0) return refuse("latent experts");
  if (c.moe.score != RouterScore::softmax || c.moe.selection_bias) return refuse("sigmoid routers");
  if (c.moe.groups != 1) return refuse("groups of experts");
  if (c.moe.scaling_factor != 1) return refuse("scale of the experts' weights");
  if (!c.moe.renormalize) return refuse("router without renormalisation (norm_topk_prob false)");
  return {};
}

}  // namespace

Status set_all(GgufWriter& out, std::span<const GgufSetting> settings) {
  for (const GgufSetting& s : settings) {
    const auto set = [&](const auto& value) -> Status {
      using T = std::remove_cvref_t<decltype(value)>;
      if constexpr (std::same_as<T, std::vector<std::string>>)
        return out.set_strings(s.key, views_of(value));
      else if constexpr (std::same_as<T, std::vector<std::int32_t>> || std::same_as<T, std::vector<float>>)
        return out.set_array(s.key, std::span(value));
      else
        return out.set(s.key, value);
    };
    MYRIAD_TRY_STATUS(std::visit(set, s.value));
  }
  return {};
}

Result<std::string> gguf_architecture(const ModelConfig& c) {
  if (c.layers_of(AttentionKind::gqa) != 0) {
    const bool moe = c.dense_layers < c.layers();
    const std::string name = c.gqa.qkv_bias ? "qwen2" : !c.gqa.qk_norm ? "llama" : moe ? "qwen3moe" : "qwen3";
    if (c.gqa.qkv_bias && (c.gqa.qk_norm || moe))
      return fail(Code::unsupported, "no architecture of GGUF that is written has biases of queries together with {}",
                  moe ? "experts" : "norms of queries");
    MYRIAD_TRY_STATUS(check_gqa(c, name));
    return name;
  }
  if (c.layers_of(AttentionKind::kda) == 0 && !c.rope.frequencies.empty()) {
    if (c.activation.kind != ActivationKind::silu || c.attn_res_block_size != 0 || c.moe.latent != 0 ||
        c.mla.output_gate)
      return fail(Code::unsupported, "the architecture deepseek2 of GGUF has nothing of Kimi K3's");
    if (c.rope.order != RopeOrder::pairs)
      return fail(Code::unsupported,
                  "the architecture deepseek2 of GGUF rotates in pairs; rope_interleave false rotates in halves");
    return "deepseek2";
  }
  if (!c.rope.frequencies.empty())
    return fail(Code::unsupported, "no architecture of GGUF has KDA together with MLA that rotates");
  const bool k3 = c.attn_res_block_size != 0 || c.moe.latent != 0 || c.activation.kind == ActivationKind::situ ||
                  c.mla.output_gate || c.kda.gate_lower_bound || c.kda.full_rank_gate;
  if (k3) return "kimi-k3";
  if (c.dense_layers < c.layers() && stays_sigmoid(c.moe))
    return fail(Code::unsupported,
                "the architecture kimi-linear of GGUF weighs a single expert by 1, the model by its sigmoid");
  if (c.dense_layers < c.layers() && !c.moe.renormalize && c.moe.top_k > 1)
    return fail(Code::unsupported,
                "the architecture kimi-linear of GGUF always renormalises the experts' weights, the model does not "
                "(moe_renormalize false)");
  return "kimi-linear";
}

Result<GgufDescription> describe_as_gguf(const std::filesystem::path& directory, std::string_view config_json,
                                         const ModelConfig& config, std::string_view name) {
  GgufDescription out;
  MYRIAD_TRY(out.architecture, gguf_architecture(config));
  out.settings.push_back({"general.architecture", out.architecture});
  ConfigSettings settings(config, out.architecture, out.settings);
  settings.add();
  MYRIAD_TRY(std::optional<RopeDescription> rope, describe_rope(config_json));
  const std::filesystem::path origin = directory / kGgufTokenizerName;
  if (std::error_code none; std::filesystem::exists(origin, none)) {
    MYRIAD_TRY(const GgufFile file, GgufFile::open(origin));
    out.rest = file.metadata();
    MYRIAD_TRY(const std::string_view architecture, file.architecture());
    if (!rope && architecture == out.architecture) {
      RopeDescription found;
      MYRIAD_TRY(found.settings, gguf_rope_settings(file, config.rope.dims(), config.max_positions));
      if (rope_frequencies(found.settings) != config.rope.frequencies)
        out.rope_factors = divisors_to(config.rope.frequencies, found.settings);
    }
  } else {
    out.settings.push_back({"general.name", std::string(name)});
    MYRIAD_TRY_STATUS(add_tokenizer(directory, config, out.settings));
  }
  if (rope) {
    MYRIAD_TRY_STATUS(settings.add_rope(*rope));
    if (rope->settings.scaling == RopeScaling::llama3)
      out.rope_factors = divisors_to(config.rope.frequencies, rope->settings);
  } else if (!out.rest && !config.rope.frequencies.empty()) {
    return fail(Code::unsupported,
                "{} holds the frequencies of the rotation, but nothing says how they came about: {} is missing",
                (directory / "config.json").string(), kGgufTokenizerName);
  }
  return out;
}

}  // namespace myriad
