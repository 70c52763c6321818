// `tiktoken.model`: one line a token, base64 of its bytes, a space, its rank, which is its id. The ids after the ranks
// are special tokens, named by tokenizer_config.json.
#include <algorithm>
#include <charconv>
#include <system_error>

#include "model/tokenizer.h"

namespace myriad {
namespace {

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

}  // namespace

Result<Tokenizer> Tokenizer::parse(std::string_view tiktoken, std::string_view config_json, std::int32_t vocab_size) {
  Tokenizer tokenizer;
  MYRIAD_TRY_STATUS(tokenizer.read_ranks(tiktoken));
  MYRIAD_TRY(const TokenizerConfig config, parse_tokenizer_config(config_json));
  MYRIAD_TRY_STATUS(tokenizer.read_specials(config, vocab_size));
  MYRIAD_TRY_STATUS(tokenizer.table_.build_index());
  MYRIAD_TRY_STATUS(tokenizer.index_bytes("tiktoken.model", true));
  tokenizer.pretokenizer_ = {kimi_piece};
  tokenizer.text_.kimi_cuts = true;
  tokenizer.rules_.whole_pieces = true;
  tokenizer.bos_ = tokenizer.special_id(config.bos.value_or("[BOS]"));
  tokenizer.eos_ = tokenizer.special_id(config.eos.value_or("[EOS]"));
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
  while (!tiktoken.empty()) {
    const std::size_t line_end = std::min(tiktoken.find('\n'), tiktoken.size());
    std::string_view line = tiktoken.substr(0, line_end);
    tiktoken.remove_prefix(std::min(line_end + 1, tiktoken.size()));
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const auto bad = [&](std::string_view what) {
      return fail(Code::corrupt, "tiktoken.model line {} is {}: {}; the file is damaged or not a tiktoken vocabulary",
                  line_number, shown_token(line), what);
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
    ++rank_count_;
  }
  if (static_cast<std::size_t>(rank_count_) != places.size()) {
    return fail(Code::corrupt, "tiktoken.model has {} tokens but ranks up to {}: every rank from 0 on is expected once",
                rank_count_, places.size() - 1);
  }
  table_.reserve(places.size() + kOfficialSpecials, bytes.size());
  for (const Place& place : places) {
    MYRIAD_TRY_STATUS(table_.add(std::string_view(bytes).substr(place.offset, place.size), TokenKind::text));
  }
  return {};
}

Status Tokenizer::read_specials(const TokenizerConfig& config, std::int32_t vocab_size) {
  if (vocab_size < 0 || vocab_size > kMaxVocabulary) {
    return fail(Code::invalid_argument, "a vocabulary of {} tokens was asked for; at most {} are supported", vocab_size,
                kMaxVocabulary);
  }
  const std::int32_t most = rank_count_ + static_cast<std::int32_t>(kMaxSpecials);
  if (!config.added.empty() && (config.added.front().id < rank_count_ || config.added.back().id >= most)) {
    const std::int32_t id = config.added.front().id < rank_count_ ? config.added.front().id : config.added.back().id;
    return fail(Code::corrupt,
                "tokenizer_config.json: added_tokens_decoder names token '{}'; with {} ranks in tiktoken.model a "
                "number from {} to "
                "{} is expected: do the two files belong together?",
                id, rank_count_, rank_count_, most - 1);
  }
  std::int32_t total = vocab_size;
  const std::int32_t needed = config.added.empty() ? rank_count_ : config.added.back().id + 1;
  if (total == 0) total = config.added.empty() ? rank_count_ + kOfficialSpecials : needed;
  if (total < needed || total > most) {
    return fail(Code::corrupt,
                "the model's vocabulary of {} tokens and its tokenizer do not belong together: tiktoken.model and "
                "tokenizer_config.json define {} tokens, and at most {} can be special",
                total, needed, kMaxSpecials);
  }
  auto next = config.added.begin();
  for (std::int32_t id = rank_count_; id < total; ++id) {
    const bool named = next != config.added.end() && next->id == id;
    MYRIAD_TRY_STATUS(table_.add(named ? next->name : fmt::format("<|reserved_token_{}|>", id), TokenKind::special));
    if (named) ++next;
  }
  return {};
}

}  // namespace myriad
