// The header of one GGUF file (versions 2 and 3, little-endian): magic, version, counts, metadata, tensor infos.
//
// Read in pieces of 64 KiB whatever the header's size. Every count and length is compared with what is left of the file
// and with a limit before anything is allocated for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/ggml_type.h"
#include "model/gguf_metadata.h"

namespace myriad {

inline constexpr std::uint64_t kMaxGgufTensors = std::uint64_t{1} << 18;    // of a model; Kimi K3 has 2,573
inline constexpr std::uint64_t kMaxGgufTensorName = 127;                    // bytes; llama.cpp allows 63
inline constexpr std::size_t kMaxGgufRank = 4;                              // dimensions, as in ggml
inline constexpr std::uint64_t kDefaultGgufAlignment = 32;                  // without the key general.alignment
inline constexpr std::uint64_t kMaxGgufAlignment = std::uint64_t{1} << 20;  // bytes
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";

// One stored tensor. Views live as long as the GgufHeader or a copy of the GgufFile that gave it.
struct GgufTensor {
  std::string_view name;
  GgmlType type = GgmlType::f32;
  std::uint8_t rank = 0;
  std::uint32_t part = 0;                                     // which file
  std::array<std::uint64_t, kMaxGgufRank> sizes{1, 1, 1, 1};  // ggml order: sizes[0] is contiguous; 1 from `rank` on
  std::uint64_t offset = 0;                                   // of its first byte in its file
  std::uint64_t bytes = 0;                                    // 0 if the type's block is not known
  [[nodiscard]] std::span<const std::uint64_t> dims() const { return {sizes.data(), rank}; }
  [[nodiscard]] std::uint64_t row() const { return sizes[0]; }  // values in a row
  [[nodiscard]] std::uint64_t rows() const { return sizes[1] * sizes[2] * sizes[3]; }
  [[nodiscard]] std::uint64_t elements() const { return row() * rows(); }
};
// "[7168, 3072, 896]", ggml order.
std::string gguf_dims_text(std::span<const std::uint64_t> dims);

struct GgufHeader {
  std::uint32_t version = 0;
  std::uint64_t alignment = kDefaultGgufAlignment;
  std::uint64_t data_begin = 0;  // where tensor data begins
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in ascending order of name; part is 0
  std::vector<char> names;          // what the tensors' names point into
};

// Fills `out` with the file's bytes from `offset` on.
using GgufReadAt = std::function<Status(std::uint64_t offset, std::span<std::byte> out)>;

// `file_bytes`: the file's size; `file`: its name for messages. What comes back is consistent: names and keys unique,
// each tensor a whole number of blocks a row, aligned, inside the file, none overlapping another. Tensors of types that
// are not known or not read are listed too. Errors: corrupt, limit, unsupported (another format, version or byte
// order), and those of `read`; each names file, key or tensor, what was found and what was expected.
Result<GgufHeader> parse_gguf_header(const GgufReadAt& read, std::uint64_t file_bytes, std::string_view file);

}  // namespace myriad
