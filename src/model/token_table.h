// The tokens of a vocabulary: bytes and kind of each id, and the ids of given bytes.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace myriad {

enum class TokenKind : std::uint8_t {
  text,          // made from text by merging
  byte,          // one byte, where text has no token (SentencePiece's <0x00> … <0xFF>)
  user_defined,  // a name that becomes this token wherever it stands in a text
  special,       // a name that becomes this token only where special tokens are allowed
  silent,        // never made from text, but has bytes
  unused,        // never made from text and shown to nobody: a gap among the ids, a padding of the vocabulary
};

class TokenTable {
 public:
  static constexpr std::int32_t kMaxTokens = 1 << 20;
  static constexpr std::size_t kMaxTokenBytes = 1024;
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // of all tokens together

  void reserve(std::size_t tokens, std::size_t bytes);
  // Appends the token with the next id. Errors: limit.
  Status add(std::string_view bytes, TokenKind kind);
  // To be called once, after the last add(). Errors: corrupt if two tokens of kind `text`, or two names, have the same
  // bytes; limit if the bytes were chosen so that looking them up would be slow.
  Status build_index();

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(kinds_.size()); }
  // Empty, and `unused`, for an id outside the table.
  [[nodiscard]] std::string_view bytes(std::int32_t id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= kinds_.size()) return {};
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }
  [[nodiscard]] TokenKind kind(std::int32_t id) const {
    return id < 0 || static_cast<std::size_t>(id) >= kinds_.size() ? TokenKind::unused
                                                                   : kinds_[static_cast<std::size_t>(id)];
  }
  // The token of kind `text` with these bytes, else the user-defined one; −1 if there is neither.
  [[nodiscard]] std::int32_t find(std::string_view bytes) const;
  // Bytes of the longest token that find() can give.
  [[nodiscard]] std::size_t longest() const { return longest_; }

  // The special or user-defined token with this name.
  [[nodiscard]] std::optional<std::int32_t> named(std::string_view name) const;
  // The token with the longest name that the text begins with, −1 if there is none: of all names, or of one kind only.
  [[nodiscard]] std::int32_t name_at(std::string_view text) const { return longest_name(names_, text); }
  [[nodiscard]] std::int32_t special_at(std::string_view text) const { return longest_name(special_, text); }
  [[nodiscard]] std::int32_t user_defined_at(std::string_view text) const { return longest_name(user_defined_, text); }
  [[nodiscard]] bool has_user_defined() const { return !user_defined_.ids.empty(); }

  // Bytes that the table occupies outside itself.
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  struct NameIndex {
    std::vector<std::int32_t> ids;  // ascending by their bytes, none of which are empty
    std::bitset<256> first;         // bytes that a name begins with
  };
  [[nodiscard]] std::int32_t longest_name(const NameIndex& index, std::string_view text) const;
  [[nodiscard]] bool insert(std::int32_t id);

  std::string bytes_;                      // all tokens' bytes, by id, back to back
  std::vector<std::uint32_t> offsets_{0};  // token i is bytes_[offsets_[i], offsets_[i + 1])
  std::vector<TokenKind> kinds_;
  std::vector<std::int32_t> slots_;  // open-addressing hash table of ids; −1 is free; a power of two
  std::size_t longest_ = 0;
  NameIndex names_, special_, user_defined_;
};

// What a person can recognise of a foreign name in a message.
std::string shown_token(std::string_view text);

}  // namespace myriad
