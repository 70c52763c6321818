#include "model/graph.h"

#include <algorithm>
#include <charconv>

#include "kernels/kernels.h"

namespace myriad {
namespace {

constexpr std::uint32_t kRowGranule = kTileRows;
constexpr std::uint32_t kVocabularyGranule = 1024;

struct RoleName {
  OpRole role;
  std::string_view name;
};
constexpr RoleName kRoleNames[] = {
    {OpRole::attn_lead, "attn.lead"}, {OpRole::attn_q_a, "attn.q_a"},
    {OpRole::attn_kv_a, "attn.kv_a"}, {OpRole::attn, "attn"},
    {OpRole::attn_o, "attn.o"},       {OpRole::ffn_lead, "ffn.lead"},
    {OpRole::router, "router"},       {OpRole::latent_down, "latent.down"},
    {OpRole::shared_up, "shared.up"}, {OpRole::shared_down, "shared.down"},
    {OpRole::expert, "expert"},       {OpRole::latent_up, "latent.up"},
    {OpRole::dense_up, "ffn.up"},     {OpRole::dense_down, "ffn.down"},
};

char unit_of(OpRole role) {
  switch (role) {
    case OpRole::attn_lead:
    case OpRole::ffn_lead:
    case OpRole::final_lead:
    case OpRole::expert:
      return 0;
    case OpRole::attn:
      return 'h';
    default:
      return 'r';
  }
}

std::uint32_t u32(std::size_t v) {
  return static_cast<std::uint32_t>(v);
}

// Experts of all layers, and layers, that a graph names one by one; Kimi K3 has 82,525.
constexpr std::size_t kMaxExpertsAndLayers = std::size_t{1} << 19;

// Collects the operators of one model; the forms of the seams are decided here and nowhere else.
class Builder {
 public:
  explicit Builder(const ModelConfig& c) : c_(c) {}

  std::vector<Operator> build() {
    Operator& embed = add({0, OpRole::embed, 0}, OpKind::embed, u32(c_.vocab), kVocabularyGranule);
    embed.matrices = {{MatrixRole::weight, dtype(OpRole::embed), 1, 0, hidden()}};
    const bool wide = c_.f32_residual && !is_quantized(dtype(OpRole::embed));
    embed.output = {hidden(), {Form::f32, wide ? Form::f32 : rounded(dtype(OpRole::embed))}};
    embed.output_per_unit = hidden();  // a looked-up row is whole, whichever unit it comes from

    for (std::size_t l = 0; l < c_.layers(); ++l) {
      layer_ = static_cast<std::uint16_t>(l);
      lead(OpRole::attn_lead);
      switch (c_.attention[l]) {
        case AttentionKind::kda:
          kda();
          break;
        case AttentionKind::mla:
          mla();
          break;
        case AttentionKind::gqa:
          gqa();
          break;
      }
      lead(OpRole::ffn_lead);
      if (c_.is_moe(l))
        moe();
      else
        gated(OpRole::dense_up, OpRole::dense_down, u32(c_.intermediate));
    }

    layer_ = 0;
    lead(OpRole::final_lead);
    Operator& head = linear(OpRole::head, u32(c_.vocab), hidden(), true);
    head.kind = OpKind::head;
    head.granule = kVocabularyGranule;
    return std::move(operators_);
  }

 private:
  [[nodiscard]] std::uint32_t hidden() const { return u32(c_.hidden); }
  [[nodiscard]] DType dtype(OpRole role, MatrixRole matrix = MatrixRole::weight) const {
    return c_.dtype_of(layer_, role, matrix);
  }
  // A matrix of the attention heads.
  [[nodiscard]] Operator::MatrixTerm heads(MatrixRole matrix, std::uint32_t rows_per_unit, std::uint32_t rows,
                                           std::uint32_t k) const {
    return {matrix, dtype(OpRole::attn, matrix), rows_per_unit, rows, k};
  }

  // What matrices of these types take.
  static Seam input(std::uint32_t width, std::initializer_list<DType> weights) {
    const auto quantised = std::find_if(weights.begin(), weights.end(), is_quantized);
    return {width,
            {Form::f32, product_form(quantised != weights.end() ? *quantised : *weights.begin(), Profile::fast)}};
  }

  // What an operator with such weights gives in `fast`: whoever keeps weights in more than bf16 wants the rest so too.
  static Form rounded(DType weights) {
    return product_form(weights, Profile::fast) == Form::f32 ? Form::f32 : Form::bf16;
  }
  static CacheType cached(Form rounded) { return rounded == Form::f32 ? CacheType::f16 : CacheType::bf16; }

