#include "quant/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/bytes.h"

namespace myriad {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

// Nearest integer, ties to even, for |x| < 2^22.
float nearest(float x) {
  constexpr float kShift = 0x1.8p23F;
  return (x + kShift) - kShift;
}

float as_f16(float v) {
  return f16_to_f32(f32_to_f16(v));
}

float inverse(float d) {
  const float i = 1.0F / d;
  return std::isfinite(i) ? i : 0;
}

float largest_of(std::span<const float> x) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::abs(v));
  return largest;
}

// What one choice of codes gives: the squared error, and the sums that a least-squares fit takes.
struct Sums {
  float error = 0;
  float qq = 0, qx = 0;  // Σ q², Σ q·x
};
constexpr std::size_t kLanes = 8;
float sum_of(const std::array<float, kLanes>& a) {
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

// ---- scale alone: x ≈ d·q with low <= q <= high. N is a multiple of kLanes.

template <std::size_t N>
Sums try_scale(const float* x, float d, float low, float high) {
  const float to_code = inverse(d);
  std::array<float, kLanes> error{}, qq{}, qx{};
  for (std::size_t i = 0; i < N; i += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l) {
      const float q = std::clamp(nearest(std::clamp(x[i + l] * to_code, low - 1, high + 1)), low, high);
      const float e = x[i + l] - d * q;
      error[l] += e * e;
      qq[l] += q * q;
      qx[l] += q * x[i + l];
    }
  return {sum_of(error), sum_of(qq), sum_of(qx)};
}

// The best of the scales `sign`·amax/divisor for every divisor of the grid and both signs, each also after a
// least-squares fit. `stored` rounds a scale to what is written.
struct Grid {
  float first = 0, step = 0;  // divisors
  int count = 0;
  bool both_signs = false;  // for codes that reach further on one side
};
template <std::size_t N, class Stored>
float best_scale(const float* x, float low, float high, const Grid& grid, Stored stored) {
  const float amax = largest_of({x, N});
  if (amax == 0) return 0;
  float best = 0, best_error = kInfinite;
  const auto consider = [&](float d) {
    d = stored(d);
    if (!std::isfinite(d) || d == 0) return Sums{kInfinite};
    const Sums s = try_scale<N>(x, d, low, high);
    if (s.error < best_error) {
      best_error = s.error;
      best = d;
    }
    return s;
  };
  for (const float sign : {-1.0F, 1.0F}) {
    if (sign > 0 && !grid.both_signs) break;
    for (int i = 0; i < grid.count; ++i) {
      const float divisor = grid.first + grid.step * static_cast<float>(i);
      const Sums s = consider((grid.both_signs ? sign : 1.0F) * amax / divisor);
      if (s.qq > 0) consider(s.qx / s.qq);
    }
  }
  // Twice more from the best: codes and scale settle together.
  for (int round = 0; round < 2 && best != 0; ++round) {
    const Sums s = try_scale<N>(x, best, low, high);
    if (s.qq <= 0 || stored(s.qx / s.qq) == best) break;
    consider(s.qx / s.qq);
  }
  return best;
}

template <std::size_t N>
void scale_codes(const float* x, float d, int low, int high, int* q) {
  const float to_code = d == 0 ? 0 : inverse(d);
  const auto lo = static_cast<float>(low), hi = static_cast<float>(high);
  for (std::size_t i = 0; i < N; ++i)
    q[i] = static_cast<int>(std::clamp(nearest(std::clamp(x[i] * to_code, lo - 1, hi + 1)), lo, hi));
}

constexpr Grid kGrid4{5.5F, 0.5F, 8, true};     // codes -8 … 7: divisors 5.5 to 9
constexpr Grid kGrid5{13.0F, 1.0F, 5, true};    // -16 … 15: 13 to 17
constexpr Grid kGrid6{29.0F, 1.0F, 5, true};    // -32 … 31: 29 to 33
constexpr Grid kGrid8{125.0F, 0.5F, 6, false};  // -127 … 127: 125 to 127.5

// ---- the layouts

void put_half(std::byte* at, float v) {
  store_le(at, f32_to_f16(v));
}
// Codes 0–15; value i in the low nibble of byte i, value 16 + i in the high one.
void put_nibbles(std::byte* at, const int* q) {
  for (std::size_t i = 0; i < 16; ++i) at[i] = static_cast<std::byte>((q[i] & 15) | (q[16 + i] & 15) << 4);
}
void put_fifth_bits(std::byte* at, const int* q) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < 32; ++i) bits |= static_cast<std::uint32_t>(q[i] >> 4 & 1) << i;
  store_le(at, bits);
}

