// What a GGUF file says about its tokenizer, as plain data: whoever reads the file fills it, Tokenizer::from_gguf uses
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

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
};

}  // namespace myriad
