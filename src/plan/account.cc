#include "plan/account.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

namespace myriad {
namespace {

constexpr std::uint64_t kPositionsPerBlock = 1024;  // attention is evaluated in blocks of so many positions
constexpr std::uint64_t kFrameOverhead = 4096;      // header and message of a frame beside its tensors

std::uint64_t banked_blocks(const ModelConfig& config) {
  if (config.attn_res_block_size == 0) return 0;
  return (config.layers() + config.attn_res_block_size - 1) / config.attn_res_block_size + 1;
}

// Values of the widest vector that enters or leaves an operator.
std::uint64_t widest(const ModelConfig& c) {
  return std::max<std::uint64_t>({c.hidden, c.kda.width(), c.gqa.width(), c.mla.q_lora_rank, c.mla.cache_dim(),
                                  c.mla.value_width(), c.intermediate, c.moe.latent, c.moe.intermediate,
                                  c.moe.shared_intermediate()});
}

std::uint64_t inside_attention(const ModelConfig& c) {
  const std::uint64_t kda = 6 * c.kda.width();
  const std::uint64_t mla = c.mla.heads * (c.mla.qk_dim() + c.mla.cache_dim() + c.mla.kv_lora_rank + 2 * c.mla.v_dim);
  const std::uint64_t gqa = (c.gqa.heads + 2 * c.gqa.kv_heads) * c.gqa.head_dim;
  return std::max({kda, mla, gqa});
}

}  // namespace

std::uint64_t add_saturating(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::uint64_t>::max() : sum;
}

std::uint64_t multiply_saturating(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::uint64_t>::max() : product;
}

Status check_budget(const Budget& b) {
  if (b.sequences < 1 || b.sequences > kMaxSequences)
    return fail(Code::invalid_argument, "a budget of {} sequences at once was asked for; it can be 1 to {}",
                b.sequences, kMaxSequences);
  if (b.context < 1 || b.context > kMaxContext)
    return fail(Code::invalid_argument, "a context of {} positions was asked for; it can be 1 to {}", b.context,
                kMaxContext);
  if (b.step_rows < 1 || b.step_rows > kMaxRowsPerStep)
    return fail(Code::invalid_argument, "steps of {} rows were asked for; they can have 1 to {}", b.step_rows,
                kMaxRowsPerStep);
  if (b.positions != 0 && b.positions < b.context)
    return fail(Code::invalid_argument,
                "caches of {} positions in all were asked for, and sequences of up to {}; one sequence must fit",
                b.positions, b.context);
  if (b.drafts > kMaxDrafts)
    return fail(Code::invalid_argument, "{} tokens to be guessed at a time were asked for; there can be at most {}",
                b.drafts, kMaxDrafts);
  if (b.prefixes > kMaxSequences)
    return fail(Code::invalid_argument, "{} kept prefixes were asked for; there can be at most {}", b.prefixes,
                kMaxSequences);
  return {};
}

WorkTerms work_terms(const ModelConfig& config, const Budget& budget, bool lead) {
  const std::uint64_t rows = std::clamp<std::uint64_t>(budget.step_rows, 1, kMaxRowsPerStep);
  const std::uint64_t row_values = rows * sizeof(float);
  const std::uint64_t wide = widest(config);
  const std::uint64_t bank = banked_blocks(config);
  WorkTerms terms;
  terms.activations = row_values * 2 * wide;
  terms.attention = row_values * inside_attention(config) +
                    kPositionsPerBlock * std::max(config.mla.heads, config.gqa.heads) * sizeof(float);
  std::uint64_t in_frame = wide;
  if (lead) {
    terms.stream = row_values * config.hidden * (bank + 3);
    terms.experts = row_values * (config.moe.top_k * config.expert_width() + config.moe.experts);
    in_frame = std::max<std::uint64_t>(in_frame, config.hidden * (bank + 1));
  }
  terms.frames = 2 * std::min<std::uint64_t>(kMaxFrameBytes, kFrameOverhead + row_values * in_frame);
  return terms;
}

std::uint64_t work_bytes(const ModelConfig& config, const Budget& budget, bool lead) {
  return work_terms(config, budget, lead).total();
}

std::uint64_t PartCost::bytes() const {
  return add_saturating(part_bytes, state_bytes);
}

Result<CostSheet> CostSheet::build(const Graph& graph, const Manifest& manifest, Profile profile,
                                   const Budget& budget) {
  MYRIAD_TRY_STATUS(check_budget(budget));
  CostSheet sheet;
  sheet.config_ = graph.config();
  sheet.budget_ = budget;
  sheet.halves_ = graph.halves();
  sheet.parts_.reserve(manifest.parts.size());
  sheet.terms_.reserve(manifest.parts.size());
  sheet.names_.reserve(manifest.parts.size());
  const Operator* op = nullptr;  // parts of one operator follow each other
  for (const ManifestPart& part : manifest.parts) {
    if (op == nullptr || op->ref != part.spec.op) op = graph.find(part.spec.op);
    if (op == nullptr || part.spec.begin >= part.spec.end || part.spec.end > op->extent)
      return fail(Code::corrupt,
                  "planning {}: the manifest lists the part {}, which this model does not have; cut the model anew",
                  manifest.model_name, part.spec.name());
    PartCost cost;
    cost.part_bytes = part.bytes;
    cost.half = half_of(part.spec.op, sheet.halves_);
    cost.role = part.spec.op.role;
    cost.lead = op->kind == OpKind::lead;
    cost.attends = cost.role == OpRole::attn;
    cost.mixes_experts = cost.role == OpRole::ffn_lead && sheet.config_.is_moe(part.spec.op.layer);
    StateTerms terms;
    terms.fixed = op->state_bytes(part.spec.units());
    terms.per_position = op->state_bytes_per_position(part.spec.units(), op->cache_type(budget.cache, profile));
    if (op->kind == OpKind::expert && sheet.config_.moe.experts > 0)
      terms.probability_base =
          1 - static_cast<double>(sheet.config_.moe.top_k) / static_cast<double>(sheet.config_.moe.experts);
    sheet.parts_.push_back(cost);
    sheet.terms_.push_back(terms);
    sheet.names_.push_back(part.spec.name());
  }
  sheet.price();
  return sheet;
}

CostSheet CostSheet::with_budget(const Budget& budget) const {
  CostSheet other = *this;
  other.budget_ = budget;
  other.price();
  return other;
}

void CostSheet::price() {
  part_bytes_ = state_bytes_ = 0;
  const CachePages pages = cache_pages(budget_);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    PartCost& cost = parts_[i];
    const StateTerms& t = terms_[i];
    cost.state_bytes = add_saturating(multiply_saturating(state_slots(budget_), t.fixed),
                                      multiply_saturating(pages.count * pages.positions, t.per_position));
    const double used = cost.role == OpRole::embed ? 0 : 1 - std::pow(t.probability_base, budget_.sequences);
    cost.work = used * static_cast<double>(cost.part_bytes);
    cost.single_work = cost.role == OpRole::embed ? 0 : (1 - t.probability_base) * static_cast<double>(cost.part_bytes);
    part_bytes_ = add_saturating(part_bytes_, cost.part_bytes);
    state_bytes_ = add_saturating(state_bytes_, cost.state_bytes);
  }
  helper_work_ = work_bytes(config_, budget_, false);
  lead_work_ = std::max(helper_work_, work_bytes(config_, budget_, true));
}

