#include "model/layer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "kernels/math.h"

namespace myriad {
namespace {

// co_await run(c, round)
struct RoundAwaiter {
  LayerContext& context;
  Round& round;
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> h) {
    if (context.failed) return true;  // for good: whoever drives the step sees `failed` and destroys it
    return !context.runner.start(round, h);
  }
  void await_resume() const noexcept {}
};
RoundAwaiter run(LayerContext& c, Round& round) {
  return {c, round};
}

const Operator* op(const LayerContext& c, std::size_t layer, OpRole role, std::size_t index = 0) {
  return c.graph.find({static_cast<std::uint16_t>(layer), role, static_cast<std::uint16_t>(index)});
}
Form form(const LayerContext& c, const Seam& seam) {
  return seam.form[static_cast<int>(c.profile)];
}
Form residual_form(const LayerContext& c) {
  return c.graph.residual_form(c.profile);
}

Activation sealed(LayerContext& c, Activation rows, const Seam& seam) {
  if (!seal(c.kernels, c.pool, rows, form(c, seam))) c.failed = true;
  return rows;
}

// Rows that several operators of a round take, each in the form of its own seam; a form is made once.
class InForms {
 public:
  InForms(LayerContext& c, const Activation& rows) : context_(c), rows_(rows) {}
  const Activation* of(const Seam& seam) {
    std::optional<Activation>& made = made_[static_cast<int>(form(context_, seam))];
    if (!made) made = sealed(context_, rows_, seam);
    return &*made;
  }

