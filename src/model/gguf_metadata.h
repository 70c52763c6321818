// The metadata of a GGUF file: typed values by key.
//
// It is foreign data: nothing about a value is believed until it is asked for, and a value of another type than the one
// asked for is an error that names file, key, what was found and what was expected. A vocabulary of 163,840 tokens is
// kept as one buffer of text and one 4-byte offset a string.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace myriad {

inline constexpr std::uint64_t kMaxGgufMetadata = std::uint64_t{64} << 20;  // bytes of a file's metadata in memory
inline constexpr std::uint64_t kMaxGgufKeys = std::uint64_t{1} << 16;
inline constexpr std::uint64_t kMaxGgufKeyBytes = 65'535;  // the format's own limit
inline constexpr std::size_t kMaxGgufArrayDepth = 4;       // of arrays in arrays
inline constexpr std::size_t kMaxGgufLayers = 65'536;      // for which get_per_layer repeats a value

// Codes as in the file.
enum class GgufValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12
};
inline constexpr std::uint32_t kGgufValueTypes = 13;
std::string_view gguf_value_type_name(GgufValueType type);  // "u32", "bool", "string", …
// Bytes of a value in the file; 0 for strings and arrays.
std::size_t gguf_value_bytes(GgufValueType type);

// A name or value from a file, safe to print: UTF-8, with control characters and ill-formed bytes escaped, of at most
// 200 of its bytes.
std::string gguf_printable(std::string_view text);
// Whether a key or tensor may be called so: 1 to `most` bytes of UTF-8 without control characters.
bool gguf_valid_name(std::string_view name, std::uint64_t most);

// What a value can be asked for as. Integers of every width convert to each other where the value is in range, and to
// floating point; floating point converts to floating point; bool and string only to themselves.
template <class T>
concept GgufNumber = std::same_as<T, bool> || std::same_as<T, std::uint32_t> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::uint64_t> || std::same_as<T, std::int64_t> || std::same_as<T, float> ||
    std::same_as<T, double>;
template <class T>
concept GgufAskable = GgufNumber<T> || std::same_as<T, std::string_view>;

// An array of strings, as a view into the metadata.
class GgufStrings {
 public:
  GgufStrings() = default;
  // String i is text[ends[i], ends[i+1]).
  GgufStrings(const char* text, std::span<const std::uint32_t> ends) : text_(text), ends_(ends) {}
  [[nodiscard]] std::size_t size() const { return ends_.empty() ? 0 : ends_.size() - 1; }
  [[nodiscard]] std::string_view operator[](std::size_t i) const { return {text_ + ends_[i], ends_[i + 1] - ends_[i]}; }

 private:
  const char* text_ = nullptr;
  std::span<const std::uint32_t> ends_;
};

// A key, for listing.
struct GgufKey {
  std::string_view name;
  GgufValueType type = GgufValueType::u8;
  GgufValueType element = GgufValueType::u8;  // of an array
  std::uint64_t count = 0;                    // of an array
};

// Immutable and cheap to copy; views that it gave live as long as any copy. Thread-safe.
class GgufMetadata {
 public:
  GgufMetadata();

  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] bool has(std::string_view key) const;
  // In ascending order of name.
  [[nodiscard]] std::vector<GgufKey> keys() const;
  // For people: `4096`, `"gpt2"`, `[163840] "!", "\"", …`; empty if there is no such key. About `most` bytes.
  [[nodiscard]] std::string value_text(std::string_view key, std::size_t most = 80) const;

  // Nothing if the key is not there. Errors: corrupt (another type, or out of range).
  template <GgufAskable T>
  [[nodiscard]] Result<std::optional<T>> get(std::string_view key) const;
  template <GgufAskable T>
  [[nodiscard]] Result<T> get_or(std::string_view key, T fallback) const;
  // Errors besides: not_found.
  template <GgufAskable T>
  [[nodiscard]] Result<T> require(std::string_view key) const;

  // A whole array of numbers, converted like single values. An empty array has any type.
  template <GgufNumber T>
  [[nodiscard]] Result<std::optional<std::vector<T>>> get_array(std::string_view key) const;
  [[nodiscard]] Result<std::optional<GgufStrings>> get_strings(std::string_view key) const;
  // One value a layer: an array of exactly `layers` numbers as it is, a single number repeated.
  template <GgufNumber T>
  [[nodiscard]] Result<std::optional<std::vector<T>>> get_per_layer(std::string_view key, std::size_t layers) const;

  // Appends type code and value as they stand in a file; nothing if the key is not there.
  void append_value(std::string_view key, std::vector<std::byte>& out) const;

 private:
  friend class GgufHeaderParser;
  struct Value {
    GgufValueType type = GgufValueType::u8;
    GgufValueType element = GgufValueType::u8;  // of an array
    std::uint64_t count = 0;                    // of an array
    // A number, or an array of numbers: offset in `data`. A string, or an array of strings: number of the (first)
    // string. An array of arrays: number of the first one in `nested`.
    std::uint64_t at = 0;
  };
  struct Entry {
    std::uint32_t name = 0;  // number of a string
    Value value;
  };
  struct Store {
    std::string file;  // for messages
    std::string text;  // all strings, one after the other
    std::vector<std::uint32_t> ends{0};
    std::vector<std::byte> data;  // numbers, little-endian, not aligned
    std::vector<Value> nested;
    std::vector<Entry> entries;  // in ascending order of name
    [[nodiscard]] std::string_view string(std::uint64_t number) const {
      return std::string_view(text).substr(ends[number], ends[number + 1] - ends[number]);
    }
    [[nodiscard]] std::string_view name(const Entry& entry) const { return string(entry.name); }
    void append(const Value& value, std::vector<std::byte>& out) const;
    void describe(const Value& value, std::size_t most, std::string& out) const;
  };
  explicit GgufMetadata(std::shared_ptr<const Store> store) : store_(std::move(store)) {}
  [[nodiscard]] const Value* find(std::string_view key) const;
  template <GgufNumber T>
  [[nodiscard]] Result<T> number(std::string_view key, GgufValueType type, std::uint64_t at) const;
  [[nodiscard]] Error mistyped(std::string_view key, const Value& value, std::string_view expected) const;

  std::shared_ptr<const Store> store_;
};

}  // namespace myriad
