#include "model/gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/bytes.h"
#include "model/utf8_stream.h"

namespace myriad {
namespace {

struct TypeRow {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<TypeRow, kGgufValueTypes> kTypes = {{{"u8", 1},
                                                          {"i8", 1},
                                                          {"u16", 2},
                                                          {"i16", 2},
                                                          {"u32", 4},
                                                          {"i32", 4},
                                                          {"f32", 4},
                                                          {"bool", 1},
                                                          {"string", 0},
                                                          {"array", 0},
                                                          {"u64", 8},
                                                          {"i64", 8},
                                                          {"f64", 8}}};

using Number = std::variant<bool, std::uint64_t, std::int64_t, float, double>;

// A number as the file has it, at its widest.
Number load(GgufValueType type, const std::byte* p) {
  switch (type) {
    case GgufValueType::u8:
      return std::uint64_t{load_le<std::uint8_t>(p)};
    case GgufValueType::i8:
      return std::int64_t{load_le<std::int8_t>(p)};
    case GgufValueType::u16:
      return std::uint64_t{load_le<std::uint16_t>(p)};
    case GgufValueType::i16:
      return std::int64_t{load_le<std::int16_t>(p)};
    case GgufValueType::u32:
      return std::uint64_t{load_le<std::uint32_t>(p)};
    case GgufValueType::i32:
      return std::int64_t{load_le<std::int32_t>(p)};
    case GgufValueType::f32:
      return load_le<float>(p);
    case GgufValueType::boolean:
      return load_le<std::uint8_t>(p) != 0;
    case GgufValueType::u64:
      return load_le<std::uint64_t>(p);
    case GgufValueType::i64:
      return load_le<std::int64_t>(p);
    case GgufValueType::f64:
      return load_le<double>(p);
    case GgufValueType::string:
    case GgufValueType::array:
      break;
  }
  return false;
}

enum class Conversion : unsigned char { done, mistyped, out_of_range };

template <GgufNumber T>
Conversion convert(const Number& from, T& to) {
  return std::visit(
      [&]<class S>(S value) {
        if constexpr (std::same_as<T, bool> || std::same_as<S, bool>) {
          if constexpr (std::same_as<T, S>) {
            to = value;
            return Conversion::done;
          }
          return Conversion::mistyped;
        } else if constexpr (std::floating_point<T>) {
          if constexpr (std::same_as<T, float> && std::same_as<S, double>)
            if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max())
              return Conversion::out_of_range;
          to = static_cast<T>(value);
          return Conversion::done;
        } else if constexpr (std::floating_point<S>) {
          return Conversion::mistyped;
        } else {
          if (!std::in_range<T>(value)) return Conversion::out_of_range;
          to = static_cast<T>(value);
          return Conversion::done;
        }
      },
      from);
}

template <class T>
std::string_view wanted() {
  if constexpr (std::same_as<T, bool>) {
    return "a bool";
  } else if constexpr (std::same_as<T, std::string_view>) {
    return "a string";
  } else if constexpr (std::floating_point<T>) {
    return "a number";
  } else if constexpr (std::unsigned_integral<T>) {
    return "a non-negative whole number";
  } else {
    return "a whole number";
  }
}

std::string number_text(const Number& number) {
  return std::visit([](auto value) { return fmt::format("{}", value); }, number);
}

}  // namespace

std::string_view gguf_value_type_name(GgufValueType type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}
std::size_t gguf_value_bytes(GgufValueType type) {
  return kTypes[static_cast<std::size_t>(type)].bytes;
}

std::string gguf_printable(std::string_view text) {
  constexpr std::size_t kMost = 200;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (at >= kMost) return out + "...";
    const Utf8Char c = utf8_char_at(text, at);
    if (c.valid && c.code_point >= 0x20 && c.code_point != 0x7f) {
      out += text.substr(at, c.length);
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    }
    at += c.length;
  }
  return out;
}

