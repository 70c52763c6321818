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
float striped_sum(std::span<const float> v) {
  float stripe[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= v.size(); i += 16)
    for (std::size_t j = 0; j < 16; ++j) stripe[j] += v[i + j];
  for (std::size_t j = 0; i + j < v.size(); ++j) stripe[j] += v[i + j];
  for (std::size_t w = 8; w > 0; w /= 2)
    for (std::size_t j = 0; j < w; ++j) stripe[j] += stripe[j + w];
  return stripe[0];
}

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

// The ids of `logits`, likeliest first, put in order only as far as they are asked for.
class Descending {
 public:
  explicit Descending(std::span<const float> logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }
  std::int32_t operator[](std::size_t i) {
    if (i >= ready_) put_in_order(std::max(i + 1, std::min(kAtFirst + kTimes * ready_, order_.size())));
    return order_[i];
  }

 private:
  static constexpr std::size_t kAtFirst = 64, kTimes = 8;

  void put_in_order(std::size_t count) {
    const auto better = [this](std::int32_t a, std::int32_t b) {
      const float x = logits_[static_cast<std::size_t>(a)], y = logits_[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    };
    const auto from = order_.begin() + static_cast<std::ptrdiff_t>(ready_),
               to = order_.begin() + static_cast<std::ptrdiff_t>(count);
    if (to != order_.end()) std::nth_element(from, to, order_.end(), better);
    std::sort(from, to, better);
    ready_ = count;
  }

  std::span<const float> logits_;
  std::vector<std::int32_t> order_;
  std::size_t ready_ = 0;
};

// The token drawn at `temperature` with top_k and top_p: candidates in descending order, cumulative probability in that
// order. Sums are IEEE doubles in one order: the same everywhere.
std::int32_t draw(const Kernels& kernels, const SampleSpec& spec, std::span<const float> logits, float max) {
  std::vector<float> weight(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) weight[i] = (logits[i] - max) / spec.temperature;
  kernels.exp(weight.data(), weight.data(), weight.size());
  Descending order(logits);
  const auto at = [&](std::size_t i) { return static_cast<double>(weight[static_cast<std::size_t>(order[i])]); };

  std::size_t keep = logits.size();
  double total = 0;
  if (spec.top_k != 0 && spec.top_k < keep) {
    keep = spec.top_k;
    for (std::size_t i = 0; i < keep; ++i) total += at(i);
  } else {
    for (const float w : weight) total += static_cast<double>(w);
  }
  if (spec.top_p < 1) {  // the shortest prefix whose probability reaches top_p
    double sum = 0;
    for (std::size_t i = 0; i < keep; ++i) {
      sum += at(i);
      if (sum >= static_cast<double>(spec.top_p) * total) {
        keep = i + 1;
        total = sum;
      }
    }
  }
  const double target = static_cast<double>(uniform(spec)) * total;
  double sum = 0;
  for (std::size_t i = 0; i < keep; ++i) {
    sum += at(i);
    if (target < sum) return order[i];
  }
  return order[keep - 1];
}

}  // namespace

BlockCandidates block_candidates(const Kernels& kernels, std::span<const float> logits, std::uint32_t first_token) {
  BlockCandidates b;
  b.first_token = first_token;
  b.tokens = static_cast<std::uint32_t>(logits.size());
  // In ascending order of id: what is no larger than the last of a full list does not belong to it.
  TokenLogprob best[kCandidatesPerBlock];
  std::size_t count = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (count == kCandidatesPerBlock && !(logits[i] > best[count - 1].logprob)) continue;
    std::size_t at = count < kCandidatesPerBlock ? count++ : count - 1;
    for (; at > 0 && logits[i] > best[at - 1].logprob; --at) best[at] = best[at - 1];
    best[at] = {static_cast<std::int32_t>(first_token + i), logits[i]};
  }
  b.best.assign(best, best + count);
  b.max = best[0].logprob;
  std::vector<float> weight(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) weight[i] = logits[i] - b.max;
  kernels.exp(weight.data(), weight.data(), weight.size());
  b.sum = striped_sum(weight);
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

Sample sample(const Kernels& kernels, const SampleSpec& spec, std::span<const float> logits) {
  LogSum all;
  std::vector<TokenLogprob> best;
  for (std::size_t first = 0; first < logits.size(); first += kVocabularyBlock) {
    const auto block =
        block_candidates(kernels, logits.subspan(first, std::min(kVocabularyBlock, logits.size() - first)),
                         static_cast<std::uint32_t>(first));
    all.merge(block.max, block.sum);
    best.insert(best.end(), block.best.begin(),
                block.best.begin() + static_cast<std::ptrdiff_t>(std::min(kMaxTopLogprobs, block.best.size())));
  }
  std::sort(best.begin(), best.end(), likelier);
  Sample s;
  s.token = spec.temperature > 0 ? draw(kernels, spec, logits, all.max) : best.front().token;
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
