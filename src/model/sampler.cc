#include "model/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "kernels/math.h"

namespace myriad {
namespace {

// Ties to the lower id everywhere.
bool likelier(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
}

// 16 stripes and the fixed tree, as the kernels sum (numerics contract).
class StripedSum {
 public:
  void add(std::size_t i, float v) { stripe_[i % 16] += v; }
  [[nodiscard]] float total() {
    for (std::size_t w = 8; w > 0; w /= 2)
      for (std::size_t i = 0; i < w; ++i) stripe_[i] += stripe_[i + w];
    return stripe_[0];
  }

 private:
  float stripe_[16] = {};
};

// Natural logarithm in integer and fma operations (atanh series on the mantissa): the same on every machine, within
// 1e-6.
float exact_log(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  int exponent = static_cast<int>(bits >> 23) - 127;
  float m = std::bit_cast<float>((bits & 0x7fffffu) | 0x3f800000u);
  if (m > 1.41421356F) {
    m *= 0.5F;
    ++exponent;
  }
  const float s = (m - 1) / (m + 1), s2 = s * s;
  float p = 1.0F / 9;
  p = std::fma(p, s2, 1.0F / 7);
  p = std::fma(p, s2, 1.0F / 5);
  p = std::fma(p, s2, 1.0F / 3);
  p = std::fma(p, s2, 1.0F);
  return std::fma(static_cast<float>(exponent), 0.693147181F, 2 * s * p);
}

// Counter-based: SplitMix64's finaliser over (seed, choice, position). [0, 1) with 24 bits.
float uniform(const SampleSpec& spec) {
  const auto finish = [](std::uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  };
  std::uint64_t z = finish(spec.seed + 0x9e3779b97f4a7c15ull);
  z = finish(z ^ (static_cast<std::uint64_t>(spec.choice) << 32 | spec.position) * 0x9e3779b97f4a7c15ull);
  return static_cast<float>(z >> 40) * 0x1p-24F;
}

// log Σ exp(logit) as (max, log of the sum of exp(logit − max)), merged over blocks in ascending order.
struct LogSum {
  float max = 0, sum = 0;
  bool empty = true;
  void merge(float block_max, float block_sum) {
    if (empty) {
      max = block_max;
      sum = block_sum;
      empty = false;
      return;
    }
    const float top = std::max(max, block_max);
    sum = std::fma(block_sum, exact_exp(block_max - top), sum * exact_exp(max - top));
    max = top;
  }
  [[nodiscard]] float logprob(float logit) const { return logit - max - exact_log(sum); }
};

// The token drawn at `temperature` with top_k and top_p: candidates in descending order, cumulative probability in that
// order.
std::int32_t draw(const SampleSpec& spec, std::span<const float> logits) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::size_t keep = spec.top_k == 0 ? order.size() : std::min<std::size_t>(spec.top_k, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep), order.end(), better);
  const float max = logits[static_cast<std::size_t>(order[0])];
  std::vector<float> weight(keep);
  double total = 0;  // IEEE double sums in one order: the same everywhere
  for (std::size_t i = 0; i < keep; ++i) {
    weight[i] = exact_exp((logits[static_cast<std::size_t>(order[i])] - max) / spec.temperature);
    total += weight[i];
  }
  if (spec.top_p < 1) {  // the shortest prefix whose probability reaches top_p
    double sum = 0;
    for (std::size_t i = 0; i < keep; ++i) {
      sum += weight[i];
      if (sum >= static_cast<double>(spec.top_p) * total) {
        keep = i + 1;
        total = sum;
        break;
      }
    }
  }
  const double target = static_cast<double>(uniform(spec)) * total;
  double sum = 0;
  for (std::size_t i = 0; i < keep; ++i) {
    sum += weight[i];
    if (target < sum) return order[i];
  }
  return order[keep - 1];
}

}  // namespace

BlockCandidates block_candidates(std::span<const float> logits, std::uint32_t first_token) {
  BlockCandidates b;
  b.first_token = first_token;
  b.tokens = static_cast<std::uint32_t>(logits.size());
  b.best.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) b.best[i] = {static_cast<std::int32_t>(first_token + i), logits[i]};
  const std::size_t n = std::min(kCandidatesPerBlock, logits.size());
  std::partial_sort(b.best.begin(), b.best.begin() + static_cast<std::ptrdiff_t>(n), b.best.end(), likelier);
  b.best.resize(n);
  b.max = b.best.front().logprob;
  StripedSum sum;
  for (std::size_t i = 0; i < logits.size(); ++i) sum.add(i, exact_exp(logits[i] - b.max));
  b.sum = sum.total();
  return b;
}

