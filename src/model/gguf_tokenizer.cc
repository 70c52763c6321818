#include "model/gguf_tokenizer.h"

#include <vector>

namespace myriad {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string key(std::string_view name) {
  return fmt::format("{}{}", kPrefix, name);
}

// An id; 4294967295 and -1 stand for none.
Result<std::optional<std::uint32_t>> token_id(const GgufMetadata& metadata, std::string_view name) {
  MYRIAD_TRY(const auto id, metadata.get<std::int64_t>(key(fmt::format("{}_token_id", name))));
  if (!id || *id < 0 || *id >= 0xffffffff) return std::optional<std::uint32_t>();
  return std::optional(static_cast<std::uint32_t>(*id));
}

std::vector<std::string_view> views(const std::optional<GgufStrings>& strings) {
  std::vector<std::string_view> out;
  if (!strings) return out;
  out.reserve(strings->size());
  for (std::size_t i = 0; i < strings->size(); ++i) out.push_back((*strings)[i]);
  return out;
}

}  // namespace

Result<Tokenizer> gguf_tokenizer(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  if (!metadata.has(key("tokens")))
    return fail(Code::not_found, "{}: it has no tokenizer (no {})", file.path().string(), key("tokens"));
  GgufVocabulary vocabulary;
  MYRIAD_TRY(vocabulary.model, metadata.require<std::string_view>(key("model")));
  MYRIAD_TRY(vocabulary.pre, metadata.get_or<std::string_view>(key("pre"), {}));
  MYRIAD_TRY(const auto tokens, metadata.get_strings(key("tokens")));
  MYRIAD_TRY(const auto types, metadata.get_array<std::int32_t>(key("token_type")));
  MYRIAD_TRY(const auto scores, metadata.get_array<float>(key("scores")));
  MYRIAD_TRY(const auto merges, metadata.get_strings(key("merges")));
  MYRIAD_TRY(const auto rules, metadata.get_strings(kGgufTokenizerRules));
  const auto token_views = views(tokens), merge_views = views(merges), rule_views = views(rules);
  vocabulary.rules = rule_views;
  vocabulary.tokens = token_views;
  vocabulary.merges = merge_views;
  if (types) vocabulary.types = *types;
  if (scores) vocabulary.scores = *scores;
  MYRIAD_TRY(vocabulary.bos, token_id(metadata, "bos"));
  MYRIAD_TRY(vocabulary.eos, token_id(metadata, "eos"));
  MYRIAD_TRY(vocabulary.eot, token_id(metadata, "eot"));
  MYRIAD_TRY(vocabulary.unknown, token_id(metadata, "unknown"));
  MYRIAD_TRY(vocabulary.padding, token_id(metadata, "padding"));
  MYRIAD_TRY(vocabulary.add_bos, metadata.get<bool>(key("add_bos_token")));
  MYRIAD_TRY(vocabulary.add_space_prefix, metadata.get<bool>(key("add_space_prefix")));
  auto tokenizer = Tokenizer::from_gguf(vocabulary);
  if (!tokenizer) return std::unexpected(std::move(tokenizer).error().within(file.path().string()));
  return tokenizer;
}

Result<std::optional<std::string>> gguf_chat_template(const GgufFile& file) {
  MYRIAD_TRY(const auto text, file.metadata().get<std::string_view>("tokenizer.chat_template"));
  if (!text) return std::optional<std::string>();
  return std::optional<std::string>(std::in_place, *text);
}

}  // namespace myriad
