#include "part/part_run.h"

#include <algorithm>
#include <memory>

#include "kernels/math.h"
#include "model/attention.h"
#include "model/layer.h"
#include "model/product.h"
#include "model/rope.h"
#include "model/sampler.h"

namespace myriad {
namespace {

constexpr std::size_t kTileGrain = 4;      // tiles a thread takes at least
constexpr std::size_t kGroupGrain = 4096;  // groups of activations, of all rows together, likewise

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

Activation PartRunner::product(const MatrixView& m, const Activation& given, std::size_t which) const {
  const std::size_t tiles = tiles_for(m.rows), padded = tiles * kTileRows;
  Activation y(Form::f32, given.rows, padded);
  if (given.rows == 0) return y;
  Activation room;
  const Activation& x = for_product(kernels_, given, m.dtype, profile_, room);
  const std::byte* w = m.at(which);
  if (x.form == Form::i8) {
    // The activations are brought into the order in which the kernels read them, once for all tiles.
    const auto laid_out = std::make_unique_for_overwrite<std::byte[]>(kernels_.laid_out_bytes(m.dtype, m.k, x.rows));
    pool_.parallel(x.groups(), kGroupGrain / x.rows + 1, [&](std::size_t begin, std::size_t end) {
      kernels_.lay_out_i8(m.dtype, {x.q.data(), x.scales.data()}, m.k, x.rows, begin, end, laid_out.get());
    });
    pool_.parallel(tiles, kTileGrain, [&](std::size_t begin, std::size_t end) {
      kernels_.matmul_i8(m.dtype, w, m.k, begin, end, laid_out.get(), x.rows, y.values.data(), padded);
    });
  } else {
    pool_.parallel(tiles, kTileGrain, [&](std::size_t begin, std::size_t end) {
      kernels_.matmul(m.dtype, w, m.k, begin, end, x.values.data(), x.width, x.rows, y.values.data(), padded);
    });
  }
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
  if (inputs.empty() || has_state(op.kind))
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
      const MatrixView& down = *part.matrix(MatrixRole::down);
      if (!seal(kernels_, gate, product_form(down.dtype, profile_)))
        return fail(Code::internal, "calling {}: a value inside the expert is not finite", part.spec().name());
      y = product(down, gate);
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
    unpack_row(m->dtype, m->data, m->k, row, out.row(i));
  }
  seal(kernels_, out, form(part.op().output));
  return out;
}

Result<Activation> PartRunner::attend(const Part& part, std::span<const Activation* const> inputs,
                                      std::span<const SequenceSlice> slices) const {
  MYRIAD_TRY_STATUS(check_inputs(part, inputs));
  const auto& op = part.op();
  if (!has_state(op.kind))
    return fail(Code::invalid_argument, "calling {}: it has no attention state", part.spec().name());
  std::size_t rows = 0;
  for (const auto& s : slices) {
    rows += s.rows;
    if (op.kind != OpKind::kda_heads && (s.rows > s.state->context || s.state->position > s.state->context - s.rows))
      return fail(Code::limit, "calling {}: positions {} to {} of a sequence, there is room for {}", part.spec().name(),
                  s.state->position, s.state->position + s.rows, s.state->context);
  }
  if (rows != inputs[0]->rows)
    return fail(Code::invalid_argument, "calling {}: {} rows for sequences of {} rows", part.spec().name(),
                inputs[0]->rows, rows);
  Activation out(Form::f32, rows, static_cast<std::size_t>(op.output_per_unit) * part.spec().units());
  if (op.kind == OpKind::kda_heads)
    kda(part, *inputs[0], slices, out);
  else if (op.kind == OpKind::mla_heads)
    mla(part, inputs, slices, out);
  else
    gqa(part, *inputs[0], slices, out);
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
  const auto& config = graph_.config();
  const auto& mla = config.mla;
  const std::size_t heads = part.spec().units(), cache_dim = mla.cache_dim();
  Activation q = product(*part.matrix(MatrixRole::q), *inputs[0]);
  const MatrixView* g = part.matrix(MatrixRole::g);
  Activation gate;
  if (g != nullptr) gate = product(*g, *inputs[2]);

  std::size_t t = 0;
  Rotation rotation(config.rope);
  std::vector<float> entry(cache_dim);
  for (const auto& s : slices) {
    for (std::uint32_t i = 0; i < s.rows; ++i, ++t) {
      const std::size_t position = static_cast<std::size_t>(s.state->position) + i;
      std::copy_n(inputs[1]->row(t), cache_dim, entry.data());
      if (config.rope.dims() != 0) {
        rotation.at(position);
        rotation.apply(kernels_, entry.data() + mla.kv_lora_rank);
        for (std::size_t h = 0; h < heads; ++h) rotation.apply(kernels_, q.row(t) + h * mla.qk_dim() + mla.qk_nope_dim);
      }
      store_in_cache(entry.data(), cache_dim, s.state->data, position * cache_dim);
    }
  }

  const MatrixView &k_b = *part.matrix(MatrixRole::k_b), &v_b = *part.matrix(MatrixRole::v_b);
  // Heads of one row read the same cache, so as many as there is room for go together.
  const std::size_t rank = mla.kv_lora_rank;
  const float scale = attention_scale(config, mla.qk_dim());
  pool_.parallel(heads, 1, [&](std::size_t first_head, std::size_t last_head) {
    MlaHead head(config);
    BlockAttention attention(cache_dim, rank, kMostQueries);
    std::vector<float> queries(kMostQueries * cache_dim), contexts(kMostQueries * rank);
    std::size_t row = 0;
    for (const auto& s : slices) {
      const AttentionCache cache{s.state->data, profile_ == Profile::fast};
      for (std::uint32_t i = 0; i < s.rows; ++i, ++row) {
        for (std::size_t h = first_head; h < last_head; h += kMostQueries) {
          const std::size_t n = std::min(kMostQueries, last_head - h);
          for (std::size_t j = 0; j < n; ++j)
            head.absorb(config, kernels_, profile_, q.row(row) + (h + j) * mla.qk_dim(),
                        {k_b.dtype, k_b.at(h + j), k_b.rows, k_b.k}, queries.data() + j * cache_dim);
          const std::vector<std::uint32_t> counts(n, s.state->position + i + 1);
          attention.attend(kernels_, queries.data(), cache, counts, scale, contexts.data());
          for (std::size_t j = 0; j < n; ++j)
            head.finish(
                config, kernels_, profile_, contexts.data() + j * rank, {v_b.dtype, v_b.at(h + j), v_b.rows, v_b.k},
                g != nullptr ? gate.row(row) + (h + j) * mla.v_dim : nullptr, out.row(row) + (h + j) * mla.v_dim);
        }
      }
    }
  });
}

// Grouped-query attention: each unit is a key head with the query heads that share it, and its cache
// [context][keys, values].
void PartRunner::gqa(const Part& part, const Activation& x, std::span<const SequenceSlice> slices,
                     Activation& out) const {
  const auto& config = graph_.config();
  const std::size_t heads = part.spec().units(), dim = config.gqa.head_dim, group = config.gqa.group();
  const auto biased = [&](MatrixRole matrix, VectorRole vector) {
    Activation y = product(*part.matrix(matrix), x);
    const auto bias = part.vector(vector);
    for (std::size_t t = 0; t < y.rows && !bias.empty(); ++t)
      for (std::size_t i = 0; i < y.width; ++i) y.row(t)[i] += bias[i];
    return y;
  };
  Activation q = biased(MatrixRole::q, VectorRole::q_bias), k = biased(MatrixRole::k, VectorRole::k_bias);
  const Activation v = biased(MatrixRole::v, VectorRole::v_bias);
  const auto norm_of = [&](VectorRole role) {
    const auto values = part.vector(role);
    return values.empty() ? nullptr : values.data();
  };
  const float *q_norm = norm_of(VectorRole::q_norm), *k_norm = norm_of(VectorRole::k_norm);

  std::size_t t = 0;
  Rotation rotation(config.rope);
  for (const auto& s : slices) {
    for (std::uint32_t i = 0; i < s.rows; ++i, ++t) {
      const std::size_t position = static_cast<std::size_t>(s.state->position) + i;
      rotation.at(position);
      for (std::size_t h = 0; h < heads * group; ++h)
        prepare_gqa_head(config, kernels_, q_norm, rotation, q.row(t) + h * dim);
      for (std::size_t h = 0; h < heads; ++h) {
        prepare_gqa_head(config, kernels_, k_norm, rotation, k.row(t) + h * dim);
        const std::size_t at = (h * s.state->context + position) * 2 * dim;
        store_in_cache(k.row(t) + h * dim, dim, s.state->data, at);
        store_in_cache(v.row(t) + h * dim, dim, s.state->data, at + dim);
      }
    }
  }

  // The query heads of a key head and several rows of a sequence share one reading of its cache. A task is a key head
  // and one run of rows, so that one sequence that is long keeps all threads busy.
  struct Run {
    std::size_t head, row;  // of out
    const SequenceSlice* slice;
    std::uint32_t first, rows;  // of the slice
  };
  const auto rows_together = static_cast<std::uint32_t>(std::max<std::size_t>(1, kMostQueries / group));
  std::vector<Run> tasks;
  for (std::size_t h = 0; h < heads; ++h) {
    std::size_t row = 0;
    for (const auto& s : slices) {
      for (std::uint32_t i = 0; i < s.rows; i += rows_together)
        tasks.push_back({h, row + i, &s, i, std::min(rows_together, s.rows - i)});
      row += s.rows;
    }
  }
  const std::size_t value_bytes = profile_ == Profile::fast ? 2 : 4;
  const float scale = attention_scale(config, dim);
  pool_.parallel(tasks.size(), 1, [&](std::size_t first_task, std::size_t last_task) {
    const std::size_t most = std::max<std::size_t>(group, rows_together * group);
    BlockAttention attention(dim, dim, most);
    std::vector<float> queries(most * dim), results(most * dim);
    std::vector<std::uint32_t> counts(most);
    for (const Run& task : std::span(tasks).subspan(first_task, last_task - first_task)) {
      const AttentionState& state = *task.slice->state;
      const AttentionCache cache{state.data + task.head * state.context * 2 * dim * value_bytes,
                                 profile_ == Profile::fast, 2 * dim, dim};
      for (std::uint32_t i = 0; i < task.rows; ++i) {
        std::copy_n(q.row(task.row + i) + task.head * group * dim, group * dim, queries.data() + i * group * dim);
        std::fill_n(counts.begin() + static_cast<std::ptrdiff_t>(i * group), group,
                    state.position + task.first + i + 1);
      }
      attention.attend(kernels_, queries.data(), cache, std::span(counts).first(task.rows * group), scale,
                       results.data());
      for (std::uint32_t i = 0; i < task.rows; ++i)
        std::copy_n(results.data() + i * group * dim, group * dim, out.row(task.row + i) + task.head * group * dim);
    }
  });
}

void PartRunner::store_in_cache(const float* values, std::size_t n, std::byte* cache, std::size_t at) const {
  if (profile_ == Profile::exact)
    std::copy_n(values, n, reinterpret_cast<float*>(cache) + at);
  else
    std::transform(values, values + n, reinterpret_cast<std::uint16_t*>(cache) + at, f32_to_bf16);
}

}  // namespace myriad
