#include "part/part_run.h"

#include <algorithm>

#include "kernels/math.h"
#include "model/attention.h"
#include "model/layer.h"
#include "model/sampler.h"

namespace myriad {
namespace {

constexpr std::size_t kTileGrain = 4;  // tiles a thread takes at least

}  // namespace

std::uint64_t attention_state_bytes(const Operator& op, std::uint32_t units, std::uint32_t context, Profile profile) {
  return op.state_bytes(units) + op.state_bytes_per_position(units, profile) * context;
}

Status PartRunner::check_inputs(const Part& part, std::span<const Activation* const> inputs) const {
  const auto& op = part.op();
  if (inputs.size() != op.inputs.size())
    return fail(Code::invalid_argument, "calling {}: {} inputs given, it takes {}", part.spec().name(), inputs.size(),
                op.inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]->width != op.inputs[i].width || inputs[i]->form != form(op.inputs[i]) ||
        inputs[i]->rows != inputs[0]->rows)
      return fail(Code::invalid_argument,
                  "calling {}: input {} is {} rows of {} values in form {}, expected {} rows of {} in form {}",
                  part.spec().name(), i, inputs[i]->rows, inputs[i]->width, static_cast<int>(inputs[i]->form),
                  inputs[0]->rows, op.inputs[i].width, static_cast<int>(form(op.inputs[i])));
  }
  return {};
}

Activation PartRunner::product(const MatrixView& m, const Activation& x, std::size_t which) const {
  const std::size_t tiles = tiles_for(m.rows), padded = tiles * kTileRows;
  Activation y(Form::f32, x.rows, padded);
  if (x.rows == 0) return y;
  const std::byte* w = m.at(which);
  pool_.parallel(tiles, kTileGrain, [&](std::size_t begin, std::size_t end) {
    switch (m.dtype) {
      case DType::f32:
        kernels_.matmul_f32(reinterpret_cast<const float*>(w), m.k, begin, end, x.values.data(), x.width, x.rows,
                            y.values.data(), padded);
        break;
      case DType::bf16:
        kernels_.matmul_bf16(reinterpret_cast<const std::uint16_t*>(w), m.k, begin, end, x.values.data(), x.width,
                             x.rows, y.values.data(), padded);
        break;
      case DType::mxfp4:
        if (x.form == Form::i8)
          kernels_.matmul_mxfp4_i8(reinterpret_cast<const std::uint8_t*>(w), m.k, begin, end,
                                   {x.q.data(), x.scales.data()}, x.rows, y.values.data(), padded);
        else
          kernels_.matmul_mxfp4_f32(reinterpret_cast<const std::uint8_t*>(w), m.k, begin, end, x.values.data(), x.width,
                                    x.rows, y.values.data(), padded);
        break;
    }
  });
  if (padded != m.rows) {
    for (std::size_t t = 1; t < x.rows; ++t)
      std::copy_n(y.values.data() + t * padded, m.rows, y.values.data() + t * m.rows);
    y.values.resize(x.rows * m.rows);
  }
  y.width = m.rows;
  return y;
}

Result<Activation> PartRunner::run(const Part& part, std::span<const Activation* const> inputs,
                                   std::span<const std::uint16_t> rows, bool candidates) const {
  MYRIAD_TRY_STATUS(check_inputs(part, inputs));
  const auto& op = part.op();
  if (inputs.empty() || op.kind == OpKind::kda_heads || op.kind == OpKind::mla_heads)
    return fail(Code::invalid_argument, "calling {}: it cannot be called like this", part.spec().name());
  for (const auto r : rows)
    if (r >= inputs[0]->rows)
      return fail(Code::invalid_argument, "calling {}: row {} of {} is asked for", part.spec().name(), r,
                  inputs[0]->rows);
  const Activation chosen = rows.empty() ? Activation{} : choose_rows(*inputs[0], rows);
  const Activation& x = rows.empty() ? *inputs[0] : chosen;

  Activation y;
  if (op.kind == OpKind::linear || op.kind == OpKind::head) {
    y = product(*part.matrix(MatrixRole::weight), x);
  } else {
    Activation gate = product(*part.matrix(MatrixRole::gate), x);
    const Activation up = product(*part.matrix(MatrixRole::up), x);
    kernels_.glu(graph_.config().activation, gate.values.data(), up.values.data(), gate.values.data(),
                 gate.values.size());
    if (op.kind == OpKind::expert) {
      const Form inner = form(op.inputs[0]);  // what w2 takes is what w1 takes: the weights are of one type
      if (!seal(kernels_, gate, inner))
        return fail(Code::internal, "calling {}: a value inside the expert is not finite", part.spec().name());
      y = product(*part.matrix(MatrixRole::down), gate);
    } else {
      y = std::move(gate);
    }
  }
  if (op.kind == OpKind::head && candidates) {
    const std::size_t blocks = (y.width + kVocabularyBlock - 1) / kVocabularyBlock;
    Activation packed(Form::f32, y.rows, blocks * kPackedCandidates);
    for (std::size_t t = 0; t < y.rows; ++t)
      for (std::size_t b = 0; b < blocks; ++b) {
        const std::size_t first = b * kVocabularyBlock, n = std::min(kVocabularyBlock, y.width - first);
        pack_candidates(block_candidates({y.row(t) + first, n}, part.spec().begin + static_cast<std::uint32_t>(first)),
                        {packed.row(t) + b * kPackedCandidates, kPackedCandidates});
      }
    return packed;
  }
  seal(kernels_, y, form(op.output));
  return y;
}

