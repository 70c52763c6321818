#include "model/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <system_error>

#include "model/token_table.h"

namespace myriad {
namespace {

// A decimal number without sign or leading zeros, below TokenTable::kMaxTokens; −1 for anything else.
std::int32_t token_id(std::string_view text) {
  std::int64_t value = -1;
  if (text.empty() || text[0] == '-' || (text[0] == '0' && text.size() > 1)) return -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc{} && end == text.data() + text.size();
  return number && value < TokenTable::kMaxTokens ? static_cast<std::int32_t>(value) : -1;
}

// "bos_token" is a name, an object with a name, or null.
std::optional<std::string> token_name(const nlohmann::json& config, const char* member) {
  const auto token = config.find(member);
  if (token == config.end()) return std::nullopt;
  if (token->is_string()) return token->get<std::string>();
  if (!token->is_object()) return std::nullopt;
  const auto content = token->find("content");
  if (content == token->end() || !content->is_string()) return std::nullopt;
  return content->get<std::string>();
}

std::optional<bool> flag(const nlohmann::json& config, const char* member) {
  const auto found = config.find(member);
  return found != config.end() && found->is_boolean() ? std::optional(found->get<bool>()) : std::nullopt;
}

}  // namespace

Result<AddedToken> parse_added_token(const nlohmann::json& entry, std::int32_t id, std::string_view where) {
  const auto content = entry.is_object() ? entry.find("content") : entry.end();
  if (!entry.is_object() || content == entry.end() || !content->is_string()) {
    return fail(Code::corrupt, "{} has no content string", where);
  }
  AddedToken token{id, content->get<std::string>(), flag(entry, "special").value_or(true)};
  if (token.name.empty() || token.name.size() > kMaxAddedTokenBytes) {
    return fail(Code::corrupt, "{}: the name of token {} has {} bytes, 1 to {} are expected", where, id,
                token.name.size(), kMaxAddedTokenBytes);
  }
  for (const char* unsupported : {"single_word", "lstrip", "rstrip"}) {
    if (flag(entry, unsupported).value_or(false)) {
      return fail(Code::unsupported, "{}: token {} has {} set, which is not supported", where, shown_token(token.name),
                  unsupported);
    }
  }
  return token;
}

Result<TokenizerConfig> parse_tokenizer_config(std::string_view json) {
  TokenizerConfig out;
  if (json.empty()) return out;
  if (json.size() > kMaxTokenizerConfigBytes) {
    return fail(Code::limit, "tokenizer_config.json has {} bytes, at most {} are expected", json.size(),
                kMaxTokenizerConfigBytes);
  }
  const nlohmann::json config = nlohmann::json::parse(json, nullptr, false);
  if (!config.is_object()) return fail(Code::corrupt, "tokenizer_config.json is not a JSON object");
  if (const auto decoder = config.find("added_tokens_decoder"); decoder != config.end()) {
    if (!decoder->is_object())
      return fail(Code::corrupt, "tokenizer_config.json: added_tokens_decoder is not an object");
    if (decoder->size() > kMaxAddedTokens) {
      return fail(Code::limit, "tokenizer_config.json: added_tokens_decoder has {} tokens, at most {} are expected",
                  decoder->size(), kMaxAddedTokens);
    }
    for (const auto& [key, token] : decoder->items()) {
      const std::int32_t id = token_id(key);
      if (id < 0) {
        return fail(Code::corrupt,
                    "tokenizer_config.json: added_tokens_decoder names token {}: a number from 0 to {} is expected",
                    shown_token(key), TokenTable::kMaxTokens - 1);
      }
      MYRIAD_TRY(AddedToken added, parse_added_token(token, id, "tokenizer_config.json: added_tokens_decoder " + key));
      out.added.push_back(std::move(added));
    }
  }
  std::sort(out.added.begin(), out.added.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  out.bos = token_name(config, "bos_token");
  out.eos = token_name(config, "eos_token");
  out.pad = token_name(config, "pad_token");
  out.add_bos = flag(config, "add_bos_token");
  out.add_eos = flag(config, "add_eos_token");
  out.add_prefix_space = flag(config, "add_prefix_space");
  out.legacy = flag(config, "legacy");
  return out;
}

}  // namespace myriad