 private:
  LayerContext& context_;
  const Activation& rows_;
  std::optional<Activation> made_[3];  // by Form
};

// RMSNorm of every row: [rows, n] -> [rows, n] f32.
Activation norm(const LayerContext& c, const Activation& x, const float* weight, float eps) {
  Activation y = Activation::unfilled(x.rows, x.width);
  for_rows(c.pool, x.rows, x.width,
           [&](std::size_t t) { c.kernels.rms_norm(x.row(t), weight, eps, y.row(t), x.width); });
  return y;
}

// Depth attention over the banked blocks and the stream (AttnRes, spec §3.1): π = softmax over sources of (v·w)/rms(v);
// Σ π v, made in `out`. `score` = norm ⊙ proj. Without blocks the stream itself.
const Activation& mix(const LayerContext& c, const Stream& s, const float* score, Activation& out) {
  if (s.blocks.empty() || score == nullptr) return s.residual;
  const std::size_t width = s.residual.width, sources = s.blocks.size() + 1;
  const float eps = c.graph.config().rms_norm_eps;
  out = Activation(Form::f32, s.residual.rows, width);
  for_rows(c.pool, out.rows, width * sources, [&](std::size_t t) {
    std::vector<float> weight(sources);
    const auto source = [&](std::size_t i) { return i < s.blocks.size() ? s.blocks[i].row(t) : s.residual.row(t); };
    for (std::size_t i = 0; i < sources; ++i) {
      const float mean = c.kernels.sum_of_squares(source(i), width) / static_cast<float>(width);
      weight[i] = c.kernels.dot(source(i), score, width) * exact_rsqrt(mean + eps);
    }
    const float max = *std::max_element(weight.begin(), weight.end());
    float sum = 0;
    for (float& w : weight) {
      w = exact_exp(w - max);
      sum += w;
    }
    for (std::size_t i = 0; i < sources; ++i) c.kernels.axpy(weight[i] / sum, source(i), out.row(t), width);
  });
  return out;
}

Activation mixed_and_normed(const LayerContext& c, const Stream& s, const LeadVectors& w) {
  Activation room;
  return norm(c, mix(c, s, w.get(VectorRole::res_score), room), w.get(VectorRole::norm), c.graph.config().rms_norm_eps);
}

// residual = a (a fresh stream) or residual + a, rounded at the half's end.
void accumulate(const LayerContext& c, Stream& s, const Activation& a, bool fresh) {
  const Form f = residual_form(c);
  s.residual.form = f;
  for_rows(c.pool, a.rows, a.width, [&](std::size_t t) {
    float* to = s.residual.row(t);
    const float* from = a.row(t);
    if (fresh)
      std::copy_n(from, a.width, to);
    else
      for (std::size_t i = 0; i < a.width; ++i) to[i] += from[i];
    if (f == Form::bf16) c.kernels.round_bf16(to, a.width);
  });
}

// Latent [rank] normalised, shared key channels as they are: what the cache stores.
Activation latent_and_keys(const LayerContext& c, const Activation& kv, const float* weight) {
  const auto& config = c.graph.config();
  const std::size_t rank = config.mla.kv_lora_rank;
  Activation out = Activation::unfilled(kv.rows, kv.width);
  for_rows(c.pool, kv.rows, kv.width, [&](std::size_t t) {
    c.kernels.rms_norm(kv.row(t), weight, config.lora_norm_eps, out.row(t), rank);
    std::copy(kv.row(t) + rank, kv.row(t) + kv.width, out.row(t) + rank);
  });
  return out;
}

// Two operators one after the other, each a round: `first` on normed x, `second` on its gathered output.
Task in_two_rounds(LayerContext& c, const Operator* first, const Operator* second, const Activation& normed,
                   Activation& out) {
  const Activation x = sealed(c, normed, first->inputs[0]);
  Round enter;
  enter.add(first, {&x});
  co_await run(c, enter);
  const Activation inner = sealed(c, std::move(enter.calls[0].output), second->inputs[0]);
  Round leave;
  leave.add(second, {&inner});
  co_await run(c, leave);
  out = std::move(leave.calls[0].output);
}

Task mla_attention(LayerContext& c, std::size_t layer, const Activation& normed, const LeadVectors& w,
                   Activation& out) {
  const auto& config = c.graph.config();
  const Operator *q_a = op(c, layer, OpRole::attn_q_a), *kv_a = op(c, layer, OpRole::attn_kv_a);
  const Operator *heads = op(c, layer, OpRole::attn), *o = op(c, layer, OpRole::attn_o);
  InForms x(c, normed);
  Round low_rank;
  low_rank.add(kv_a, {x.of(kv_a->inputs[0])});
  if (q_a != nullptr) low_rank.add(q_a, {x.of(q_a->inputs[0])});
  co_await run(c, low_rank);

  Activation query;
  if (q_a != nullptr)
    query = norm(c, low_rank.calls[1].output, w.get(VectorRole::q_a_norm), config.lora_norm_eps);
  else
    query = normed;
  query = sealed(c, std::move(query), heads->inputs[0]);
  const Activation cache =
      sealed(c, latent_and_keys(c, low_rank.calls[0].output, w.get(VectorRole::kv_a_norm)), heads->inputs[1]);
  Round attend;
  OperatorCall& call = attend.add(heads, {&query, &cache});
  if (heads->inputs.size() > 2) call.inputs.push_back(x.of(heads->inputs[2]));  // the output gate's input
  co_await run(c, attend);

  const Activation context = sealed(c, std::move(attend.calls[0].output), o->inputs[0]);
  Round project;
  project.add(o, {&context});
  co_await run(c, project);
  out = std::move(project.calls[0].output);
}

Task attention_half(LayerContext& c, std::size_t layer, Stream& s) {
  const auto& config = c.graph.config();
  const LeadVectors& w = c.leads.at({static_cast<std::uint16_t>(layer), OpRole::attn_lead, 0});
  const Activation normed = mixed_and_normed(c, s, w);
  const bool fresh = config.attn_res_block_size != 0 && layer % config.attn_res_block_size == 0;
  if (fresh) s.blocks.push_back(s.residual);  // the raw stream, before this layer
  Activation a;
  if (config.attention[layer] != AttentionKind::mla) {
    co_await in_two_rounds(c, op(c, layer, OpRole::attn), op(c, layer, OpRole::attn_o), normed, a);
  } else {
    co_await mla_attention(c, layer, normed, w, a);
  }
  accumulate(c, s, a, fresh);
}

// Which rows chose which expert, and at which top-k position.
struct Dispatch {
  std::vector<Routing> rows;
  std::map<std::uint16_t, std::vector<std::uint16_t>> by_expert;
};

Dispatch dispatch(const LayerContext& c, const Activation& logits, const float* bias) {
  Dispatch d;
  for (std::size_t t = 0; t < logits.rows; ++t) {
    d.rows.push_back(route(c.graph.config(), c.kernels, {logits.row(t), logits.width}, bias));
    for (const auto e : d.rows.back().experts) d.by_expert[e].push_back(static_cast<std::uint16_t>(t));
  }
  return d;
}

// y = Σ w_e y_e, fma in ascending top-k position whatever the order of arrival. Calls [first_call, …) are those of
// by_expert, in order.
Activation combine(const LayerContext& c, const Dispatch& d, const std::vector<OperatorCall>& calls,
                   std::size_t first_call, std::size_t width) {
  std::map<std::uint16_t, const OperatorCall*> call_of;
  std::size_t i = first_call;
  for (const auto& [expert, rows] : d.by_expert) call_of[expert] = &calls[i++];
  Activation y(Form::f32, d.rows.size(), width);
  for_rows(c.pool, d.rows.size(), width * c.graph.config().moe.top_k, [&](std::size_t t) {
    for (std::size_t k = 0; k < d.rows[t].experts.size(); ++k) {
      const OperatorCall& call = *call_of.at(d.rows[t].experts[k]);
      const auto at =
          std::lower_bound(call.rows.begin(), call.rows.end(), static_cast<std::uint16_t>(t)) - call.rows.begin();
      c.kernels.axpy(d.rows[t].weights[k], call.output.row(static_cast<std::size_t>(at)), y.row(t), width);
    }
  });
  return y;
}

Task moe_ffn(LayerContext& c, std::size_t layer, const Activation& normed, const LeadVectors& w, Activation& out) {
  const auto& config = c.graph.config();
  const Operator *router = op(c, layer, OpRole::router), *latent_down = op(c, layer, OpRole::latent_down);
  const Operator *shared_up = op(c, layer, OpRole::shared_up), *shared_down = op(c, layer, OpRole::shared_down);
  const Operator *latent_up = op(c, layer, OpRole::latent_up), *first_expert = op(c, layer, OpRole::expert);
  InForms x(c, normed);
  Round enter;
  enter.add(router, {x.of(router->inputs[0])});
  if (latent_down != nullptr) enter.add(latent_down, {x.of(latent_down->inputs[0])});
  if (shared_up != nullptr) enter.add(shared_up, {x.of(shared_up->inputs[0])});
  co_await run(c, enter);

  const Dispatch d = dispatch(c, enter.calls[0].output, w.get(VectorRole::router_bias));
  const Activation z =
      sealed(c, latent_down != nullptr ? std::move(enter.calls[1].output) : normed, first_expert->inputs[0]);
  Activation shared_inner;
  Round experts;
  if (shared_down != nullptr) {
    shared_inner = sealed(c, std::move(enter.calls.back().output), shared_down->inputs[0]);
    experts.add(shared_down, {&shared_inner});
  }
  const std::size_t first_call = experts.calls.size();
  for (const auto& [expert, rows] : d.by_expert) experts.add(op(c, layer, OpRole::expert, expert), {&z}).rows = rows;
  co_await run(c, experts);

  Activation y = combine(c, d, experts.calls, first_call, config.expert_width());
  if (latent_up != nullptr) {
    const float* weight = w.get(VectorRole::latent_norm);
    if (weight != nullptr) y = norm(c, y, weight, config.rms_norm_eps);  // on the weighted sum
    const Activation latent = sealed(c, std::move(y), latent_up->inputs[0]);
    Round leave;
    leave.add(latent_up, {&latent});
    co_await run(c, leave);
    y = std::move(leave.calls[0].output);
  }
  if (shared_down != nullptr)
    for_rows(c.pool, y.rows, y.width, [&](std::size_t t) {
      const float* shared = experts.calls[0].output.row(t);
      for (std::size_t i = 0; i < y.width; ++i) y.row(t)[i] += shared[i];
    });
  out = std::move(y);
}

Task ffn_half(LayerContext& c, std::size_t layer, Stream& s) {
  const auto& config = c.graph.config();
  const LeadVectors& w = c.leads.at({static_cast<std::uint16_t>(layer), OpRole::ffn_lead, 0});
  const Activation normed = mixed_and_normed(c, s, w);
  Activation y;
  if (config.is_moe(layer)) {
    co_await moe_ffn(c, layer, normed, w, y);
  } else {
    co_await in_two_rounds(c, op(c, layer, OpRole::dense_up), op(c, layer, OpRole::dense_down), normed, y);
  }
  accumulate(c, s, y, false);
}

}  // namespace

