#include "model/utf8_stream.h"

#include <algorithm>
#include <cstdint>

namespace myriad {
namespace {

// What a lead byte announces: how many bytes follow, and which second bytes are allowed (the rest are 80…BF).
struct Lead {
  std::size_t following = 0;  // 0: not a lead byte of more than one byte
  unsigned char second_low = 0x80, second_high = 0xBF;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0xC2 || byte > 0xF4) return {};
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte < 0xF0) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {3, 0x80, 0xBF};
}

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Bytes from `at` on that form a character or the beginning of one; 0 for a byte that can begin none.
std::size_t well_formed_prefix(std::string_view text, std::size_t at, std::size_t& wanted) {
  const unsigned char first = byte_at(text, at);
  wanted = 1;
  if (first < 0x80) return 1;
  const Lead lead = lead_of(first);
  if (lead.following == 0) return 0;
  wanted = 1 + lead.following;
  std::size_t n = 1;
  while (n < wanted && at + n < text.size()) {
    const unsigned char low = n == 1 ? lead.second_low : 0x80, high = n == 1 ? lead.second_high : 0xBF;
    if (byte_at(text, at + n) < low || byte_at(text, at + n) > high) break;
    ++n;
  }
  return n;
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

Utf8Char utf8_char_at(std::string_view text, std::size_t at) {
  const unsigned char first = byte_at(text, at);
  if (first < 0x80) return {first, 1, true};
  std::size_t wanted = 0;
  const std::size_t n = well_formed_prefix(text, at, wanted);
  if (n != wanted) return {first, 1, false};
  char32_t code_point = first & (0x7F >> wanted);
  for (std::size_t i = 1; i < n; ++i) code_point = (code_point << 6) | (byte_at(text, at + i) & 0x3F);
  return {code_point, n, true};
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    if (!c.valid) return false;
    at += c.length;
  }
  return true;
}

std::string Utf8Stream::push(std::string_view bytes) {
  held_.append(bytes);
  std::string out;
  out.reserve(held_.size());
  std::size_t at = 0;
  while (at < held_.size()) {
    std::size_t wanted = 0;
    const std::size_t n = well_formed_prefix(held_, at, wanted);
    if (n == wanted) {
      out.append(held_, at, n);
    } else if (at + n == held_.size() && n > 0) {
      break;  // the beginning of a character: its end may still come
    } else {
      out.append(kReplacement);
    }
    at += std::max<std::size_t>(n, 1);
  }
  held_.erase(0, at);
  return out;
}

std::string Utf8Stream::flush() {
  if (held_.empty()) return {};
  held_.clear();
  return std::string(kReplacement);
}

}  // namespace myriad
