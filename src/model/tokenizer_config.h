// The parts of a tokenizer_config.json that say which tokens are special.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace myriad {

inline constexpr std::size_t kMaxTokenizerConfigBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMaxAddedTokens = 4096;
inline constexpr std::size_t kMaxAddedTokenBytes = 256;

struct AddedToken {
  std::int32_t id = -1;
  std::string name;
  bool special = true;
};

struct TokenizerConfig {
  std::vector<AddedToken> added;             // added_tokens_decoder, ascending by id
  std::optional<std::string> bos, eos, pad;  // names; none if absent or null
  std::optional<bool> add_bos, add_eos;      // add_bos_token, add_eos_token
  std::optional<bool> add_prefix_space;
  std::optional<bool> legacy;
};

// An empty text stands for a file that is not there. Errors: corrupt, limit, unsupported, each naming the member.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view json);
// One entry of added_tokens_decoder or of tokenizer.json's added_tokens; `where` names it in messages. Names that match
// only in part of a text (single_word) or take white space along (lstrip, rstrip) are `unsupported`.
Result<AddedToken> parse_added_token(const nlohmann::json& entry, std::int32_t id, std::string_view where);

}  // namespace myriad
