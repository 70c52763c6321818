#include "model/token_merger.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "model/utf8_stream.h"

namespace myriad {
namespace {

std::size_t hash_pair(std::int32_t left, std::int32_t right) {
  std::uint64_t hash =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  hash *= 0x9E3779B97F4A7C15ULL;
  hash ^= hash >> 32;
  hash *= 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>(hash >> 24);
}

constexpr std::size_t kMaxProbes = 1024;  // see token_table.cc

}  // namespace

Result<MergeList> MergeList::make(std::vector<Merge> merges) {
  if (merges.size() > kMaxMerges) {
    return fail(Code::limit, "a vocabulary has at most {} merges, this one has {}", kMaxMerges, merges.size());
  }
  MergeList list;
  list.merges_ = std::move(merges);
  list.slots_.assign(std::bit_ceil(std::max<std::size_t>(list.merges_.size() + list.merges_.size() / 2, 16)), -1);
  const std::size_t mask = list.slots_.size() - 1;
  for (std::size_t i = 0; i < list.merges_.size(); ++i) {
    const Merge& merge = list.merges_[i];
    std::size_t probes = 0;
    std::size_t slot = hash_pair(merge.left, merge.right) & mask;
    bool there = false;
    for (; list.slots_[slot] >= 0 && !there; slot = (slot + 1) & mask) {
      const Merge& other = list[list.slots_[slot]];
      there = other.left == merge.left && other.right == merge.right;
      if (++probes > kMaxProbes) {
        return fail(Code::limit,
                    "the merges collide in the hash table more than {} times: they seem to be made for that",
                    kMaxProbes);
      }
    }
    if (!there) list.slots_[slot] = static_cast<std::int32_t>(i);
  }
  return list;
}

std::int32_t MergeList::find(std::int32_t left, std::int32_t right) const {
  if (slots_.empty()) return -1;
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = hash_pair(left, right) & mask; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    const Merge& merge = (*this)[slots_[slot]];
    if (merge.left == left && merge.right == right) return slots_[slot];
  }
  return -1;
}

std::size_t MergeList::memory_bytes() const {
  return merges_.capacity() * sizeof merges_[0] + slots_.capacity() * sizeof slots_[0];
}

Status MergeRules::set_scores(std::span<const float> scores) {
  for (std::size_t id = 0; id < scores.size(); ++id) {
    if (!std::isfinite(scores[id])) {
      return fail(Code::corrupt, "the score of token {} is {}: a finite number is expected", id, scores[id]);
    }
  }
  std::vector<std::int32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto score = [&](std::int32_t id) { return scores[static_cast<std::size_t>(id)]; };
  std::sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) { return score(a) > score(b); });
  score_rank.assign(scores.size(), 0);
  std::int32_t rank = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0 && score(ids[i]) != score(ids[i - 1])) ++rank;
    score_rank[static_cast<std::size_t>(ids[i])] = rank;
  }
  return {};
}

void TokenMerger::merge(std::string_view piece, std::vector<std::int32_t>& out) {
  if (rules_.whole_pieces) {
    if (const std::int32_t id = table_.find(piece); id >= 0) {
      out.push_back(id);
      return;
    }
  }
  if (piece.size() <= kShort) {
    merge_short(piece, out);
    return;
  }
  for (; piece.size() > kMaxPiece; piece.remove_prefix(kMaxPiece)) merge_long(piece.substr(0, kMaxPiece), out);
  merge_long(piece, out);
}

std::size_t TokenMerger::first_symbol(std::string_view piece, std::size_t at, std::int32_t& id) const {
  if (!rules_.characters) {
    id = rules_.bytes[static_cast<unsigned char>(piece[at])];
    return 1;
  }
  const std::size_t length = utf8_char_at(piece, at).length;
  id = table_.find(piece.substr(at, length));
  return length;
}

TokenMerger::Pair TokenMerger::pair_of(std::string_view piece, std::int32_t left, std::int32_t right, std::size_t start,
                                       std::size_t end) const {
  Pair pair{Pair::kNone, -1, static_cast<std::uint32_t>(start), static_cast<std::uint32_t>(end)};
  if (rules_.order == MergeRules::Order::by_list) {
    const std::int32_t index = rules_.list.find(left, right);
    if (index >= 0) {
      pair.rank = index;
      pair.result = rules_.list[index].result;
    }
    return pair;
  }
  pair.result = table_.find(piece.substr(start, end - start));
  if (pair.result >= 0) {
    pair.rank = rules_.order == MergeRules::Order::by_id ? pair.result
                                                         : rules_.score_rank[static_cast<std::size_t>(pair.result)];
  }
  return pair;
}

