// Vocabularies inside GGUF files.
#include <algorithm>

#include "model/tokenizer.h"
#include "model/vocabulary_text.h"

namespace myriad {
namespace {

enum GgufTokenType : std::int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

std::optional<std::int32_t> id_below(std::optional<std::uint32_t> id, std::int32_t size) {
  if (!id || *id >= static_cast<std::uint32_t>(size)) return std::nullopt;
  return static_cast<std::int32_t>(*id);
}

Result<MergeList> read_merges(std::span<const std::string_view> texts, const TokenTable& table) {
  std::vector<MergeList::Merge> merges;
  merges.reserve(std::min(texts.size(), MergeList::kMaxMerges));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::size_t space = std::min(texts[i].find(' ', 1), texts[i].size());
    const auto left = from_byte_level(texts[i].substr(0, space));
    const auto right = from_byte_level(texts[i].substr(std::min(space + 1, texts[i].size())));
    if (!left || !right || left->empty() || right->empty()) {
      return fail(Code::corrupt, "tokenizer.ggml.merges entry {} is {}: two tokens with a space between are expected",
                  i, shown_token(texts[i]));
    }
    const std::string both = *left + *right;
    const MergeList::Merge merge{table.find(*left), table.find(*right), table.find(both)};
    if (merge.left >= 0 && merge.right >= 0 && merge.result >= 0) {
      merges.push_back(merge);
    } else if (!table.named(*left) && !table.named(*right) && !table.named(both)) {  // no text makes a special token
      return fail(Code::corrupt,
                  "tokenizer.ggml.merges entry {} is {}: both tokens and the one they make are expected in "
                  "tokenizer.ggml.tokens",
                  i, shown_token(texts[i]));
    }
  }
  return MergeList::make(std::move(merges));
}

}  // namespace

Result<Tokenizer> Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  Tokenizer t;
  const bool spm = vocabulary.model == "llama";
  if (!spm && vocabulary.model != "gpt2") {
    return fail(Code::unsupported, "the file's tokenizer is {}; 'gpt2' and 'llama' are supported",
                shown_token(vocabulary.model));
  }
  MYRIAD_TRY_STATUS(t.read_gguf_tokens(vocabulary));
  t.bos_ = id_below(spm ? vocabulary.bos.value_or(1) : vocabulary.bos, t.vocab_size());
  t.eos_ = id_below(spm ? vocabulary.eos.value_or(2) : vocabulary.eos, t.vocab_size());
  t.end_of_turn_ = id_below(vocabulary.eot, t.vocab_size());
  bool add_bos = spm;
  if (spm) {
    t.rules_.order = MergeRules::Order::by_score;
    t.rules_.characters = true;
    t.rules_.unknown = id_below(vocabulary.unknown.value_or(0), t.vocab_size()).value_or(-1);
    t.rules_.fuse_unknown = true;
    MYRIAD_TRY_STATUS(t.rules_.set_scores(vocabulary.scores.first(vocabulary.tokens.size())));
    t.text_.sentencepiece = true;
    t.text_.strip_first_space = vocabulary.add_space_prefix.value_or(true);
    if (t.text_.strip_first_space) t.text_.prefix = TextRules::Prefix::each;
    t.cut_at_spaces_if_possible();
  } else {
    const auto pretokenizer = pretokenizer_by_name(vocabulary.pre);
    if (!pretokenizer) {
      return fail(
          Code::unsupported,
          "tokenizer.ggml.pre is {}, which is not supported; llama-bpe, dbrx, qwen2, deepseek-v3, deepseek-llm, "
          "deepseek-coder, kimi-k2, gpt-2, smollm, gpt-4o, tekken and default are",
          shown_token(vocabulary.pre));
    }
    t.pretokenizer_ = *pretokenizer;
    MYRIAD_TRY_STATUS(t.index_bytes("tokenizer.ggml.tokens", false));
    if (vocabulary.pre == "kimi-k2") {
      t.rules_.whole_pieces = true;
      t.text_.kimi_cuts = true;
    } else {
      t.rules_.order = MergeRules::Order::by_list;
      add_bos = takes_whole_pieces(vocabulary.pre);
      t.rules_.whole_pieces = add_bos;
      MYRIAD_TRY(t.rules_.list, read_merges(vocabulary.merges, t.table_));
      if (t.rules_.list.size() == 0) return fail(Code::corrupt, "tokenizer.ggml.merges is missing or empty");
    }
  }
  if (vocabulary.add_bos.value_or(false) && !t.bos_) {
    return fail(Code::corrupt, "tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id");
  }
  t.add_bos_ = t.bos_ && vocabulary.add_bos.value_or(add_bos);
  MYRIAD_TRY_STATUS(t.read_gguf_rules(vocabulary.rules));
  return t;
}