Result<Activation> PartRunner::embed(const Part& part, std::span<const std::int32_t> tokens) const {
  const MatrixView* m = part.matrix(MatrixRole::weight);
  if (part.op().kind != OpKind::embed || m == nullptr)
    return fail(Code::invalid_argument, "looking up tokens in {}: it is no embedding", part.spec().name());
  Activation out(Form::f32, tokens.size(), m->k);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<std::int64_t>(tokens[i]);
    if (token < part.spec().begin || token >= part.spec().end)
      return fail(Code::invalid_argument, "looking up token {} in {}: it is not in this part", token,
                  part.spec().name());
    const std::size_t row = static_cast<std::size_t>(token) - part.spec().begin;
    const std::byte* tile = m->data + row / kTileRows * tile_bytes(m->dtype, m->k);
    const std::size_t lane = row % kTileRows;
    for (std::size_t k = 0; k < m->k; ++k)
      out.row(i)[k] =
          m->dtype == DType::f32
              ? reinterpret_cast<const float*>(tile)[k * kTileRows + lane]
              : bf16_to_f32(reinterpret_cast<const std::uint16_t*>(tile)[(k / 2 * kTileRows + lane) * 2 + k % 2]);
  }
  seal(kernels_, out, form(part.op().output));
  return out;
}

Result<Activation> PartRunner::attend(const Part& part, std::span<const Activation* const> inputs,
                                      std::span<const SequenceSlice> slices) const {
  MYRIAD_TRY_STATUS(check_inputs(part, inputs));
  const auto& op = part.op();
  if (op.kind != OpKind::kda_heads && op.kind != OpKind::mla_heads)
    return fail(Code::invalid_argument, "calling {}: it has no attention state", part.spec().name());
  std::size_t rows = 0;
  for (const auto& s : slices) {
    rows += s.rows;
    if (op.kind == OpKind::mla_heads && (s.rows > s.state->context || s.state->position > s.state->context - s.rows))
      return fail(Code::limit, "calling {}: positions {} to {} of a sequence, there is room for {}", part.spec().name(),
                  s.state->position, s.state->position + s.rows, s.state->context);
  }
  if (rows != inputs[0]->rows)
    return fail(Code::invalid_argument, "calling {}: {} rows for sequences of {} rows", part.spec().name(),
                inputs[0]->rows, rows);
  Activation out(Form::f32, rows, static_cast<std::size_t>(op.output_per_unit) * part.spec().units());
  if (op.kind == OpKind::kda_heads)
    kda(part, *inputs[0], slices, out);
  else
    mla(part, inputs, slices, out);
  for (const auto& s : slices) s.state->position += s.rows;
  seal(kernels_, out, form(op.output));
  return out;
}

