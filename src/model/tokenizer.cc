#include "model/tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "model/pretokenizer.h"

namespace myriad {
namespace {

constexpr std::size_t kMaxNameBytes = 256;

std::uint64_t hash_bytes(std::string_view bytes) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
  std::uint64_t hash = bytes.size() * kMultiplier;
  std::size_t at = 0;
  for (; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  }
  return hash;
}

// −1 for a character that is not of the base64 alphabet.
int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

// Appends the decoded bytes; false if the text is not canonical base64 (padded, no stray bits) of at least one byte.
bool append_base64(std::string_view text, std::string& out) {
  if (text.empty() || text.size() % 4 != 0) return false;
  std::size_t padding = 0;
  while (padding < 2 && text[text.size() - 1 - padding] == '=') ++padding;
  std::uint32_t group = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_padding = i + padding >= text.size();
    const int digit = is_padding ? 0 : base64_digit(text[i]);
    if (digit < 0) return false;
    group = group << 6 | static_cast<std::uint32_t>(digit);
    if (i % 4 != 3) continue;
    const std::size_t bytes = i + 1 == text.size() ? 3 - padding : 3;
    if (bytes < 3 && (group & ((1U << (8 * (3 - bytes))) - 1)) != 0) return false;
    for (std::size_t b = 0; b < bytes; ++b) out.push_back(static_cast<char>(group >> (16 - 8 * b) & 0xFF));
    group = 0;
  }
  return true;
}

// A decimal number without sign or leading zeros, at most `limit`; −1 for anything else.
std::int64_t decimal(std::string_view text, std::int64_t limit) {
  std::int64_t value = -1;
  if (text.empty() || text[0] == '-' || (text[0] == '0' && text.size() > 1)) return -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value <= limit ? value : -1;
}

// What a person can recognise of a foreign line or name in a message.
std::string shown(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 40)) out += c >= 0x20 && c < 0x7F ? c : '?';
  return out + (text.size() > 40 ? "…'" : "'");
}

Result<std::string> read_file(const std::filesystem::path& path, std::size_t limit) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    return fail(Code::not_found, "reading {}: there is no such file", path.string());
  if (!std::filesystem::is_regular_file(status)) {
    return fail(Code::io, "reading {}: it is not a regular file", path.string());
  }
  const auto size = std::filesystem::file_size(path, error);
  if (error) return fail(Code::io, "reading {}: {}", path.string(), error.message());
  if (size > limit) {
    return fail(Code::limit, "reading {}: it has {} bytes, at most {} are expected of such a file", path.string(), size,
                limit);
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(size, '\0');
  if (!in || !in.read(text.data(), static_cast<std::streamsize>(size))) {
    return fail(Code::io, "reading {}: the operating system refused; check its permissions", path.string());
  }
  return text;
}

}  // namespace