void write_q8_0(const float* x, std::byte* out) {
  int q[32];
  const float d = best_scale<32>(x, -127, 127, kGrid8, as_f16);
  scale_codes<32>(x, d, -127, 127, q);
  put_half(out, d);
  for (std::size_t i = 0; i < 32; ++i) out[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(q[i]));
}

void write_q4_0(const float* x, std::byte* out) {
  int q[32];
  const float d = best_scale<32>(x, -8, 7, kGrid4, as_f16);
  scale_codes<32>(x, d, -8, 7, q);
  for (int& c : q) c += 8;
  put_half(out, d);
  put_nibbles(out + 2, q);
}

void write_q5_0(const float* x, std::byte* out) {
  int q[32];
  const float d = best_scale<32>(x, -16, 15, kGrid5, as_f16);
  scale_codes<32>(x, d, -16, 15, q);
  for (int& c : q) c += 16;
  put_half(out, d);
  put_fifth_bits(out + 2, q);
  put_nibbles(out + 6, q);
}

void write_q6_k(const float* x, std::byte* out) {
  float wanted[16];
  float widest = 0;
  for (std::size_t g = 0; g < 16; ++g) {
    wanted[g] = best_scale<16>(x + 16 * g, -32, 31, kGrid6, [](float d) { return d; });
    if (std::abs(wanted[g]) > std::abs(widest)) widest = wanted[g];
  }
  // The scale of scales, its largest multiple being -128 or 127, whichever serves better.
  int best_q[256] = {}, best_s[16] = {};
  float best_d = 0, best_error = kInfinite;
  for (const float divisor : {-128.0F, -127.0F, 127.0F, -124.0F, 124.0F}) {
    const float d = as_f16(widest / divisor);
    if (d == 0 || !std::isfinite(d)) continue;
    float error = 0;
    int scales[16], codes[256];
    for (std::size_t g = 0; g < 16; ++g) {
      // The integer next to the wanted one, or one of its neighbours.
      const float centre = nearest(std::clamp(wanted[g] / d, -129.0F, 128.0F));
      float best_of_group = kInfinite;
      for (float s = centre - 1; s <= centre + 1; s += 1) {
        if (s < -128 || s > 127) continue;
        const Sums sums = try_scale<16>(x + 16 * g, d * s, -32, 31);
        if (sums.error >= best_of_group) continue;
        best_of_group = sums.error;
        scales[g] = static_cast<int>(s);
      }
      error += best_of_group;
      scale_codes<16>(x + 16 * g, d * static_cast<float>(scales[g]), -32, 31, codes + 16 * g);
    }
    if (error >= best_error) continue;
    best_error = error;
    best_d = d;
    std::copy_n(codes, 256, best_q);
    std::copy_n(scales, 16, best_s);
  }
  for (int& c : best_q) c += 32;
  for (std::size_t i = 0; i < 210; ++i) out[i] = std::byte{0};
  for (std::size_t h = 0; h < 2; ++h) {
    const int* q = best_q + 128 * h;
    for (std::size_t i = 0; i < 64; ++i) out[64 * h + i] = static_cast<std::byte>((q[i] & 15) | (q[64 + i] & 15) << 4);
    for (std::size_t j = 0; j < 4; ++j)
      for (std::size_t i = 0; i < 32; ++i)
        out[128 + 32 * h + i] |= static_cast<std::byte>((q[32 * j + i] >> 4 & 3) << 2 * j);
  }
  for (std::size_t g = 0; g < 16; ++g) out[192 + g] = static_cast<std::byte>(static_cast<std::int8_t>(best_s[g]));
  put_half(out + 208, best_d);
}

// ---- codebooks

// Index of the value next to x in an ascending table; the lower one of two that are equally far.
template <std::size_t N>
int nearest_index(const std::array<float, N>& midpoints, float x) {
  int i = 0;
  for (const float m : midpoints) i += x > m ? 1 : 0;
  return i;
}

constexpr std::array<float, 15> iq4_midpoints() {
  std::array<float, 15> m{};
  for (std::size_t i = 0; i < 15; ++i)
    m[i] = (static_cast<float>(kIq4Values[i]) + static_cast<float>(kIq4Values[i + 1])) / 2;
  return m;
}

