// What a GGUF file says about its tokenizer, as plain data: whoever reads the file fills it, Tokenizer::from_gguf uses
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace myriad {

// All views belong to the caller and are not kept. Keys are those under "tokenizer.ggml.".
struct GgufVocabulary {
  std::string_view model;                    // model: "gpt2" or "llama"
  std::string_view pre;                      // pre; empty if the file has none
  std::span<const std::string_view> tokens;  // tokens, by id, as the file spells them
  std::span<const std::int32_t> types;       // token_type: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused,
                                             // 6 byte; empty: all normal
  std::span<const float> scores;             // scores; empty: all 0
  std::span<const std::string_view> merges;  // merges: "left right", the first one first
  // …_token_id; none where the file has none. An id outside the vocabulary counts as none.
  std::optional<std::uint32_t> bos, eos, eot, unknown, padding;
  std::optional<bool> add_bos;           // add_bos_token
  std::optional<bool> add_space_prefix;  // add_space_prefix
  // kGgufTokenizerRules: what GGUF has no key for.
  std::span<const std::string_view> rules;
};

// Myriad's own key: a list of words for what a tokenizer does that no key of GGUF says. Others do not know it, and
// encode as they would without.
inline constexpr std::string_view kGgufTokenizerRules = "myriad.tokenizer.rules";
inline constexpr std::string_view kRuleNfc = "nfc";                   // text is normalised (form C)
inline constexpr std::string_view kRulePrefixFirst = "prefix-first";  // ▁ before the text, not behind names
inline constexpr std::string_view kRulePrefixUnlessSpace = "prefix-unless-space";  // none before a space
inline constexpr std::string_view kRuleStripSpace = "strip-first-space";           // when decoding, although no prefix
inline constexpr std::string_view kRuleKeepSpace = "keep-first-space";             // when decoding, although a prefix
inline constexpr std::string_view kRuleUserDefinedInside = "user-defined-inside";  // names are found behind the prefix
inline constexpr std::string_view kRuleUnknownsApart = "unknowns-apart";           // each unknown character is a token

// A vocabulary in GGUF's terms that owns its texts: what Tokenizer::to_gguf gives. Members as in GgufVocabulary.
struct GgufVocabularyTexts {
  std::string model, pre;
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  std::vector<std::string> merges;
  std::optional<std::uint32_t> bos, eos, unknown;
  bool add_bos = false;
  std::optional<bool> add_space_prefix;
  std::vector<std::string> rules;
};

}  // namespace myriad