std::uint64_t CostSheet::work_of(const PartCost& held) const {
  WorkTerms terms = work_terms(config_, budget_, held.lead);
  if (!held.attends) terms.attention = 0;
  if (!held.mixes_experts) terms.experts = 0;
  return terms.total();
}

std::uint64_t NodeAccount::total() const {
  return add_saturating(add_saturating(part_bytes, state_bytes), add_saturating(work_bytes, process_bytes));
}

std::string account_table(std::span<const NodeAccount> accounts) {
  std::size_t name_width = 4;
  for (const NodeAccount& a : accounts) name_width = std::max(name_width, a.node.value.size());
  const auto megabytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string text = fmt::format("{:<{}} {:>7} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}   MiB\n", "node", name_width,
                                 "parts", "weights", "state", "buffers", "process", "total", "budget");
  NodeAccount sum;
  for (const NodeAccount& a : accounts) {
    text += fmt::format("{:<{}} {:>7} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f}{}\n", a.node.value,
                        name_width, a.parts, megabytes(a.part_bytes), megabytes(a.state_bytes), megabytes(a.work_bytes),
                        megabytes(a.process_bytes), megabytes(a.total()), megabytes(a.budget_bytes),
                        a.lead ? "   lead" : "");
    sum.parts += a.parts;
    sum.part_bytes = add_saturating(sum.part_bytes, a.part_bytes);
    sum.state_bytes = add_saturating(sum.state_bytes, a.state_bytes);
    sum.work_bytes = add_saturating(sum.work_bytes, a.work_bytes);
    sum.process_bytes = add_saturating(sum.process_bytes, a.process_bytes);
    sum.budget_bytes = add_saturating(sum.budget_bytes, a.budget_bytes);
  }
  text += fmt::format("{:<{}} {:>7} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f}\n", "all", name_width,
                      sum.parts, megabytes(sum.part_bytes), megabytes(sum.state_bytes), megabytes(sum.work_bytes),
                      megabytes(sum.process_bytes), megabytes(sum.total()), megabytes(sum.budget_bytes));
  return text;
}

}  // namespace myriad