void write_iq4_nl(const float* x, std::byte* out) {
  constexpr auto kMidpoints = iq4_midpoints();
  const float amax = largest_of({x, 32});
  float best = 0, best_error = kInfinite;
  const auto consider = [&](float d) {
    d = as_f16(d);
    if (d == 0 || !std::isfinite(d)) return Sums{kInfinite};
    const float to_code = inverse(d);
    Sums s;
    for (std::size_t i = 0; i < 32; ++i) {
      const auto q =
          static_cast<float>(kIq4Values[static_cast<std::size_t>(nearest_index(kMidpoints, x[i] * to_code))]);
      const float e = x[i] - d * q;
      s.error += e * e;
      s.qq += q * q;
      s.qx += q * x[i];
    }
    if (s.error < best_error) {
      best_error = s.error;
      best = d;
    }
    return s;
  };
  if (amax > 0)
    for (const float sign : {1.0F, -1.0F})
      for (const float divisor : {127.0F, 120.0F, 113.0F, 106.0F, 99.0F, 92.0F, 134.0F}) {
        const Sums s = consider(sign * amax / divisor);
        if (s.qq > 0) consider(s.qx / s.qq);
      }
  int q[32];
  const float to_code = best == 0 ? 0 : inverse(best);
  for (std::size_t i = 0; i < 32; ++i) q[i] = nearest_index(kMidpoints, x[i] * to_code);
  put_half(out, best);
  put_nibbles(out + 2, q);
}

// Halfway between the magnitudes of E2M1.
constexpr std::array<float, 7> kE2M1Midpoints = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};

void write_mxfp4(const float* x, std::byte* out) {
  const float amax = largest_of({x, 32});
  const auto code = [](float v) { return nearest_index(kE2M1Midpoints, std::abs(v)) | (std::signbit(v) ? 8 : 0); };
  int stored = 127;  // of all zeros any exponent would do
  float y[32] = {}, best_scale_of_y = 1;
  if (amax > 0) {
    int exponent = 0;
    std::frexp(amax, &exponent);
    for (std::size_t i = 0; i < 32; ++i) y[i] = std::ldexp(x[i], -exponent);  // the largest in [0.5, 1)
    float best_error = kInfinite;
    for (int e = -2; e >= -4; --e) {  // 6·2^-2 has room for more than 1, 6·2^-4 for less than 0.5
      const int wanted = std::clamp(e + exponent + 127, 0, 254);
      const float d = std::ldexp(1.0F, wanted - exponent - 127);
      float error = 0;
      for (std::size_t i = 0; i < 32; ++i) {
        const float r = y[i] - kE2M1[static_cast<std::size_t>(code(y[i] / d))] * d;
        error += r * r;
      }
      if (error >= best_error) continue;
      best_error = error;
      stored = wanted;
      best_scale_of_y = d;
    }
  }
  int q[32];
  for (std::size_t i = 0; i < 32; ++i) q[i] = code(y[i] / best_scale_of_y);
  out[0] = static_cast<std::byte>(stored);
  put_nibbles(out + 1, q);
}

// ---- scale and minimum: x ≈ d·q + m with 0 <= q <= high

struct Affine {
  float d = 0, m = 0;
  float error = kInfinite;
};
struct AffineSums {
  float error = 0, q = 0, qq = 0, qx = 0, x = 0;
};
AffineSums try_affine(const float* x, float d, float m, float high) {
  const float to_code = inverse(d);
  std::array<float, kLanes> error{}, sq{}, qq{}, qx{}, sx{};
  for (std::size_t i = 0; i < 32; i += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l) {
      const float v = x[i + l];
      const float q = std::clamp(nearest(std::clamp((v - m) * to_code, -1.0F, high + 1)), 0.0F, high);
      const float e = v - (d * q + m);
      error[l] += e * e;
      sq[l] += q;
      qq[l] += q * q;
      qx[l] += q * v;
      sx[l] += v;
    }
  return {sum_of(error), sum_of(sq), sum_of(qq), sum_of(qx), sum_of(sx)};
}