// Merges the bytes of one piece after the other, with the memory of the piece before.
class Tokenizer::Merger {
 public:
  explicit Merger(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void merge(std::string_view piece, std::vector<std::int32_t>& out) {
    if (const std::int32_t id = tokenizer_.rank_of(piece); id >= 0) {
      out.push_back(id);
    } else if (piece.size() <= kShort) {
      merge_short(piece, out);
    } else {
      merge_long(piece, out);
    }
  }

 private:
  // Up to here looking at every pair before each merge is faster than keeping them in order.
  static constexpr std::size_t kShort = 96;
  static constexpr std::int32_t kNoRank = std::numeric_limits<std::int32_t>::max();

  [[nodiscard]] std::int32_t rank(std::string_view piece, std::size_t start, std::size_t end) const {
    const std::int32_t id = tokenizer_.rank_of(piece.substr(start, end - start));
    return id < 0 ? kNoRank : id;
  }

  void merge_short(std::string_view piece, std::vector<std::int32_t>& out) {
    // Token i is the bytes from start[i] to start[i + 1]; pair[i] is the rank of it together with token i + 1.
    std::array<std::uint8_t, kShort + 1> start{};
    std::array<std::int32_t, kShort + 1> pair{};
    std::size_t tokens = piece.size();
    for (std::size_t i = 0; i <= tokens; ++i) start[i] = static_cast<std::uint8_t>(i);
    for (std::size_t i = 0; i + 1 < tokens; ++i) pair[i] = rank(piece, i, i + 2);
    while (tokens > 1) {
      const auto least = std::min_element(pair.begin(), pair.begin() + static_cast<std::ptrdiff_t>(tokens - 1));
      if (*least == kNoRank) break;
      const auto i = static_cast<std::size_t>(least - pair.begin());
      std::copy(start.begin() + i + 2, start.begin() + tokens + 1, start.begin() + i + 1);
      if (i + 2 < tokens) std::copy(pair.begin() + i + 2, pair.begin() + tokens - 1, pair.begin() + i + 1);
      --tokens;
      if (i + 1 < tokens) pair[i] = rank(piece, start[i], start[i + 2]);
      if (i > 0) pair[i - 1] = rank(piece, start[i - 1], start[i + 1]);
    }
    for (std::size_t i = 0; i < tokens; ++i) {
      out.push_back(tokenizer_.rank_of(piece.substr(start[i], start[i + 1] - start[i])));
    }
  }

  // A pair of neighbours as it was when it was found; out of date when its bytes are no longer exactly two tokens.
  struct Pair {
    std::int32_t rank;
    std::uint32_t start, end;
    bool operator>(const Pair& other) const { return rank != other.rank ? rank > other.rank : start > other.start; }
  };

  void merge_long(std::string_view piece, std::vector<std::int32_t>& out) {
    const auto size = static_cast<std::uint32_t>(piece.size());
    // A token that begins at byte i ends at end_[i] (0: none begins there); the one before it began at previous_[i].
    end_.resize(size);
    previous_.resize(size);
    pairs_.clear();
    for (std::uint32_t i = 0; i < size; ++i) {
      end_[i] = i + 1;
      previous_[i] = i - 1;
      if (i + 1 < size) {
        if (const std::int32_t r = rank(piece, i, i + 2); r != kNoRank) pairs_.push_back({r, i, i + 2});
      }
    }
    std::make_heap(pairs_.begin(), pairs_.end(), std::greater<>{});
    const auto add = [&](std::uint32_t start, std::uint32_t end) {
      const std::int32_t r = rank(piece, start, end);
      if (r == kNoRank) return;
      pairs_.push_back({r, start, end});
      std::push_heap(pairs_.begin(), pairs_.end(), std::greater<>{});
    };
    while (!pairs_.empty()) {
      const Pair pair = pairs_.front();
      std::pop_heap(pairs_.begin(), pairs_.end(), std::greater<>{});
      pairs_.pop_back();
      const std::uint32_t middle = end_[pair.start];
      if (middle == 0 || middle >= pair.end || end_[middle] != pair.end) continue;
      end_[pair.start] = pair.end;
      end_[middle] = 0;
      if (pair.end < size) {
        previous_[pair.end] = pair.start;
        add(pair.start, end_[pair.end]);
      }
      if (pair.start > 0) add(previous_[pair.start], pair.end);
    }
    for (std::uint32_t i = 0; i < size; i = end_[i]) {
      out.push_back(tokenizer_.rank_of(piece.substr(i, end_[i] - i)));
    }
  }

  const Tokenizer& tokenizer_;
  std::vector<std::uint32_t> end_, previous_;
  std::vector<Pair> pairs_;
};

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder, std::int32_t vocab_size) {
  MYRIAD_TRY(const std::string ranks, read_file(folder / "tiktoken.model", kMaxVocabularyBytes));
  std::string config;
  std::error_code error;
  if (std::filesystem::exists(folder / "tokenizer_config.json", error)) {
    MYRIAD_TRY(config, read_file(folder / "tokenizer_config.json", kMaxConfigBytes));
  }
  auto tokenizer = parse(ranks, config, vocab_size);
  if (!tokenizer) {
    return std::unexpected(
        std::move(tokenizer).error().within(fmt::format("loading the tokenizer in {}", folder.string())));
  }
  return tokenizer;
}

