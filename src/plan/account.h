// The memory account: what a part, and what a node that holds some parts, will take, in bytes, before anything is
// loaded.
//
//   node = process + parts + attention state + buffers
//     process  resident before any part is loaded, as the node measured it
//     parts    ManifestPart::bytes: the file is what is held in memory
//     state    attention parts only: (sequences + prefixes) · Operator::state_bytes(units), and the pool of cache
//     pages,
//              cache_pages(budget) of Operator::state_bytes_per_position(units, …) a position
//     buffers  work_bytes(): activations of one step and the frames they travel in
//
// Sums saturate at 2^64-1: an absurd budget is one that does not fit, never one that wraps around.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "model/graph.h"
#include "part/manifest.h"
#include "proto/messages.h"

namespace myriad {

inline constexpr std::uint32_t kMaxSequences = 4096;
inline constexpr std::uint32_t kMaxContext = std::uint32_t{1} << 24;

// Whether a budget is one that a fleet can be asked to keep. Errors: invalid_argument, naming the field and its bounds.
Status check_budget(const Budget& budget);

// Buffers of a node for R = budget.step_rows rows (at least 1, at most kMaxRowsPerStep), all values as f32 in memory.
// With H = hidden, W = the widest vector that enters or leaves an operator other than the vocabulary's, and B = banked
// residual blocks of AttnRes (⌈layers / block size⌉ + 1, or none):
//   activations  R·4·2·W                                  input and output of a call
//   attention    R·4·A + S                       A = values inside the attention operator: KDA 6·heads·head_dim, MLA
//                                                heads·(qk + cache + latent + 2·v), GQA
//                                                (heads + 2·kv heads)·head_dim; S = scores of one block of 1,024
//                                                positions, for all heads
//   stream       R·4·H·(B + 3)                   lead only: residual stream, bank, mix, half-layer output
//   experts      R·4·(top_k·expert width + experts)   lead only: the chosen experts' answers and the router's logits
//   frames       2·min(8 MiB, 4 KiB + R·4·F)     one coming, one going; F = W, for a lead max(W, H·(B + 1))
struct WorkTerms {
  std::uint64_t activations = 0, attention = 0, stream = 0, experts = 0, frames = 0;
  [[nodiscard]] std::uint64_t total() const { return activations + attention + stream + experts + frames; }
};
WorkTerms work_terms(const ModelConfig& config, const Budget& budget, bool lead);
std::uint64_t work_bytes(const ModelConfig& config, const Budget& budget, bool lead);

// What one part of the manifest costs wherever it is put.
struct PartCost {
  std::uint64_t part_bytes = 0;
  std::uint64_t state_bytes = 0;
  // Bytes of it that a step of `budget.sequences` rows is expected to read: an expert counts with the probability
  // 1 - (1 - top_k/experts)^sequences that somebody chose it, embedding rows with nothing, everything else whole. Pace
  // is set by this.
  double work = 0;
  double single_work = 0;  // the same for one sequence
  Half half = 0;
  OpRole role = OpRole::embed;
  bool lead = false;  // attn_lead, ffn_lead, final_lead: its holder carries the residual stream, with a lead's buffers
  bool attends = false, mixes_experts = false;  // its holder needs these of WorkTerms: attention, experts
  [[nodiscard]] std::uint64_t bytes() const;
};

// The costs of all parts of a manifest under one profile and budget.
class CostSheet {
 public:
  // Errors: invalid_argument (budget), corrupt (a part that the graph does not have).
  static Result<CostSheet> build(const Graph& graph, const Manifest& manifest, Profile profile, const Budget& budget);
  // The same parts under another budget.
  [[nodiscard]] CostSheet with_budget(const Budget& budget) const;

  [[nodiscard]] std::span<const PartCost> parts() const { return parts_; }
  [[nodiscard]] const Budget& budget() const { return budget_; }
  [[nodiscard]] Half halves() const { return halves_; }
  // Buffers of a node that may hold anything: what placement reserves. What it then holds may need less.
  [[nodiscard]] std::uint64_t helper_work() const { return helper_work_; }
  [[nodiscard]] std::uint64_t lead_work() const { return lead_work_; }  // at least helper_work()
  [[nodiscard]] const std::string& part_name(std::size_t part) const { return names_[part]; }
  // Buffers of a node that holds just such parts (of `held` only lead, attends and mixes_experts count); at most
  // lead_work(), and for a helper at most helper_work().
  [[nodiscard]] std::uint64_t work_of(const PartCost& held) const;
  // Sums over all parts.
  [[nodiscard]] std::uint64_t part_bytes() const { return part_bytes_; }
  [[nodiscard]] std::uint64_t state_bytes() const { return state_bytes_; }

 private:
  struct StateTerms {
    std::uint64_t fixed = 0, per_position = 0;  // of one sequence
    double probability_base = 0;                // 1 - top_k/experts of an expert; 0 otherwise
  };
  void price();

  ModelConfig config_;
  Budget budget_;
  Half halves_ = 0;
  std::vector<PartCost> parts_;
  std::vector<StateTerms> terms_;
  std::vector<std::string> names_;
  std::uint64_t helper_work_ = 0, lead_work_ = 0, part_bytes_ = 0, state_bytes_ = 0;
};

// One line of the account.
struct NodeAccount {
  NodeId node;
  std::uint32_t parts = 0;
  bool lead = false;
  std::uint64_t part_bytes = 0, state_bytes = 0, work_bytes = 0, process_bytes = 0;
  std::uint64_t budget_bytes = 0;  // what the node declared, less the headroom that is kept free
  [[nodiscard]] std::uint64_t total() const;
};
// For people: a header, one line a node, and a line of sums.
std::string account_table(std::span<const NodeAccount> accounts);

// a + b and a · b, at most 2^64-1.
std::uint64_t add_saturating(std::uint64_t a, std::uint64_t b);
std::uint64_t multiply_saturating(std::uint64_t a, std::uint64_t b);

}  // namespace myriad
