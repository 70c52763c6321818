// exp, tanh, sigmoid, softplus and rsqrt in fma and integer operations only: the same bits on every machine (no libm).
// Scalar definitions; the vector implementations evaluate exactly these operations in each lane.
#pragma once

namespace myriad {

// e^x. Relative error < 2 ulp on [-87, 88]; below -87.3 gives 0, above 88.7 gives +inf; NaN gives NaN.
float exact_exp(float x);
// 1 / (1 + e^-x)
float exact_sigmoid(float x);
// tanh(x); odd; |x| small keeps full relative precision.
float exact_tanh(float x);
// log(1 + e^x)
float exact_softplus(float x);
// 1/sqrt(x) for x > 0, normal; relative error < 2 ulp.
float exact_rsqrt(float x);
// x * sigmoid(x)
inline float exact_silu(float x) {
  return x * exact_sigmoid(x);
}

}  // namespace myriad