Task embed(LayerContext& c, Stream& stream) {
  Round lookup;
  lookup.add(op(c, 0, OpRole::embed), {});
  co_await run(c, lookup);
  stream.residual = std::move(lookup.calls[0].output);
  stream.residual.form = residual_form(c);
  stream.blocks.clear();
}

Task run_halves(LayerContext& c, Half first, Half last, Stream& stream) {
  for (Half half = first; half < last && !c.failed; ++half) {
    if (half % 2 == 0) {
      co_await attention_half(c, half / 2, stream);
    } else {
      co_await ffn_half(c, half / 2, stream);
    }
  }
}

Task run_head(LayerContext& c, const Stream& stream, std::vector<std::uint16_t> wanted, bool candidates,
              Activation& out) {
  const LeadVectors& w = c.leads.at({0, OpRole::final_lead, 0});
  const Operator* head = op(c, 0, OpRole::head);
  Stream chosen;
  chosen.residual = choose_rows(stream.residual, wanted);
  for (const auto& block : stream.blocks) chosen.blocks.push_back(choose_rows(block, wanted));
  const Activation x = sealed(c, mixed_and_normed(c, chosen, w), head->inputs[0]);
  Round last;
  last.add(head, {&x}).candidates = candidates;
  co_await run(c, last);
  out = std::move(last.calls[0].output);
}

