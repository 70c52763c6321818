#include "model/jinja_unicode.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "model/pretokenizer.h"

namespace myriad::jinja {
namespace {

// Where the character that ends at `end`, which is not 0, begins.
std::size_t previous_character(std::string_view text, std::size_t end) {
  for (std::size_t length = 1; length <= 4 && length <= end; ++length) {
    const Utf8Char c = utf8_char_at(text, end - length);
    if (c.valid && c.length == length) return end - length;
  }
  return end - 1;
}

}  // namespace

std::size_t next_character(std::string_view text, std::size_t at) {
  return at + (static_cast<unsigned char>(text[at]) < 0x80 ? 1 : utf8_char_at(text, at).length);
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at = next_character(text, at)) ++count;
  return count;
}

std::size_t offset_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (index > 0 && at < text.size()) {
    at = next_character(text, at);
    --index;
  }
  return at;
}

std::size_t find_bytes(std::string_view text, std::string_view wanted, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last_bytes(std::string_view text, std::string_view wanted) {
  return text.rfind(wanted);
}

bool is_space_at(std::string_view text, std::size_t at) {
  const Utf8Char c = utf8_char_at(text, at);
  return c.valid && is_python_space(c.code_point);
}

Range strip_space(std::string_view text, bool left, bool right) {
  Range range{0, text.size()};
  if (left) {
    while (range.from < range.to && is_space_at(text, range.from)) range.from = next_character(text, range.from);
  }
  while (right && range.to > range.from) {
    const std::size_t last = previous_character(text, range.to);
    if (!is_space_at(text, last)) break;
    range.to = last;
  }
  return range;
}

Range strip_set(std::string_view text, std::string_view set, bool left, bool right) {
  std::vector<std::string_view> characters;
  for (std::size_t at = 0; at < set.size();) {
    const std::size_t next = next_character(set, at);
    characters.push_back(set.substr(at, next - at));
    at = next;
  }
  std::sort(characters.begin(), characters.end());
  const auto has = [&](std::size_t from, std::size_t to) {
    return std::binary_search(characters.begin(), characters.end(), text.substr(from, to - from));
  };
  Range range{0, text.size()};
  while (left && range.from < range.to && has(range.from, next_character(text, range.from))) {
    range.from = next_character(text, range.from);
  }
  while (right && range.to > range.from) {
    const std::size_t last = previous_character(text, range.to);
    if (!has(last, range.to)) break;
    range.to = last;
  }
  return range;
}

Range line_end(std::string_view text, std::size_t at) {
  for (; at < text.size(); at = next_character(text, at)) {
    const Utf8Char c = utf8_char_at(text, at);
    if (!c.valid) continue;
    switch (c.code_point) {
      case '\r':
        return {at, at + (text.substr(at).starts_with("\r\n") ? 2U : 1U)};
      case '\n':
      case '\v':
      case '\f':
      case 0x1C:
      case 0x1D:
      case 0x1E:
      case 0x85:
      case 0x2028:
      case 0x2029:
        return {at, at + c.length};
      default:
        break;
    }
  }
  return {text.size(), text.size()};
}

}  // namespace myriad::jinja
