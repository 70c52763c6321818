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
// What is of fixed size, KDA's: f32 [units][dim][dim] (row = key channel), then f32 [units][3][taps-1][dim]: conv
// history of q, k, v, oldest first. And the cache, in pages of so many positions: MLA [positions][kv_lora_rank +
// qk_rope], GQA [units][positions][keys, values]; in a cache of int8 then f32 scales [positions][⌈…/32⌉],
// [units][positions][keys', values'].
struct AttentionState {
  std::byte* data = nullptr;  // Operator::state_bytes(units)
  std::span<std::byte* const> pages;
  std::uint32_t page_positions = 0;  // kAttentionBlock, but when there is one page: any multiple of 4
  std::uint32_t position = 0;        // of the next token
  [[nodiscard]] std::uint64_t room() const { return std::uint64_t{page_positions} * pages.size(); }
};

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
  PartRunner(const Graph& graph, Profile profile, KvCache cache, const Kernels& kernels, ThreadPool& pool)
      : graph_(graph), profile_(profile), cache_(cache), kernels_(kernels), pool_(pool) {}

  // Calls that do not depend on each other, of parts without state but embed; take(i, output) once for each, in order.
  // Output: [rows, width of the part] in the form of the operator's output seam (head with candidates: packed, f32).
  // Errors: invalid_argument when the inputs are not what the operator takes, internal (not finite) when a value cannot
  // be quantised; then some calls may not have been taken.
  [[nodiscard]] Status run(std::span<const PartCall> calls,
                           const std::function<void(std::size_t, Activation)>& take) const;
  // Rows of several sequences one after the other; advances each state by its rows. Errors as above, limit when the
  // pages have no room for them.
  [[nodiscard]] Result<Activation> attend(const Part& part, std::span<const Activation* const> inputs,
                                          std::span<const SequenceSlice> slices) const;
  // Embedding rows of these tokens, all within the part's range (else invalid_argument). [tokens, hidden]
  [[nodiscard]] Result<Activation> embed(const Part& part, std::span<const std::int32_t> tokens) const;

  [[nodiscard]] Profile profile() const { return profile_; }
  [[nodiscard]] CacheType cache_of(const Operator& op) const { return op.cache_type(cache_, profile_); }
  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] ThreadPool& pool() const { return pool_; }

 private:
  void kda(const Part& part, const Activation& x, std::span<const SequenceSlice> slices, Activation& out) const;
  // Both: false if a value cannot be cached.
  [[nodiscard]] bool mla(const Part& part, std::span<const Activation* const> inputs,
                         std::span<const SequenceSlice> slices, Activation& out) const;
  [[nodiscard]] bool gqa(const Part& part, const Activation& x, std::span<const SequenceSlice> slices,
                         Activation& out) const;
  [[nodiscard]] Activation finish(const PartCall& call, Activation y) const;
  [[nodiscard]] Status check_call(const PartCall& call) const;
  [[nodiscard]] Status check_inputs(const Part& part, std::span<const Activation* const> inputs) const;
  [[nodiscard]] Form form(const Seam& seam) const { return seam.form[static_cast<int>(profile_)]; }

  const Graph& graph_;
  Profile profile_;
  KvCache cache_;
  const Kernels& kernels_;
  ThreadPool& pool_;
};

}  // namespace myriad