void TokenMerger::put(std::int32_t id, std::string_view symbol, std::vector<std::int32_t>& out) {
  const bool was_unknown = last_unknown_;
  last_unknown_ = false;
  if (id >= 0) {
    out.push_back(id);
    return;
  }
  const auto token = [&](char byte) { return rules_.bytes[static_cast<unsigned char>(byte)]; };
  if (std::all_of(symbol.begin(), symbol.end(), [&](char byte) { return token(byte) >= 0; })) {
    for (const char byte : symbol) out.push_back(token(byte));
    return;
  }
  last_unknown_ = true;
  if (rules_.unknown >= 0 && !(was_unknown && rules_.fuse_unknown)) out.push_back(rules_.unknown);
}

void TokenMerger::merge_short(std::string_view piece, std::vector<std::int32_t>& out) {
  // Symbol i is the bytes from start[i] to start[i + 1]; pair[i] is what it makes with symbol i + 1.
  std::array<std::uint8_t, kShort + 1> start{};
  std::array<std::int32_t, kShort> id;
  std::array<std::int32_t, kShort> rank;    // of pair i
  std::array<std::int32_t, kShort> result;  // of pair i
  std::size_t symbols = 0;
  for (std::size_t at = 0; at < piece.size(); ++symbols) {
    start[symbols] = static_cast<std::uint8_t>(at);
    at += first_symbol(piece, at, id[symbols]);
  }
  start[symbols] = static_cast<std::uint8_t>(piece.size());
  const auto look_up = [&](std::size_t i) {
    const Pair pair = pair_of(piece, id[i], id[i + 1], start[i], start[i + 2]);
    rank[i] = pair.rank;
    result[i] = pair.result;
  };
  for (std::size_t i = 0; i + 1 < symbols; ++i) look_up(i);
  while (symbols > 1) {
    const auto least = std::min_element(rank.begin(), rank.begin() + static_cast<std::ptrdiff_t>(symbols - 1));
    if (*least == Pair::kNone) break;
    const auto i = static_cast<std::size_t>(least - rank.begin());
    id[i] = result[i];
    std::copy(start.begin() + i + 2, start.begin() + symbols + 1, start.begin() + i + 1);
    if (i + 2 < symbols) {
      std::copy(id.begin() + i + 2, id.begin() + symbols, id.begin() + i + 1);
      std::copy(rank.begin() + i + 2, rank.begin() + symbols - 1, rank.begin() + i + 1);
      std::copy(result.begin() + i + 2, result.begin() + symbols - 1, result.begin() + i + 1);
    }
    --symbols;
    if (i + 1 < symbols) look_up(i);
    if (i > 0) look_up(i - 1);
  }
  for (std::size_t i = 0; i < symbols; ++i) put(id[i], piece.substr(start[i], start[i + 1] - start[i]), out);
}

void TokenMerger::merge_long(std::string_view piece, std::vector<std::int32_t>& out) {
  const auto size = static_cast<std::uint32_t>(piece.size());
  // A symbol that begins at byte i ends at end_[i] (0: none begins there) and has the id ids_[i]; the one before it
  // began at previous_[i].
  end_.assign(size, 0);
  previous_.resize(size);
  ids_.resize(size);
  pairs_.clear();
  std::uint32_t before = 0;
  for (std::uint32_t at = 0; at < size;) {
    const std::uint32_t next = at + static_cast<std::uint32_t>(first_symbol(piece, at, ids_[at]));
    end_[at] = next;
    previous_[at] = before;
    if (at > 0) {
      if (const Pair pair = pair_of(piece, ids_[before], ids_[at], before, next); pair.result >= 0) {
        pairs_.push_back(pair);
      }
    }
    before = at;
    at = next;
  }
  std::make_heap(pairs_.begin(), pairs_.end(), std::greater<>{});
  const auto add = [&](std::uint32_t left, std::uint32_t right) {
    const Pair pair = pair_of(piece, ids_[left], ids_[right], left, end_[right]);
    if (pair.result < 0) return;
    pairs_.push_back(pair);
    std::push_heap(pairs_.begin(), pairs_.end(), std::greater<>{});
  };
  while (!pairs_.empty()) {
    const Pair pair = pairs_.front();
    std::pop_heap(pairs_.begin(), pairs_.end(), std::greater<>{});
    pairs_.pop_back();
    const std::uint32_t middle = end_[pair.start];
    if (middle == 0 || middle >= pair.end || end_[middle] != pair.end) continue;
    end_[pair.start] = pair.end;
    ids_[pair.start] = pair.result;
    end_[middle] = 0;
    if (pair.end < size) {
      previous_[pair.end] = pair.start;
      add(pair.start, pair.end);
    }
    if (pair.start > 0) add(previous_[pair.start], pair.start);
  }
  for (std::uint32_t at = 0; at < size; at = end_[at]) put(ids_[at], piece.substr(at, end_[at] - at), out);
}

}  // namespace myriad