namespace {

// each_row(f) calls f for every row.
template <class EachRow>
bool seal_rows(const Kernels& kernels, Activation& rows, Form form, const EachRow& each_row) {
  if (form == Form::i8) {
    rows.q.resize(rows.rows * rows.width);
    rows.scales.resize(rows.rows * rows.groups());
    std::atomic<bool> finite = true;
    each_row([&](std::size_t t) {
      if (!kernels.quantize_i8(rows.row(t), rows.width, rows.q.data() + t * rows.width,
                               rows.scales.data() + t * rows.groups()))
        finite.store(false, std::memory_order_relaxed);
    });
    if (!finite.load(std::memory_order_relaxed)) return false;
    rows.values = {};
  } else if (form == Form::bf16) {
    each_row([&](std::size_t t) { kernels.round_bf16(rows.row(t), rows.width); });
  }
  rows.form = form;
  return true;
}

}  // namespace

bool seal(const Kernels& kernels, Activation& rows, Form form) {
  return seal_rows(kernels, rows, form, [&](const auto& body) {
    for (std::size_t t = 0; t < rows.rows; ++t) body(t);
  });
}

bool seal(const Kernels& kernels, ThreadPool& pool, Activation& rows, Form form) {
  return seal_rows(kernels, rows, form, [&](const auto& body) { for_rows(pool, rows.rows, rows.width, body); });
}

std::size_t banked_blocks(const ModelConfig& config, Half half) {
  if (config.attn_res_block_size == 0 || half == 0) return 0;
  const std::size_t last_layer_begun = (half - 1) / 2;
  return last_layer_begun / config.attn_res_block_size + 1;
}

namespace {

// Leaves only the experts of the best groups to choose from.
void keep_best_groups(const MoeConfig& moe, std::span<float> choice) {
  const std::size_t size = choice.size() / moe.groups;
  std::vector<float> worth(moe.groups);
  for (std::size_t g = 0; g < moe.groups; ++g) {
    float first = -std::numeric_limits<float>::infinity(), second = first;
    for (const float v : choice.subspan(g * size, size)) {
      second = std::max(second, std::min(first, v));
      first = std::max(first, v);
    }
    worth[g] = size > 1 ? first + second : first;
  }
  std::vector<std::size_t> order(moe.groups);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return worth[a] > worth[b]; });
  for (std::size_t i = moe.top_groups; i < moe.groups; ++i)
    std::ranges::fill(choice.subspan(order[i] * size, size), -std::numeric_limits<float>::infinity());
}

// One value a logit: σ(logit), or softmax over all.
std::vector<float> router_scores(const MoeConfig& moe, const Kernels& kernels, std::span<const float> logits) {
  std::vector<float> score(logits.size());
  if (moe.score == RouterScore::sigmoid) {
    kernels.sigmoid(logits.data(), score.data(), logits.size());
    return score;
  }
  const float max = *std::max_element(logits.begin(), logits.end());
  float sum = 0;
  for (std::size_t e = 0; e < logits.size(); ++e) sum += score[e] = exact_exp(logits[e] - max);
  for (float& s : score) s /= sum;
  return score;
}

}  // namespace

Routing route(const ModelConfig& config, const Kernels& kernels, std::span<const float> logits, const float* bias) {
  const auto& moe = config.moe;
  const std::vector<float> score = router_scores(moe, kernels, logits);
  std::vector<float> choice = score;
  if (bias != nullptr)
    for (std::size_t e = 0; e < choice.size(); ++e) choice[e] += bias[e];
  if (moe.top_groups < moe.groups) keep_best_groups(moe, choice);
  std::vector<std::uint16_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  const auto better = [&](std::uint16_t a, std::uint16_t b) {
    return choice[a] != choice[b] ? choice[a] > choice[b] : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(moe.top_k), order.end(), better);
  Routing r;
  r.experts.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(moe.top_k));
  float sum = 0;
  for (const auto e : r.experts) sum += score[e];
  // One sigmoid alone stays what it is (spec §11.4) but for llama.cpp; of a softmax the chosen ones are renormalised
  // however many.
  const bool renormalize =
      moe.renormalize && (moe.top_k > 1 || moe.score == RouterScore::softmax || moe.renormalize_one);
  for (const auto e : r.experts)
    r.weights.push_back((renormalize ? score[e] / (sum + 1e-20F) : score[e]) * moe.scaling_factor);
  return r;
}

}  // namespace myriad
