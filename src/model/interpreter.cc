#include "model/interpreter.h"

#include <algorithm>
#include <cmath>

#include "kernels/math.h"
#include "model/attention.h"

namespace myriad {
namespace {

// A weight matrix row-major; quantised ones keep their integers and scales for the `fast` profile.
struct Dense {
  std::size_t rows = 0, k = 0;
  std::vector<float> w;            // [rows, k]
  std::vector<std::int8_t> codes;  // doubled E2M1 integers [rows, k], for mxfp4
  std::vector<float> half_scales;  // 2^(e-128) [rows, k/32]
};

Result<Dense> read_dense(const Checkpoint& c, const std::string& name, std::size_t rows, std::size_t k) {
  MYRIAD_TRY(const MatrixSource source, c.matrix(name, rows, k));
  Dense d{rows, k, std::vector<float>(rows * k), {}, {}};
  MYRIAD_TRY_STATUS(source.read_rows_widened(0, rows, d.w));
  if (source.dtype() == DType::mxfp4) {
    std::vector<std::uint8_t> codes(rows * k / 2), scales(rows * k / kGroup);
    MYRIAD_TRY_STATUS(source.read_rows_mxfp4(0, rows, codes, scales));
    for (const auto byte : codes) {
      d.codes.push_back(kE2M1Doubled[byte & 15]);
      d.codes.push_back(kE2M1Doubled[byte >> 4]);
    }
    for (const auto e : scales) d.half_scales.push_back(e8m0_to_f32(e) * 0.5F);
  }
  return d;
}

// One output for one row of x: a chain of fma in ascending k, or exact integers a group and one fma a group.
float product(const Dense& d, std::size_t row, const Activation& x, std::size_t t) {
  float acc = 0;
  if (x.form == Form::i8) {
    for (std::size_t g = 0; g < d.k / kGroup; ++g) {
      int sum = 0;
      for (std::size_t i = g * kGroup; i < (g + 1) * kGroup; ++i) sum += d.codes[row * d.k + i] * x.q[t * d.k + i];
      acc = std::fma(d.half_scales[row * (d.k / kGroup) + g] * x.scales[t * x.groups() + g], static_cast<float>(sum),
                     acc);
    }
    return acc;
  }
  for (std::size_t k = 0; k < d.k; ++k) acc = std::fma(d.w[row * d.k + k], x.row(t)[k], acc);
  return acc;
}

Activation multiply(const Dense& d, const Activation& x) {
  Activation y(Form::f32, x.rows, d.rows);
  for (std::size_t t = 0; t < x.rows; ++t)
    for (std::size_t r = 0; r < d.rows; ++r) y.row(t)[r] = product(d, r, x, t);
  return y;
}

}  // namespace

struct Interpreter::Impl final : OperatorRunner {
  struct Weights {
    std::map<std::string, Dense> matrices;  // by short name
    std::map<std::string, std::vector<float>> vectors;
  };
  struct State {
    std::vector<float> kda, history;  // as KdaHead takes them, head after head
    std::vector<float> cache;         // MLA, f32 (rounded to bf16 in `fast`)
    std::size_t positions = 0;
  };

  Graph graph;
  Profile profile = Profile::exact;
  std::map<OpRef, Weights> weights;
  std::map<OpRef, LeadVectors> leads;
  std::map<OpRef, State> states;
  std::vector<std::int32_t> tokens;

  Form form(const Seam& seam) const { return seam.form[static_cast<int>(profile)]; }

  bool start(Round& round, std::coroutine_handle<>) override {
    for (auto& call : round.calls) {
      call.output = evaluate(call);
      seal(scalar_kernels(), call.output, form(call.op->output));
    }
    return true;
  }

