// Characters of foreign text with the properties that pre-tokenisers ask for; for the pre-tokenisers only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/unicode_tables.h"
#include "model/utf8_stream.h"

namespace myriad {

// A byte that is not part of well-formed UTF-8 is one character of no class.
struct TextCharacter {
  char32_t code_point = 0;
  std::size_t length = 0;   // bytes
  std::uint16_t flags = 0;  // UnicodeClass

  [[nodiscard]] bool is(std::uint16_t bits) const { return (flags & bits) != 0; }
  [[nodiscard]] bool letter() const { return is(kUnicodeLetter); }
  [[nodiscard]] bool number() const { return is(kUnicodeNumber); }
  [[nodiscard]] bool space() const { return is(kUnicodeSpace); }
  [[nodiscard]] bool line_end() const { return code_point == '\r' || code_point == '\n'; }
  // [^\r\n L N]
  [[nodiscard]] bool word_prefix() const { return !is(kUnicodeLetter | kUnicodeNumber) && !line_end(); }
  // [^\s L N]
  [[nodiscard]] bool symbol() const { return !is(kUnicodeLetter | kUnicodeNumber | kUnicodeSpace); }
};

// The character that begins at `at`. Past the end: one of length 0, of no class.
inline TextCharacter character_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const Utf8Char c = utf8_char_at(text, at);
  if (!c.valid) return {static_cast<char32_t>(0xFFFFFFFF), 1, 0};
  return {c.code_point, c.length, unicode_class(c.code_point)};
}

// The end of the run of characters from `at` on for which `in` holds.
template <class Set>
std::size_t skip_characters(std::string_view text, std::size_t at, Set in) {
  for (TextCharacter c = character_at(text, at); c.length > 0 && in(c); c = character_at(text, at)) at += c.length;
  return at;
}

}  // namespace myriad
