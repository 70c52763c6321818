#include "part/part_run.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "kernels/math.h"
#include "model/attention.h"
#include "model/layer.h"
#include "model/rope.h"
#include "model/sampler.h"
#include "part/product_batch.h"

namespace myriad {
namespace {

// Where a row of a step stands in its sequence.
struct RowPlace {
  const AttentionState* state;
  std::size_t position;
  // The page, and the position in it.
  [[nodiscard]] std::pair<std::byte*, std::size_t> page() const {
    return {state->pages[position / kAttentionBlock], position % kAttentionBlock};
  }
};
std::vector<RowPlace> places_of(std::span<const SequenceSlice> slices) {
  std::vector<RowPlace> places;
  for (const auto& s : slices)
    for (std::uint32_t i = 0; i < s.rows; ++i)
      places.push_back({s.state, static_cast<std::size_t>(s.state->position) + i});
  return places;
}

constexpr std::size_t kRowValues = 16384;                // values of rows that a thread turns and stores at least
constexpr std::size_t kTogether = std::size_t{1} << 18;  // values between the calls that are computed together

}  // namespace

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

Status PartRunner::check_call(const PartCall& call) const {
  const Part& part = *call.part;
  MYRIAD_TRY_STATUS(check_inputs(part, call.inputs));
  if (call.inputs.empty() || has_state(part.op().kind))
    return fail(Code::invalid_argument, "calling {}: it cannot be called like this", part.spec().name());
  for (const auto r : call.rows)
    if (r >= call.inputs[0]->rows)
      return fail(Code::invalid_argument, "calling {}: row {} of {} is asked for", part.spec().name(), r,
                  call.inputs[0]->rows);
  return {};
}

Status PartRunner::run(std::span<const PartCall> calls,
                       const std::function<void(std::size_t, Activation)>& take) const {
  const auto named = [](Error e, const PartCall& call) {
    e.part = call.part->spec().name();
    return std::unexpected(std::move(e));
  };
  for (const auto& call : calls)
    if (auto ok = check_call(call); !ok) return named(std::move(ok).error(), call);
  std::vector<Activation> chosen(calls.size()), inner(calls.size());
  std::vector<std::size_t> result(calls.size());
  // Buffers stay bounded: as many calls go together as have kTogether values between them, but at least one.
  for (std::size_t first = 0, last = 0; first < calls.size(); first = last) {
    ProductBatch batch(kernels_, pool_, profile_);
    for (std::size_t values = 0; last < calls.size(); ++last) {
      const PartCall& call = calls[last];
      const std::size_t rows = call.rows.empty() ? call.inputs[0]->rows : call.rows.size();
      for (const MatrixView& m : call.part->matrices()) values += rows * m.rows;
      if (last > first && values > kTogether) break;
      if (!call.rows.empty()) chosen[last] = choose_rows(*call.inputs[0], call.rows);
      const Activation& x = call.rows.empty() ? *call.inputs[0] : chosen[last];
      const OpKind kind = call.part->op().kind;
      if (kind == OpKind::linear || kind == OpKind::head)
        result[last] = batch.add(*call.part->matrix(MatrixRole::weight), x);
      else
        result[last] = batch.add_glu(*call.part->matrix(MatrixRole::gate), *call.part->matrix(MatrixRole::up),
                                     graph_.config().activation, x);
    }
    batch.run();
    bool more = false;
    for (std::size_t i = first; i < last; ++i) {
      chosen[i] = {};
      if (calls[i].part->op().kind != OpKind::expert) continue;
      const MatrixView& down = *calls[i].part->matrix(MatrixRole::down);
      inner[i] = batch.take(result[i]);
      if (!seal(kernels_, pool_, inner[i], product_form(down.dtype, profile_)))
        return named({Code::internal,
                      fmt::format("calling {}: a value inside the expert is not finite", calls[i].part->spec().name()),
                      {},
                      {}},
                     calls[i]);
      result[i] = batch.add(down, inner[i]);
      more = true;
    }
    if (more) batch.run();
    for (std::size_t i = first; i < last; ++i) {
      inner[i] = {};
      take(i, finish(calls[i], batch.take(result[i])));
    }
  }
  return {};
}

Activation PartRunner::finish(const PartCall& call, Activation y) const {
  const auto& op = call.part->op();
  if (op.kind != OpKind::head || !call.candidates) {
    seal(kernels_, pool_, y, form(op.output));
    return y;
  }
  const std::size_t blocks = (y.width + kVocabularyBlock - 1) / kVocabularyBlock;
  Activation packed(Form::f32, y.rows, blocks * kPackedCandidates);
  pool_.parallel(y.rows * blocks, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t t = i / blocks, b = i % blocks;
      const std::size_t first = b * kVocabularyBlock, n = std::min(kVocabularyBlock, y.width - first);
      pack_candidates(block_candidates(kernels_, {y.row(t) + first, n},
                                       call.part->spec().begin + static_cast<std::uint32_t>(first)),
                      {packed.row(t) + b * kPackedCandidates, kPackedCandidates});
    }
  });
  return packed;
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
  seal(kernels_, pool_, out, form(part.op().output));
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
    if (op.kind != OpKind::kda_heads && std::uint64_t{s.state->position} + s.rows > s.state->room())
      return fail(Code::limit, "calling {}: positions {} to {} of a sequence, there is room for {}", part.spec().name(),
                  s.state->position, std::uint64_t{s.state->position} + s.rows, s.state->room());
  }
  if (rows != inputs[0]->rows)
    return fail(Code::invalid_argument, "calling {}: {} rows for sequences of {} rows", part.spec().name(),
                inputs[0]->rows, rows);
  Activation out(Form::f32, rows, static_cast<std::size_t>(op.output_per_unit) * part.spec().units());
  bool finite = true;
  if (op.kind == OpKind::kda_heads)
    kda(part, *inputs[0], slices, out);
  else if (op.kind == OpKind::mla_heads)
    finite = mla(part, inputs, slices, out);
  else
    finite = gqa(part, *inputs[0], slices, out);
  if (!finite)
    return fail(Code::internal,
                "calling {}: a key or value is not finite or too large for the cache's type; "
                "try --cache-type bf16 or f32",
                part.spec().name());
  for (const auto& s : slices) s.state->position += s.rows;
  seal(kernels_, pool_, out, form(op.output));
  return out;
}