// Kimi Delta Attention, spec §3.2. Inside everything is f32; a row depends on the one before it only through the state.
void PartRunner::kda(const Part& part, const Activation& x, std::span<const SequenceSlice> slices,
                     Activation& out) const {
  const auto& config = graph_.config();
  const std::size_t heads = part.spec().units(), dim = config.kda.head_dim, width = heads * dim,
                    taps = config.kda.conv_taps;
  const Activation q = product(*part.matrix(MatrixRole::q), x), k = product(*part.matrix(MatrixRole::k), x),
                   v = product(*part.matrix(MatrixRole::v), x);
  const Activation z = product(*part.matrix(MatrixRole::f_b), product(*part.matrix(MatrixRole::f_a), x));
  const Activation b = product(*part.matrix(MatrixRole::b), x);
  const MatrixView* full_gate = part.matrix(MatrixRole::g);
  const Activation gate = full_gate != nullptr
                              ? product(*full_gate, x)
                              : product(*part.matrix(MatrixRole::g_b), product(*part.matrix(MatrixRole::g_a), x));

  // Heads are independent: each thread takes some heads through all rows. Convolution history is per channel, so it
  // goes with the head.
  pool_.parallel(heads, 1, [&](std::size_t first_head, std::size_t last_head) {
    KdaHead scratch(dim, taps);
    for (std::size_t h = first_head; h < last_head; ++h) {
      const KdaHeadWeights weights{part.vector(VectorRole::conv_q).subspan(h * dim * taps, dim * taps),
                                   part.vector(VectorRole::conv_k).subspan(h * dim * taps, dim * taps),
                                   part.vector(VectorRole::conv_v).subspan(h * dim * taps, dim * taps),
                                   part.vector(VectorRole::dt_bias).subspan(h * dim, dim),
                                   part.vector(VectorRole::o_norm),
                                   part.vector(VectorRole::a_log)[h]};
      std::size_t t = 0;
      for (const auto& s : slices) {
        auto* state = reinterpret_cast<float*>(s.state->data);
        float* memory = state + h * dim * dim;
        // history of this head: [stream][tap][dim], one block a head
        float* history = state + heads * dim * dim + h * 3 * (taps - 1) * dim;
        for (std::uint32_t i = 0; i < s.rows; ++i, ++t) {
          const std::size_t at = t * width + h * dim;
          scratch.step(config, kernels_, weights,
                       {q.values.data() + at, k.values.data() + at, v.values.data() + at, z.values.data() + at,
                        gate.values.data() + at, b.row(t)[h]},
                       memory, history, out.row(t) + h * dim);
        }
      }
    }
  });
}

// Multi-head latent attention in the absorbed form, spec §3.3: the cache holds latent and shared keys; queries are
// taken to it.
void PartRunner::mla(const Part& part, std::span<const Activation* const> inputs, std::span<const SequenceSlice> slices,
                     Activation& out) const {
  const auto& mla = graph_.config().mla;
  const std::size_t heads = part.spec().units(), cache_dim = mla.cache_dim();
  const Activation q = product(*part.matrix(MatrixRole::q), *inputs[0]);
  const MatrixView* g = part.matrix(MatrixRole::g);
  Activation gate;
  if (g != nullptr) gate = product(*g, *inputs[2]);

  std::size_t t = 0;
  for (const auto& s : slices) {
    for (std::uint32_t i = 0; i < s.rows; ++i, ++t) {
      const std::size_t at = (static_cast<std::size_t>(s.state->position) + i) * cache_dim;
      const float* row = inputs[1]->row(t);
      if (profile_ == Profile::exact)
        std::copy_n(row, cache_dim, reinterpret_cast<float*>(s.state->data) + at);
      else
        std::transform(row, row + cache_dim, reinterpret_cast<std::uint16_t*>(s.state->data) + at, f32_to_bf16);
    }
  }

  const MatrixView &k_b = *part.matrix(MatrixRole::k_b), &v_b = *part.matrix(MatrixRole::v_b);
  pool_.parallel(heads, 1, [&](std::size_t first_head, std::size_t last_head) {
    MlaHead head(mla);
    for (std::size_t h = first_head; h < last_head; ++h) {
      std::size_t row = 0;
      for (const auto& s : slices) {
        const AttentionCache cache{s.state->data, profile_ == Profile::fast};
        for (std::uint32_t i = 0; i < s.rows; ++i, ++row)
          head.attend(mla, kernels_, q.row(row) + h * mla.qk_dim(), reinterpret_cast<const std::uint16_t*>(k_b.at(h)),
                      reinterpret_cast<const std::uint16_t*>(v_b.at(h)), k_b.dtype, cache, s.state->position + i + 1,
                      g != nullptr ? gate.row(row) + h * mla.v_dim : nullptr, out.row(row) + h * mla.v_dim);
      }
    }
  });
}

}  // namespace myriad