// With `no_positive` m is at most 0, as types have it that store its negative without a sign.
template <class Stored>
Affine best_affine(const float* x, float high, bool no_positive, Stored stored) {
  float low_end = x[0], high_end = x[0];
  for (std::size_t i = 1; i < 32; ++i) {
    low_end = std::min(low_end, x[i]);
    high_end = std::max(high_end, x[i]);
  }
  if (no_positive) low_end = std::min(low_end, 0.0F);
  Affine best;
  const auto consider = [&](float d, float m) {
    d = stored(d);
    m = stored(no_positive ? std::min(m, 0.0F) : m);
    if (!(d > 0) || !std::isfinite(d) || !std::isfinite(m)) return AffineSums{kInfinite};
    const AffineSums s = try_affine(x, d, m, high);
    if (s.error < best.error) best = {d, m, s.error};
    return s;
  };
  const auto fitted = [&](const AffineSums& s) {
    if (!std::isfinite(s.error)) return;
    const float n = 32, det = n * s.qq - s.q * s.q;
    if (det > 0) {
      const float d = (n * s.qx - s.q * s.x) / det;
      const float m = (s.x - d * s.q) / n;
      if (!no_positive || m <= 0) {
        consider(d, m);
        return;
      }
    }
    if (no_positive && s.qq > 0) consider(s.qx / s.qq, 0);
  };
  if (high_end > low_end) {
    const float range = high_end - low_end;
    for (const float below : {0.0F, 0.04F, 0.1F})
      for (const float above : {0.0F, 0.04F, 0.1F}) {
        const float lo = low_end + below * range;
        fitted(consider((high_end - above * range - lo) / high, lo));
      }
    for (int round = 0; round < 2 && best.d > 0; ++round) fitted(try_affine(x, best.d, best.m, high));
  }
  if (best.d == 0) {  // all alike (or too small for a scale): the minimum alone
    best = {0, stored(no_positive ? std::min(low_end, 0.0F) : low_end), 0};
    if (no_positive && high_end > 0) {  // all alike and positive: the largest code
      best = {stored(high_end / high), 0, 0};
    }
  }
  return best;
}

void affine_codes(const float* x, float d, float m, int high, int* q) {
  const float to_code = d == 0 ? 0 : inverse(d), hi = static_cast<float>(high);
  for (std::size_t i = 0; i < 32; ++i)
    q[i] = static_cast<int>(std::clamp(nearest(std::clamp((x[i] - m) * to_code, -1.0F, hi + 1)), 0.0F, hi));
}

void write_q4_1(const float* x, std::byte* out) {
  int q[32];
  const Affine fit = best_affine(x, 15, false, as_f16);
  affine_codes(x, fit.d, fit.m, 15, q);
  put_half(out, fit.d);
  put_half(out + 2, fit.m);
  put_nibbles(out + 4, q);
}

void write_q5_1(const float* x, std::byte* out) {
  int q[32];
  const Affine fit = best_affine(x, 31, false, as_f16);
  affine_codes(x, fit.d, fit.m, 31, q);
  put_half(out, fit.d);
  put_half(out + 2, fit.m);
  put_fifth_bits(out + 4, q);
  put_nibbles(out + 8, q);
}

// q4_k and q5_k: eight groups, value d·s·q - dmin·t with s and t of six bits.
struct SuperBlock {
  float d = 0, dmin = 0, error = kInfinite;
  int s[8] = {}, t[8] = {};
};

// s and t of every group for these d and dmin: next to the wanted ones, or a neighbour of them.
SuperBlock with_scales(const float* x, float high, const Affine* wanted, float d, float dmin) {
  SuperBlock b{.d = d, .dmin = dmin, .error = 0};
  for (std::size_t g = 0; g < 8; ++g) {
    const float s0 = d > 0 ? nearest(std::min(wanted[g].d / d, 64.0F)) : 0;
    const float t0 = dmin > 0 ? nearest(std::min(-wanted[g].m / dmin, 64.0F)) : 0;
    float best = kInfinite;
    for (float s = std::max(s0 - 1, 0.0F); s <= std::min(s0 + 1, 63.0F); s += 1)
      for (float t = std::max(t0 - 1, 0.0F); t <= std::min(t0 + 1, 63.0F); t += 1) {
        if ((s > 0 && d == 0) || (t > 0 && dmin == 0)) continue;
        const AffineSums sums = try_affine(x + 32 * g, d * s, -(dmin * t), high);
        if (sums.error >= best) continue;
        best = sums.error;
        b.s[g] = static_cast<int>(s);
        b.t[g] = static_cast<int>(t);
      }
    b.error += best;
  }
  return b;
}

