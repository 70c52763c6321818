#include "model/normalization.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/normalization_tables.h"
#include "model/utf8_stream.h"

namespace myriad {
namespace {

// Hangul syllables, Unicode Standard §3.12.
constexpr char32_t kSyllables = 0xAC00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kLeadingCount = 19, kVowelCount = 21, kTrailingCount = 28;
constexpr char32_t kSyllableCount = kLeadingCount * kVowelCount * kTrailingCount;

// An ill-formed byte is this plus the byte: of class 0, and in no composition.
constexpr char32_t kIllFormed = 0x80000000;

struct Unit {
  char32_t code_point;
  std::uint8_t combining;
};

void append_decomposed(char32_t c, std::vector<Unit>& out) {
  if (c >= kSyllables && c < kSyllables + kSyllableCount) {
    const char32_t index = c - kSyllables;
    out.push_back({kLeading + index / (kVowelCount * kTrailingCount), 0});
    out.push_back({kVowels + index / kTrailingCount % kVowelCount, 0});
    if (index % kTrailingCount != 0) out.push_back({kTrailing + index % kTrailingCount, 0});
    return;
  }
  char32_t first = 0, second = 0;
  if (!decomposed(c, first, second)) {
    out.push_back({c, combining_class(c)});
    return;
  }
  append_decomposed(first, out);  // at most four steps deep
  if (second != 0) out.push_back({second, combining_class(second)});
}

char32_t composition(char32_t first, char32_t second) {
  if (first >= kLeading && first < kLeading + kLeadingCount && second >= kVowels && second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeading) * kVowelCount + (second - kVowels)) * kTrailingCount;
  }
  if (first >= kSyllables && first < kSyllables + kSyllableCount && (first - kSyllables) % kTrailingCount == 0 &&
      second > kTrailing && second < kTrailing + kTrailingCount) {
    return first + (second - kTrailing);
  }
  return composed(first, second);
}

// Marks between two characters of class 0, by class.
void order_marks(std::vector<Unit>& units) {
  for (auto at = units.begin(); at != units.end();) {
    if (at->combining == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, units.end(), [](const Unit& u) { return u.combining == 0; });
    std::stable_sort(at, end, [](const Unit& a, const Unit& b) { return a.combining < b.combining; });
    at = end;
  }
}

// A character joins the last one of class 0 before it unless one of its own class or of class 0 stands between.
void compose(std::vector<Unit>& units) {
  std::size_t kept = 0, starter = 0;
  bool has_starter = false;
  for (const Unit unit : units) {
    if (has_starter) {
      const bool adjacent = kept == starter + 1;
      const std::uint8_t before = units[kept - 1].combining;
      if (adjacent || (before != 0 && before < unit.combining)) {
        if (const char32_t both = composition(units[starter].code_point, unit.code_point); both != 0) {
          units[starter].code_point = both;
          continue;
        }
      }
    }
    if (unit.combining == 0) {
      starter = kept;
      has_starter = true;
    }
    units[kept++] = unit;
  }
  units.resize(kept);
}

}  // namespace

bool surely_nfc(std::string_view text) {
  // Every character below U+0300 is stable, and those are the bytes below 0xCC.
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

std::string normalized_nfc(std::string_view text) {
  std::vector<Unit> units;
  units.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    at += c.length;
    if (c.valid) {
      append_decomposed(c.code_point, units);
    } else {
      units.push_back({kIllFormed + c.code_point, 0});
    }
  }
  order_marks(units);
  compose(units);
  std::string out;
  out.reserve(text.size());
  for (const Unit& unit : units) {
    if (unit.code_point >= kIllFormed) {
      out.push_back(static_cast<char>(static_cast<unsigned char>(unit.code_point - kIllFormed)));
    } else {
      append_utf8(out, unit.code_point);
    }
  }
  return out;
}

}  // namespace myriad