  Operator& add(OpRef ref, OpKind kind, std::uint32_t extent, std::uint32_t granule) {
    Operator op;
    op.ref = ref;
    op.kind = kind;
    op.extent = extent;
    op.granule = granule;
    op.unit = unit_of(ref.role);
    return operators_.emplace_back(std::move(op));
  }

  Operator& linear(OpRole role, std::uint32_t rows, std::uint32_t k, bool f32_output = false) {
    Operator& op = add({layer_, role, 0}, OpKind::linear, rows, kRowGranule);
    op.matrices = {{MatrixRole::weight, dtype(role), 1, 0, k}};
    op.inputs = {input(k, {dtype(role)})};
    op.output = {rows, {Form::f32, f32_output ? Form::f32 : rounded(dtype(role))}};
    return op;
  }

  void lead(OpRole role) {
    Operator& op = add({layer_, role, 0}, OpKind::lead, 1, 1);
    op.vectors = {{VectorRole::norm, 0, hidden()}};
    if (c_.attn_res_block_size != 0) op.vectors.push_back({VectorRole::res_score, 0, hidden()});
    if (role == OpRole::attn_lead && c_.attention[layer_] == AttentionKind::mla) {
      if (c_.mla.q_lora_rank != 0) op.vectors.push_back({VectorRole::q_a_norm, 0, u32(c_.mla.q_lora_rank)});
      op.vectors.push_back({VectorRole::kv_a_norm, 0, u32(c_.mla.kv_lora_rank)});
    }
    if (role == OpRole::ffn_lead && c_.is_moe(layer_)) {
      if (c_.moe.latent != 0 && c_.moe.latent_norm)
        op.vectors.push_back({VectorRole::latent_norm, 0, u32(c_.moe.latent)});
      if (c_.moe.selection_bias) op.vectors.push_back({VectorRole::router_bias, 0, u32(c_.moe.experts)});
    }
  }

  void kda() {
    const auto& kda = c_.kda;
    const std::uint32_t dim = u32(kda.head_dim), taps = u32(kda.conv_taps);
    Operator& op = add({layer_, OpRole::attn, 0}, OpKind::kda_heads, u32(kda.heads), 1);
    op.matrices = {heads(MatrixRole::q, dim, 0, hidden()), heads(MatrixRole::k, dim, 0, hidden()),
                   heads(MatrixRole::v, dim, 0, hidden()), heads(MatrixRole::f_a, 0, dim, hidden()),
                   heads(MatrixRole::f_b, dim, 0, dim),    heads(MatrixRole::b, 1, 0, hidden())};
    if (kda.full_rank_gate) {
      op.matrices.push_back(heads(MatrixRole::g, dim, 0, hidden()));
    } else {
      op.matrices.push_back(heads(MatrixRole::g_a, 0, dim, hidden()));
      op.matrices.push_back(heads(MatrixRole::g_b, dim, 0, dim));
    }
    op.vectors = {{VectorRole::conv_q, dim * taps, 0}, {VectorRole::conv_k, dim * taps, 0},
                  {VectorRole::conv_v, dim * taps, 0}, {VectorRole::a_log, 1, 0},
                  {VectorRole::dt_bias, dim, 0},       {VectorRole::o_norm, 0, dim}};
    op.inputs = {input(hidden(), {dtype(OpRole::attn, MatrixRole::q), dtype(OpRole::attn, MatrixRole::k),
                                  dtype(OpRole::attn, MatrixRole::v)})};
    op.output = {u32(kda.width()), {Form::f32, rounded(dtype(OpRole::attn, MatrixRole::v))}};
    op.output_per_unit = dim;
    op.state_per_unit = 4ull * dim * dim + 3ull * (taps - 1) * dim * 4;
    linear(OpRole::attn_o, hidden(), u32(kda.width()));
  }

