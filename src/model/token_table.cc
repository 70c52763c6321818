#include "model/token_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/bytes.h"

namespace myriad {
namespace {

// The same on every byte order: which vocabularies are refused does not depend on the machine. A slot is the lowest
// bits.
std::uint64_t hash_bytes(std::string_view bytes) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
  std::uint64_t hash = bytes.size() * kMultiplier;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::array<unsigned char, 8> padded{};
    std::memcpy(padded.data(), bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    hash = (hash ^ load_le<std::uint64_t>(padded.data())) * kMultiplier;
    hash ^= hash >> 32;
  }
  return hash;
}

// Slots that a lookup may have to look at. Half of the table is free, so more than a few dozen do not come by chance.
constexpr std::size_t kMaxProbes = 1024;

}  // namespace

std::string shown_token(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 40)) out += c >= 0x20 && c < 0x7F ? c : '?';
  return out + (text.size() > 40 ? "…'" : "'");
}

void TokenTable::reserve(std::size_t tokens, std::size_t bytes) {
  bytes_.reserve(bytes);
  offsets_.reserve(tokens + 1);
  kinds_.reserve(tokens);
}

Status TokenTable::add(std::string_view bytes, TokenKind kind) {
  if (size() == kMaxTokens)
    return fail(Code::limit, "a vocabulary has at most {} tokens, this one has more", kMaxTokens);
  if (bytes.size() > kMaxTokenBytes) {
    return fail(Code::limit, "token {} {} has {} bytes; at most {} are expected", size(), shown_token(bytes),
                bytes.size(), kMaxTokenBytes);
  }
  if (bytes_.size() + bytes.size() > kMaxBytes) {
    return fail(Code::limit, "the tokens of a vocabulary have at most {} bytes together, these have more", kMaxBytes);
  }
  bytes_.append(bytes);
  offsets_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  kinds_.push_back(kind);
  return {};
}

Status TokenTable::build_index() {
  bytes_.shrink_to_fit();
  offsets_.shrink_to_fit();
  kinds_.shrink_to_fit();
  slots_.assign(std::bit_ceil(std::max<std::size_t>(kinds_.size() + kinds_.size() / 2, 16)), -1);
  for (const TokenKind wanted : {TokenKind::text, TokenKind::user_defined}) {
    for (std::int32_t id = 0; id < size(); ++id) {
      const std::string_view token = bytes(id);
      if (kind(id) != wanted || token.empty()) continue;
      if (const std::int32_t other = find(token); other >= 0) {
        if (wanted == TokenKind::user_defined) continue;
        return fail(Code::corrupt, "the vocabulary has the token {} twice, as {} and {}", shown_token(token), other,
                    id);
      }
      longest_ = std::max(longest_, token.size());
      if (!insert(id)) {
        return fail(Code::limit,
                    "the vocabulary's tokens collide in the hash table more than {} times at {}: they seem to "
                    "be made for that",
                    kMaxProbes, shown_token(token));
      }
    }
  }
  for (std::int32_t id = 0; id < size(); ++id) {
    const TokenKind k = kind(id);
    if (bytes(id).empty() || (k != TokenKind::special && k != TokenKind::user_defined)) continue;
    names_.ids.push_back(id);
    (k == TokenKind::special ? special_ : user_defined_).ids.push_back(id);
  }
  for (NameIndex* index : {&names_, &special_, &user_defined_}) {
    std::sort(index->ids.begin(), index->ids.end(),
              [this](std::int32_t a, std::int32_t b) { return bytes(a) < bytes(b); });
    for (const std::int32_t id : index->ids) index->first.set(static_cast<unsigned char>(bytes(id)[0]));
  }
  const auto twice = std::adjacent_find(names_.ids.begin(), names_.ids.end(),
                                        [this](std::int32_t a, std::int32_t b) { return bytes(a) == bytes(b); });
  if (twice != names_.ids.end()) {
    return fail(Code::corrupt, "the special tokens {} and {} have the same name {}", *twice, *(twice + 1),
                shown_token(bytes(*twice)));
  }
  return {};
}

bool TokenTable::insert(std::int32_t id) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_bytes(bytes(id)) & mask;
  for (std::size_t probes = 0; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    if (++probes > kMaxProbes) return false;
  }
  slots_[slot] = id;
  return true;
}

std::int32_t TokenTable::find(std::string_view wanted) const {
  if (slots_.empty() || wanted.size() > longest_) return -1;
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = hash_bytes(wanted) & mask; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    if (bytes(slots_[slot]) == wanted) return slots_[slot];
  }
  return -1;
}

std::optional<std::int32_t> TokenTable::named(std::string_view name) const {
  const auto at = std::lower_bound(names_.ids.begin(), names_.ids.end(), name,
                                   [this](std::int32_t id, std::string_view n) { return bytes(id) < n; });
  if (at == names_.ids.end() || bytes(*at) != name) return std::nullopt;
  return *at;
}

std::int32_t TokenTable::longest_name(const NameIndex& index, std::string_view text) const {
  if (text.empty() || !index.first.test(static_cast<unsigned char>(text[0]))) return -1;
  // ids[low, high) are the names that agree with the text so far; a name that is used up is the first of them.
  auto low = index.ids.begin(), high = index.ids.end();
  std::int32_t found = -1;
  for (std::size_t n = 0; low != high; ++n) {
    if (bytes(*low).size() == n) found = *low++;
    if (n == text.size()) break;
    const auto wanted = static_cast<unsigned char>(text[n]);
    const auto byte = [&](std::int32_t id) { return static_cast<unsigned char>(bytes(id)[n]); };
    if (low != high && byte(*low) == wanted && byte(*(high - 1)) == wanted) continue;  // all of them
    low = std::partition_point(low, high, [&](std::int32_t id) { return byte(id) < wanted; });
    high = std::partition_point(low, high, [&](std::int32_t id) { return byte(id) == wanted; });
  }
  return found;
}

std::size_t TokenTable::memory_bytes() const {
  return bytes_.capacity() + offsets_.capacity() * sizeof offsets_[0] + kinds_.capacity() * sizeof kinds_[0] +
         slots_.capacity() * sizeof slots_[0] +
         (names_.ids.capacity() + special_.ids.capacity() + user_defined_.ids.capacity()) * sizeof names_.ids[0];
}

}  // namespace myriad