// d and dmin that fit the codes of `b` best.
std::pair<float, float> fitted_scales(const float* x, int high, const SuperBlock& b) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
  int q[32];
  for (std::size_t g = 0; g < 8; ++g) {
    affine_codes(x + 32 * g, b.d * static_cast<float>(b.s[g]), -(b.dmin * static_cast<float>(b.t[g])), high, q);
    for (std::size_t i = 0; i < 32; ++i) {
      const double u = b.s[g] * q[i], v = -b.t[g], y = x[32 * g + i];
      aa += u * u;
      ab += u * v;
      bb += v * v;
      ax += u * y;
      bx += v * y;
    }
  }
  const double det = aa * bb - ab * ab;
  if (det > 1e-9 * aa * bb)
    return {static_cast<float>((ax * bb - bx * ab) / det), static_cast<float>((aa * bx - ab * ax) / det)};
  return {aa > 0 ? static_cast<float>(ax / aa) : 0, b.dmin};
}

SuperBlock best_super_block(const float* x, int high) {
  Affine wanted[8];
  float widest = 0, lowest = 0;
  for (std::size_t g = 0; g < 8; ++g) {
    wanted[g] = best_affine(x + 32 * g, static_cast<float>(high), true, [](float v) { return v; });
    widest = std::max(widest, wanted[g].d);
    lowest = std::max(lowest, -wanted[g].m);
  }
  SuperBlock best = with_scales(x, static_cast<float>(high), wanted, as_f16(widest / 63), as_f16(lowest / 63));
  for (int round = 0; round < 3; ++round) {
    const auto [d, dmin] = fitted_scales(x, high, best);
    const float d16 = as_f16(d), m16 = as_f16(dmin);
    if (!(d16 > 0) || !(m16 >= 0) || !std::isfinite(d16) || !std::isfinite(m16)) break;
    const SuperBlock next = with_scales(x, static_cast<float>(high), wanted, d16, m16);
    if (next.error >= best.error) break;
    best = next;
  }
  return best;
}

// How read_six_bit_pairs of blocks.cc takes them apart.
void put_six_bit_pairs(std::byte* at, const SuperBlock& b) {
  for (std::size_t j = 0; j < 4; ++j) {
    at[j] = static_cast<std::byte>(b.s[j] | b.s[j + 4] >> 4 << 6);
    at[j + 4] = static_cast<std::byte>(b.t[j] | b.t[j + 4] >> 4 << 6);
    at[j + 8] = static_cast<std::byte>((b.s[j + 4] & 15) | (b.t[j + 4] & 15) << 4);
  }
}

void write_k_with_minima(const float* x, std::byte* out, bool five) {
  const int high = five ? 31 : 15;
  const SuperBlock b = best_super_block(x, high);
  put_half(out, b.d);
  put_half(out + 2, b.dmin);
  put_six_bit_pairs(out + 4, b);
  int q[256];
  for (std::size_t g = 0; g < 8; ++g)
    affine_codes(x + 32 * g, b.d * static_cast<float>(b.s[g]), -(b.dmin * static_cast<float>(b.t[g])), high,
                 q + 32 * g);
  std::byte* nibbles = out + (five ? 48 : 16);
  for (std::size_t j = 0; j < 4; ++j)
    for (std::size_t i = 0; i < 32; ++i)
      nibbles[32 * j + i] = static_cast<std::byte>((q[64 * j + i] & 15) | (q[64 * j + 32 + i] & 15) << 4);
  if (!five) return;
  for (std::size_t i = 0; i < 32; ++i) {
    unsigned bits = 0;
    for (std::size_t j = 0; j < 8; ++j) bits |= static_cast<unsigned>(q[32 * j + i] >> 4 & 1) << j;
    out[16 + i] = static_cast<std::byte>(bits);
  }
}

// ---- scale and integer zero point: x ≈ d·(q - z)

void write_i4_zero(const float* x, std::byte* out) {
  float low_end = 0, high_end = 0;  // zero lies in the range, or the zero point could not be stored
  for (std::size_t i = 0; i < 32; ++i) {
    low_end = std::min(low_end, x[i]);
    high_end = std::max(high_end, x[i]);
  }
  float best = 0, best_zero = 0, best_error = kInfinite;
  const auto consider = [&](float d, float z) {
    d = as_f16(d);
    if (!(d > 0) || !std::isfinite(d) || z < 0 || z > 255) return Sums{kInfinite};
    const Sums s = try_scale<32>(x, d, -z, 15 - z);
    if (s.error < best_error) {
      best_error = s.error;
      best = d;
      best_zero = z;
    }
    return s;
  };
  const float range = high_end - low_end;
  if (range > 0)
    for (const float below : {0.0F, 0.05F, 0.12F})
      for (const float above : {0.0F, 0.05F, 0.12F}) {
        const float lo = low_end + below * range, d = (high_end - above * range - lo) / 15;
        const float centre = nearest(std::clamp(-lo / d, -1.0F, 17.0F));
        for (float z = centre - 1; z <= centre + 1; z += 1) {
          const Sums s = consider(d, z);
          if (s.qq > 0) consider(s.qx / s.qq, z);
        }
      }
  int q[32];
  const int zero = static_cast<int>(best_zero);
  scale_codes<32>(x, best, -zero, 15 - zero, q);
  for (int& c : q) c += zero;
  put_half(out, best);
  out[2] = static_cast<std::byte>(zero);
  put_nibbles(out + 3, q);
}