Result<Tokenizer> Tokenizer::parse(std::string_view tiktoken, std::string_view config_json, std::int32_t vocab_size) {
  Tokenizer tokenizer;
  MYRIAD_TRY_STATUS(tokenizer.read_ranks(tiktoken));
  MYRIAD_TRY_STATUS(tokenizer.read_specials(config_json, vocab_size));
  tokenizer.bytes_.shrink_to_fit();
  tokenizer.offsets_.shrink_to_fit();
  return tokenizer;
}

Status Tokenizer::read_ranks(std::string_view tiktoken) {
  if (tiktoken.size() > kMaxVocabularyBytes) {
    return fail(Code::limit, "tiktoken.model has {} bytes, at most {} are expected", tiktoken.size(),
                kMaxVocabularyBytes);
  }
  struct Place {
    std::uint32_t offset = 0, size = 0;  // size 0: this rank has not been seen
  };
  std::vector<Place> places;  // by rank
  std::string bytes;          // in the order of the file
  bytes.reserve(tiktoken.size() / 2);
  std::size_t line_number = 0;
  std::int32_t count = 0;
  while (!tiktoken.empty()) {
    const std::size_t line_end = std::min(tiktoken.find('\n'), tiktoken.size());
    std::string_view line = tiktoken.substr(0, line_end);
    tiktoken.remove_prefix(std::min(line_end + 1, tiktoken.size()));
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const auto bad = [&](std::string_view what) {
      return fail(Code::corrupt, "tiktoken.model line {} is {}: {}; the file is damaged or not a tiktoken vocabulary",
                  line_number, shown(line), what);
    };
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) return bad("base64, one space and a rank are expected");
    const std::uint32_t offset = static_cast<std::uint32_t>(bytes.size());
    if (space > kMaxTokenBytes / 3 * 4 + 4) return bad(fmt::format("a token has at most {} bytes", kMaxTokenBytes));
    if (!append_base64(line.substr(0, space), bytes)) return bad("the token is not base64 of at least one byte");
    const std::int64_t rank = decimal(line.substr(space + 1), kMaxVocabulary - 1);
    if (rank < 0) return bad(fmt::format("the rank is not a number from 0 to {}", kMaxVocabulary - 1));
    if (places.size() <= static_cast<std::size_t>(rank)) places.resize(static_cast<std::size_t>(rank) + 1);
    Place& place = places[static_cast<std::size_t>(rank)];
    if (place.size != 0) return bad("an earlier line has the same rank");
    place = {offset, static_cast<std::uint32_t>(bytes.size() - offset)};
    ++count;
  }
  if (static_cast<std::size_t>(count) != places.size()) {
    return fail(Code::corrupt, "tiktoken.model has {} tokens but ranks up to {}: every rank from 0 on is expected once",
                count, places.size() - 1);
  }

  rank_count_ = count;
  bytes_.reserve(bytes.size());
  offsets_.reserve(places.size() + 1 + kOfficialSpecials);
  offsets_.push_back(0);
  table_.assign(std::bit_ceil(std::max<std::size_t>(places.size() + places.size() / 2, 16)), -1);
  const std::size_t mask = table_.size() - 1;
  for (std::int32_t id = 0; id < count; ++id) {
    const Place& place = places[static_cast<std::size_t>(id)];
    const std::string_view token = std::string_view(bytes).substr(place.offset, place.size);
    bytes_.append(token);
    offsets_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    longest_ = std::max(longest_, token.size());
    std::size_t slot = hash_bytes(token) & mask;
    for (; table_[slot] >= 0; slot = (slot + 1) & mask) {
      if (token_bytes(table_[slot]) == token) {
        return fail(Code::corrupt, "tiktoken.model gives the token {} the ranks {} and {}", shown(token), table_[slot],
                    id);
      }
    }
    table_[slot] = id;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (rank_of(std::string_view(&c, 1)) < 0) {
      return fail(Code::corrupt,
                  "tiktoken.model has {} tokens but none for the single byte 0x{:02X}: all 256 are needed", count,
                  byte);
    }
  }
  return {};
}

