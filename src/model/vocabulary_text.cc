#include "model/vocabulary_text.h"

#include <array>

#include "model/utf8_stream.h"

namespace myriad {
namespace {

constexpr std::size_t kByteCharacters = 0x144;  // the largest character that stands for a byte is U+0143

struct ByteLevel {
  std::array<char32_t, 256> character{};                // of each byte
  std::array<std::int16_t, kByteCharacters> byte_of{};  // −1: none
};

constexpr ByteLevel byte_level() {
  ByteLevel out;
  out.byte_of.fill(-1);
  char32_t next = 0x100;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const char32_t c = itself ? static_cast<char32_t>(byte) : next++;
    out.character[byte] = c;
    out.byte_of[c] = static_cast<std::int16_t>(byte);
  }
  return out;
}

constexpr ByteLevel kByteLevel = byte_level();
constexpr std::string_view kSpaceMark = "\u2581";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    if (!c.valid || c.code_point >= kByteCharacters || kByteLevel.byte_of[c.code_point] < 0) return std::nullopt;
    out.push_back(static_cast<char>(static_cast<unsigned char>(kByteLevel.byte_of[c.code_point])));
    at += c.length;
  }
  return out;
}

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) append_utf8(out, kByteLevel.character[static_cast<unsigned char>(byte)]);
  return out;
}

std::string from_space_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t at = 0;
  for (std::size_t mark = text.find(kSpaceMark); mark != text.npos; mark = text.find(kSpaceMark, at)) {
    out.append(text, at, mark - at);
    out.push_back(' ');
    at = mark + kSpaceMark.size();
  }
  out.append(text, at);
  return out;
}

int byte_of_name(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool looks_special(std::string_view name) {
  const auto between = [&](std::string_view begin, std::string_view end) {
    return name.size() >= begin.size() + end.size() && name.starts_with(begin) && name.ends_with(end);
  };
  return between("<|", "|>") || between("<\uFF5C", "\uFF5C>") || between("<unused", ">") || name == "<pad>" ||
         name == "<mask>";
}

}  // namespace myriad
