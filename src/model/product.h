// A matrix in tiles times vectors, whatever the type of either: the one place that pairs weights with activations.
#pragma once

#include "kernels/kernels.h"
#include "model/activation.h"
#include "model/graph.h"

namespace myriad {

// x in the form that a product with such weights takes (product_form): x itself, or what is made of it in `room`. f32
// meets quantised weights as int8 groups (a value that is not finite makes all results NaN), an i8 vector meets
// unquantised ones as what it stands for, fl(q·scale).
const Activation& for_product(const Kernels& kernels, const Activation& x, DType weights, Profile profile,
                              Activation& room);

// One f32 vector x [k]; y has room for whole tiles. For the small matrices inside an attention head.
void multiply_one(const Kernels& kernels, DType dtype, const std::byte* weights, std::size_t rows, std::size_t k,
                  Profile profile, const float* x, float* y);

}  // namespace myriad
