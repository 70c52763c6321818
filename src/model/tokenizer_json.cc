// Vocabularies in Hugging Face's tokenizer.json. What a file may say is a small language (normalizers, pre-tokenizers,
// decoders in sequences); supported is what the families of docs/tokenizers.md say in it, the rest is refused by its name.
#include <algorithm>
#include <unordered_map>

#include "model/tokenizer.h"
#include "model/tokenizer_json_reader.h"
#include "model/vocabulary_text.h"

namespace myriad {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMark = "\u2581";  // ▁
constexpr int kMaxNesting = 8;                // of sequences

// Null if there is no such member, or if it is null.
const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string_view text_of(const Json& object, const char* name) {
  const Json* value = member(object, name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_ref<const std::string&>())
                                                : std::string_view{};
}

bool flag_of(const Json& object, const char* name, bool absent) {
  const Json* value = member(object, name);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : absent;
}

std::string_view string_pattern(const Json& step) {
  const Json* pattern = member(step, "pattern");
  return pattern == nullptr ? std::string_view{} : text_of(*pattern, "String");
}

// A part of the file as text, for messages.
std::string shown_json(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t kShown = 300;
  if (text.size() > kShown) {
    text.resize(kShown);
    text += "…";
  }
  return text;
}

std::unexpected<Error> unsupported(std::string_view part, const Json& step) {
  return fail(Code::unsupported, "its {} is not one that is known here: {}", part, shown_json(step));
}

// Calls `visit` for each step of a normalizer, pre-tokenizer, post-processor or decoder, those inside sequences one by
// one.
template <class Visit>
Status for_each_step(const Json* step, std::string_view part, const char* list, Visit visit, int depth = 0) {
  if (step == nullptr) return {};
  if (text_of(*step, "type") != "Sequence") return visit(*step);
  const Json* steps = member(*step, list);
  if (steps == nullptr || !steps->is_array() || depth == kMaxNesting) return unsupported(part, *step);
  for (const Json& inner : *steps) MYRIAD_TRY_STATUS(for_each_step(&inner, part, list, visit, depth + 1));
  return {};
}

// Whether a rule's expression matches every text without gaps.
bool covers_everything(PieceRule rule) {
  return rule == llama3_piece || rule == qwen2_piece || rule == gpt2_piece || rule == kimi_piece ||
         rule == o200k_piece || rule == tekken_piece;
}

}  // namespace

struct Tokenizer::JsonLoader {
  const TokenizerJson& file;
  Tokenizer& t;
  bool byte_level = false, metaspace = false, prepends = false, replaces = false, byte_fallback = false;
  std::string_view unknown;
  std::optional<std::string> first_special;  // what the post-processor puts in front of a text