Status Tokenizer::read_specials(std::string_view config_json, std::int32_t vocab_size) {
  if (vocab_size < 0 || vocab_size > kMaxVocabulary + static_cast<std::int32_t>(kMaxSpecials)) {
    return fail(Code::invalid_argument, "a vocabulary of {} tokens was asked for; at most {} are supported", vocab_size,
                kMaxVocabulary);
  }
  if (config_json.size() > kMaxConfigBytes) {
    return fail(Code::limit, "tokenizer_config.json has {} bytes, at most {} are expected", config_json.size(),
                kMaxConfigBytes);
  }
  const std::int32_t most = rank_count_ + static_cast<std::int32_t>(kMaxSpecials);
  std::vector<std::pair<std::int32_t, std::string>> named;
  nlohmann::json config = nlohmann::json::object();
  if (!config_json.empty()) {
    config = nlohmann::json::parse(config_json, nullptr, false);
    if (!config.is_object()) return fail(Code::corrupt, "tokenizer_config.json is not a JSON object");
  }
  if (const auto decoder = config.find("added_tokens_decoder"); decoder != config.end()) {
    if (!decoder->is_object())
      return fail(Code::corrupt, "tokenizer_config.json: added_tokens_decoder is not an object");
    for (const auto& [key, token] : decoder->items()) {
      const std::int64_t id = decimal(key, most - 1);
      if (id < rank_count_) {
        return fail(
            Code::corrupt,
            "tokenizer_config.json: added_tokens_decoder names token {}; with {} ranks in tiktoken.model a number from "
            "{} to {} is expected: do the two files belong together?",
            shown(key), rank_count_, rank_count_, most - 1);
      }
      const auto content = token.is_object() ? token.find("content") : token.end();
      if (!token.is_object() || content == token.end() || !content->is_string()) {
        return fail(Code::corrupt, "tokenizer_config.json: added_tokens_decoder {} has no content string", key);
      }
      auto& name = content->get_ref<const std::string&>();
      if (name.empty() || name.size() > kMaxNameBytes) {
        return fail(Code::corrupt, "tokenizer_config.json: the name of token {} has {} bytes, 1 to {} are expected",
                    key, name.size(), kMaxNameBytes);
      }
      named.emplace_back(static_cast<std::int32_t>(id), name);
    }
  }
  std::sort(named.begin(), named.end());

  std::int32_t total = vocab_size;
  const std::int32_t needed = named.empty() ? rank_count_ : named.back().first + 1;
  if (total == 0) total = named.empty() ? rank_count_ + kOfficialSpecials : needed;
  if (total < needed || total > most) {
    return fail(Code::corrupt,
                "the model's vocabulary of {} tokens and its tokenizer do not belong together: tiktoken.model and "
                "tokenizer_config.json define {} tokens, and at most {} can be special",
                total, needed, kMaxSpecials);
  }
  auto next = named.begin();
  for (std::int32_t id = rank_count_; id < total; ++id) {
    if (next != named.end() && next->first == id) {
      bytes_.append(next->second);
      ++next;
    } else {
      bytes_.append(fmt::format("<|reserved_token_{}|>", id));
    }
    offsets_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    by_name_.push_back(id);
  }
  std::sort(by_name_.begin(), by_name_.end(),
            [this](std::int32_t a, std::int32_t b) { return token_bytes(a) < token_bytes(b); });
  const auto twice = std::adjacent_find(by_name_.begin(), by_name_.end(), [this](std::int32_t a, std::int32_t b) {
    return token_bytes(a) == token_bytes(b);
  });
  if (twice != by_name_.end()) {
    return fail(Code::corrupt, "tokenizer_config.json: the tokens {} and {} have the same name {}", *twice,
                *(twice + 1), shown(token_bytes(*twice)));
  }

  // "bos_token" is a name or an object with a name.
  const auto designated = [&](const char* member, std::string_view fallback) -> std::optional<std::int32_t> {
    auto token = config.find(member);
    if (token == config.end()) return special_id(fallback);
    const nlohmann::json* name = &*token;
    if (name->is_object()) {
      const auto content = name->find("content");
      if (content == name->end()) return special_id(fallback);
      name = &*content;
    }
    return name->is_string() ? special_id(name->get_ref<const std::string&>()) : special_id(fallback);
  };
  bos_ = designated("bos_token", "[BOS]");
  eos_ = designated("eos_token", "[EOS]");
  return {};
}

