// Rows of f32 to the bytes of a quantised type (quant/blocks.h says what these mean).
//
// Whatever a type leaves open is chosen so that the squared error of its group is small: scales (and zero points,
// minima) are searched on a grid around the largest value and each is then fitted to its codes by least squares, with
// the rounding of the stored scale in the loop. Deterministic: plain f32 and integer operations in a fixed order.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "base/error.h"
#include "quant/formats.h"

namespace myriad {

// Whether quantize_rows knows it: q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k, iq4_nl, mxfp4, i8_row, i4_zero.
bool can_quantize(DType t);

// The scale that takes values up to `largest` (an absolute value) to int8: `largest`/127.
float int8_scale(float largest);

// values.size() / k rows of k values to row_bytes(t, k) bytes each. `scale`: the scale that every i8_row row takes
// instead of its own. Errors: invalid_argument (a type that is not known here, sizes that do not fit, a value that is
// not finite or that no scale of the type can hold; it names row, counted from `first_row`, column and value).
Status quantize_rows(DType t, std::span<const float> values, std::size_t k, std::span<std::byte> out,
                     std::size_t first_row = 0, std::optional<float> scale = std::nullopt);

}  // namespace myriad