  Status load(const TokenizerConfig& config, std::int32_t vocab_size) {
    MYRIAD_TRY_STATUS(read_model());
    MYRIAD_TRY_STATUS(for_each_step(member(file.rest, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                                    [this](const Json& step) { return pre_tokenizer(step); }));
    MYRIAD_TRY_STATUS(for_each_step(member(file.rest, "normalizer"), "normalizer", "normalizers",
                                    [this](const Json& step) { return normalizer(step); }));
    MYRIAD_TRY_STATUS(for_each_step(member(file.rest, "post_processor"), "post_processor", "processors",
                                    [this](const Json& step) { return post_processor(step); }));
    if (byte_level) {
      if (prepends || replaces || metaspace || byte_fallback) {
        return fail(Code::unsupported, "it mixes byte-level BPE with SentencePiece's spelling");
      }
    } else {
      if (!replaces && !metaspace) {
        return fail(Code::unsupported,
                    "it has neither a ByteLevel pre_tokenizer nor one or a normalizer that spells a space as U+2581");
      }
      t.text_.sentencepiece = true;
      t.rules_.characters = true;
    }
    bool decodes = false;
    MYRIAD_TRY_STATUS(for_each_step(member(file.rest, "decoder"), "decoder", "decoders", [&](const Json& step) {
      decodes = true;
      return decoder(step);
    }));
    if (!byte_level && !decodes) return fail(Code::unsupported, "it has no decoder");
    MYRIAD_TRY_STATUS(read_tokens(vocab_size));
    if (byte_level) MYRIAD_TRY_STATUS(t.index_bytes("model.vocab", false));
    MYRIAD_TRY_STATUS(read_unknown());
    MYRIAD_TRY_STATUS(read_merges());
    if (!byte_level) t.cut_at_spaces_if_possible();
    const auto named = [this](const std::optional<std::string>& name) {
      return name ? t.special_id(*name) : std::nullopt;
    };
    t.bos_ = named(config.bos ? config.bos : first_special);
    t.eos_ = named(config.eos);
    if (config.add_bos.value_or(false) && !t.bos_) {
      return fail(Code::corrupt, "add_bos_token is true in tokenizer_config.json, but there is no bos_token");
    }
    t.add_bos_ = t.bos_ && config.add_bos.value_or(first_special.has_value());
    return {};
  }

  Status read_model() {
    const Json* model = member(file.rest, "model");
    if (model == nullptr || !model->is_object()) return fail(Code::corrupt, "it has no model");
    if (const std::string_view type = text_of(*model, "type"); !type.empty() && type != "BPE") {
      return fail(Code::unsupported, "its model is of the type {}; BPE is supported", shown_token(type));
    }
    if (file.tokens.empty()) return fail(Code::corrupt, "its model has no vocabulary");
    if (const Json* dropout = member(*model, "dropout"); dropout != nullptr && *dropout != 0) {
      return fail(Code::unsupported, "its model has a dropout");
    }
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!text_of(*model, name).empty()) return fail(Code::unsupported, "its model has a {}", name);
    }
    unknown = text_of(*model, "unk_token");
    byte_fallback = flag_of(*model, "byte_fallback", false);
    t.rules_.order = MergeRules::Order::by_list;
    t.rules_.fuse_unknown = flag_of(*model, "fuse_unk", false);
    t.rules_.whole_pieces = flag_of(*model, "ignore_merges", false);
    return {};
  }

  Status pre_tokenizer(const Json& step) {
    const std::string_view type = text_of(step, "type");
    if (byte_level) return unsupported("pre_tokenizer behind ByteLevel", step);
    PieceRule rule = nullptr;
    if (type == "Split") {
      MYRIAD_TRY(rule, split_rule(step));
    } else if (type == "Digits") {
      rule = flag_of(step, "individual_digits", false) ? one_number : all_numbers;
    } else if (type == "ByteLevel") {
      if (flag_of(step, "add_prefix_space", true)) return unsupported("pre_tokenizer (add_prefix_space is not)", step);
      byte_level = true;
      if (!flag_of(step, "use_regex", true)) return {};
      rule = gpt2_piece;
    } else if (type == "Metaspace" && !metaspace && t.pretokenizer_.size() == 0) {
      const Json* replacement = member(step, "replacement");
      if (replacement != nullptr && *replacement != kMark) return unsupported("pre_tokenizer", step);
      metaspace = true;
      MYRIAD_TRY(t.text_.prefix, metaspace_prefix("pre_tokenizer", step));
      t.text_.prefix_unless_space = true;
      if (!flag_of(step, "split", true)) return {};
      rule = space_first_piece;
    } else {
      return unsupported("pre_tokenizer", step);
    }
    if (!t.pretokenizer_.add(rule)) {
      return fail(Code::limit, "its pre_tokenizer has more than {} steps", Pretokenizer::kMaxRules);
    }
    return {};
  }

  static Result<PieceRule> split_rule(const Json& step) {
    const Json* pattern = member(step, "pattern");
    const std::string_view regex = pattern == nullptr ? std::string_view{} : text_of(*pattern, "Regex");
    const PieceRule rule = piece_rule_of_pattern(regex);
    if (rule == nullptr) {
      return fail(Code::unsupported, "its pre_tokenizer splits by an expression that is not known here: {}",
                  shown_json(pattern == nullptr ? step : *pattern));
    }
    const std::string_view behavior = text_of(step, "behavior");
    const bool inverted = flag_of(step, "invert", false);
    if (behavior == "Isolated" && !inverted) return rule;
    if (behavior == "Removed" && inverted && covers_everything(rule)) return rule;
    return unsupported("pre_tokenizer", step);
  }

  static Result<TextRules::Prefix> metaspace_prefix(std::string_view part, const Json& step) {
    const std::string_view scheme = text_of(step, "prepend_scheme");
    if (scheme.empty()) {
      return flag_of(step, "add_prefix_space", true) ? TextRules::Prefix::each : TextRules::Prefix::none;
    }
    if (scheme == "always") return TextRules::Prefix::each;
    if (scheme == "first") return TextRules::Prefix::first;
    if (scheme == "never") return TextRules::Prefix::none;
    return unsupported(part, step);
  }

  Status normalizer(const Json& step) {
    const std::string_view type = text_of(step, "type");
    if (type == "NFC" && byte_level) {
      t.text_.nfc = true;
    } else if (type == "Prepend" && text_of(step, "prepend") == kMark && !metaspace) {
      prepends = true;
      t.text_.prefix = TextRules::Prefix::each;
    } else if (type == "Replace" && string_pattern(step) == " " && text_of(step, "content") == kMark) {
      replaces = true;
    } else {
      return unsupported("normalizer", step);
    }
    return {};
  }

  Status post_processor(const Json& step) {
    const std::string_view type = text_of(step, "type");
    if (type == "ByteLevel") return {};
    if (type != "TemplateProcessing") return unsupported("post_processor", step);
    const Json* single = member(step, "single");
    if (single == nullptr || !single->is_array()) return unsupported("post_processor", step);
    if (single->empty()) return {};
    if (const Json* special = member((*single)[0], "SpecialToken"); special != nullptr) {
      first_special = text_of(*special, "id");
    }
    return {};
  }

  Status decoder(const Json& step) {
    const std::string_view type = text_of(step, "type");
    if (type == "ByteLevel" && byte_level) return {};
    if (byte_level) return unsupported("decoder", step);
    if (type == "ByteFallback" || type == "Fuse") return {};
    if (type == "Replace" && string_pattern(step) == kMark && text_of(step, "content") == " ") return {};
    const auto count = [&](const char* name) {
      const Json* value = member(step, name);
      return value != nullptr && value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
    };
    if (type == "Strip" && text_of(step, "content") == " " && count("start") <= 1 && count("stop") == 0) {
      t.text_.strip_first_space = count("start") == 1;
      return {};
    }
    if (type == "Metaspace") {
      MYRIAD_TRY(const TextRules::Prefix prefix, metaspace_prefix("decoder", step));
      t.text_.strip_first_space = prefix != TextRules::Prefix::none;
      return {};
    }
    return unsupported("decoder", step);
  }

  Status read_tokens(std::int32_t vocab_size) {
    MYRIAD_TRY(const std::vector<AddedToken> added, read_added());
    std::int32_t size = added.empty() ? 0 : added.back().id + 1;
    for (const auto& token : file.tokens) size = std::max(size, token.id + 1);
    std::vector<TokenizerJson::Text> by_id(static_cast<std::size_t>(size));
    std::vector<bool> there(static_cast<std::size_t>(size), false);
    for (const auto& token : file.tokens) {
      const auto id = static_cast<std::size_t>(token.id);
      if (there[id]) {
        return fail(Code::corrupt, "model.vocab gives the tokens {} and {} the same id {}",
                    shown_token(file.text(by_id[id])), shown_token(file.text(token.text)), id);
      }
      there[id] = true;
      by_id[id] = token.text;
    }
    MYRIAD_TRY_STATUS(check_added(added));
    t.table_.reserve(static_cast<std::size_t>(std::max(size, std::min(vocab_size, kMaxVocabulary))), file.texts.size());
    auto next = added.begin();
    for (std::int32_t id = 0; id < size; ++id) {
      const auto i = static_cast<std::size_t>(id);
      if (next != added.end() && next->id == id) {
        MYRIAD_TRY_STATUS(t.table_.add(next->name, next->special ? TokenKind::special : TokenKind::user_defined));
        ++next;
      } else if (!there[i]) {
        MYRIAD_TRY_STATUS(t.table_.add({}, TokenKind::unused));
      } else {
        MYRIAD_TRY_STATUS(add_token(file.text(by_id[i])));
      }
    }
    MYRIAD_TRY_STATUS(t.pad_to(vocab_size, "tokenizer.json"));
    return t.table_.build_index();
  }

  // A token whose text no encoding can meet keeps it as its bytes.
  Status add_token(std::string_view text) {
    if (byte_level) {
      const auto bytes = from_byte_level(text);
      return bytes ? t.table_.add(*bytes, TokenKind::text) : t.table_.add(text, TokenKind::silent);
    }
    if (text == unknown) return t.table_.add(text, TokenKind::special);
    if (const int byte = byte_fallback ? byte_of_name(text) : -1; byte >= 0) {
      const char c = static_cast<char>(byte);
      t.rules_.bytes[static_cast<std::size_t>(byte)] = t.table_.size();
      return t.table_.add(std::string_view(&c, 1), TokenKind::byte);
    }
    if (text.find(' ') != text.npos) return t.table_.add(text, TokenKind::silent);
    return t.table_.add(from_space_marks(text), TokenKind::text);
  }

  // Ascending by id.
  Result<std::vector<AddedToken>> read_added() {
    std::vector<AddedToken> added;
    const Json* list = member(file.rest, "added_tokens");
    if (list == nullptr) return added;
    if (!list->is_array()) return fail(Code::corrupt, "its added_tokens are no list");
    if (list->size() > kMaxAddedTokens) {
      return fail(Code::limit, "it has {} added_tokens, at most {} are expected", list->size(), kMaxAddedTokens);
    }
    for (const Json& entry : *list) {
      const Json* id = member(entry, "id");
      if (id == nullptr || !id->is_number_unsigned() || id->get<std::uint64_t>() >= kMaxVocabulary) {
        return fail(Code::corrupt, "added_tokens entry {} has no id from 0 to {}", added.size(), kMaxVocabulary - 1);
      }
      MYRIAD_TRY(AddedToken token,
                 parse_added_token(entry, id->get<std::int32_t>(), fmt::format("added_tokens entry {}", added.size())));
      token.special = token.special || looks_special(token.name);
      added.push_back(std::move(token));
    }
    std::sort(added.begin(), added.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    const auto twice = std::adjacent_find(added.begin(), added.end(),
                                          [](const AddedToken& a, const AddedToken& b) { return a.id == b.id; });
    if (twice != added.end()) return fail(Code::corrupt, "two of its added_tokens have the id {}", twice->id);
    return added;
  }

  // The vocabulary may have added tokens too, but as the same ones.
  Status check_added(const std::vector<AddedToken>& added) {
    std::unordered_map<std::string_view, std::int32_t> by_name;
    std::unordered_map<std::int32_t, std::string_view> by_id;
    for (const AddedToken& token : added) {
      by_name.emplace(token.name, token.id);
      by_id.emplace(token.id, token.name);
    }
    for (const auto& token : file.tokens) {
      const std::string_view text = file.text(token.text);
      const auto name = by_name.find(text);
      const auto id = by_id.find(token.id);
      if ((name != by_name.end() && name->second != token.id) || (id != by_id.end() && id->second != text)) {
        return fail(Code::corrupt, "model.vocab has the token {} as {}, which contradicts added_tokens",
                    shown_token(text), token.id);
      }
    }
    return {};
  }

  Status read_unknown() {
    if (byte_level) return {};
    if (!unknown.empty()) {
      const auto id = t.special_id(unknown);
      if (!id) return fail(Code::corrupt, "its unk_token {} is no token", shown_token(unknown));
      t.rules_.unknown = *id;
      return {};
    }
    const auto missing = std::find(t.rules_.bytes.begin(), t.rules_.bytes.end(), -1);
    if (missing == t.rules_.bytes.end()) return {};
    return fail(Code::unsupported, "it has neither an unk_token nor a token for the byte 0x{:02X}",
                missing - t.rules_.bytes.begin());
  }

  Status read_merges() {
    std::vector<MergeList::Merge> merges;
    merges.reserve(file.merges.size());
    std::string left, right, both;
    const auto decoded = [this](std::string_view text, std::string& out) {
      if (!byte_level) {
        out = from_space_marks(text);
        return true;
      }
      auto bytes = from_byte_level(text);
      if (bytes) out = std::move(*bytes);
      return bytes.has_value();
    };
    for (std::size_t i = 0; i < file.merges.size(); ++i) {
      const std::string_view left_text = file.text(file.merges[i].left), right_text = file.text(file.merges[i].right);
      MergeList::Merge merge;
      if (decoded(left_text, left) && decoded(right_text, right) && !left.empty() && !right.empty()) {
        both = left + right;
        merge = {t.table_.find(left), t.table_.find(right), t.table_.find(both)};
        if (merge.left >= 0 && merge.right >= 0 && merge.result >= 0) {
          merges.push_back(merge);
          continue;
        }
        if (t.special_id(left) || t.special_id(right) || t.special_id(both)) continue;  // no text makes a special token
      }
      return fail(Code::corrupt,
                  "model.merges entry {} is {} and {}: both tokens and the one they make are expected in model.vocab",
                  i, shown_token(left_text), shown_token(right_text));
    }
    MYRIAD_TRY(t.rules_.list, MergeList::make(std::move(merges)));
    return {};
  }
};

Result<Tokenizer> Tokenizer::from_tokenizer_json(std::string_view json, std::string_view config_json,
                                                 std::int32_t vocab_size) {
  Tokenizer tokenizer;
  const auto loaded = [&]() -> Status {
    MYRIAD_TRY(const TokenizerJson file, read_tokenizer_json(json));
    MYRIAD_TRY(const TokenizerConfig config, parse_tokenizer_config(config_json));
    return JsonLoader{file, tokenizer, {}, {}, {}, {}, {}, {}, {}}.load(config, vocab_size);
  }();
  if (!loaded) return std::unexpected(Error(loaded.error()).within("reading tokenizer.json"));
  return tokenizer;
}

}  // namespace myriad
