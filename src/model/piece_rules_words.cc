// Rules that are one expression for the whole text.
#include "model/piece_rules.h"
#include "model/text_character.h"

namespace myriad {
namespace {

// (?i:'s|'t|'re|'ve|'m|'ll|'d)? or, without `fold`, the same in lower case only.
std::size_t after_contraction(std::string_view text, std::size_t at, bool fold) {
  if (at >= text.size() || text[at] != '\'') return at;
  const TextCharacter first = character_at(text, at + 1);
  const auto letter = [fold](const TextCharacter& c) -> char {
    if (fold && c.code_point == 0x17F) return 's';
    if (fold && c.code_point >= 'A' && c.code_point <= 'Z') return static_cast<char>(c.code_point - 'A' + 'a');
    return c.code_point < 0x80 ? static_cast<char>(c.code_point) : '\0';
  };
  if (first.length == 0) return at;
  const char one = letter(first);
  const std::size_t after_one = at + 1 + first.length;
  if (one == 's' || one == 't' || one == 'm' || one == 'd') return after_one;
  const TextCharacter second = character_at(text, after_one);
  if (second.length == 0) return at;
  const char two = letter(second);
  if ((one == 'r' && two == 'e') || (one == 'v' && two == 'e') || (one == 'l' && two == 'l')) {
    return after_one + second.length;
  }
  return at;
}

// N{1,most}
std::size_t numbers_end(std::string_view text, std::size_t at, int most) {
  for (int n = 0; n < most; ++n) {
    const TextCharacter c = character_at(text, at);
    if (!c.number()) break;
    at += c.length;
  }
  return at;
}

// " "? [^\s L N]+; `at` if it does not match.
std::size_t symbols_end(std::string_view text, std::size_t at) {
  const std::size_t symbols = text[at] == ' ' ? at + 1 : at;
  const std::size_t end = skip_characters(text, symbols, [](const TextCharacter& c) { return c.symbol(); });
  return end > symbols ? end : at;
}

// \s* [\r\n]+ | \s+ (?!\S) | \s+ on a run of white space; without `line_ends` the last two.
std::size_t space_end(std::string_view text, std::size_t at, bool line_ends) {
  std::size_t end = at, after_line_end = 0, before_last = at;
  for (TextCharacter c = character_at(text, end); c.length > 0 && c.space(); c = character_at(text, end)) {
    before_last = end;
    end += c.length;
    if (c.line_end()) after_line_end = end;
  }
  if (line_ends && after_line_end > 0) return after_line_end;
  if (end == text.size() || before_last == at) return end;
  return before_last;  // the last one goes with what follows
}

struct CasedWords {
  bool han_apart;     // [Han]+ is a piece, and no letter of a word is Han
  bool contractions;  // a word takes the contraction behind it along
  int numbers;        // how many make a piece, at most
  bool slash;         // / counts as a line end behind symbols
};

template <CasedWords kWords>
bool upper(const TextCharacter& c) {
  return c.is(kUnicodeLu | kUnicodeLt | kUnicodeLm | kUnicodeLo | kUnicodeMark) &&
         !(kWords.han_apart && c.is(kUnicodeHan));
}
template <CasedWords kWords>
bool lower(const TextCharacter& c) {
  return c.is(kUnicodeLl | kUnicodeLm | kUnicodeLo | kUnicodeMark) && !(kWords.han_apart && c.is(kUnicodeHan));
}

// The first alternative without its optional first character: upper* lower+. 0 if it does not match.
template <CasedWords kWords>
std::size_t word_with_lower(std::string_view text, std::size_t start) {
  // The greedy upper* runs to `end` and gives characters back from there until a lower one follows it.
  std::size_t last_both_end = 0;  // the end of the last character in the run that is also in the lower set
  std::size_t end = start;
  for (TextCharacter c = character_at(text, end); c.length > 0 && upper<kWords>(c); c = character_at(text, end)) {
    end += c.length;
    if (lower<kWords>(c)) last_both_end = end;
  }
  const std::size_t after = skip_characters(text, end, lower<kWords>);
  if (after > end) return after;
  // Behind that last character come upper ones only, so lower+ is this one character.
  return last_both_end;
}

// The second one without its optional first character: upper+ lower*. 0 if it does not match.
template <CasedWords kWords>
std::size_t word_of_upper(std::string_view text, std::size_t start) {
  const std::size_t end = skip_characters(text, start, upper<kWords>);
  if (end == start) return 0;
  return skip_characters(text, end, lower<kWords>);
}

template <CasedWords kWords>
std::size_t cased_word_end(std::string_view text, std::size_t at, const TextCharacter& first) {
  for (const auto alternative : {word_with_lower<kWords>, word_of_upper<kWords>}) {
    std::size_t end = 0;
    if (first.word_prefix()) end = alternative(text, at + first.length);
    if (end == 0) end = alternative(text, at);
    if (end > 0) return kWords.contractions ? after_contraction(text, end, true) : end;
  }
  return 0;
}

template <CasedWords kWords>
std::size_t cased_piece(std::string_view text, std::size_t at) {
  const TextCharacter first = character_at(text, at);
  if (kWords.han_apart && first.is(kUnicodeHan)) {
    return skip_characters(text, at, [](const TextCharacter& c) { return c.is(kUnicodeHan); });
  }
  if (const std::size_t end = cased_word_end<kWords>(text, at, first)) return end;
  if (first.number()) return numbers_end(text, at, kWords.numbers);
  if (const std::size_t end = symbols_end(text, at); end > at) {
    return skip_characters(
        text, end, [](const TextCharacter& c) { return c.line_end() || (kWords.slash && c.code_point == '/'); });
  }
  return space_piece(text, at);
}

std::size_t plain_words_piece(std::string_view text, std::size_t at, int numbers) {
  if (const std::size_t end = after_contraction(text, at, true); end > at) return end;
  const TextCharacter first = character_at(text, at);
  const auto letter = [](const TextCharacter& c) { return c.letter(); };
  const std::size_t word = first.word_prefix() ? at + first.length : at;
  if (const std::size_t end = skip_characters(text, word, letter); end > word) return end;
  if (first.number()) return numbers_end(text, at, numbers);
  if (const std::size_t end = symbols_end(text, at); end > at) {
    return skip_characters(text, end, [](const TextCharacter& c) { return c.line_end(); });
  }
  return space_piece(text, at);
}

}  // namespace

std::size_t kimi_piece(std::string_view text, std::size_t at) {
  return cased_piece<CasedWords{.han_apart = true, .contractions = true, .numbers = 3, .slash = false}>(text, at);
}

std::size_t o200k_piece(std::string_view text, std::size_t at) {
  return cased_piece<CasedWords{.han_apart = false, .contractions = true, .numbers = 3, .slash = true}>(text, at);
}

std::size_t tekken_piece(std::string_view text, std::size_t at) {
  return cased_piece<CasedWords{.han_apart = false, .contractions = false, .numbers = 1, .slash = true}>(text, at);
}

std::size_t llama3_piece(std::string_view text, std::size_t at) {
  return plain_words_piece(text, at, 3);
}

std::size_t qwen2_piece(std::string_view text, std::size_t at) {
  return plain_words_piece(text, at, 1);
}

std::size_t space_piece(std::string_view text, std::size_t at) {
  return space_end(text, at, true);
}

std::size_t gpt2_piece(std::string_view text, std::size_t at) {
  if (const std::size_t end = after_contraction(text, at, false); end > at) return end;
  const std::size_t start = text[at] == ' ' ? at + 1 : at;
  const TextCharacter first = character_at(text, start);
  if (first.letter()) return skip_characters(text, start, [](const TextCharacter& c) { return c.letter(); });
  if (first.number()) return skip_characters(text, start, [](const TextCharacter& c) { return c.number(); });
  if (const std::size_t end = symbols_end(text, at); end > at) return end;
  return space_end(text, at, false);
}

}  // namespace myriad
