#include "model/interpreter.h"

#include <algorithm>
#include <cmath>

#include "kernels/math.h"
#include "model/attention.h"
#include "model/product.h"
#include "model/rope.h"
#include "quant/blocks.h"

namespace myriad {
namespace {

// A weight matrix in row storage and, widened, row-major.
struct Dense {
  DType dtype = DType::f32;
  std::size_t rows = 0, k = 0, row_bytes = 0;
  std::vector<std::byte> raw;
  std::vector<float> w;  // [rows, k]
};

Result<Dense> read_dense(const WeightMatrix& source) {
  Dense d{source.dtype(), source.rows(), source.cols(), source.row_bytes(), {}, {}};
  d.raw.resize(d.rows * d.row_bytes);
  d.w.resize(d.rows * d.k);
  MYRIAD_TRY_STATUS(source.read_rows(0, d.rows, d.raw));
  MYRIAD_TRY_STATUS(source.read_rows_f32(0, d.rows, d.w));
  return d;
}

// A quantised row, its codes apart from its scales.
class QuantizedRow {
 public:
  QuantizedRow(DType type, const std::byte* row, std::size_t k)
      : type_(type), group_(scale_group(type)), codes_(k), scale_((k + group_ - 1) / group_), minimum_(scale_.size()) {
    read_grouped_row(type, row, k, {codes_, scale_, minimum_});
  }
  // Times int8 activations, as the numerics contract has it: integers exact inside a group, one fma a group in
  // ascending order, and one more where the type has minima.
  [[nodiscard]] float dot(const std::int8_t* q, const float* scales) const {
    float acc = 0;
    for (std::size_t g = 0; g < scale_.size(); ++g) {
      int sum = 0, all = 0;
      for (std::size_t i = g * group_; i < std::min(codes_.size(), (g + 1) * group_); ++i) {
        sum += codes_[i] * q[i];
        all += q[i];
      }
      const float x = scales[g * group_ / kGroup];
      acc = std::fma(scale_[g] * x, static_cast<float>(sum), acc);
      if (has_minima(type_)) acc = std::fma(-minimum_[g], x * static_cast<float>(all), acc);
    }
    return acc;
  }

 private:
  DType type_;
  std::size_t group_;
  std::vector<std::int16_t> codes_;
  std::vector<float> scale_, minimum_;
};

// Calls take(t, output `row` for row t of x), for all t: a chain of fma in ascending k, or integers.
template <class Take>
void product(const Dense& d, std::size_t row, const Activation& x, const Take& take) {
  if (x.form == Form::i8) {
    const QuantizedRow weights(d.dtype, d.raw.data() + row * d.row_bytes, d.k);
    for (std::size_t t = 0; t < x.rows; ++t)
      take(t, weights.dot(x.q.data() + t * d.k, x.scales.data() + t * x.groups()));
    return;
  }
  for (std::size_t t = 0; t < x.rows; ++t) {
    float acc = 0;
    for (std::size_t k = 0; k < d.k; ++k) acc = std::fma(d.w[row * d.k + k], x.row(t)[k], acc);
    take(t, acc);
  }
}

float product_of_one(const Dense& d, std::size_t row, const Activation& x) {
  float value = 0;
  product(d, row, x, [&](std::size_t, float v) { value = v; });
  return value;
}

Activation multiply(const Kernels& kernels, const Dense& d, const Activation& given, Profile profile) {
  Activation room;
  const Activation& x = for_product(kernels, given, d.dtype, profile, room);
  Activation y(Form::f32, x.rows, d.rows);
  for (std::size_t r = 0; r < d.rows; ++r) product(d, r, x, [&](std::size_t t, float v) { y.row(t)[r] = v; });
  return y;
}

}  // namespace

struct Interpreter::Impl final : OperatorRunner {
  struct Weights {
    std::map<MatrixRole, Dense> matrices;
    std::map<VectorRole, std::vector<float>> vectors;
  };
  struct State {
    std::vector<float> kda, history;  // as KdaHead takes them, head after head
    std::vector<float> cache;  // MLA: rows; GQA: keys and values of all heads, rows; as the cache gives them back
    std::size_t positions = 0;
  };

