// Attention over one block of cached positions. Part of kernels_lanes.h.
//
// Queries go in groups that share the reading of keys and values; a group goes together as far as all of its queries
// see, then each goes on alone. Sums are those of one query whichever way it goes.
#pragma once

#include "kernels/lanes_math.h"
#include "kernels/table.h"

namespace myriad {
namespace {

constexpr int kKeyBlock = 4;  // keys whose trees are added together

// Sixteen values of row `j` from `i` (a multiple of 16) on, or the first n of them.
template <CacheType kType>
struct Cached {
  CacheRows rows;

  MYRIAD_LANES F at(std::size_t j, std::size_t i) const {
    const std::size_t e = j * rows.ld + i;
    if constexpr (kType == CacheType::f32) return load(static_cast<const float*>(rows.data) + e);
    if constexpr (kType == CacheType::bf16) return load_bf16(static_cast<const std::uint16_t*>(rows.data) + e);
    if constexpr (kType == CacheType::f16) return load_f16(static_cast<const std::uint16_t*>(rows.data) + e);
    if constexpr (kType == CacheType::i8)
      return mul(load_i8(static_cast<const std::int8_t*>(rows.data) + e), scale(j, i));
  }
  MYRIAD_LANES F part_at(std::size_t j, std::size_t i, std::size_t n) const {
    const std::size_t e = j * rows.ld + i;
    if constexpr (kType == CacheType::f32) return load_part(static_cast<const float*>(rows.data) + e, n);
    if constexpr (kType == CacheType::bf16) return load_bf16_part(static_cast<const std::uint16_t*>(rows.data) + e, n);
    if constexpr (kType == CacheType::f16) return load_f16_part(static_cast<const std::uint16_t*>(rows.data) + e, n);
    if constexpr (kType == CacheType::i8)
      return mul(load_i8_part(static_cast<const std::int8_t*>(rows.data) + e, n), scale(j, i));
  }
  MYRIAD_LANES F scale(std::size_t j, std::size_t i) const { return set1(rows.scales[j * rows.scale_ld + i / 32]); }
};

// Scores of kQueries queries and kKeys keys from key `j` on, scaled, into scratch.
template <CacheType kType, int kQueries, int kKeys>
MYRIAD_LANES void score_keys(const AttentionBlock& b, std::size_t query, std::size_t j) {
  const Cached<kType> keys{b.keys};
  const float* queries = b.queries + query * b.query_ld;
  F s[kQueries][kKeys];
  for (int n = 0; n < kQueries; ++n)
    for (int u = 0; u < kKeys; ++u) s[n][u] = zero();
  std::size_t i = 0;
  for (; i + kLanes <= b.key_dims; i += kLanes) {
    F key[kKeys];
    for (int u = 0; u < kKeys; ++u) key[u] = keys.at(j + u, i);
    for (int n = 0; n < kQueries; ++n) {
      const F q = load(queries + n * b.query_ld + i);
      for (int u = 0; u < kKeys; ++u) s[n][u] = fma(q, key[u], s[n][u]);
    }
  }
  if (const std::size_t rest = b.key_dims - i; rest > 0)
    for (int u = 0; u < kKeys; ++u) {
      const F key = keys.part_at(j + u, i, rest);
      for (int n = 0; n < kQueries; ++n)
        s[n][u] = select(first(rest), fma(load_part(queries + n * b.query_ld + i, rest), key, s[n][u]), s[n][u]);
    }
  for (int n = 0; n < kQueries; ++n) {
    float* scores = b.scratch + (query + n) * kAttentionKeys + j;
    float sums[kKeys];
    if constexpr (kKeys == 4)
      trees(s[n], sums);
    else
      for (int u = 0; u < kKeys; ++u) sums[u] = tree(s[n][u]);
    for (int u = 0; u < kKeys; ++u) scores[u] = sums[u] * b.scale;
  }
}

// Keys [begin, end) of kQueries queries.
template <CacheType kType, int kQueries>
void scores(const AttentionBlock& b, std::size_t query, std::size_t begin, std::size_t end) {
  std::size_t j = begin;
  for (; j + kKeyBlock <= end; j += kKeyBlock) score_keys<kType, kQueries, kKeyBlock>(b, query, j);
  for (; j < end; ++j) score_keys<kType, kQueries, 1>(b, query, j);
}

// Scores become exp(score − max).
MYRIAD_LANES void soften(float* p, std::size_t count, float* max, float* sum) {
  const F lowest = from_bits(set1_bits(0xff800000u));
  F largest = lowest;
  std::size_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    const F s = load(p + j);
    largest = select(greater(s, largest), s, largest);
  }
  if (j < count) {
    const F s = select(first(count - j), load_part(p + j, count - j), lowest);
    largest = select(greater(s, largest), s, largest);
  }
  float lanes[kLanes];
  store(lanes, largest);
  float m = lanes[0];
  for (std::size_t i = 1; i < kLanes; ++i)
    if (lanes[i] > m) m = lanes[i];
  m += 0.0f;

