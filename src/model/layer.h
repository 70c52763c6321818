// The layer code: what the lead of a stage does, written once. The interpreter, one process and a fleet of a thousand
// nodes run these same functions; they differ only in the OperatorRunner that carries out a round of operator calls.
#pragma once

#include <algorithm>
#include <coroutine>
#include <map>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/thread_pool.h"
#include "model/activation.h"
#include "model/graph.h"
#include "model/sampler.h"
#include "model/task.h"

namespace myriad {

// One application of a whole operator to some rows. Inputs belong to the caller and outlive the round.
struct OperatorCall {
  const Operator* op = nullptr;
  std::vector<const Activation*> inputs;
  std::vector<std::uint16_t> rows;  // which rows of the inputs (of the step's tokens for embed); empty: all
  bool candidates = false;          // head: packed candidates rather than logits
  Activation output;                // filled in by the runner: [rows, output.width] in the seam's form
};

// Calls that do not depend on each other.
struct Round {
  std::vector<OperatorCall> calls;
  OperatorCall& add(const Operator* op, std::vector<const Activation*> inputs) {
    calls.push_back({op, std::move(inputs), {}, false, {}});
    return calls.back();
  }
};

class OperatorRunner {
 public:
  virtual ~OperatorRunner() = default;
  // Starts the round. Returns true if it is complete already; otherwise `resume` is resumed once it is (never, if it
  // fails: then the whole step is destroyed).
  virtual bool start(Round& round, std::coroutine_handle<> resume) = 0;
};

// The small f32 vectors that a lead holds, by operator (attn_lead, ffn_lead, final_lead).
struct LeadVectors {
  std::map<VectorRole, std::vector<float>> vectors;
  // nullptr if the model has none of this role.
  [[nodiscard]] const float* get(VectorRole role) const {
    const auto it = vectors.find(role);
    return it == vectors.end() ? nullptr : it->second.data();
  }
};

// What goes from one half-layer to the next: the residual stream and, with AttnRes, the banked block starts, each
// [rows, hidden].
struct Stream {
  Activation residual;
  std::vector<Activation> blocks;
};

struct LayerContext {
  const Graph& graph;
  Profile profile;
  const Kernels& kernels;
  ThreadPool& pool;
  OperatorRunner& runner;
  const std::map<OpRef, LeadVectors>& leads;
  bool failed = false;  // set when a value was not finite; the runner's owner reports it
};

// Embedding rows of the step's tokens become the residual stream. [tokens] -> [rows, hidden]
Task embed(LayerContext& c, Stream& stream);
// Half-layers [first, last).
Task run_halves(LayerContext& c, Half first, Half last, Stream& stream);
// Output mix, final norm and head for the rows `wanted` of the stream: logits [n, vocabulary] f32, or packed
// candidates.
Task run_head(LayerContext& c, const Stream& stream, std::vector<std::uint16_t> wanted, bool candidates,
              Activation& out);

// Rounds f32 rows into the form of a seam (numerics contract). false if a value is not finite where that is an error
// (i8).
bool seal(const Kernels& kernels, Activation& rows, Form form);
bool seal(const Kernels& kernels, ThreadPool& pool, Activation& rows, Form form);  // with many rows by all threads

// Calls body(row) for rows 0 … rows-1, by all threads if they have `width` values each and are many enough for that.
template <class Body>
void for_rows(ThreadPool& pool, std::size_t rows, std::size_t width, const Body& body) {
  constexpr std::size_t kGrain = 16384;  // values that a thread takes at least
  pool.parallel(rows, kGrain / std::max<std::size_t>(width, 1) + 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = begin; t < end; ++t) body(t);
  });
}

// How many blocks are banked before half `half` runs (AttnRes), which fixes what travels between stages.
std::size_t banked_blocks(const ModelConfig& config, Half half);

// The router's decision for one token (spec §3.4): experts by descending σ + bias, ties to the lower index, and their
// weights.
struct Routing {
  std::vector<std::uint16_t> experts;
  std::vector<float> weights;
};
Routing route(const ModelConfig& config, const Kernels& kernels, std::span<const float> logits, const float* bias);

}  // namespace myriad