  Graph graph;
  Profile profile = Profile::exact;
  KvCache cache = KvCache::by_profile;
  const Kernels* kernels = nullptr;
  bool finite = true;
  ThreadPool alone{1};
  std::map<OpRef, Weights> weights;
  std::map<OpRef, LeadVectors> leads;
  std::map<OpRef, State> states;
  std::vector<std::int32_t> tokens;

  [[nodiscard]] Activation multiply(const Weights& w, MatrixRole role, const Activation& x) const {
    return myriad::multiply(*kernels, w.matrices.at(role), x, profile);
  }

  Form form(const Seam& seam) const { return seam.form[static_cast<int>(profile)]; }

  bool start(Round& round, std::coroutine_handle<>) override {
    for (auto& call : round.calls) {
      call.output = evaluate(call);
      seal(*kernels, call.output, form(call.op->output));
    }
    return true;
  }

  Activation evaluate(const OperatorCall& call) {
    const Operator& op = *call.op;
    const Weights& w = weights.at(op.ref);
    if (op.kind == OpKind::embed) {
      Activation y(Form::f32, tokens.size(), op.output.width);
      const Dense& table = w.matrices.at(MatrixRole::weight);
      for (std::size_t t = 0; t < tokens.size(); ++t)
        std::copy_n(table.w.data() + static_cast<std::size_t>(tokens[t]) * table.k, table.k, y.row(t));
      return y;
    }
    // experts: the rows that chose it
    const Activation x = call.rows.empty() ? *call.inputs[0] : choose_rows(*call.inputs[0], call.rows);
    switch (op.kind) {
      case OpKind::linear:
      case OpKind::head:
        return multiply(w, MatrixRole::weight, x);
      case OpKind::gated_up:
      case OpKind::expert: {
        Activation gate = multiply(w, MatrixRole::gate, x);
        const Activation up = multiply(w, MatrixRole::up, x);
        kernels->glu(graph.config().activation, gate.values.data(), up.values.data(), gate.values.data(),
                     gate.values.size());
        if (op.kind == OpKind::gated_up) return gate;
        seal(*kernels, gate, product_form(w.matrices.at(MatrixRole::down).dtype, profile));
        return multiply(w, MatrixRole::down, gate);
      }
      case OpKind::kda_heads:
        return kda(op, w, x);
      case OpKind::mla_heads:
        return mla(op, w, call.inputs);
      case OpKind::gqa_heads:
        return gqa(op, w, x);
      default:
        return {};
    }
  }

  Activation kda(const Operator& op, const Weights& w, const Activation& x) {
    const auto& config = graph.config();
    const std::size_t heads = config.kda.heads, dim = config.kda.head_dim, taps = config.kda.conv_taps,
                      past = 3 * (taps - 1) * dim;
    State& state = states[op.ref];
    state.kda.resize(heads * dim * dim);
    state.history.resize(heads * past);
    const Activation q = multiply(w, MatrixRole::q, x), k = multiply(w, MatrixRole::k, x),
                     v = multiply(w, MatrixRole::v, x);
    const Activation z = multiply(w, MatrixRole::f_b, multiply(w, MatrixRole::f_a, x)),
                     b = multiply(w, MatrixRole::b, x);
    const Activation gate = config.kda.full_rank_gate ? multiply(w, MatrixRole::g, x)
                                                      : multiply(w, MatrixRole::g_b, multiply(w, MatrixRole::g_a, x));
    Activation out(Form::f32, x.rows, heads * dim);
    KdaHead head(dim, taps);
    for (std::size_t t = 0; t < x.rows; ++t) {
      for (std::size_t h = 0; h < heads; ++h) {
        const auto slice = [&](VectorRole role, std::size_t n) {
          return std::span(w.vectors.at(role)).subspan(h * n, n);
        };
        const KdaHeadWeights hw{slice(VectorRole::conv_q, dim * taps), slice(VectorRole::conv_k, dim * taps),
                                slice(VectorRole::conv_v, dim * taps), slice(VectorRole::dt_bias, dim),
                                w.vectors.at(VectorRole::o_norm),      w.vectors.at(VectorRole::a_log)[h]};
        const std::size_t at = h * dim;
        head.step(config, *kernels, hw,
                  {q.row(t) + at, k.row(t) + at, v.row(t) + at, z.row(t) + at, gate.row(t) + at, b.row(t)[h]},
                  state.kda.data() + h * dim * dim, state.history.data() + h * past, out.row(t) + at);
      }
    }
    return out;
  }