std::int32_t Tokenizer::rank_of(std::string_view bytes) const {
  if (bytes.size() > longest_) return -1;
  const std::size_t mask = table_.size() - 1;
  for (std::size_t slot = hash_bytes(bytes) & mask; table_[slot] >= 0; slot = (slot + 1) & mask) {
    if (token_bytes(table_[slot]) == bytes) return table_[slot];
  }
  return -1;
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) + 1 >= offsets_.size()) return {};
  const auto i = static_cast<std::size_t>(id);
  return std::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

void Tokenizer::encode_plain(std::string_view text, Merger& merger, std::vector<std::int32_t>& out) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = pretoken_end(text, at);
    merger.merge(text.substr(at, end - at), out);
    at = end;
  }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view bytes) const {
  std::vector<std::int32_t> out;
  out.reserve(bytes.size() / 4 + 1);
  Merger merger(*this);
  LongTextCutter cutter(bytes);
  for (std::string_view part; cutter.next(part);) encode_plain(part, merger, out);
  return out;
}

std::vector<std::int32_t> Tokenizer::encode_with_specials(std::string_view bytes) const {
  std::vector<std::int32_t> out;
  Merger merger(*this);
  LongTextCutter cutter(bytes);
  for (std::string_view part; cutter.next(part);) {
    std::size_t plain = 0;  // where the plain text begins that has not been encoded yet
    for (std::size_t at = 0; at < part.size();) {
      const std::int32_t id = special_at(part.substr(at));
      if (id < 0) {
        ++at;
        continue;
      }
      encode_plain(part.substr(plain, at - plain), merger, out);
      out.push_back(id);
      at += token_bytes(id).size();
      plain = at;
    }
    encode_plain(part.substr(plain), merger, out);
  }
  return out;
}

std::int32_t Tokenizer::special_at(std::string_view text) const {
  // by_name_[low, high) are the names that agree with the text so far; a name that is used up is the first of them.
  auto low = by_name_.begin(), high = by_name_.end();
  std::int32_t found = -1;
  for (std::size_t n = 0; low != high; ++n) {
    if (token_bytes(*low).size() == n) found = *low++;
    if (n == text.size()) break;
    const auto wanted = static_cast<unsigned char>(text[n]);
    const auto byte = [&](std::int32_t id) { return static_cast<unsigned char>(token_bytes(id)[n]); };
    low = std::partition_point(low, high, [&](std::int32_t id) { return byte(id) < wanted; });
    high = std::partition_point(low, high, [&](std::int32_t id) { return byte(id) == wanted; });
  }
  return found;
}

std::optional<std::int32_t> Tokenizer::special_id(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [this](std::int32_t id, std::string_view n) { return token_bytes(id) < n; });
  if (at == by_name_.end() || token_bytes(*at) != name) return std::nullopt;
  return *at;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string out;
  for (const std::int32_t id : ids) out.append(token_bytes(id));
  return out;
}

std::size_t Tokenizer::memory_bytes() const {
  return sizeof *this + bytes_.capacity() + offsets_.capacity() * sizeof offsets_[0] +
         table_.capacity() * sizeof table_[0] + by_name_.capacity() * sizeof by_name_[0];
}

}  // namespace myriad
