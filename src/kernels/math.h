// exp, tanh, sigmoid, softplus, rsqrt, sine and cosine in fma and integer operations only: the same bits on every
// machine (no libm). Scalar definitions; the vector implementations evaluate exactly these operations in each lane.
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
struct SineCosine {
  float sine, cosine;
};
// Of an angle in radians, |angle| <= 2^40 (else both are NaN); error below 0.51 ulp of f32, relative to the result
// however small. In double precision inside; scalar only: angles of RoPE are turned once and used by all heads.
SineCosine exact_sincos(double angle);
// x * sigmoid(x)
inline float exact_silu(float x) {
  return x * exact_sigmoid(x);
}

}  // namespace myriad