  Activation mla(const Operator& op, const Weights& w, const std::vector<const Activation*>& inputs) {
    const auto& config = graph.config();
    const auto& m = config.mla;
    const std::size_t rank = m.kv_lora_rank, nope = m.qk_nope_dim;
    State& state = states[op.ref];
    Activation q = multiply(w, MatrixRole::q, *inputs[0]);
    Activation gate;
    if (m.output_gate) gate = multiply(w, MatrixRole::g, *inputs[2]);
    Rotation rotation(config.rope);
    const std::size_t turned = config.rope.dims();
    for (std::size_t t = 0; t < q.rows; ++t) {
      Activation row = *inputs[1];
      float* shared = row.row(t) + rank;
      rotation.at(state.positions + t);
      if (turned != 0) {
        rotation.apply(*kernels, shared);
        for (std::size_t h = 0; h < m.heads; ++h) rotation.apply(*kernels, q.row(t) + h * m.qk_dim() + nope);
      }
      cache_vector(op, state, {row.row(t), m.cache_dim()});
    }
    Activation out(Form::f32, q.rows, m.value_width());
    BlockAttention blocks(m.cache_dim(), rank);
    std::vector<float> query(m.cache_dim());
    Activation nope_query(Form::f32, 1, nope), context(Form::f32, 1, rank), room;
    const Dense &k_b = w.matrices.at(MatrixRole::k_b), &v_b = w.matrices.at(MatrixRole::v_b);
    const auto pages = pages_of(state, m.cache_dim());
    for (std::size_t t = 0; t < q.rows; ++t) {
      for (std::size_t h = 0; h < m.heads; ++h) {
        const float* head_query = q.row(t) + h * m.qk_dim();
        nope_query.values.assign(head_query, head_query + nope);
        const Activation& x = for_product(*kernels, nope_query, k_b.dtype, profile, room);
        for (std::size_t r = 0; r < rank; ++r) query[r] = product_of_one(k_b, h * rank + r, x);
        std::copy_n(head_query + nope, m.qk_rope_dim, query.data() + rank);
        blocks.attend(*kernels, query.data(), {.pages = pages}, state.positions + t + 1,
                      attention_scale(config, m.qk_dim()), context.row(0));
        const Activation& y = for_product(*kernels, context, v_b.dtype, profile, room);
        for (std::size_t i = 0; i < m.v_dim; ++i) {
          float acc = product_of_one(v_b, h * m.v_dim + i, y);
          if (m.output_gate) acc *= exact_sigmoid(gate.row(t)[h * m.v_dim + i]);
          out.row(t)[h * m.v_dim + i] = acc;
        }
      }
    }
    state.positions += q.rows;
    return out;
  }

  Activation gqa(const Operator& op, const Weights& w, const Activation& x) {
    const auto& config = graph.config();
    const auto& g = config.gqa;
    const std::size_t dim = g.head_dim, width = 2 * g.kv_heads * dim;
    State& state = states[op.ref];
    Activation q = multiply(w, MatrixRole::q, x), k = multiply(w, MatrixRole::k, x);
    const Activation values = with_bias(multiply(w, MatrixRole::v, x), w, VectorRole::v_bias);
    q = with_bias(std::move(q), w, VectorRole::q_bias);
    k = with_bias(std::move(k), w, VectorRole::k_bias);
    const float *q_norm = vector(w, VectorRole::q_norm), *k_norm = vector(w, VectorRole::k_norm);
    Rotation rotation(config.rope);
    for (std::size_t t = 0; t < x.rows; ++t) {
      rotation.at(state.positions + t);
      for (std::size_t h = 0; h < g.heads; ++h)
        prepare_gqa_head(config, *kernels, q_norm, rotation, q.row(t) + h * dim);
      for (std::size_t h = 0; h < g.kv_heads; ++h)
        prepare_gqa_head(config, *kernels, k_norm, rotation, k.row(t) + h * dim);
      for (std::size_t h = 0; h < g.kv_heads; ++h) {
        cache_vector(op, state, {k.row(t) + h * dim, dim});
        cache_vector(op, state, {values.row(t) + h * dim, dim});
      }
    }
    Activation out(Form::f32, x.rows, g.width());
    BlockAttention blocks(dim, dim);
    const auto pages = pages_of(state, width);
    for (std::size_t t = 0; t < x.rows; ++t)
      for (std::size_t h = 0; h < g.heads; ++h)
        blocks.attend(
            *kernels, q.row(t) + h * dim,
            {.pages = pages, .rows_at = h / g.group() * 2 * dim * sizeof(float), .stride = width, .values_at = dim},
            state.positions + t + 1, attention_scale(config, dim), out.row(t) + h * dim);
    state.positions += x.rows;
    return out;
  }

