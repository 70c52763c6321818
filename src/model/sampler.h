// From logits to a token, the same everywhere: ties to the lower id, sums in one fixed order, randomness from a counter
// keyed by (seed, choice, position) so that neither batching nor failover changes a draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "kernels/table.h"

namespace myriad {

inline constexpr std::size_t kVocabularyBlock = 1024;  // rows; a cut of the head never splits one
inline constexpr std::size_t kCandidatesPerBlock = 64;
inline constexpr std::size_t kMaxTopLogprobs = 20;

struct SampleSpec {
  float temperature = 0;    // 0: the largest logit
  float top_p = 1;          // (0, 1]
  std::uint32_t top_k = 0;  // 0: no limit
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;       // which of a request's n choices
  std::uint32_t position = 0;     // of the token that is drawn
  std::uint8_t top_logprobs = 0;  // how many of the likeliest to report, at most kMaxTopLogprobs
};

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0;  // natural logarithm, of the unscaled distribution (temperature 1, no cut)
};

struct Sample {
  std::int32_t token = -1;
  float logprob = 0;
  std::vector<TokenLogprob> top;  // likeliest first
};

// What a head part says of one vocabulary block of one row.
struct BlockCandidates {
  std::uint32_t first_token = 0;
  std::uint32_t tokens = 0;  // in this block, at most kVocabularyBlock
  float max = 0;             // largest logit
  float sum = 0;             // Σ exp(logit − max), in ascending order of id (16 stripes and the fixed tree)
  std::vector<TokenLogprob>
      best;  // at most kCandidatesPerBlock, largest logit first, ties to the lower id; `logprob` holds the logit
};

// Of all logits of one row, which are finite.
Sample sample(const Kernels& kernels, const SampleSpec& spec, std::span<const float> logits);
// Of at least one logit. One that is not a number makes `sum` none, and unpack_candidates() refuse it.
BlockCandidates block_candidates(const Kernels& kernels, std::span<const float> logits, std::uint32_t first_token);
// As they travel: a row of f32, kPackedCandidates a block: max, sum, number of best, then (token, logit) pairs; tokens
// are exact in f32 below 2^24. Blocks ascend.
inline constexpr std::size_t kPackedCandidates = 3 + 2 * kCandidatesPerBlock;
void pack_candidates(const BlockCandidates& block, std::span<float> out);
// Errors: corrupt, when the numbers make no sense.
Result<std::vector<BlockCandidates>> unpack_candidates(std::span<const float> row, std::uint32_t vocabulary);

// Can these candidates alone decide `spec` (greedy, with few logprobs)? Blocks must be all blocks of the vocabulary,
// ascending.
bool decided_by_candidates(const SampleSpec& spec);
Sample sample(const SampleSpec& spec, std::span<const BlockCandidates> blocks);

}  // namespace myriad
