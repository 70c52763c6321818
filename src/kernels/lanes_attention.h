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

// Sixteen values of row `j` from `i` (a multiple of 16) on, or the first n of them. `rows` begin with row `first_row`.
template <CacheType kType>
struct Cached {
  CacheRows rows;
  std::size_t first_row = 0;

  MYRIAD_LANES F at(std::size_t j, std::size_t i) const {
    const std::size_t e = (j - first_row) * rows.ld + i;
    if constexpr (kType == CacheType::f32) return load(static_cast<const float*>(rows.data) + e);
    if constexpr (kType == CacheType::bf16) return load_bf16(static_cast<const std::uint16_t*>(rows.data) + e);
    if constexpr (kType == CacheType::f16) return load_f16(static_cast<const std::uint16_t*>(rows.data) + e);
    if constexpr (kType == CacheType::i8)
      return mul(load_i8(static_cast<const std::int8_t*>(rows.data) + e), scale(j, i));
  }
  MYRIAD_LANES F part_at(std::size_t j, std::size_t i, std::size_t n) const {
    const std::size_t e = (j - first_row) * rows.ld + i;
    if constexpr (kType == CacheType::f32) return load_part(static_cast<const float*>(rows.data) + e, n);
    if constexpr (kType == CacheType::bf16) return load_bf16_part(static_cast<const std::uint16_t*>(rows.data) + e, n);
    if constexpr (kType == CacheType::f16) return load_f16_part(static_cast<const std::uint16_t*>(rows.data) + e, n);
    if constexpr (kType == CacheType::i8)
      return mul(load_i8_part(static_cast<const std::int8_t*>(rows.data) + e, n), scale(j, i));
  }
  MYRIAD_LANES F scale(std::size_t j, std::size_t i) const {
    return set1(rows.scales[(j - first_row) * rows.scale_ld + i / 32]);
  }
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
  alignas(16) float lanes[kLanes];
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
MYRIAD_LANES void add_values(const AttentionBlock& b, const Cached<kType>& values, std::size_t query, std::size_t begin,
                             std::size_t end, std::size_t c) {
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
void weighted_sums(const AttentionBlock& b, const Cached<kType>& values, std::size_t query, std::size_t from,
                   std::size_t to) {
  // keys in pieces that stay in the nearest cache while the columns go over them
  constexpr std::size_t kKeyPiece = 32;
  std::size_t begin = from;
  do {  // once even without keys: zeros
    const std::size_t end = to - begin < kKeyPiece ? to : begin + kKeyPiece;
    std::size_t c = 0;
    for (; c + kValueBlock * kLanes <= b.value_dims; c += kValueBlock * kLanes)
      add_values<kType, kQueries, kValueBlock>(b, values, query, begin, end, c);
    for (; c + kLanes <= b.value_dims; c += kLanes) add_values<kType, kQueries, 1>(b, values, query, begin, end, c);
    if (const std::size_t rest = b.value_dims - c; rest > 0)
      for (int n = 0; n < kQueries; ++n) {
        float* acc = b.acc + (query + n) * b.acc_ld + c;
        F s = begin == 0 ? zero() : load_part(acc, rest);
        for (std::size_t j = begin; j < end; ++j)
          s = fma(set1(b.scratch[(query + n) * kAttentionKeys + j]), values.part_at(j, c, rest), s);
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
  const Cached<kType> values{b.values};
  weighted_sums<kType, kQueries>(b, values, query, 0, common);
  for (std::size_t n = query; n < query + kQueries; ++n)
    if (b.counts[n] > common) weighted_sums<kType, 1>(b, values, n, common, b.counts[n]);
}

// ---- many queries

constexpr std::size_t kManyQueries = 8;       // and more
constexpr std::size_t kTurnedDims = 640;      // of a key at most: 40 KiB of stack
constexpr std::size_t kWidenedValues = 4096;  // of some rows at most: 16 KiB

// Sixteen keys from row `j` on, one a lane: out [key_dims][16].
template <CacheType kType>
MYRIAD_LANES void turn_keys(const AttentionBlock& b, std::size_t j, float* out) {
  const Cached<kType> keys{b.keys};
  for (std::size_t i = 0; i < b.key_dims; i += kLanes) {
    const std::size_t n = b.key_dims - i < kLanes ? b.key_dims - i : kLanes;
    F v[kLanes];
    for (std::size_t u = 0; u < kLanes; ++u) v[u] = n == kLanes ? keys.at(j + u, i) : keys.part_at(j + u, i, n);
    transpose(v);
    for (std::size_t u = 0; u < n; ++u) store(out + (i + u) * kLanes, v[u]);
  }
}

// Stripe s plus stripe s + 8 of the products of kQueries queries and the sixteen keys.
template <int kQueries>
MYRIAD_LANES void stripe_pair(const float* queries, std::size_t ld, const float* keys, std::size_t dims, std::size_t s,
                              F (&out)[kQueries]) {
  F low[kQueries], high[kQueries];
  for (int n = 0; n < kQueries; ++n) low[n] = high[n] = zero();
  std::size_t i = s;
  for (; i + 8 < dims; i += kLanes) {
    const F key = load(keys + i * kLanes), other = load(keys + (i + 8) * kLanes);
    for (int n = 0; n < kQueries; ++n) {
      low[n] = fma(set1(queries[n * ld + i]), key, low[n]);
      high[n] = fma(set1(queries[n * ld + i + 8]), other, high[n]);
    }
  }
  if (i < dims) {
    const F key = load(keys + i * kLanes);
    for (int n = 0; n < kQueries; ++n) low[n] = fma(set1(queries[n * ld + i]), key, low[n]);
  }
  for (int n = 0; n < kQueries; ++n) out[n] = add(low[n], high[n]);
}

// Scores of kQueries queries and sixteen turned keys: the tree over the stripes, from its leaves.
template <int kQueries>
[[gnu::noinline]] void score_turned(const AttentionBlock& b, std::size_t query, const float* keys, std::size_t j) {
  const float* queries = b.queries + query * b.query_ld;
  F eight[2][kQueries];
  for (std::size_t odd = 0; odd < 2; ++odd) {
    F four[2][kQueries];
    for (std::size_t h = 0; h < 2; ++h) {
      F other[kQueries];
      stripe_pair<kQueries>(queries, b.query_ld, keys, b.key_dims, odd + 2 * h, four[h]);
      stripe_pair<kQueries>(queries, b.query_ld, keys, b.key_dims, odd + 2 * h + 4, other);
      for (int n = 0; n < kQueries; ++n) four[h][n] = add(four[h][n], other[n]);
    }
    for (int n = 0; n < kQueries; ++n) eight[odd][n] = add(four[0][n], four[1][n]);
  }
  for (int n = 0; n < kQueries; ++n)
    store(b.scratch + (query + n) * kAttentionKeys + j, mul(add(eight[0][n], eight[1][n]), set1(b.scale)));
}

template <CacheType kType>
void many_scores(const AttentionBlock& b, std::size_t most) {
  alignas(16) float keys[kTurnedDims * kLanes];
  std::size_t j = 0;
  for (; j + kLanes <= most; j += kLanes) {
    turn_keys<kType>(b, j, keys);
    // A query that sees some of them gets the scores of all: those past its count are not looked at.
    std::size_t query = 0;
    for (; query + kTurnedQueries <= b.query_count; query += kTurnedQueries) {
      bool any = false;
      for (std::size_t n = query; n < query + kTurnedQueries; ++n) any = any || b.counts[n] > j;
      if (any) score_turned<kTurnedQueries>(b, query, keys, j);
    }
    for (; query < b.query_count; ++query)
      if (b.counts[query] > j) score_turned<1>(b, query, keys, j);
  }
  for (std::size_t n = 0; n < b.query_count; ++n)
    if (b.counts[n] > j) scores<kType, 1>(b, n, j, b.counts[n]);
}

template <CacheType kType>
void many_values(const AttentionBlock& b, std::size_t most) {
  alignas(16) float widened[kWidenedValues];
  const std::size_t ld = (b.value_dims + kLanes - 1) / kLanes * kLanes;
  std::size_t rows = kWidenedValues / ld;
  if (rows > 32) rows = 32;
  std::size_t begin = 0;
  do {  // once even without keys: zeros
    const std::size_t end = most - begin < rows ? most : begin + rows;
    const Cached<kType> values{b.values};
    for (std::size_t j = begin; j < end; ++j)
      for (std::size_t c = 0; c < b.value_dims; c += kLanes) {
        const std::size_t n = b.value_dims - c;
        store(widened + (j - begin) * ld + c, n >= kLanes ? values.at(j, c) : values.part_at(j, c, n));
      }
    const Cached<CacheType::f32> wide{{widened, ld}, begin};
    const auto seen = [&](std::size_t n) {  // rows of this piece, up to which row
      const std::size_t count = b.counts[n];
      return count < begin ? begin : count > end ? end : count;
    };
    std::size_t query = 0;
    for (; query + kQueryBlock <= b.query_count; query += kQueryBlock) {
      std::size_t common = seen(query);
      for (std::size_t n = query + 1; n < query + kQueryBlock; ++n)
        if (seen(n) < common) common = seen(n);
      if (common > begin || begin == 0) weighted_sums<CacheType::f32, kQueryBlock>(b, wide, query, begin, common);
      for (std::size_t n = query; n < query + kQueryBlock; ++n)
        if (seen(n) > common) weighted_sums<CacheType::f32, 1>(b, wide, n, common, seen(n));
    }
    for (; query < b.query_count; ++query)
      if (seen(query) > begin || begin == 0) weighted_sums<CacheType::f32, 1>(b, wide, query, begin, seen(query));
    begin = end;
  } while (begin < most);
}

template <CacheType kType>
void many_queries(const AttentionBlock& b) {
  std::size_t most = 0;
  for (std::size_t n = 0; n < b.query_count; ++n)
    if (b.counts[n] > most) most = b.counts[n];
  many_scores<kType>(b, most);
  for (std::size_t n = 0; n < b.query_count; ++n)
    soften(b.scratch + n * kAttentionKeys, b.counts[n], b.max + n, b.sum + n);
  many_values<kType>(b, most);
}

template <CacheType kType>
void attention_of(const AttentionBlock& b) {
  if (b.query_count >= kManyQueries && b.key_dims <= kTurnedDims && b.value_dims <= kWidenedValues)
    return many_queries<kType>(b);
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