  // Appends what a cache gives back of a vector.
  void cache_vector(const Operator& op, State& state, std::span<const float> v) {
    std::vector<float> rounded(v.begin(), v.end());
    finite = round_as_cached(*kernels, op.cache_type(cache, profile), rounded) && finite;
    state.cache.insert(state.cache.end(), rounded.begin(), rounded.end());
  }
  static std::vector<const std::byte*> pages_of(const State& state, std::size_t width) {
    std::vector<const std::byte*> pages;
    for (std::size_t at = 0; at < state.cache.size(); at += kAttentionBlock * width)
      pages.push_back(reinterpret_cast<const std::byte*>(state.cache.data() + at));
    return pages;
  }

  static const float* vector(const Weights& w, VectorRole role) {
    const auto it = w.vectors.find(role);
    return it == w.vectors.end() ? nullptr : it->second.data();
  }

  static Activation with_bias(Activation y, const Weights& w, VectorRole role) {
    if (const float* bias = vector(w, role); bias != nullptr)
      for (std::size_t t = 0; t < y.rows; ++t)
        for (std::size_t i = 0; i < y.width; ++i) y.row(t)[i] += bias[i];
    return y;
  }

  Status load(const ModelWeights& from) {
    for (const auto& op : graph.operators()) {
      Weights& w = weights[op.ref];
      for (const auto& m : op.matrices) {
        MYRIAD_TRY(WeightMatrix source, from.matrix(op.ref, m.role));
        if (source.dtype() != m.dtype) source = as_f32(source);
        MYRIAD_TRY(w.matrices[m.role], read_dense(source));
      }
      for (const auto& v : op.vectors) {
        MYRIAD_TRY(w.vectors[v.role], finite_vector(from, op.ref, v.role));
      }
      if (op.kind == OpKind::lead) leads[op.ref].vectors = w.vectors;
    }
    return {};
  }
};

Interpreter::Interpreter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Interpreter::Interpreter(Interpreter&&) noexcept = default;
Interpreter::~Interpreter() = default;

Result<Interpreter> Interpreter::load(const ModelWeights& weights, Profile profile, KvCache cache,
                                      const Kernels& kernels) {
  auto impl = std::make_unique<Impl>();
  impl->graph = weights.graph();
  impl->profile = profile;
  impl->cache = cache;
  impl->kernels = &kernels;
  MYRIAD_TRY_STATUS(impl->load(weights));
  return Interpreter(std::move(impl));
}

void Interpreter::reset() {
  impl_->states.clear();
}

Result<std::vector<std::vector<float>>> Interpreter::forward(const std::vector<std::int32_t>& tokens) {
  for (const auto t : tokens)
    if (t < 0 || static_cast<std::size_t>(t) >= impl_->graph.config().vocab)
      return fail(Code::invalid_argument, "token {} of a vocabulary of {}", t, impl_->graph.config().vocab);
  std::size_t before = 0;
  for (const auto& [op, state] : impl_->states) before = std::max(before, state.positions);
  MYRIAD_TRY_STATUS(check_window(impl_->graph.config(), before + tokens.size()));
  impl_->tokens = tokens;
  LayerContext context{impl_->graph, impl_->profile, *impl_->kernels, impl_->alone, *impl_, impl_->leads};
  Stream stream;
  std::vector<std::uint16_t> wanted(tokens.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<std::uint16_t>(i);
  Activation logits;
  Task lookup = embed(context, stream);
  lookup.start();
  Task halves = run_halves(context, 0, impl_->graph.halves(), stream);
  halves.start();
  Task head = run_head(context, stream, wanted, false, logits);
  if (!context.failed) head.start();
  if (context.failed || !impl_->finite)
    return fail(Code::internal, "evaluating {} tokens: a value is not finite", tokens.size());
  std::vector<std::vector<float>> out;
  for (std::size_t t = 0; t < logits.rows; ++t) out.emplace_back(logits.row(t), logits.row(t) + logits.width);
  return out;
}

}  // namespace myriad
