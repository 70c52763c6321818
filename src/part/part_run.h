// Executes a part on rows: what a helper does when it is called, and a lead for what it holds itself.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/thread_pool.h"
#include "model/activation.h"
#include "part/part_file.h"

namespace myriad {

// The attention state of one sequence in one part; a view of memory that somebody else owns and accounts.
// KDA: f32 [units][dim][dim] (row = key channel), then f32 [units][3][taps-1][dim]: conv history of q, k, v, oldest
// first. MLA: cache [context][kv_lora_rank + qk_rope], GQA: cache [units][context][keys, values]; f32 in `exact`, bf16
// in `fast`.
struct AttentionState {
  std::byte* data = nullptr;
  std::uint32_t context = 0;   // positions there is room for
  std::uint32_t position = 0;  // of the next token
};
std::uint64_t attention_state_bytes(const Operator& op, std::uint32_t units, std::uint32_t context, Profile profile);

// Consecutive rows of one sequence.
struct SequenceSlice {
  std::uint32_t rows = 0;
  AttentionState* state = nullptr;
};

// A part without state, on rows of its inputs.
struct PartCall {
  const Part* part = nullptr;
  std::span<const Activation* const> inputs;
  std::span<const std::uint16_t> rows;  // of the inputs; empty: all
  bool candidates = false;              // head: packed candidates rather than logits
};

class PartRunner {
 public:
  PartRunner(const Graph& graph, Profile profile, const Kernels& kernels, ThreadPool& pool)
      : graph_(graph), profile_(profile), kernels_(kernels), pool_(pool) {}

  // Calls that do not depend on each other, of parts without state but embed; take(i, output) once for each, in order.
  // Output: [rows, width of the part] in the form of the operator's output seam (head with candidates: packed, f32).
  // Errors: invalid_argument when the inputs are not what the operator takes, internal (not finite) when a value cannot
  // be quantised; then some calls may not have been taken.
  [[nodiscard]] Status run(std::span<const PartCall> calls,
                           const std::function<void(std::size_t, Activation)>& take) const;
  // Rows of several sequences one after the other; advances each state by its rows. Errors as above, limit past the
  // context.
  [[nodiscard]] Result<Activation> attend(const Part& part, std::span<const Activation* const> inputs,
                                          std::span<const SequenceSlice> slices) const;
  // Embedding rows of these tokens, all within the part's range (else invalid_argument). [tokens, hidden]
  [[nodiscard]] Result<Activation> embed(const Part& part, std::span<const std::int32_t> tokens) const;

  [[nodiscard]] Profile profile() const { return profile_; }
  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] ThreadPool& pool() const { return pool_; }

 private:
  void kda(const Part& part, const Activation& x, std::span<const SequenceSlice> slices, Activation& out) const;
  void mla(const Part& part, std::span<const Activation* const> inputs, std::span<const SequenceSlice> slices,
           Activation& out) const;
  void gqa(const Part& part, const Activation& x, std::span<const SequenceSlice> slices, Activation& out) const;
  // Values [n] as the cache holds them, from value `at` on.
  void store_in_cache(const float* values, std::size_t n, std::byte* cache, std::size_t at) const;
  [[nodiscard]] Activation finish(const PartCall& call, Activation y) const;
  [[nodiscard]] Status check_call(const PartCall& call) const;
  [[nodiscard]] Status check_inputs(const Part& part, std::span<const Activation* const> inputs) const;
  [[nodiscard]] Form form(const Seam& seam) const { return seam.form[static_cast<int>(profile_)]; }

  const Graph& graph_;
  Profile profile_;
  const Kernels& kernels_;
  ThreadPool& pool_;
};

}  // namespace myriad
