// The tensor types of GGUF files: their codes, names and block sizes (ggml/include/ggml.h and ggml-common.h of
// llama.cpp). A row is a whole number of blocks; a block holds `block_values` values in `block_bytes` bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace myriad {

// Codes as in the file. Any other number can be held too: such a tensor is listed, and refused when it is read.
enum class GgmlType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40
};

struct GgmlTypeInfo {
  GgmlType type = GgmlType::f32;
  std::string_view name;
  std::uint32_t block_values = 0;  // 0: a type that is known by name only
  std::uint32_t block_bytes = 0;
  bool readable = false;  // whether Myriad reads tensors of it
};

// Every type that is known at least by name, in ascending order of code.
std::span<const GgmlTypeInfo> ggml_types();
// nullptr for a code that is not known.
const GgmlTypeInfo* ggml_type_info(GgmlType type);
// "Q4_K" of "q4_k" or "Q4_K"; nothing if there is none.
std::optional<GgmlType> ggml_type_named(std::string_view name);
bool ggml_type_readable(GgmlType type);
// "Q4_K", or "type 77" where the name is not known.
std::string ggml_type_text(GgmlType type);

// Bytes of a tensor with these dimensions, dims[0] contiguous; no dimensions are one value. Nothing if the type's block
// is not known, a row is not a whole number of blocks, or there are more than 2^56 values.
std::optional<std::uint64_t> ggml_tensor_bytes(GgmlType type, std::span<const std::uint64_t> dims);

}  // namespace myriad