bool gguf_valid_name(std::string_view name, std::uint64_t most) {
  return !name.empty() && name.size() <= most && is_valid_utf8(name) &&
         std::none_of(name.begin(), name.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

void GgufMetadata::Store::append(const Value& value, std::vector<std::byte>& out) const {
  const auto put = [&out]<class T>(T number) {
    out.resize(out.size() + sizeof number);
    store_le(out.data() + out.size() - sizeof number, number);
  };
  const auto put_string = [&](std::uint64_t number) {
    const std::string_view s = string(number);
    put(std::uint64_t{s.size()});
    const auto bytes = std::as_bytes(std::span(s));
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  const auto put_numbers = [&](GgufValueType type, std::uint64_t count) {
    const auto bytes = std::span(data).subspan(value.at, count * gguf_value_bytes(type));
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  if (value.type == GgufValueType::string) return put_string(value.at);
  if (value.type != GgufValueType::array) return put_numbers(value.type, 1);
  put(static_cast<std::uint32_t>(value.element));
  put(value.count);
  if (value.element == GgufValueType::string) {
    for (std::uint64_t i = 0; i < value.count; ++i) put_string(value.at + i);
  } else if (value.element == GgufValueType::array) {
    for (std::uint64_t i = 0; i < value.count; ++i) append(nested[value.at + i], out);
  } else {
    put_numbers(value.element, value.count);
  }
}

void GgufMetadata::Store::describe(const Value& value, std::size_t most, std::string& out) const {
  const auto quote = [&](std::uint64_t number) {
    const std::string_view s = string(number);
    std::size_t room = std::min(s.size(), most - std::min(most, out.size()));
    while (room < s.size() && room > 0 && (static_cast<unsigned char>(s[room]) & 0xc0U) == 0x80)
      --room;  // whole letters
    out += fmt::format("\"{}{}\"", gguf_printable(s.substr(0, room)), room < s.size() ? "..." : "");
  };
  if (value.type == GgufValueType::string) return quote(value.at);
  if (value.type != GgufValueType::array) {
    out += number_text(load(value.type, data.data() + value.at));
    return;
  }
  out += fmt::format("[{}]", value.count);
  for (std::uint64_t i = 0; i < value.count; ++i) {
    out += i == 0 ? " " : ", ";
    if (out.size() >= most) {
      out += "...";
      return;
    }
    if (value.element == GgufValueType::string) {
      quote(value.at + i);
    } else if (value.element == GgufValueType::array) {
      describe(nested[value.at + i], most, out);
    } else {
      out += number_text(load(value.element, data.data() + value.at + i * gguf_value_bytes(value.element)));
    }
  }
}

GgufMetadata::GgufMetadata() : store_(std::make_shared<const Store>()) {}

std::size_t GgufMetadata::size() const {
  return store_->entries.size();
}

const GgufMetadata::Value* GgufMetadata::find(std::string_view key) const {
  const auto& entries = store_->entries;
  const auto at = std::lower_bound(entries.begin(), entries.end(), key,
                                   [&](const Entry& e, std::string_view k) { return store_->name(e) < k; });
  return at != entries.end() && store_->name(*at) == key ? &at->value : nullptr;
}

bool GgufMetadata::has(std::string_view key) const {
  return find(key) != nullptr;
}

std::vector<GgufKey> GgufMetadata::keys() const {
  std::vector<GgufKey> keys;
  keys.reserve(size());
  for (const Entry& e : store_->entries)
    keys.push_back({store_->name(e), e.value.type, e.value.element, e.value.count});
  return keys;
}

std::string GgufMetadata::value_text(std::string_view key, std::size_t most) const {
  std::string out;
  if (const Value* const value = find(key)) store_->describe(*value, most, out);
  return out;
}

void GgufMetadata::append_value(std::string_view key, std::vector<std::byte>& out) const {
  const Value* const value = find(key);
  if (value == nullptr) return;
  const std::size_t at = out.size();
  out.resize(at + sizeof(std::uint32_t));
  store_le(out.data() + at, static_cast<std::uint32_t>(value->type));
  store_->append(*value, out);
}

Error GgufMetadata::mistyped(std::string_view key, const Value& value, std::string_view expected) const {
  std::string type(gguf_value_type_name(value.type));
  if (value.type == GgufValueType::array) type += fmt::format(" of {}", gguf_value_type_name(value.element));
  return {Code::corrupt,
          fmt::format("reading {}: key {} is the {} {}, expected {}", store_->file, gguf_printable(key), type,
                      value_text(key), expected),
          {},
          {}};
}

template <GgufNumber T>
Result<T> GgufMetadata::number(std::string_view key, GgufValueType type, std::uint64_t at) const {
  T value{};
  const Number found = load(type, store_->data.data() + at);
  const Conversion conversion = gguf_value_bytes(type) == 0 ? Conversion::mistyped : convert(found, value);
  if (conversion == Conversion::done) return value;
  if constexpr (!std::same_as<T, bool>) {
    if (conversion == Conversion::out_of_range)
      return fail(Code::corrupt, "reading {}: key {} has the value {}, expected {} to {}", store_->file,
                  gguf_printable(key), number_text(found), std::numeric_limits<T>::lowest(),
                  std::numeric_limits<T>::max());
  }
  return std::unexpected(mistyped(key, *find(key), wanted<T>()));
}

template <GgufAskable T>
Result<std::optional<T>> GgufMetadata::get(std::string_view key) const {
  const Value* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if constexpr (std::same_as<T, std::string_view>) {
    if (value->type != GgufValueType::string) return std::unexpected(mistyped(key, *value, wanted<T>()));
    return store_->string(value->at);
  } else {
    if (gguf_value_bytes(value->type) == 0) return std::unexpected(mistyped(key, *value, wanted<T>()));
    MYRIAD_TRY(const T converted, number<T>(key, value->type, value->at));
    return converted;
  }
}

template <GgufAskable T>
Result<T> GgufMetadata::get_or(std::string_view key, T fallback) const {
  MYRIAD_TRY(const std::optional<T> value, get<T>(key));
  return value.value_or(fallback);
}

template <GgufAskable T>
Result<T> GgufMetadata::require(std::string_view key) const {
  MYRIAD_TRY(const std::optional<T> value, get<T>(key));
  if (!value)
    return fail(Code::not_found, "reading {}: key {} is missing, expected {}", store_->file, gguf_printable(key),
                wanted<T>());
  return *value;
}

template <GgufNumber T>
Result<std::optional<std::vector<T>>> GgufMetadata::get_array(std::string_view key) const {
  const Value* const value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::size_t each = gguf_value_bytes(value->element);
  if (value->type != GgufValueType::array || (each == 0 && value->count > 0))
    return std::unexpected(mistyped(key, *value, std::same_as<T, bool> ? "an array of bool" : "an array of numbers"));
  std::vector<T> out;
  out.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    MYRIAD_TRY(const T converted, number<T>(key, value->element, value->at + i * each));
    out.push_back(converted);
  }
  return out;
}

Result<std::optional<GgufStrings>> GgufMetadata::get_strings(std::string_view key) const {
  const Value* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufValueType::array && value->count == 0) return GgufStrings();
  if (value->type != GgufValueType::array || value->element != GgufValueType::string)
    return std::unexpected(mistyped(key, *value, "an array of strings"));
  return GgufStrings(store_->text.data(), std::span(store_->ends).subspan(value->at, value->count + 1));
}

template <GgufNumber T>
Result<std::optional<std::vector<T>>> GgufMetadata::get_per_layer(std::string_view key, std::size_t layers) const {
  const Value* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (layers > kMaxGgufLayers)
    return fail(Code::limit, "reading {}: key {} for {} layers, expected at most {}", store_->file, gguf_printable(key),
                layers, kMaxGgufLayers);
  if (value->type != GgufValueType::array) {
    MYRIAD_TRY(const std::optional<T> one, get<T>(key));
    return std::vector<T>(layers, *one);
  }
  if (value->count != layers)
    return fail(Code::corrupt, "reading {}: key {} has {} values, expected one for each of {} layers", store_->file,
                gguf_printable(key), value->count, layers);
  return get_array<T>(key);
}

#define MYRIAD_GGUF_ASKABLE(T)                                                    \
  template Result<std::optional<T>> GgufMetadata::get<T>(std::string_view) const; \
  template Result<T> GgufMetadata::get_or<T>(std::string_view, T) const;          \
  template Result<T> GgufMetadata::require<T>(std::string_view) const;
#define MYRIAD_GGUF_NUMBER(T)                                                                        \
  MYRIAD_GGUF_ASKABLE(T)                                                                             \
  template Result<std::optional<std::vector<T>>> GgufMetadata::get_array<T>(std::string_view) const; \
  template Result<std::optional<std::vector<T>>> GgufMetadata::get_per_layer<T>(std::string_view, std::size_t) const;
MYRIAD_GGUF_ASKABLE(std::string_view)
MYRIAD_GGUF_NUMBER(bool)
MYRIAD_GGUF_NUMBER(std::uint32_t)
MYRIAD_GGUF_NUMBER(std::int32_t)
MYRIAD_GGUF_NUMBER(std::uint64_t)
MYRIAD_GGUF_NUMBER(std::int64_t)
MYRIAD_GGUF_NUMBER(float)
MYRIAD_GGUF_NUMBER(double)
#undef MYRIAD_GGUF_NUMBER
#undef MYRIAD_GGUF_ASKABLE

}  // namespace myriad