// Kimi Delta Attention, spec §3.2. Inside everything is f32; a row depends on the one before it only through the state.
void PartRunner::kda(const Part& part, const Activation& x, std::span<const SequenceSlice> slices,
                     Activation& out) const {
  const auto& config = graph_.config();
  const std::size_t heads = part.spec().units(), dim = config.kda.head_dim, width = heads * dim,
                    taps = config.kda.conv_taps;
  ProductBatch batch(kernels_, pool_, profile_);
  const auto first = [&](MatrixRole role) { return batch.add(*part.matrix(role), x); };
  const MatrixView* full_gate = part.matrix(MatrixRole::g);
  const std::size_t q_at = first(MatrixRole::q), k_at = first(MatrixRole::k), v_at = first(MatrixRole::v),
                    b_at = first(MatrixRole::b), f_a_at = first(MatrixRole::f_a),
                    gate_at = first(full_gate != nullptr ? MatrixRole::g : MatrixRole::g_a);
  batch.run();
  const Activation f_a = batch.take(f_a_at);
  Activation gate = batch.take(gate_at), g_a;
  const std::size_t z_at = batch.add(*part.matrix(MatrixRole::f_b), f_a);
  std::size_t g_b_at = 0;
  if (full_gate == nullptr) {
    g_a = std::move(gate);
    g_b_at = batch.add(*part.matrix(MatrixRole::g_b), g_a);
  }
  batch.run();
  const Activation z = batch.take(z_at);
  if (full_gate == nullptr) gate = batch.take(g_b_at);
  const Activation q = batch.take(q_at), k = batch.take(k_at), v = batch.take(v_at), b = batch.take(b_at);

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
bool PartRunner::mla(const Part& part, std::span<const Activation* const> inputs, std::span<const SequenceSlice> slices,
                     Activation& out) const {
  const auto& config = graph_.config();
  const auto& mla = config.mla;
  const std::size_t heads = part.spec().units(), cache_dim = mla.cache_dim();
  ProductBatch batch(kernels_, pool_, profile_);
  const MatrixView* g = part.matrix(MatrixRole::g);
  const std::size_t q_at = batch.add(*part.matrix(MatrixRole::q), *inputs[0]);
  const std::size_t gate_at = g != nullptr ? batch.add(*g, *inputs[2]) : 0;
  batch.run();
  Activation q = batch.take(q_at), gate;
  if (g != nullptr) gate = batch.take(gate_at);

  const std::vector<RowPlace> places = places_of(slices);
  const CacheType cached = cache_of(part.op());
  const std::size_t bytes = cached_value_bytes(cached), groups = (cache_dim + kGroup - 1) / kGroup;
  std::atomic<bool> finite = true;
  pool_.parallel(places.size(), kRowValues / q.width + 1, [&](std::size_t begin, std::size_t end) {
    Rotation rotation(config.rope);
    std::vector<float> entry(cache_dim);
    for (std::size_t t = begin; t < end; ++t) {
      std::copy_n(inputs[1]->row(t), cache_dim, entry.data());
      if (config.rope.dims() != 0) {
        rotation.at(places[t].position);
        rotation.apply(kernels_, entry.data() + mla.kv_lora_rank);
        for (std::size_t h = 0; h < heads; ++h) rotation.apply(kernels_, q.row(t) + h * mla.qk_dim() + mla.qk_nope_dim);
      }
      const auto [page, at] = places[t].page();
      const std::size_t values = std::size_t{places[t].state->page_positions} * cache_dim * bytes;
      if (!store_in_cache(kernels_, cached, entry.data(), cache_dim, page + at * cache_dim * bytes,
                          reinterpret_cast<float*>(page + values) + at * groups))
        finite.store(false, std::memory_order_relaxed);
    }
  });
  if (!finite.load(std::memory_order_relaxed)) return false;

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
      const AttentionCache cache{
          .pages = s.state->pages,
          .type = cached,
          .scales_at = std::size_t{s.state->page_positions} * cache_dim,
          .scale_stride = groups,
      };
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
  return true;
}

// Grouped-query attention: each unit is a key head with the query heads that share it, and its cache
// [context][keys, values].
bool PartRunner::gqa(const Part& part, const Activation& x, std::span<const SequenceSlice> slices,
                     Activation& out) const {
  const auto& config = graph_.config();
  const std::size_t heads = part.spec().units(), dim = config.gqa.head_dim, group = config.gqa.group();
  ProductBatch batch(kernels_, pool_, profile_);
  const std::size_t q_at = batch.add(*part.matrix(MatrixRole::q), x), k_at = batch.add(*part.matrix(MatrixRole::k), x),
                    v_at = batch.add(*part.matrix(MatrixRole::v), x);
  batch.run();
  Activation q = batch.take(q_at), k = batch.take(k_at), v = batch.take(v_at);
  const auto vector = [&](VectorRole role) {
    const auto values = part.vector(role);
    return values.empty() ? nullptr : values.data();
  };
  const float *q_norm = vector(VectorRole::q_norm), *k_norm = vector(VectorRole::k_norm);
  const float *q_bias = vector(VectorRole::q_bias), *k_bias = vector(VectorRole::k_bias),
              *v_bias = vector(VectorRole::v_bias);
  const auto add_bias = [](const float* bias, Activation& y, std::size_t t) {
    for (std::size_t i = 0; bias != nullptr && i < y.width; ++i) y.row(t)[i] += bias[i];
  };

  const std::vector<RowPlace> places = places_of(slices);
  const CacheType cached = cache_of(part.op());
  const std::size_t bytes = cached_value_bytes(cached), groups = (dim + kGroup - 1) / kGroup;
  std::atomic<bool> finite = true;
  pool_.parallel(places.size(), kRowValues / (q.width + 2 * k.width) + 1, [&](std::size_t begin, std::size_t end) {
    Rotation rotation(config.rope);
    for (std::size_t t = begin; t < end; ++t) {
      add_bias(q_bias, q, t);
      add_bias(k_bias, k, t);
      add_bias(v_bias, v, t);
      rotation.at(places[t].position);
      for (std::size_t h = 0; h < heads * group; ++h)
        prepare_gqa_head(config, kernels_, q_norm, rotation, q.row(t) + h * dim);
      for (std::size_t h = 0; h < heads; ++h) {
        prepare_gqa_head(config, kernels_, k_norm, rotation, k.row(t) + h * dim);
        const auto [page, at] = places[t].page();
        const std::size_t row = h * places[t].state->page_positions + at;
        std::byte* const to = page + row * 2 * dim * bytes;
        float* const scales =
            reinterpret_cast<float*>(page + heads * places[t].state->page_positions * 2 * dim * bytes) +
            row * 2 * groups;
        if (!store_in_cache(kernels_, cached, k.row(t) + h * dim, dim, to, scales) ||
            !store_in_cache(kernels_, cached, v.row(t) + h * dim, dim, to + dim * bytes, scales + groups))
          finite.store(false, std::memory_order_relaxed);
      }
    }
  });
  if (!finite.load(std::memory_order_relaxed)) return false;

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
  const float scale = attention_scale(config, dim);
  pool_.parallel(tasks.size(), 1, [&](std::size_t first_task, std::size_t last_task) {
    const std::size_t most = std::max<std::size_t>(group, rows_together * group);
    BlockAttention attention(dim, dim, most);
    std::vector<float> queries(most * dim), results(most * dim);
    std::vector<std::uint32_t> counts(most);
    for (const Run& task : std::span(tasks).subspan(first_task, last_task - first_task)) {
      const AttentionState& state = *task.slice->state;
      const std::size_t positions = state.page_positions;
      const AttentionCache cache{
          .pages = state.pages,
          .type = cached,
          .rows_at = task.head * positions * 2 * dim * bytes,
          .stride = 2 * dim,
          .values_at = dim,
          .scales_at = positions * 2 * (heads * dim + task.head * groups * sizeof(float)),
          .scale_stride = 2 * groups,
          .value_scales_at = groups,
      };
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
  return true;
}

}  // namespace myriad