  void mla() {
    const auto& mla = c_.mla;
    const std::uint32_t rank = u32(mla.kv_lora_rank), cache = u32(mla.cache_dim());
    const std::uint32_t query_width = mla.q_lora_rank != 0 ? u32(mla.q_lora_rank) : hidden();
    if (mla.q_lora_rank != 0) linear(OpRole::attn_q_a, u32(mla.q_lora_rank), hidden());
    linear(OpRole::attn_kv_a, cache, hidden());
    Operator& op = add({layer_, OpRole::attn, 0}, OpKind::mla_heads, u32(mla.heads), 1);
    op.matrices = {heads(MatrixRole::q, u32(mla.qk_dim()), 0, query_width),
                   heads(MatrixRole::k_b, rank, 0, u32(mla.qk_nope_dim)),
                   heads(MatrixRole::v_b, u32(mla.v_dim), 0, rank)};
    for (std::size_t i = 1; i < 3; ++i) op.matrices[i].separate = true;
    op.inputs = {input(query_width, {op.matrices[0].dtype}), {cache, {Form::f32, rounded(dtype(OpRole::attn_kv_a))}}};
    if (mla.output_gate) {
      op.matrices.push_back(heads(MatrixRole::g, u32(mla.v_dim), 0, hidden()));
      op.inputs.push_back(input(hidden(), {op.matrices.back().dtype}));
    }
    op.output = {u32(mla.value_width()), {Form::f32, rounded(dtype(OpRole::attn, MatrixRole::v_b))}};
    op.output_per_unit = u32(mla.v_dim);
    op.cache_values_per_position = cache;
    op.fast_cache = cached(rounded(dtype(OpRole::attn_kv_a)));
    linear(OpRole::attn_o, hidden(), u32(mla.value_width()));
  }

  void gqa() {
    const auto& gqa = c_.gqa;
    const std::uint32_t dim = u32(gqa.head_dim), queries = u32(gqa.group() * gqa.head_dim);
    Operator& op = add({layer_, OpRole::attn, 0}, OpKind::gqa_heads, u32(gqa.kv_heads), 1);
    op.matrices = {heads(MatrixRole::q, queries, 0, hidden()), heads(MatrixRole::k, dim, 0, hidden()),
                   heads(MatrixRole::v, dim, 0, hidden())};
    if (gqa.qkv_bias)
      op.vectors = {{VectorRole::q_bias, queries, 0}, {VectorRole::k_bias, dim, 0}, {VectorRole::v_bias, dim, 0}};
    if (gqa.qk_norm) {
      op.vectors.push_back({VectorRole::q_norm, 0, dim});
      op.vectors.push_back({VectorRole::k_norm, 0, dim});
    }
    op.inputs = {input(hidden(), {op.matrices[0].dtype, op.matrices[1].dtype, op.matrices[2].dtype})};
    op.output = {u32(gqa.width()), {Form::f32, rounded(dtype(OpRole::attn, MatrixRole::v))}};
    op.output_per_unit = queries;
    op.cache_values_per_unit = 2 * dim;
    op.fast_cache = cached(rounded(dtype(OpRole::attn, MatrixRole::k)));
    linear(OpRole::attn_o, hidden(), u32(gqa.width()));
  }

  void gated(OpRole up_role, OpRole down_role, std::uint32_t inner) {
    Operator& up = add({layer_, up_role, 0}, OpKind::gated_up, inner, kRowGranule);
    up.matrices = {{MatrixRole::gate, dtype(up_role, MatrixRole::gate), 1, 0, hidden()},
                   {MatrixRole::up, dtype(up_role, MatrixRole::up), 1, 0, hidden()}};
    up.inputs = {input(hidden(), {up.matrices[0].dtype, up.matrices[1].dtype})};
    up.output = {inner, {Form::f32, rounded(up.matrices[1].dtype)}};
    linear(down_role, hidden(), inner);
  }

  void moe() {
    const auto& moe = c_.moe;
    const std::uint32_t width = u32(c_.expert_width()), inner = u32(moe.intermediate);
    linear(OpRole::router, u32(moe.experts), hidden(), true);
    if (moe.latent != 0) linear(OpRole::latent_down, width, hidden());
    if (moe.shared_experts != 0) gated(OpRole::shared_up, OpRole::shared_down, u32(moe.shared_intermediate()));
    for (std::size_t e = 0; e < moe.experts; ++e) {
      Operator& op = add({layer_, OpRole::expert, static_cast<std::uint16_t>(e)}, OpKind::expert, 1, 1);
      op.matrices = {{MatrixRole::gate, dtype(OpRole::expert, MatrixRole::gate), 0, inner, width},
                     {MatrixRole::up, dtype(OpRole::expert, MatrixRole::up), 0, inner, width},
                     {MatrixRole::down, dtype(OpRole::expert, MatrixRole::down), 0, width, inner}};
      op.inputs = {input(width, {op.matrices[0].dtype, op.matrices[1].dtype})};
      op.output = {width, {Form::f32, rounded(op.matrices[2].dtype)}};
      op.output_per_unit = width;
    }
    if (moe.latent != 0) linear(OpRole::latent_up, hidden(), width);
  }

