// How text is cut into the pieces inside which tokens are merged: rules (model/piece_rules.h) one after the other, each
// of which cuts the pieces of the one before. Every text is covered without gaps, in time linear in its length.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "model/piece_rules.h"

namespace myriad {

class Pretokenizer {
 public:
  static constexpr std::size_t kMaxRules = 8;
  // Without rules the whole text is one piece.
  Pretokenizer() = default;
  Pretokenizer(std::initializer_list<PieceRule> rules);
  // False when there are kMaxRules already.
  bool add(PieceRule next);
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] PieceRule rule(std::size_t i) const { return rules_[i]; }

 private:
  std::array<PieceRule, kMaxRules> rules_{};
  std::size_t count_ = 0;
};

// The pre-tokeniser that a GGUF file names in tokenizer.ggml.pre; an empty name is "default". None for a name that is
// not known.
std::optional<Pretokenizer> pretokenizer_by_name(std::string_view name);
// The names of the pre-tokeniser with the same rules, the most usual one first.
std::vector<std::string_view> names_of_pretokenizer(const Pretokenizer& pretokenizer);
// Whether models with the pre-tokeniser of this name take a piece that is a token as it is (Hugging Face:
// ignore_merges). Their texts begin with BOS unless the file says otherwise.
bool takes_whole_pieces(std::string_view name);
// The rule that does what a regular expression in a tokenizer.json says; null for an expression that is not one of
// those of the known model families, compared letter by letter.
PieceRule piece_rule_of_pattern(std::string_view pattern);

// The pieces of a text, one after the other. Text and pre-tokeniser must outlive it.
class PieceCutter {
 public:
  PieceCutter(const Pretokenizer& pretokenizer, std::string_view text) : pretokenizer_(pretokenizer), text_(text) {}
  // Sets the next piece, which points into the text; false when there is none left. An empty text has no pieces.
  bool next(std::string_view& piece);

 private:
  const Pretokenizer& pretokenizer_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::array<std::size_t, Pretokenizer::kMaxRules> ends_{};  // where the piece of each rule ends that `at_` is in
};

// All pieces, in order; they point into `text`.
std::vector<std::string_view> pretokenize(const Pretokenizer& pretokenizer, std::string_view text);

// Kimi's tokenizer cuts very long texts before it looks for pieces, and no piece crosses such a cut: after every
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
