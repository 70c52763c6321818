// Rules that are one of several steps: runs of one class of characters, and the steps of DeepSeek's.
#include <algorithm>
#include <array>

#include "model/piece_rules.h"
#include "model/text_character.h"

namespace myriad {
namespace {

// Runs of a class, and what lies between them.
template <class Set>
std::size_t run_or_gap(std::string_view text, std::size_t at, Set in) {
  if (in(character_at(text, at))) return skip_characters(text, at, in);
  return skip_characters(text, at, [&](const TextCharacter& c) { return !in(c); });
}

// N{1,most}, and what lies between numbers.
std::size_t numbers_or_gap(std::string_view text, std::size_t at, int most) {
  std::size_t end = at;
  for (int n = 0; n < most; ++n) {
    const TextCharacter c = character_at(text, end);
    if (!c.number()) break;
    end += c.length;
  }
  return end > at ? end : skip_characters(text, at, [](const TextCharacter& c) { return !c.number(); });
}

// \s? and a run of a class, and what lies between.
template <class Set>
std::size_t spaced_run_or_gap(std::string_view text, std::size_t at, Set in) {
  const auto run_at = [&](std::size_t start, const TextCharacter& c) {
    return in(c) || (c.space() && in(character_at(text, start + c.length)));
  };
  TextCharacter c = character_at(text, at);
  if (run_at(at, c)) return skip_characters(text, in(c) ? at : at + c.length, in);
  std::size_t end = at;
  for (; c.length > 0 && !run_at(end, c); c = character_at(text, end)) end += c.length;
  return end;
}

bool between(char32_t c, char32_t first, char32_t last) {
  return c >= first && c <= last;
}

bool ascii_letter(const TextCharacter& c) {
  return between(c.code_point, 'A', 'Z') || between(c.code_point, 'a', 'z');
}

bool ascii_punctuation(const TextCharacter& c) {
  return between(c.code_point, '!', '~') && !ascii_letter(c) && !between(c.code_point, '0', '9');
}

bool letter_or_mark(const TextCharacter& c) {
  return c.is(kUnicodeLetter | kUnicodeMark);
}

// What deepseek_v3_words matches only in front of a letter or mark: numbers, controls, unassigned characters.
bool unmatched_alone(const TextCharacter& c) {
  return !letter_or_mark(c) && !c.is(kUnicodePunctuation | kUnicodeSymbol | kUnicodeSpace);
}

}  // namespace

std::size_t one_number(std::string_view text, std::size_t at) {
  return numbers_or_gap(text, at, 1);
}

std::size_t three_numbers(std::string_view text, std::size_t at) {
  return numbers_or_gap(text, at, 3);
}

std::size_t all_numbers(std::string_view text, std::size_t at) {
  return run_or_gap(text, at, [](const TextCharacter& c) { return c.number(); });
}

std::size_t three_ascii_digits(std::string_view text, std::size_t at) {
  int digits = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    digits = between(static_cast<unsigned char>(text[i]), '0', '9') ? digits + 1 : 0;
    if (digits == 3) return i - 2 == at ? i + 1 : i - 2;
  }
  return text.size();
}

std::size_t one_line_end(std::string_view text, std::size_t at) {
  if (text[at] == '\r' || text[at] == '\n') return at + 1;
  return std::min(text.find_first_of("\r\n", at), text.size());
}

std::size_t space_at_end(std::string_view text, std::size_t at) {
  std::size_t run = at;  // where the last run of space begins
  for (std::size_t i = at; i < text.size();) {
    const TextCharacter c = character_at(text, i);
    i += c.length;
    if (!c.space()) run = i;
  }
  return run > at ? run : text.size();
}

std::size_t punctuation_run(std::string_view text, std::size_t at) {
  return run_or_gap(text, at, [](const TextCharacter& c) {
    constexpr std::string_view kMore = "$+<=>^~|";
    return c.is(kUnicodePunctuation) ||
           (c.code_point < 0x80 && c.length > 0 && kMore.find(static_cast<char>(c.code_point)) != kMore.npos);
  });
}