  const ModelConfig& c_;
  std::uint16_t layer_ = 0;
  std::vector<Operator> operators_;
};

constexpr std::uint64_t round64(std::uint64_t n) {
  return (n + 63) / 64 * 64;
}

}  // namespace

std::string_view profile_name(Profile p) {
  return p == Profile::exact ? "exact" : "fast";
}

Result<Profile> parse_profile(std::string_view name) {
  if (name == "exact") return Profile::exact;
  if (name == "fast") return Profile::fast;
  return fail(Code::invalid_argument, "'{}' is not a numerics profile; choose exact or fast", name);
}

std::uint64_t Operator::weight_bytes(std::uint32_t units) const {
  std::uint64_t bytes = round64(kPartHeaderBytes + kPartEntryBytes * (matrices.size() + vectors.size()));
  for (const auto& m : matrices)
    bytes += m.separate ? units * matrix_bytes(m.dtype, m.rows_per_unit, m.k)
                        : matrix_bytes(m.dtype, static_cast<std::size_t>(m.rows_per_unit) * units + m.rows, m.k);
  for (const auto& v : vectors) bytes += round64(4ull * (static_cast<std::uint64_t>(v.per_unit) * units + v.fixed));
  return bytes;
}

std::uint64_t Operator::state_bytes(std::uint32_t units) const {
  return state_per_unit * units;
}

std::uint64_t Operator::state_bytes_per_position(std::uint32_t units, CacheType type) const {
  const std::uint64_t keys_and_values = 2 * cached_bytes(type, cache_values_per_unit / 2);
  return cached_bytes(type, cache_values_per_position) + keys_and_values * units;
}

namespace {

constexpr std::array<std::string_view, 5> kKvCacheNames = {"auto", "f32", "bf16", "f16", "i8"};

}  // namespace

std::string_view kv_cache_name(KvCache k) {
  const auto i = static_cast<std::size_t>(k);
  return i < kKvCacheNames.size() ? kKvCacheNames[i] : "unknown";
}

Result<KvCache> parse_kv_cache(std::string_view name) {
  const auto it = std::ranges::find(kKvCacheNames, name);
  if (it == kKvCacheNames.end())
    return fail(Code::invalid_argument, "'{}' is no type of cache; there are auto, f32, bf16, f16 and i8", name);
  return static_cast<KvCache>(it - kKvCacheNames.begin());
}

CacheType Operator::cache_type(KvCache k, Profile profile) const {
  switch (k) {
    case KvCache::f32:
      return CacheType::f32;
    case KvCache::bf16:
      return CacheType::bf16;
    case KvCache::f16:
      return CacheType::f16;
    case KvCache::i8:
      return CacheType::i8;
    case KvCache::by_profile:
      break;
  }
  return profile == Profile::exact ? CacheType::f32 : fast_cache;
}

std::uint64_t cached_bytes(CacheType type, std::uint64_t n) {
  switch (type) {
    case CacheType::f32:
      return 4 * n;
    case CacheType::bf16:
    case CacheType::f16:
      return 2 * n;
    case CacheType::i8:
      return n + (n + kGroup - 1) / kGroup * sizeof(float);
  }
  return 0;
}

Form product_form(DType weights, Profile profile) {
  if (profile == Profile::exact) return Form::f32;
  return is_quantized(weights) ? Form::i8 : weights == DType::bf16 ? Form::bf16 : Form::f32;
}

Result<Graph> Graph::build(const ModelConfig& config) {
  if (config.moe.experts > 0xffff || config.layers() > 0xffff)
    return fail(Code::unsupported,
                "the model has {} layers and {} experts a layer; at most 65,535 of either can be named",
                config.layers(), config.moe.experts);
  // Before any tensor is looked at: a small file may claim anything.
  const std::size_t routed = config.layers() - std::min(config.layers(), config.dense_layers);
  if (config.layers() + routed * config.moe.experts > kMaxExpertsAndLayers)
    return fail(Code::limit,
                "the model has {} layers and {} experts in each of {}, together more than {}: is its config "
                "damaged?",
                config.layers(), config.moe.experts, routed, kMaxExpertsAndLayers);
  Graph graph;
  graph.config_ = config;
  graph.operators_ = Builder(graph.config_).build();
  for (const auto& op : graph.operators_)
    for (const auto& m : op.matrices)
      if (!fits_blocks(m.dtype, m.k))
        return fail(Code::unsupported, "{}: a matrix of {} columns cannot be of {}: that type has blocks of {}",
                    PartSpec{op.ref, 0, op.extent}.name(), m.k, dtype_name(m.dtype), block_values(m.dtype));
  return graph;
}

Form Graph::residual_form(Profile profile) const {
  return operators_.front().output.form[static_cast<int>(profile)];
}

const Operator* Graph::find(OpRef ref) const {
  const auto key = execution_order(ref);
  const auto it = std::lower_bound(operators_.begin(), operators_.end(), key,
                                   [](const Operator& op, std::uint64_t k) { return execution_order(op.ref) < k; });
  return it != operators_.end() && it->ref == ref ? &*it : nullptr;
}

std::uint64_t execution_order(OpRef ref) {
  std::uint64_t layer = static_cast<std::uint64_t>(ref.layer) + 1;
  if (ref.role == OpRole::embed) layer = 0;
  if (ref.role == OpRole::final_lead || ref.role == OpRole::head) layer = 1 << 20;
  return layer << 32 | static_cast<std::uint64_t>(ref.role) << 16 | ref.index;
}

Half half_of(OpRef ref, Half halves) {
  if (ref.role == OpRole::embed) return 0;
  if (ref.role >= OpRole::final_lead) return halves - 1;
  return 2 * static_cast<Half>(ref.layer) + (ref.role >= OpRole::ffn_lead ? 1 : 0);
}

std::string PartSpec::name() const {
  const char unit = unit_of(op.role);
  const std::string range = unit == 0 ? "" : fmt::format("[{}{}:{})", unit, begin, end);
  if (op.role == OpRole::embed) return "embed" + range;
  if (op.role == OpRole::head) return "head" + range;
  if (op.role == OpRole::final_lead) return "final.lead";
  std::string_view role = "?";
  for (const auto& r : kRoleNames)
    if (r.role == op.role) role = r.name;
  if (op.role == OpRole::expert) return fmt::format("L{:03}.expert.{:04}", op.layer, op.index);
  return fmt::format("L{:03}.{}{}", op.layer, role, range);
}

Result<PartSpec> parse_part_name(std::string_view name) {
  const std::string_view whole = name;
  const auto bad = [&] {
    return fail(Code::invalid_argument,
                "'{}' is not a part's name; examples: L017.attn[h32:40), L017.expert.0412, head[r4096:5120)", whole);
  };
  const auto number = [&](std::uint32_t& out) {
    const auto [end, ec] = std::from_chars(name.data(), name.data() + name.size(), out);
    if (ec != std::errc()) return false;
    name.remove_prefix(static_cast<std::size_t>(end - name.data()));
    return true;
  };
  const auto literal = [&](std::string_view text) {
    if (!name.starts_with(text)) return false;
    name.remove_prefix(text.size());
    return true;
  };
  PartSpec spec;
  std::uint32_t value = 0;
  if (name == "final.lead") return PartSpec{{0, OpRole::final_lead, 0}, 0, 1};
  if (literal("embed")) {
    spec.op.role = OpRole::embed;
  } else if (literal("head")) {
    spec.op.role = OpRole::head;
  } else {
    if (!literal("L") || !number(value) || value > 0xffff || !literal(".")) return bad();
    spec.op.layer = static_cast<std::uint16_t>(value);
    const std::string_view role = name.substr(0, name.find('['));
    if (literal("expert.")) {
      spec.op.role = OpRole::expert;
      if (!number(value) || value > 0xffff || !name.empty()) return bad();
      spec.op.index = static_cast<std::uint16_t>(value);
      return spec;
    }
    const auto* it =
        std::find_if(std::begin(kRoleNames), std::end(kRoleNames), [&](const RoleName& r) { return r.name == role; });
    if (it == std::end(kRoleNames)) return bad();
    spec.op.role = it->role;
    name.remove_prefix(role.size());
  }
  const char unit = unit_of(spec.op.role);
  if (unit == 0) {
    if (!name.empty()) return bad();
    return spec;
  }
  if (!literal("[") || !literal(std::string_view(&unit, 1)) || !number(spec.begin) || !literal(":") ||
      !number(spec.end) || name != ")" || spec.begin >= spec.end)
    return bad();
  return spec;
}

}  // namespace myriad
