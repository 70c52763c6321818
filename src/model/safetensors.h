// The safetensors container: u64 little-endian header length, a JSON object `name -> {dtype, shape, data_offsets:
// [begin, end]}` with an optional `__metadata__`, then the data, to which the offsets are relative.
//
// The header is foreign: parse_safetensors_header is a pure function on its bytes (and the target of safetensors_fuzz).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace myriad {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // bytes; Kimi K3's are 0.8 MB each
inline constexpr std::size_t kMaxTensorsPerFile = std::size_t{1} << 20;
inline constexpr std::size_t kMaxTensorName = 1024;
inline constexpr std::size_t kMaxTensorRank = 8;
inline constexpr std::size_t kMaxHeaderDepth = 16;  // of JSON nesting; a well-formed header needs 3

// Element types of the container, also those that nothing here computes with: their tensors can be listed.
enum class StorageType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f4,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  i64,
  u64,
  f64,
  c64
};
inline constexpr std::size_t kStorageTypes = 18;
std::string_view storage_type_name(StorageType type);  // as in the file: "BF16", "F32", "U8", …
unsigned storage_type_bits(StorageType type);          // of one element; f4 has 4

struct Shape {
  std::array<std::uint64_t, kMaxTensorRank> dims{};
  std::uint8_t rank = 0;
  [[nodiscard]] std::span<const std::uint64_t> span() const { return {dims.data(), rank}; }
};
// "[163840, 7168]"; "[]" for a scalar.
std::string shape_text(std::span<const std::uint64_t> dims);

struct TensorEntry {
  std::string name;
  StorageType type = StorageType::u8;
  Shape shape;
  std::uint64_t begin = 0;  // relative to the end of the header
  std::uint64_t end = 0;
};

// `header`: the JSON alone, without its length; `data_bytes`: how many bytes follow it in the file; `file`: for
// messages. The entries come in the order of the file. What they hold is consistent: element type × shape == end −
// begin, inside the data, no two alike in name, none overlapping another, no control characters in a name. Errors:
// corrupt, limit, or unsupported (an element type that is not known); each names the file and the tensor.
Result<std::vector<TensorEntry>> parse_safetensors_header(std::span<const std::byte> header, std::uint64_t data_bytes,
                                                          std::string_view file);

// Where the header of a file of `file_bytes` bytes that begins with `first` (at least 8 bytes unless the file is
// shorter) ends: its length, validated against kMaxSafetensorsHeader and the file.
Result<std::uint64_t> safetensors_header_length(std::span<const std::byte> first, std::uint64_t file_bytes,
                                                std::string_view file);

}  // namespace myriad
