// The kernels over sixteen f32 lanes, once for all vector instruction sets. Included by exactly one source file of each
// set, after its lanes_*.h, which has the operations on lanes (F: sixteen f32, I: as many bits) and on the bytes in
// them. Everything here has internal linkage, and no inline function or template from elsewhere is called: one that is
// compiled here, with this set's instructions, and not inlined could be linked into code that runs on every CPU. Each
// function computes what its twin in kernels_scalar.cc does, operation by operation in each lane.
#pragma once

#include "kernels/lanes_attention.h"
#include "kernels/lanes_int8.h"
#include "kernels/lanes_kda.h"
#include "kernels/lanes_products.h"
#include "kernels/lanes_vectors.h"
#include "kernels/table.h"

namespace myriad {
namespace {

constexpr Kernels table_named(std::string_view name) {
  return {
      .name = name,
      .matmul_f32 = entered<matmul_f32>,
      .matmul_bf16 = entered<matmul_bf16>,
      .matmul_f16 = entered<matmul_f16>,
      .matmul = entered<matmul>,
      .laid_out_bytes = entered<laid_out_bytes>,
      .lay_out_i8 = entered<lay_out_i8>,
      .matmul_i8 = entered<matmul_i8>,
      .dot = entered<dot>,
      .sum_of_squares = entered<sum_of_squares>,
      .exp = entered<exponentials>,
      .sigmoid = entered<sigmoid>,
      .glu = entered<glu>,
      .round_bf16 = entered<round_bf16>,
      .axpy = entered<axpy>,
      .rms_norm = entered<rms_norm>,
      .rope = entered<rope>,
      .conv_silu = entered<conv_silu>,
      .kda_step = entered<kda_step>,
      .attention = entered<attention>,
      .quantize_i8 = entered<quantize_i8>,
  };
}

}  // namespace
}  // namespace myriad
