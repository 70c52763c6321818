#include "model/product.h"

#include <algorithm>
#include <limits>

#include "model/layer.h"

namespace myriad {

const Activation& for_product(const Kernels& kernels, const Activation& x, DType weights, Profile profile,
                              Activation& room) {
  const bool integers = is_quantized(weights) && profile == Profile::fast;
  if (integers == (x.form == Form::i8)) return x;
  if (integers) {
    room = x;
    if (!seal(kernels, room, Form::i8)) {
      room.form = Form::i8;
      room.q.assign(x.rows * x.width, 0);
      room.scales.assign(x.rows * x.groups(), std::numeric_limits<float>::quiet_NaN());
    }
    return room;
  }
  room = Activation::unfilled(x.rows, x.width);
  for (std::size_t t = 0; t < x.rows; ++t)
    for (std::size_t i = 0; i < x.width; ++i)
      room.row(t)[i] = static_cast<float>(x.q[t * x.width + i]) * x.scales[t * x.groups() + i / kGroup];
  return room;
}

void multiply_one(const Kernels& kernels, DType dtype, const std::byte* weights, std::size_t rows, std::size_t k,
                  Profile profile, const float* x, float* y) {
  Activation given(Form::f32, 1, k), room;
  std::copy_n(x, k, given.values.data());
  const Activation& in = for_product(kernels, given, dtype, profile, room);
  const std::size_t tiles = tiles_for(rows), padded = tiles * kTileRows;
  if (in.form == Form::i8)
    multiply_i8(kernels, dtype, weights, k, 0, tiles, {in.q.data(), in.scales.data()}, 1, y, padded);
  else
    kernels.matmul(dtype, weights, k, 0, tiles, x, k, 1, y, padded);
}

}  // namespace myriad
