// The regular expressions with which the model families cut text into pieces, each as a function written by hand.
//
// L, N, M, P and S are Unicode's general categories (letters, numbers, marks, punctuation, symbols), \s is White_Space,
// Han the script. Case folding is Unicode's simple one, so U+017F (ſ) counts as the s of 's. A byte that is not part of
// well-formed UTF-8 is one character of no class. Alternatives are tried in order, the first that matches wins, with
// backtracking; all functions together take time linear in the text.
#pragma once

#include <cstddef>
#include <string_view>

namespace myriad {

// Where the piece that begins at byte `at` ends; `at` is smaller than the text's size, the result larger than `at`.
// What comes before `at` does not matter. Where the expression does not match, the piece is the text up to its next
// match.
using PieceRule = std::size_t (*)(std::string_view text, std::size_t at);

// Words that know upper and lower case. With contraction = (?i:'s|'t|'re|'ve|'m|'ll|'d)?:
//   [^\r\n L N]? [Lu Lt Lm Lo M]* [Ll Lm Lo M]+ contraction
//   [^\r\n L N]? [Lu Lt Lm Lo M]+ [Ll Lm Lo M]* contraction
//   N{1,3} | " "? [^\s L N]+ [\r\n/]* | \s* [\r\n]+ | \s+ (?!\S) | \s+
// Kimi takes [Han]+ first, has no Han in the sets of letters and no / among the line ends; Tekken (Mistral) has single
// numbers and no contractions.
std::size_t kimi_piece(std::string_view text, std::size_t at);
std::size_t o200k_piece(std::string_view text, std::size_t at);
std::size_t tekken_piece(std::string_view text, std::size_t at);

// (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n L N]? L+ | N{1,3} | " "? [^\s L N]+ [\r\n]* | \s* [\r\n]+ | \s+ (?!\S) | \s+
std::size_t llama3_piece(std::string_view text, std::size_t at);
// The same with single numbers.
std::size_t qwen2_piece(std::string_view text, std::size_t at);
// 's|'t|'re|'ve|'m|'ll|'d | " "? L+ | " "? N+ | " "? [^\s L N]+ | \s+ (?!\S) | \s+
std::size_t gpt2_piece(std::string_view text, std::size_t at);

// \s* [\r\n]+ | \s+ (?!\S) | \s+, which is how most of the others end; `at` must be white space.
std::size_t space_piece(std::string_view text, std::size_t at);

// N | N{1,3} | N+ | [0-9][0-9][0-9]
std::size_t one_number(std::string_view text, std::size_t at);
std::size_t three_numbers(std::string_view text, std::size_t at);
std::size_t all_numbers(std::string_view text, std::size_t at);
std::size_t three_ascii_digits(std::string_view text, std::size_t at);

// [\r\n]
std::size_t one_line_end(std::string_view text, std::size_t at);
// \s+ at the end of the text
std::size_t space_at_end(std::string_view text, std::size_t at);
// [P $ + < = > ^ ~ |]+
std::size_t punctuation_run(std::string_view text, std::size_t at);

// DeepSeek V3: [U+4E00–9FA5 U+3040–309F U+30A0–30FF]+
std::size_t deepseek_v3_cjk(std::string_view text, std::size_t at);
// [ASCII punctuation] [A-Za-z]+ | [^\r\n L P S]? [L M]+ | " "? [P S]+ [\r\n]* | \s* [\r\n]+ | \s+ (?!\S) | \s+
std::size_t deepseek_v3_words(std::string_view text, std::size_t at);
// DeepSeek Coder and LLM: [U+4E00–9FA5 U+0800–4E00 U+AC00–D7FF]+
std::size_t deepseek_cjk(std::string_view text, std::size_t at);
// \s? L+ | \s? P+
std::size_t deepseek_coder_letters(std::string_view text, std::size_t at);
std::size_t deepseek_coder_punctuation(std::string_view text, std::size_t at);
// DeepSeek LLM and V2: \s? and letters with case, those that its expression lists; \s? [ASCII and full-width
// punctuation and some more]+
std::size_t deepseek_llm_letters(std::string_view text, std::size_t at);
std::size_t deepseek_llm_punctuation(std::string_view text, std::size_t at);

// SentencePiece text, where a space stands for ▁: a piece begins at every space, or where a space follows another
// character.
std::size_t space_first_piece(std::string_view text, std::size_t at);
std::size_t space_run_first_piece(std::string_view text, std::size_t at);

}  // namespace myriad