  Activation evaluate(const OperatorCall& call) {
    const Operator& op = *call.op;
    const Weights& w = weights.at(op.ref);
    if (op.kind == OpKind::embed) {
      Activation y(Form::f32, tokens.size(), op.output.width);
      const Dense& table = w.matrices.at("weight");
      for (std::size_t t = 0; t < tokens.size(); ++t)
        std::copy_n(table.w.data() + static_cast<std::size_t>(tokens[t]) * table.k, table.k, y.row(t));
      return y;
    }
    // experts: the rows that chose it
    const Activation x = call.rows.empty() ? *call.inputs[0] : choose_rows(*call.inputs[0], call.rows);
    switch (op.kind) {
      case OpKind::linear:
      case OpKind::head:
        return multiply(w.matrices.at("weight"), x);
      case OpKind::gated_up:
      case OpKind::expert: {
        Activation gate = multiply(w.matrices.at("gate"), x);
        const Activation up = multiply(w.matrices.at("up"), x);
        scalar_kernels().glu(graph.config().activation, gate.values.data(), up.values.data(), gate.values.data(),
                             gate.values.size());
        if (op.kind == OpKind::gated_up) return gate;
        seal(scalar_kernels(), gate, form(op.inputs[0]));
        return multiply(w.matrices.at("down"), gate);
      }
      case OpKind::kda_heads:
        return kda(op, w, x);
      case OpKind::mla_heads:
        return mla(op, w, call.inputs);
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
    const Activation q = multiply(w.matrices.at("q"), x), k = multiply(w.matrices.at("k"), x),
                     v = multiply(w.matrices.at("v"), x);
    const Activation z = multiply(w.matrices.at("f_b"), multiply(w.matrices.at("f_a"), x)),
                     b = multiply(w.matrices.at("b"), x);
    const Activation gate = config.kda.full_rank_gate
                                ? multiply(w.matrices.at("g"), x)
                                : multiply(w.matrices.at("g_b"), multiply(w.matrices.at("g_a"), x));
    Activation out(Form::f32, x.rows, heads * dim);
    KdaHead head(dim, taps);
    for (std::size_t t = 0; t < x.rows; ++t) {
      for (std::size_t h = 0; h < heads; ++h) {
        const auto slice = [&](const char* name, std::size_t n) {
          return std::span(w.vectors.at(name)).subspan(h * n, n);
        };
        const KdaHeadWeights hw{slice("conv_q", dim * taps), slice("conv_k", dim * taps), slice("conv_v", dim * taps),
                                slice("dt_bias", dim),       w.vectors.at("o_norm"),      w.vectors.at("a_log")[h]};
        const std::size_t at = h * dim;
        head.step(config, scalar_kernels(), hw,
                  {q.row(t) + at, k.row(t) + at, v.row(t) + at, z.row(t) + at, gate.row(t) + at, b.row(t)[h]},
                  state.kda.data() + h * dim * dim, state.history.data() + h * past, out.row(t) + at);
      }
    }
    return out;
  }

  Activation mla(const Operator& op, const Weights& w, const std::vector<const Activation*>& inputs) {
    const auto& m = graph.config().mla;
    const std::size_t rank = m.kv_lora_rank, nope = m.qk_nope_dim, per_head = nope + m.v_dim;
    State& state = states[op.ref];
    const Activation q = multiply(w.matrices.at("q"), *inputs[0]);
    const Dense& kv_b = w.matrices.at("kv_b");
    Activation gate;
    if (m.output_gate) gate = multiply(w.matrices.at("g"), *inputs[2]);
    state.cache.insert(state.cache.end(), inputs[1]->values.begin(), inputs[1]->values.end());
    Activation out(Form::f32, q.rows, m.value_width());
    BlockAttention blocks(m.cache_dim(), rank);
    std::vector<float> query(m.cache_dim()), context(rank);
    for (std::size_t t = 0; t < q.rows; ++t) {
      for (std::size_t h = 0; h < m.heads; ++h) {
        const float* head_query = q.row(t) + h * m.qk_dim();
        for (std::size_t r = 0; r < rank; ++r) {  // the key half, transposed
          float acc = 0;
          for (std::size_t i = 0; i < nope; ++i)
            acc = std::fma(kv_b.w[(h * per_head + i) * rank + r], head_query[i], acc);
          query[r] = acc;
        }
        std::copy_n(head_query + nope, m.qk_rope_dim, query.data() + rank);
        blocks.attend(scalar_kernels(), query.data(), {reinterpret_cast<const std::byte*>(state.cache.data()), false},
                      state.positions + t + 1, inverse_root(m.qk_dim()), context.data());
        for (std::size_t i = 0; i < m.v_dim; ++i) {
          float acc = 0;
          for (std::size_t r = 0; r < rank; ++r)
            acc = std::fma(kv_b.w[(h * per_head + nope + i) * rank + r], context[r], acc);
          if (m.output_gate) acc *= exact_sigmoid(gate.row(t)[h * m.v_dim + i]);
          out.row(t)[h * m.v_dim + i] = acc;
        }
      }
    }
    state.positions += q.rows;
    return out;
  }

  Status load(const Checkpoint& c) {
    const auto& config = graph.config();
    for (const auto& op : graph.operators()) {
      const std::string layer = fmt::format("model.layers.{}.", op.ref.layer);
      const std::string attn = layer + "self_attn.",
                        ffn = layer + (config.is_moe(op.ref.layer) ? "block_sparse_moe." : "mlp.");
      Weights& w = weights[op.ref];
      const auto matrix = [&](const char* key, const std::string& name, std::size_t rows, std::size_t k) -> Status {
        MYRIAD_TRY(w.matrices[key], read_dense(c, name, rows, k));
        return {};
      };
      const auto lead = [&](VectorRole role, const std::string& name, std::size_t n) -> Status {
        MYRIAD_TRY(leads[op.ref].vectors[role], c.read_vector(name, n));
        return {};
      };
      const auto residual_score = [&](const std::string& stem) -> Status {
        if (config.attn_res_block_size == 0) return {};
        MYRIAD_TRY(std::vector<float> score, c.read_vector(stem + "_norm.weight", config.hidden));
        MYRIAD_TRY(const std::vector<float> proj, c.read_vector(stem + "_proj.weight", config.hidden));
        for (std::size_t i = 0; i < score.size(); ++i) score[i] *= proj[i];
        leads[op.ref].vectors[VectorRole::res_score] = std::move(score);
        return {};
      };
      const std::size_t hidden = config.hidden;
      const auto gated = [&](const std::string& stem, std::size_t inner) -> Status {
        MYRIAD_TRY_STATUS(matrix("gate", stem + "gate_proj", inner, hidden));
        return matrix("up", stem + "up_proj", inner, hidden);
      };
      switch (op.ref.role) {
        case OpRole::embed:
          MYRIAD_TRY_STATUS(matrix("weight", "model.embed_tokens", config.vocab, hidden));
          break;
        case OpRole::head:
          MYRIAD_TRY_STATUS(matrix("weight", "lm_head", config.vocab, hidden));
          break;
        case OpRole::final_lead:
          MYRIAD_TRY_STATUS(lead(VectorRole::norm, "model.norm.weight", hidden));
          MYRIAD_TRY_STATUS(residual_score("model.output_attn_res"));
          break;
        case OpRole::attn_lead:
          MYRIAD_TRY_STATUS(lead(VectorRole::norm, layer + "input_layernorm.weight", hidden));
          MYRIAD_TRY_STATUS(residual_score(layer + "self_attention_res"));
          if (config.attention[op.ref.layer] == AttentionKind::mla) {
            if (config.mla.q_lora_rank != 0)
              MYRIAD_TRY_STATUS(lead(VectorRole::q_a_norm, attn + "q_a_layernorm.weight", config.mla.q_lora_rank));
            MYRIAD_TRY_STATUS(lead(VectorRole::kv_a_norm, attn + "kv_a_layernorm.weight", config.mla.kv_lora_rank));
          }
          break;
        case OpRole::ffn_lead:
          MYRIAD_TRY_STATUS(lead(VectorRole::norm, layer + "post_attention_layernorm.weight", hidden));
          MYRIAD_TRY_STATUS(residual_score(layer + "mlp_res"));
          if (config.is_moe(op.ref.layer)) {
            MYRIAD_TRY_STATUS(lead(VectorRole::router_bias, ffn + "gate.e_score_correction_bias", config.moe.experts));
            if (config.moe.latent != 0 && config.moe.latent_norm)
              MYRIAD_TRY_STATUS(lead(VectorRole::latent_norm, ffn + "routed_expert_norm.weight", config.moe.latent));
          }
          break;
        case OpRole::attn_q_a:
          MYRIAD_TRY_STATUS(matrix("weight", attn + "q_a_proj", config.mla.q_lora_rank, hidden));
          break;
        case OpRole::attn_kv_a:
          MYRIAD_TRY_STATUS(matrix("weight", attn + "kv_a_proj_with_mqa", config.mla.cache_dim(), hidden));
          break;
        case OpRole::attn_o:
          MYRIAD_TRY_STATUS(matrix("weight", attn + "o_proj", hidden, op.inputs[0].width));
          break;
        case OpRole::attn:
          MYRIAD_TRY_STATUS(load_attention(c, op, w, attn, matrix));
          break;
        case OpRole::router:
          MYRIAD_TRY_STATUS(matrix("weight", ffn + "gate", config.moe.experts, hidden));
          break;
        case OpRole::latent_down:
          MYRIAD_TRY_STATUS(matrix("weight", ffn + "routed_expert_down_proj", config.moe.latent, hidden));
          break;
        case OpRole::latent_up:
          MYRIAD_TRY_STATUS(matrix("weight", ffn + "routed_expert_up_proj", hidden, config.moe.latent));
          break;
        case OpRole::shared_up:
          MYRIAD_TRY_STATUS(gated(ffn + "shared_experts.", config.moe.shared_intermediate()));
          break;
        case OpRole::shared_down:
          MYRIAD_TRY_STATUS(
              matrix("weight", ffn + "shared_experts.down_proj", hidden, config.moe.shared_intermediate()));
          break;
        case OpRole::dense_up:
          MYRIAD_TRY_STATUS(gated(ffn, config.intermediate));
          break;
        case OpRole::dense_down:
          MYRIAD_TRY_STATUS(matrix("weight", ffn + "down_proj", hidden, config.intermediate));
          break;
        case OpRole::expert: {
          const std::string stem = fmt::format("{}experts.{}.", ffn, op.ref.index);
          MYRIAD_TRY_STATUS(matrix("gate", stem + "w1", config.moe.intermediate, config.expert_width()));
          MYRIAD_TRY_STATUS(matrix("up", stem + "w3", config.moe.intermediate, config.expert_width()));
          MYRIAD_TRY_STATUS(matrix("down", stem + "w2", config.expert_width(), config.moe.intermediate));
          break;
        }
      }
    }
    return {};
  }

  Status load_attention(const Checkpoint& c, const Operator& op, Weights& w, const std::string& attn,
                        const auto& matrix) {
    const auto& config = graph.config();
    const std::size_t hidden = config.hidden;
    if (op.kind == OpKind::mla_heads) {
      const auto& m = config.mla;
      MYRIAD_TRY_STATUS(matrix("q", attn + (m.q_lora_rank != 0 ? "q_b_proj" : "q_proj"), m.heads * m.qk_dim(),
                               m.q_lora_rank != 0 ? m.q_lora_rank : hidden));
      MYRIAD_TRY_STATUS(matrix("kv_b", attn + "kv_b_proj", m.heads * (m.qk_nope_dim + m.v_dim), m.kv_lora_rank));
      if (m.output_gate) MYRIAD_TRY_STATUS(matrix("g", attn + "g_proj", m.value_width(), hidden));
      return {};
    }
    const auto& k = config.kda;
    for (const char* name : {"q", "k", "v"}) {
      MYRIAD_TRY_STATUS(matrix(name, fmt::format("{}{}_proj", attn, name), k.width(), hidden));
      MYRIAD_TRY(w.vectors[fmt::format("conv_{}", name)], c.read_conv(op.ref.layer, name[0]));
    }
    MYRIAD_TRY_STATUS(matrix("f_a", attn + "f_a_proj", k.head_dim, hidden));
    MYRIAD_TRY_STATUS(matrix("f_b", attn + "f_b_proj", k.width(), k.head_dim));
    MYRIAD_TRY_STATUS(matrix("b", attn + "b_proj", k.heads, hidden));
    if (k.full_rank_gate) {
      MYRIAD_TRY_STATUS(matrix("g", attn + "g_proj", k.width(), hidden));
    } else {
      MYRIAD_TRY_STATUS(matrix("g_a", attn + "g_a_proj", k.head_dim, hidden));
      MYRIAD_TRY_STATUS(matrix("g_b", attn + "g_b_proj", k.width(), k.head_dim));
    }
    MYRIAD_TRY(w.vectors["a_log"], c.read_a_log(op.ref.layer));
    MYRIAD_TRY(w.vectors["dt_bias"], c.read_vector(attn + "dt_bias", k.width()));
    MYRIAD_TRY(w.vectors["o_norm"], c.read_vector(attn + "o_norm.weight", k.head_dim));
    return {};
  }
};

Interpreter::Interpreter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Interpreter::Interpreter(Interpreter&&) noexcept = default;
Interpreter::~Interpreter() = default;

Result<Interpreter> Interpreter::load(const Checkpoint& checkpoint, Profile profile) {
  auto impl = std::make_unique<Impl>();
  MYRIAD_TRY(impl->graph, Graph::build(checkpoint.config()));
  impl->profile = profile;
  MYRIAD_TRY_STATUS(impl->load(checkpoint));
  return Interpreter(std::move(impl));
}

void Interpreter::reset() {
  impl_->states.clear();
}

Result<std::vector<std::vector<float>>> Interpreter::forward(const std::vector<std::int32_t>& tokens) {
  for (const auto t : tokens)
    if (t < 0 || static_cast<std::size_t>(t) >= impl_->graph.config().vocab)
      return fail(Code::invalid_argument, "token {} of a vocabulary of {}", t, impl_->graph.config().vocab);
  impl_->tokens = tokens;
  LayerContext context{impl_->graph, impl_->profile, scalar_kernels(), *impl_, impl_->leads};
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
  if (context.failed) return fail(Code::internal, "evaluating {} tokens: a value is not finite", tokens.size());
  std::vector<std::vector<float>> out;
  for (std::size_t t = 0; t < logits.rows; ++t) out.emplace_back(logits.row(t), logits.row(t) + logits.width);
  return out;
}

}  // namespace myriad
