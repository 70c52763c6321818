// Reads a Hugging Face tokenizer.json in one pass: the large parts, its vocabulary and its merges, into compact arrays,
// everything else into a JSON value.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace myriad {

struct TokenizerJson {
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // of the file
  static constexpr std::size_t kMaxDepth = 64;
  static constexpr std::size_t kMaxOtherValues = 200'000;  // outside the vocabulary and the merges

  struct Text {
    std::uint32_t offset = 0, size = 0;  // in `texts`
  };
  struct Token {
    Text text;
    std::int32_t id = -1;
  };
  struct Merge {
    Text left, right;
  };

  [[nodiscard]] std::string_view text(Text t) const { return std::string_view(texts).substr(t.offset, t.size); }

  std::string texts;
  std::vector<Token> tokens;  // model.vocab, if that is an object of numbers; in the file's order
  std::vector<Merge> merges;  // model.merges, "a b" or ["a", "b"]; in the file's order
  nlohmann::json rest;        // without those two
};

// Errors: corrupt with the position for what is not JSON or is not as a tokenizer.json should be; limit.
Result<TokenizerJson> read_tokenizer_json(std::string_view json);

}  // namespace myriad
