#include "model/inspect.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"

namespace myriad {
namespace {

struct CategoryRow {
  std::string_view name;  // for people
  std::string_view key;   // in JSON
};
constexpr std::array<CategoryRow, kCategories> kRows = {{{"KDA attention", "kda_attention"},
                                                         {"MLA attention", "mla_attention"},
                                                         {"GQA attention", "gqa_attention"},
                                                         {"layer norms", "layer_norms"},
                                                         {"AttnRes per layer", "attn_res"},
                                                         {"router + bias", "router"},
                                                         {"latent down/up + norm", "latent"},
                                                         {"shared experts", "shared_experts"},
                                                         {"dense FFN", "dense_ffn"},
                                                         {"routed experts", "routed_experts"},
                                                         {"embed_tokens", "embed_tokens"},
                                                         {"lm_head", "lm_head"},
                                                         {"final norm, output AttnRes", "final_norms"},
                                                         {"vision tower", "vision_tower"},
                                                         {"projector", "projector"},
                                                         {"other", "other"}}};

Category attention_category(AttentionKind kind) {
  return kind == AttentionKind::kda   ? Category::kda_attention
         : kind == AttentionKind::mla ? Category::mla_attention
                                      : Category::gqa_attention;
}

// Of a name inside layer `layer`.
Category layer_category(std::string_view rest, std::size_t layer, const ModelConfig& config) {
  if (rest.starts_with("self_attn.")) return attention_category(config.attention[layer]);
  if (rest.starts_with("input_layernorm.") || rest.starts_with("post_attention_layernorm."))
    return Category::layer_norms;
  if (rest.starts_with("self_attention_res_") || rest.starts_with("mlp_res_")) return Category::attn_res;
  constexpr std::string_view kMoe = "block_sparse_moe.", kMlp = "mlp.";
  if (rest.starts_with(kMlp)) {
    rest.remove_prefix(kMlp.size());
    for (const std::string_view dense : {"gate_proj.", "up_proj.", "down_proj."})
      if (rest.starts_with(dense)) return Category::dense_ffn;
  } else if (rest.starts_with(kMoe)) {
    rest.remove_prefix(kMoe.size());
  } else {
    return Category::other;
  }
  if (rest.starts_with("experts.")) return Category::routed_experts;
  if (rest.starts_with("shared_experts.")) return Category::shared_experts;
  if (rest.starts_with("gate.")) return Category::router;
  if (rest.starts_with("routed_expert_")) return Category::latent;
  return Category::other;
}

std::uint64_t parameters_of(const TensorInfo& t) {
  if (t.name.ends_with(".weight_scale")) return 0;
  if (const auto type = type_of_suffix(t.name); type && t.shape.size() == 2) {
    const std::uint64_t scale = *type == DType::i8_row ? kRowScaleBytes : 0;
    return t.shape[1] < scale ? 0 : t.shape[0] * ((t.shape[1] - scale) / block_bytes(*type) * block_values(*type));
  }
  return t.name.ends_with(".weight_packed") ? 2 * t.elements() : t.elements();
}

// Columns padded to their widest cell; the first is text (left), the others numbers (right).
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> width(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  std::string out;
  for (const auto& row : rows) {
    out += fmt::format("  {:<{}}", row[0], width[0]);
    for (std::size_t i = 1; i < row.size(); ++i) out += fmt::format("  {:>{}}", row[i], width[i]);
    out += '\n';
  }
  return out;
}

std::vector<std::string> tally_row(std::string_view name, const Tally& t) {
  return {std::string(name), grouped(t.tensors), grouped(t.bytes), grouped(t.parameters)};
}

nlohmann::ordered_json tally_json(const Tally& t) {
  return {{"tensors", t.tensors}, {"bytes", t.bytes}, {"parameters", t.parameters}};
}

constexpr std::array<std::uint64_t, 3> kExampleTokens = {1024, 32768, 1048576};

}  // namespace

std::string_view category_name(Category category) {
  return kRows[static_cast<std::size_t>(category)].name;
}

Category category_of(std::string_view name, const ModelConfig& config) {
  if (type_of_suffix(name)) name = name.substr(0, name.rfind(".weight_") + 7);
  constexpr std::string_view kLayers = "model.layers.";
  if (name.starts_with(kLayers)) {
    std::size_t at = kLayers.size();
    std::size_t layer = 0;
    for (; at < name.size() && name[at] >= '0' && name[at] <= '9' && layer < config.layers(); ++at)
      layer = layer * 10 + static_cast<std::size_t>(name[at] - '0');
    if (at == kLayers.size() || at >= name.size() || name[at] != '.' || layer >= config.layers())
      return Category::other;
    return layer_category(name.substr(at + 1), layer, config);
  }
  if (name == "model.embed_tokens.weight") return Category::embedding;
  if (name == "lm_head.weight") return Category::lm_head;
  if (name == "model.norm.weight" || name.starts_with("model.output_attn_res_")) return Category::final_norms;
  if (name.starts_with("vision_tower.")) return Category::vision_tower;
  if (name.starts_with("mm_projector.")) return Category::projector;
  return Category::other;
}

Tally& Tally::operator+=(const Tally& o) {
  tensors += o.tensors;
  bytes += o.bytes;
  parameters += o.parameters;
  return *this;
}

StateBytes state_bytes(const ModelConfig& config) {
  const std::uint64_t kda = config.layers_of(AttentionKind::kda);
  const std::uint64_t mla = config.layers_of(AttentionKind::mla);
  StateBytes state;
  state.kda_state = kda * config.kda.width() * config.kda.head_dim * sizeof(float);
  if (kda != 0) state.conv_history = kda * 3 * (config.kda.conv_taps - 1) * config.kda.width() * sizeof(float);
  state.gqa_bytes_per_token =
      config.layers_of(AttentionKind::gqa) * 2 * config.gqa.kv_heads * config.gqa.head_dim * sizeof(std::uint16_t);
  state.mla_bytes_per_token = mla * config.mla.cache_dim() * sizeof(std::uint16_t);
  return state;
}

Tally Inventory::trunk() const {
  Tally sum;
  for (std::size_t i = 0; i < kTrunkCategories; ++i) sum += categories[i];
  return sum;
}

Tally Inventory::total() const {
  Tally sum;
  for (const Tally& t : categories) sum += t;
  return sum;
}

std::uint64_t Inventory::active_parameters() const {
  const auto of = [&](Category c) { return categories[static_cast<std::size_t>(c)].parameters; };
  const std::uint64_t always = trunk().parameters + of(Category::lm_head) + of(Category::final_norms);
  if (config.moe.experts == 0) return always;
  return always + of(Category::routed_experts) / config.moe.experts * config.moe.top_k;
}

Inventory take_inventory(const Checkpoint& checkpoint) {
  Inventory inventory;
  inventory.config = checkpoint.config();
  inventory.shards = checkpoint.shards();
  inventory.state = state_bytes(checkpoint.config());
  for (const TensorInfo& t : checkpoint.tensors()) {
    inventory.categories[static_cast<std::size_t>(category_of(t.name, checkpoint.config()))] +=
        {1, t.bytes, parameters_of(t)};
    TypeTally& type = inventory.types[std::string(storage_type_name(t.type))];
    type.tensors += 1;
    type.elements += t.elements();
    type.bytes += t.bytes;
  }
  return inventory;
}

std::string inventory_text(const Inventory& inventory) {
  const ModelConfig& c = inventory.config;
  std::string kinds;
  for (const auto kind : {AttentionKind::kda, AttentionKind::mla, AttentionKind::gqa})
    if (c.layers_of(kind) != 0)
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", c.layers_of(kind), attention_kind_name(kind));
  std::string out = fmt::format("{}: {} layers ({}), hidden {}, vocabulary {}, context {}\n", c.architecture,
                                c.layers(), kinds, c.hidden, grouped(c.vocab), grouped(c.max_positions));
  if (c.moe.experts != 0) {
    out += fmt::format("{} experts of inner width {}, {} chosen, {} shared", c.moe.experts, c.moe.intermediate,
                       c.moe.top_k, c.moe.shared_experts);
    if (c.moe.latent != 0) out += fmt::format(", latent {}", c.moe.latent);
    if (c.attn_res_block_size != 0) out += fmt::format("; attention residuals in blocks of {}", c.attn_res_block_size);
    out += '\n';
  }
  std::vector<std::vector<std::string>> rows = {{"category", "tensors", "bytes", "parameters"}};
  for (std::size_t i = 0; i < kCategories; ++i) {
    if (inventory.categories[i].tensors != 0) rows.push_back(tally_row(kRows[i].name, inventory.categories[i]));
    if (i + 1 == kTrunkCategories) rows.push_back(tally_row("trunk (sum of the above)", inventory.trunk()));
  }
  rows.push_back(tally_row(fmt::format("total, {} file{}", inventory.shards, inventory.shards == 1 ? "" : "s"),
                           inventory.total()));
  out += '\n' + table(rows);

  rows = {{"stored as", "tensors", "bytes", "elements"}};
  for (const auto& [name, t] : inventory.types)
    rows.push_back(
        {t.runs ? name : name + " (cannot be run)", grouped(t.tensors), grouped(t.bytes), grouped(t.elements)});
  out += '\n' + table(rows);
  out += fmt::format("\n  parameters used for one token: {}\n", grouped(inventory.active_parameters()));

  const StateBytes& s = inventory.state;
  rows = {{"state of one sequence", "bytes"}};
  if (s.fixed() != 0) {
    rows.push_back({"KDA state (f32)", grouped(s.kda_state)});
    rows.push_back({"convolution history (f32)", grouped(s.conv_history)});
  }
  if (s.mla_bytes_per_token != 0)
    rows.push_back({"MLA cache a token (2 bytes a value)", grouped(s.mla_bytes_per_token)});
  if (s.gqa_bytes_per_token != 0)
    rows.push_back({"GQA cache a token (2 bytes a value)", grouped(s.gqa_bytes_per_token)});
  for (const std::uint64_t tokens : kExampleTokens)
    if (tokens <= c.max_positions)
      rows.push_back({fmt::format("in all at {} tokens", grouped(tokens)), grouped(s.at(tokens))});
  return out + '\n' + table(rows);
}

std::string inventory_json(const Inventory& inventory) {
  using Json = nlohmann::ordered_json;
  const ModelConfig& c = inventory.config;
  Json categories = Json::object();
  for (std::size_t i = 0; i < kCategories; ++i)
    categories[std::string(kRows[i].key)] = tally_json(inventory.categories[i]);
  Json types = Json::object();
  for (const auto& [name, t] : inventory.types)
    types[name] = {{"tensors", t.tensors}, {"bytes", t.bytes}, {"elements", t.elements}, {"runs", t.runs}};
  Json kinds = Json::array();
  for (const AttentionKind kind : c.attention) kinds.push_back(attention_kind_name(kind));
  const StateBytes& s = inventory.state;
  const Json out = {{"architecture", c.architecture},
                    {"layers", c.layers()},
                    {"attention", kinds},
                    {"hidden", c.hidden},
                    {"vocab", c.vocab},
                    {"max_positions", c.max_positions},
                    {"experts", c.moe.experts},
                    {"experts_per_token", c.moe.top_k},
                    {"files", inventory.shards},
                    {"total", tally_json(inventory.total())},
                    {"active_parameters", inventory.active_parameters()},
                    {"trunk", tally_json(inventory.trunk())},
                    {"categories", categories},
                    {"types", types},
                    {"state",
                     {{"kda_state", s.kda_state},
                      {"conv_history", s.conv_history},
                      {"fixed", s.fixed()},
                      {"mla_bytes_per_token", s.mla_bytes_per_token},
                      {"gqa_bytes_per_token", s.gqa_bytes_per_token}}}};
  return out.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace myriad