  F stripes = zero();
  for (j = 0; j + kLanes <= count; j += kLanes) {
    const F e = exp_lanes(sub(load(p + j), set1(m)));
    store(p + j, e);
    stripes = add(stripes, e);
  }
  if (const std::size_t rest = count - j; rest > 0) {
    const F e = exp_lanes(sub(load_part(p + j, rest), set1(m)));
    store_part(p + j, e, rest);
    stripes = select(first(rest), add(stripes, e), stripes);
  }
  *max = m;
  *sum = tree(stripes);
}

// Values of keys [begin, end) into columns c … c + 16·kColumns of kQueries queries, going on from what is there unless
// begin is 0.
template <CacheType kType, int kQueries, int kColumns>
MYRIAD_LANES void add_values(const AttentionBlock& b, std::size_t query, std::size_t begin, std::size_t end,
                             std::size_t c) {
  const Cached<kType> values{b.values};
  const float* p = b.scratch + query * kAttentionKeys;
  float* acc = b.acc + query * b.acc_ld + c;
  F s[kQueries][kColumns];
  for (int n = 0; n < kQueries; ++n)
    for (int u = 0; u < kColumns; ++u) s[n][u] = begin == 0 ? zero() : load(acc + n * b.acc_ld + u * kLanes);
  for (std::size_t j = begin; j < end; ++j) {
    F v[kColumns];
    for (int u = 0; u < kColumns; ++u) v[u] = values.at(j, c + u * kLanes);
    for (int n = 0; n < kQueries; ++n) {
      const F weight = set1(p[n * kAttentionKeys + j]);
      for (int u = 0; u < kColumns; ++u) s[n][u] = fma(weight, v[u], s[n][u]);
    }
  }
  for (int n = 0; n < kQueries; ++n)
    for (int u = 0; u < kColumns; ++u) store(acc + n * b.acc_ld + u * kLanes, s[n][u]);
}

template <CacheType kType, int kQueries>
void weighted_sums(const AttentionBlock& b, std::size_t query, std::size_t from, std::size_t to) {
  // keys in pieces that stay in the nearest cache while the columns go over them
  constexpr std::size_t kKeyPiece = 32;
  std::size_t begin = from;
  do {  // once even without keys: zeros
    const std::size_t end = to - begin < kKeyPiece ? to : begin + kKeyPiece;
    std::size_t c = 0;
    for (; c + kValueBlock * kLanes <= b.value_dims; c += kValueBlock * kLanes)
      add_values<kType, kQueries, kValueBlock>(b, query, begin, end, c);
    for (; c + kLanes <= b.value_dims; c += kLanes) add_values<kType, kQueries, 1>(b, query, begin, end, c);
    if (const std::size_t rest = b.value_dims - c; rest > 0)
      for (int n = 0; n < kQueries; ++n) {
        float* acc = b.acc + (query + n) * b.acc_ld + c;
        F s = begin == 0 ? zero() : load_part(acc, rest);
        for (std::size_t j = begin; j < end; ++j)
          s = fma(set1(b.scratch[(query + n) * kAttentionKeys + j]), Cached<kType>{b.values}.part_at(j, c, rest), s);
        store_part(acc, s, rest);
      }
    begin = end;
  } while (begin < to);
}

template <CacheType kType, int kQueries>
void query_group(const AttentionBlock& b, std::size_t query) {
  std::size_t common = b.counts[query];
  for (int n = 1; n < kQueries; ++n)
    if (b.counts[query + n] < common) common = b.counts[query + n];
  scores<kType, kQueries>(b, query, 0, common);
  for (std::size_t n = query; n < query + kQueries; ++n) {
    if (kQueries > 1) scores<kType, 1>(b, n, common, b.counts[n]);
    soften(b.scratch + n * kAttentionKeys, b.counts[n], b.max + n, b.sum + n);
  }
  weighted_sums<kType, kQueries>(b, query, 0, common);
  for (std::size_t n = query; n < query + kQueries; ++n)
    if (b.counts[n] > common) weighted_sums<kType, 1>(b, n, common, b.counts[n]);
}

template <CacheType kType>
void attention_of(const AttentionBlock& b) {
  std::size_t query = 0;
  for (; query + kQueryBlock <= b.query_count; query += kQueryBlock) query_group<kType, kQueryBlock>(b, query);
  for (; query < b.query_count; ++query) query_group<kType, 1>(b, query);
}

void attention(const AttentionBlock& b) {
  switch (b.type) {
    case CacheType::f32:
      return attention_of<CacheType::f32>(b);
    case CacheType::bf16:
      return attention_of<CacheType::bf16>(b);
    case CacheType::f16:
      return attention_of<CacheType::f16>(b);
    case CacheType::i8:
      return attention_of<CacheType::i8>(b);
  }
}

}  // namespace
}  // namespace myriad
