// Constants of kernels/math.h, shared by the scalar definitions and the vector versions so that both evaluate the same
// polynomials. Coefficients interpolate at Chebyshev nodes and are rounded to f32.
#pragma once

namespace myriad::math_constants {

inline constexpr float kExpHigh = 88.7f;  // above: +inf
inline constexpr float kExpLow = -87.3f;  // below: 0 (the result would no longer be a normal number)
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kShifter = 0x1.8p+23f;
inline constexpr float kLn2High = 0x1.63p-1f;  // 9 bits: n·kLn2High is exact
inline constexpr float kLn2Low = -0x1.bd0106p-13f;
// (e^r − 1 − r) / r² on |r| <= ln 2 / 2
inline constexpr float kExp[6] = {0x1.000000p-1f, 0x1.555556p-3f,  0x1.5554e8p-5f,
                                  0x1.1110e0p-7f, 0x1.6d434ep-10f, 0x1.a12516p-13f};

inline constexpr float kTanhSmall = 0.55f;  // below: the polynomial, above: from e^2x
// (tanh(√z)/√z − 1) / z on 0 <= z <= 0.55²
inline constexpr float kTanh[5] = {-0x1.555554p-2f, 0x1.110feap-3f, -0x1.b9a044p-5f, 0x1.5d220ep-6f, -0x1.b13538p-8f};
// (atanh(√z)/√z − 1) / z on 0 <= z <= 1/9
inline constexpr float kAtanh[5] = {0x1.555556p-2f, 0x1.9998d4p-3f, 0x1.24c92ap-3f, 0x1.bc8c7ep-4f, 0x1.dba4dcp-4f};

inline constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
// π/2 in three pieces, each the nearest double to what the ones before leave
inline constexpr double kHalfPi[3] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
// (sin(√z)/√z − 1) / z and (cos(√z) − 1) / z on 0 <= z <= (π/4)²: the series, whose next terms are below 2^-45
inline constexpr double kSine[6] = {-1.0 / 6,     1.0 / 120,         -1.0 / 5040,
                                    1.0 / 362880, -1.0 / 39916800.0, 1.0 / 6227020800.0};
inline constexpr double kCosine[7] = {-1.0 / 2,         1.0 / 24,          -1.0 / 720,          1.0 / 40320,
                                      -1.0 / 3628800.0, 1.0 / 479001600.0, -1.0 / 87178291200.0};

}  // namespace myriad::math_constants