void write_i8_row(std::span<const float> x, float scale, std::byte* out) {
  store_le(out, scale);
  const float to_code = scale == 0 ? 0 : inverse(scale);
  for (std::size_t i = 0; i < x.size(); ++i)
    out[kRowScaleBytes + i] = static_cast<std::byte>(
        static_cast<std::int8_t>(std::clamp(nearest(std::clamp(x[i] * to_code, -128.0F, 128.0F)), -127.0F, 127.0F)));
}

// The largest magnitude that a type can hold: code times the largest scale.
float largest_value(DType t) {
  constexpr float kHalf = 65504;
  switch (t) {
    case DType::mxfp4:
    case DType::i8_row:
      return std::numeric_limits<float>::max();
    case DType::q8_0:
      return kHalf * 127;
    case DType::q4_0:
    case DType::i4_zero:
      return kHalf * 7;
    case DType::q5_0:
      return kHalf * 15;
    case DType::q4_1:
    case DType::q5_1:
      return kHalf;
    case DType::q4_k:
    case DType::q5_k:
      return kHalf * 63;
    case DType::iq4_nl:
      return kHalf * 113;
    default:
      return kHalf * 127 * 31;
  }
}

}  // namespace

bool can_quantize(DType t) {
  switch (t) {
    case DType::mxfp4:
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
    case DType::q6_k:
    case DType::iq4_nl:
    case DType::i8_row:
    case DType::i4_zero:
      return true;
    default:
      return false;
  }
}

float int8_scale(float largest) {
  return largest / 127;
}

Status quantize_rows(DType t, std::span<const float> values, std::size_t k, std::span<std::byte> out,
                     std::size_t first_row, std::optional<float> scale) {
  if (!can_quantize(t) || k == 0 || !fits_blocks(t, k) || values.size() % k != 0 ||
      out.size() != values.size() / k * row_bytes(t, k) || (scale && t != DType::i8_row))
    return fail(Code::invalid_argument, "quantising {} values in rows of {} as {} into {} bytes", values.size(), k,
                dtype_name(t), out.size());
  const float largest = largest_value(t);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(values[i]) <= largest))  // NaN too
      return fail(Code::invalid_argument, "row {} column {} is {}, expected a finite number of at most {:g} for {}",
                  first_row + i / k, i % k, values[i], largest, dtype_name(t));
  const std::size_t in_block = block_values(t), bytes = block_bytes(t);
  for (std::size_t r = 0; r < values.size() / k; ++r) {
    const auto row = values.subspan(r * k, k);
    std::byte* to = out.data() + r * row_bytes(t, k);
    if (t == DType::i8_row) {
      write_i8_row(row, scale ? *scale : int8_scale(largest_of(row)), to);
      continue;
    }
    for (std::size_t b = 0; b < k / in_block; ++b, to += bytes) {
      const float* x = row.data() + b * in_block;
      switch (t) {
        case DType::mxfp4:
          write_mxfp4(x, to);
          break;
        case DType::q8_0:
          write_q8_0(x, to);
          break;
        case DType::q4_0:
          write_q4_0(x, to);
          break;
        case DType::q4_1:
          write_q4_1(x, to);
          break;
        case DType::q5_0:
          write_q5_0(x, to);
          break;
        case DType::q5_1:
          write_q5_1(x, to);
          break;
        case DType::q4_k:
          write_k_with_minima(x, to, false);
          break;
        case DType::q5_k:
          write_k_with_minima(x, to, true);
          break;
        case DType::q6_k:
          write_q6_k(x, to);
          break;
        case DType::iq4_nl:
          write_iq4_nl(x, to);
          break;
        default:
          write_i4_zero(x, to);
          break;
      }
    }
  }
  return {};
}

}  // namespace myriad
