// What travels along an edge of the operator graph: rows of one width in one form.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"

namespace myriad {

// How a seam is rounded. The numbers stand in frames: never renumber.
enum class Form : std::uint8_t {
  f32 = 0,
  bf16 = 1,  // every value rounded to bf16; 2 bytes a value on the wire
  i8 = 2,    // int8 in groups of 32 from element 0 of the row, one f32 scale a group; 1.125 bytes a value on the wire
};

// A vector whose new elements are left as they are found: what fills them writes all of them, and clearing them first
// would be a pass over memory of its own.
template <class T>
struct UnfilledAllocator : std::allocator<T> {
  using std::allocator<T>::allocator;
  template <class U>
  struct rebind {
    using other = UnfilledAllocator<U>;
  };
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    if constexpr (sizeof...(Args) != 0) std::construct_at(at, std::forward<Args>(args)...);
  }
};
template <class T>
using UnfilledVector = std::vector<T, UnfilledAllocator<T>>;

// Rows [rows, width]. For f32 and bf16 `values` holds f32 (already rounded to bf16 in the second case); for i8 `q`
// [rows, width] and `scales` [rows, ceil(width/32)] hold the quantised form, and `values` is empty.
struct Activation {
  Form form = Form::f32;
  std::size_t rows = 0;
  std::size_t width = 0;
  UnfilledVector<float> values;
  UnfilledVector<std::int8_t> q;
  UnfilledVector<float> scales;

  Activation() = default;
  // Zeroed f32/bf16 rows.
  Activation(Form f, std::size_t r, std::size_t w) : form(f), rows(r), width(w), values(r * w, 0.0F) {}
  // f32 rows that somebody is about to write, all of them.
  static Activation unfilled(std::size_t rows, std::size_t width) {
    Activation a;
    a.rows = rows;
    a.width = width;
    a.values.resize(rows * width);
    return a;
  }
  [[nodiscard]] float* row(std::size_t r) { return values.data() + r * width; }
  [[nodiscard]] const float* row(std::size_t r) const { return values.data() + r * width; }
  [[nodiscard]] std::size_t groups() const { return (width + 31) / 32; }
};

// These rows of `from`, in this order, in the same form. Every row must be below from.rows.
Activation choose_rows(const Activation& from, std::span<const std::uint16_t> rows);

}  // namespace myriad
