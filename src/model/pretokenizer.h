// Kimi's pre-tokeniser: how text is cut into the pieces inside which byte pairs are merged.
//
// It stands for a regular expression with eight alternatives, tried in order, the first that matches wins, each with
// backtracking (L letters, N numbers, M marks, \s White_Space, Han the script):
//
//   1  [Han]+
//   2  [^\r\n L N]? [Lu Lt Lm Lo M, not Han]* [Ll Lm Lo M, not Han]+ (?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   3  [^\r\n L N]? [Lu Lt Lm Lo M, not Han]+ [Ll Lm Lo M, not Han]* (?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   4  N{1,3}
//   5  " "? [^\s L N]+ [\r\n]*
//   6  \s* [\r\n]+
//   7  \s+ (?!\S)
//   8  \s+
//
// Case folding is Unicode's simple one, so U+017F (ſ) counts as the s of 's. A byte that is not part of well-formed
// UTF-8 is one character that is neither space nor letter nor number. Every text is covered without gaps, in time
// linear in its length.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace myriad {

// Where the piece that begins at byte `at` ends; `at` must be smaller than the size of the text. What comes before `at`
// does not matter.
std::size_t pretoken_end(std::string_view text, std::size_t at);

// All pieces, in order; they point into `text`.
std::vector<std::string_view> pretokenize(std::string_view text);

// The official tokenizer cuts very long texts before it looks for pieces, and no piece crosses such a cut: after every
// kCutCharacters characters, and inside such a part before a character that would make a run of space or of non-space
// longer than kCutRun. "Space" is here what Python calls so: White_Space and U+001C to U+001F. Counted in characters,
// an ill-formed byte being one.
inline constexpr std::size_t kCutCharacters = 400'000;
inline constexpr std::size_t kCutRun = 25'000;

class LongTextCutter {
 public:
  explicit LongTextCutter(std::string_view text) : text_(text) {}
  // Sets the next part, which points into the text; false when there is none left. An empty text has no parts.
  bool next(std::string_view& part);

 private:
  std::string_view text_;
  std::size_t at_ = 0;                 // where the next part begins
  std::size_t left_ = kCutCharacters;  // characters until the next cut by total length
};

// Whether Python's str.isspace holds for the character; also what str.strip removes.
bool is_python_space(char32_t code_point);

}  // namespace myriad