Status Tokenizer::read_gguf_rules(std::span<const std::string_view> rules) {
  for (const std::string_view rule : rules) {
    if (rule == kRuleNfc) {
      text_.nfc = true;
    } else if (rule == kRulePrefixFirst) {
      text_.prefix = TextRules::Prefix::first;
    } else if (rule == kRulePrefixUnlessSpace) {
      text_.prefix_unless_space = true;
    } else if (rule == kRuleStripSpace || rule == kRuleKeepSpace) {
      text_.strip_first_space = rule == kRuleStripSpace;
    } else if (rule == kRuleUserDefinedInside) {
      text_.user_defined_inside = true;
    } else if (rule == kRuleUnknownsApart) {
      rules_.fuse_unknown = false;
    } else {
      return fail(Code::unsupported, "{} holds {}, which this version does not know", kGgufTokenizerRules,
                  shown_token(rule));
    }
  }
  return {};
}

Status Tokenizer::read_gguf_tokens(const GgufVocabulary& vocabulary) {
  const std::size_t count = vocabulary.tokens.size();
  const bool spm = vocabulary.model == "llama";
  if (count == 0) return fail(Code::corrupt, "tokenizer.ggml.tokens is missing or empty");
  if (!vocabulary.types.empty() && vocabulary.types.size() < count) {
    return fail(Code::corrupt, "tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens {}",
                vocabulary.types.size(), count);
  }
  if (spm && vocabulary.scores.size() < count) {
    return fail(Code::corrupt, "tokenizer.ggml.scores has {} entries, tokenizer.ggml.tokens {}",
                vocabulary.scores.size(), count);
  }
  table_.reserve(std::min<std::size_t>(count, kMaxVocabulary), 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view text = vocabulary.tokens[i];
    std::int32_t type = kNormal;
    if (!vocabulary.types.empty()) {
      type = vocabulary.types[i];
    } else if (i == vocabulary.bos || i == vocabulary.eos || i == vocabulary.eot || (spm && i < 3)) {
      type = kControl;
    } else if (spm && byte_of_name(text) >= 0) {
      type = kByte;
    }
    if (type == kUserDefined && looks_special(text)) type = kControl;
    switch (type) {
      case kNormal: {
        // A token whose text no encoding can meet keeps it as its bytes.
        std::optional<std::string> bytes;
        if (!spm) {
          bytes = from_byte_level(text);
        } else if (text.find(' ') == text.npos) {
          bytes = from_space_marks(text);
        }
        MYRIAD_TRY_STATUS(bytes ? table_.add(*bytes, TokenKind::text) : table_.add(text, TokenKind::silent));
        break;
      }
      case kByte: {
        const int byte = byte_of_name(text);
        if (byte < 0) {
          return fail(Code::corrupt, "token {} is of the type byte and named {}; <0x00> to <0xFF> are expected", i,
                      shown_token(text));
        }
        const char c = static_cast<char>(byte);
        MYRIAD_TRY_STATUS(table_.add(std::string_view(&c, 1), TokenKind::byte));
        if (spm) rules_.bytes[static_cast<std::size_t>(byte)] = static_cast<std::int32_t>(i);
        break;
      }
      case kUnknown:
      case kControl:
        MYRIAD_TRY_STATUS(table_.add(text, TokenKind::special));
        break;
      case kUserDefined:
        MYRIAD_TRY_STATUS(table_.add(text, TokenKind::user_defined));
        break;
      default:
        MYRIAD_TRY_STATUS(table_.add(text, TokenKind::unused));
        break;
    }
  }
  return table_.build_index();
}

}  // namespace myriad