void pack_candidates(const BlockCandidates& block, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);
  out[0] = block.max;
  out[1] = block.sum;
  out[2] = static_cast<float>(block.best.size());
  for (std::size_t i = 0; i < block.best.size(); ++i) {
    out[3 + 2 * i] = static_cast<float>(block.best[i].token);
    out[4 + 2 * i] = block.best[i].logprob;
  }
}

Result<std::vector<BlockCandidates>> unpack_candidates(std::span<const float> row, std::uint32_t vocabulary) {
  const std::size_t blocks = (vocabulary + kVocabularyBlock - 1) / kVocabularyBlock;
  if (row.size() != blocks * kPackedCandidates)
    return fail(Code::corrupt, "the head's candidates are {} values, a vocabulary of {} gives {}", row.size(),
                vocabulary, blocks * kPackedCandidates);
  std::vector<BlockCandidates> out(blocks);
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto in = row.subspan(b * kPackedCandidates, kPackedCandidates);
    BlockCandidates& block = out[b];
    block.first_token = static_cast<std::uint32_t>(b * kVocabularyBlock);
    block.tokens = std::min<std::uint32_t>(kVocabularyBlock, vocabulary - block.first_token);
    block.max = in[0];
    block.sum = in[1];
    const float count = in[2];
    if (!(count >= 1) || count > static_cast<float>(kCandidatesPerBlock) || !std::isfinite(block.max) ||
        !(block.sum > 0))
      return fail(Code::corrupt, "vocabulary block {}: max {}, sum {}, {} candidates: these are no logits", b,
                  block.max, block.sum, count);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const float token = in[3 + 2 * i];
      if (!(token >= static_cast<float>(block.first_token)) ||
          token >= static_cast<float>(block.first_token + block.tokens))
        return fail(Code::corrupt, "vocabulary block {} (tokens from {}) offers token {}", b, block.first_token, token);
      const TokenLogprob candidate{static_cast<std::int32_t>(token), in[4 + 2 * i]};
      if (!std::isfinite(candidate.logprob) || candidate.logprob > block.max ||
          (i > 0 && !likelier(block.best.back(), candidate)))
        return fail(Code::corrupt, "vocabulary block {}: candidate {} has logit {}, out of order or not a number", b,
                    candidate.token, candidate.logprob);
      block.best.push_back(candidate);
    }
  }
  return out;
}

bool decided_by_candidates(const SampleSpec& spec) {
  return spec.temperature <= 0;
}

Sample sample(const SampleSpec& spec, std::span<const float> logits) {
  LogSum all;
  std::vector<TokenLogprob> best;
  for (std::size_t first = 0; first < logits.size(); first += kVocabularyBlock) {
    const auto block = block_candidates(logits.subspan(first, std::min(kVocabularyBlock, logits.size() - first)),
                                        static_cast<std::uint32_t>(first));
    all.merge(block.max, block.sum);
    best.insert(best.end(), block.best.begin(),
                block.best.begin() + static_cast<std::ptrdiff_t>(std::min(kMaxTopLogprobs, block.best.size())));
  }
  std::sort(best.begin(), best.end(), likelier);
  Sample s;
  s.token = spec.temperature > 0 ? draw(spec, logits) : best.front().token;
  s.logprob = all.logprob(logits[static_cast<std::size_t>(s.token)]);
  for (std::size_t i = 0; i < std::min<std::size_t>({spec.top_logprobs, kMaxTopLogprobs, best.size()}); ++i)
    s.top.push_back({best[i].token, all.logprob(best[i].logprob)});
  return s;
}

Sample sample(const SampleSpec& spec, std::span<const BlockCandidates> blocks) {
  LogSum all;
  std::vector<TokenLogprob> best;
  for (const auto& block : blocks) {
    all.merge(block.max, block.sum);
    best.insert(best.end(), block.best.begin(),
                block.best.begin() + static_cast<std::ptrdiff_t>(std::min(kMaxTopLogprobs, block.best.size())));
  }
  std::sort(best.begin(), best.end(), likelier);
  Sample s;
  s.token = best.front().token;
  s.logprob = all.logprob(best.front().logprob);
  for (std::size_t i = 0; i < std::min<std::size_t>({spec.top_logprobs, kMaxTopLogprobs, best.size()}); ++i)
    s.top.push_back({best[i].token, all.logprob(best[i].logprob)});
  return s;
}

}  // namespace myriad