std::size_t deepseek_v3_cjk(std::string_view text, std::size_t at) {
  return run_or_gap(text, at, [](const TextCharacter& c) {
    return between(c.code_point, 0x4E00, 0x9FA5) || between(c.code_point, 0x3040, 0x30FF);
  });
}

std::size_t deepseek_v3_words(std::string_view text, std::size_t at) {
  const TextCharacter first = character_at(text, at);
  if (ascii_punctuation(first)) {
    if (const std::size_t end = skip_characters(text, at + 1, ascii_letter); end > at + 1) return end;
  }
  const bool prefix = !first.line_end() && !first.is(kUnicodeLetter | kUnicodePunctuation | kUnicodeSymbol);
  const std::size_t word = prefix ? at + first.length : at;
  if (const std::size_t end = skip_characters(text, word, letter_or_mark); end > word) return end;
  if (letter_or_mark(first)) return at + first.length;  // a mark alone
  const auto symbol = [](const TextCharacter& c) { return c.is(kUnicodePunctuation | kUnicodeSymbol); };
  const std::size_t symbols = text[at] == ' ' ? at + 1 : at;
  if (const std::size_t end = skip_characters(text, symbols, symbol); end > symbols) {
    return skip_characters(text, end, [](const TextCharacter& c) { return c.line_end(); });
  }
  if (first.space()) return space_piece(text, at);
  std::size_t end = at;
  for (TextCharacter c = first; unmatched_alone(c) && c.length > 0;) {
    end += c.length;
    c = character_at(text, end);
    if (unmatched_alone(c) && letter_or_mark(character_at(text, end + c.length))) break;
  }
  return end;
}

std::size_t deepseek_cjk(std::string_view text, std::size_t at) {
  return run_or_gap(text, at, [](const TextCharacter& c) {
    return between(c.code_point, 0x800, 0x9FA5) || between(c.code_point, 0xAC00, 0xD7FF);
  });
}

std::size_t deepseek_coder_letters(std::string_view text, std::size_t at) {
  return spaced_run_or_gap(text, at, [](const TextCharacter& c) { return c.letter(); });
}

std::size_t deepseek_coder_punctuation(std::string_view text, std::size_t at) {
  return spaced_run_or_gap(text, at, [](const TextCharacter& c) { return c.is(kUnicodePunctuation); });
}

std::size_t deepseek_llm_letters(std::string_view text, std::size_t at) {
  // Letters with case that the expression does not list.
  struct Range {
    char32_t first, last;
  };
  static constexpr std::array<Range, 9> kNotListed{{{0x560, 0x588},
                                                    {0x10C7, 0x10FF},
                                                    {0x1C80, 0x1C88},
                                                    {0x2D00, 0x2D2D},
                                                    {0xA790, 0xA7FA},
                                                    {0xAB30, 0xAB68},
                                                    {0x10570, 0x105BC},
                                                    {0x16E40, 0x16E7F},
                                                    {0x1D400, 0x1DF2A}}};
  return spaced_run_or_gap(text, at, [](const TextCharacter& c) {
    return c.is(kUnicodeLu | kUnicodeLl | kUnicodeLt) &&
           std::none_of(kNotListed.begin(), kNotListed.end(),
                        [&](const Range& r) { return between(c.code_point, r.first, r.last); });
  });
}

std::size_t deepseek_llm_punctuation(std::string_view text, std::size_t at) {
  return spaced_run_or_gap(text, at, [](const TextCharacter& c) {
    const char32_t p = c.code_point;
    return between(p, '!', '/') || between(p, ':', '~') || between(p, 0xFF01, 0xFF0F) || between(p, 0xFF1A, 0xFF5E) ||
           between(p, 0x2018, 0x201F) || between(p, 0x3000, 0x3002);
  });
}

std::size_t space_first_piece(std::string_view text, std::size_t at) {
  return std::min(text.find(' ', at + 1), text.size());
}

std::size_t space_run_first_piece(std::string_view text, std::size_t at) {
  const std::size_t word = std::min(text.find_first_not_of(' ', at), text.size());
  return std::min(text.find(' ', word), text.size());
}

}  // namespace myriad
