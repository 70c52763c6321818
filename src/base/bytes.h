// Byte quantities, byte order, and bounded readers and writers of little-endian data (disk and wire have one byte
// order).
#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace myriad {

// A number of bytes.
struct Bytes {
  std::uint64_t value = 0;
  friend auto operator<=>(Bytes, Bytes) = default;
  friend Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
  // Saturates at 0: memory that is not there is none.
  friend Bytes operator-(Bytes a, Bytes b) { return {a.value > b.value ? a.value - b.value : 0}; }
  friend Bytes operator*(Bytes a, std::uint64_t n) { return {a.value * n}; }
  Bytes& operator+=(Bytes b) {
    value += b.value;
    return *this;
  }
};

// "256MiB", "1.5GiB", "200M" (decimal), "65536", "64 KiB". Errors: invalid_argument with what was expected.
Result<Bytes> parse_bytes(std::string_view text);
// "1,560,860,324,864" – all digits, grouped.
std::string grouped(std::uint64_t n);
// "148.2 MiB" – for people.
std::string human(Bytes bytes);

template <class T>
[[nodiscard]] constexpr T little(T v) {
  if constexpr (std::endian::native == std::endian::little || sizeof(T) == 1) {
    return v;
  } else if constexpr (sizeof(T) == 2) {
    return std::bit_cast<T>(__builtin_bswap16(std::bit_cast<std::uint16_t>(v)));
  } else if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(__builtin_bswap32(std::bit_cast<std::uint32_t>(v)));
  } else {
    static_assert(sizeof(T) == 8);
    return std::bit_cast<T>(__builtin_bswap64(std::bit_cast<std::uint64_t>(v)));
  }
}

template <class T>
[[nodiscard]] T load_le(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return little(v);
}
template <class T>
void store_le(void* p, T v) {
  v = little(v);
  std::memcpy(p, &v, sizeof v);
}

// Swaps an array in place between little-endian storage and this host's order; nothing on a little-endian host.
template <class T>
void little_in_place(std::span<T> values) {
  if constexpr (std::endian::native != std::endian::little && sizeof(T) > 1)
    for (T& v : values) v = little(v);
}

// Appends little-endian fields.
class ByteWriter {
 public:
  template <class T>
  void put(T v) {
    const std::size_t at = out_.size();
    out_.resize(at + sizeof v);
    store_le(out_.data() + at, v);
  }
  void put_bytes(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  // u32 length, then the characters.
  void put_string(std::string_view s) {
    put(static_cast<std::uint32_t>(s.size()));
    put_bytes(std::as_bytes(std::span(s)));
  }
  void align(std::size_t to) { out_.resize((out_.size() + to - 1) / to * to); }
  std::vector<std::byte>& bytes() { return out_; }

 private:
  std::vector<std::byte> out_;
};

// Reads little-endian fields from foreign bytes. Past the end every read gives zero and `ok()` turns false for good, so
// a parser may read on and check once.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> in) : in_(in) {}
  template <class T>
  T get() {
    if (in_.size() - at_ < sizeof(T)) {
      ok_ = false;
      return T{};
    }
    T v = load_le<T>(in_.data() + at_);
    at_ += sizeof(T);
    return v;
  }
  // u32 length (at most `limit`), then the characters.
  std::string get_string(std::size_t limit) {
    const auto n = get<std::uint32_t>();
    if (n > limit || n > in_.size() - at_) {
      ok_ = false;
      return {};
    }
    std::string s(reinterpret_cast<const char*>(in_.data()) + at_, n);
    at_ += n;
    return s;
  }
  std::span<const std::byte> get_bytes(std::size_t n) {
    if (n > in_.size() - at_) {
      ok_ = false;
      return {};
    }
    auto s = in_.subspan(at_, n);
    at_ += n;
    return s;
  }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t position() const { return at_; }
  [[nodiscard]] std::size_t left() const { return in_.size() - at_; }

 private:
  std::span<const std::byte> in_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace myriad
