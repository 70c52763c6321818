// Tensors in a frame's payload, one after the other, each on a 16-byte boundary and all little-endian: f32 and bf16
// row-major; i8 as q [rows, width], zeros up to a multiple of 4 bytes, then the scales f32 [rows, groups].
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/activation.h"

namespace myriad {

inline constexpr std::size_t kTensorAlignment = 16;

// Bytes of one tensor without the padding behind it. No overflow for rows up to kMaxRowsPerStep and width up to
// kMaxTensorWidth.
std::size_t tensor_bytes(Form form, std::size_t rows, std::size_t width);
constexpr std::size_t padded_tensor(std::size_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

// `out` has padded_tensor(tensor_bytes(…)) zeroed bytes. The vectors of `tensor` must have the lengths that its rows
// and width ask for (check_message makes sure).
void write_tensor(const Activation& tensor, std::byte* out);

// Any bit pattern is a value (NaN stays NaN). `in` has tensor_bytes(…) bytes.
Activation read_tensor(Form form, std::size_t rows, std::size_t width, const std::byte* in);

}  // namespace myriad
