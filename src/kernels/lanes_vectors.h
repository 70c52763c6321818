// Reductions, elementwise functions and the quantisation of one vector. Part of kernels_lanes.h.
#pragma once

#include "kernels/lanes_math.h"
#include "kernels/math.h"
#include "kernels/table.h"

namespace myriad {
namespace {

// ---- reductions

MYRIAD_LANES F dot_stripes(const float* a, const float* b, std::size_t n) {
  F s = zero();
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) s = fma(load(a + i), load(b + i), s);
  if (i < n) s = select(first(n - i), fma(load_part(a + i, n - i), load_part(b + i, n - i), s), s);
  return s;
}

float dot(const float* a, const float* b, std::size_t n) {
  return tree(dot_stripes(a, b, n));
}

float sum_of_squares(const float* a, std::size_t n) {
  return tree(dot_stripes(a, a, n));
}

// ---- elementwise

void exponentials(const float* in, float* out, std::size_t n) {
  for_lanes(n, [=](std::size_t i, auto get, auto put) { put(out + i, exp_lanes(get(in + i))); });
}

void sigmoid(const float* in, float* out, std::size_t n) {
  for_lanes(n, [=](std::size_t i, auto get, auto put) { put(out + i, sigmoid_lanes(get(in + i))); });
}

void glu(ActivationSpec spec, const float* gate, const float* up, float* out, std::size_t n) {
  if (spec.kind != ActivationKind::situ) {
    for_lanes(n, [=](std::size_t i, auto get, auto put) { put(out + i, mul(silu_lanes(get(gate + i)), get(up + i))); });
    return;
  }
  const F beta = set1(spec.beta), linear_beta = set1(spec.linear_beta);
  const bool bounded = spec.linear_beta != 0.0f;
  for_lanes(n, [=](std::size_t i, auto get, auto put) {
    const F g = get(gate + i);
    F u = get(up + i);
    const F h = mul(mul(beta, tanh_lanes(div(g, beta))), sigmoid_lanes(g));
    if (bounded) u = mul(linear_beta, tanh_lanes(div(u, linear_beta)));
    put(out + i, mul(h, u));
  });
}

void round_bf16(float* x, std::size_t n) {
  for_lanes(n, [=](std::size_t i, auto get, auto put) {
    const F v = get(x + i);
    const I u = bits(v);
    const I upper = set1_bits(0xffff0000u);
    const I lowest = bit_and(right<16>(u), set1_bits(1));
    const I rounded = bit_and(add_bits(add_bits(u, set1_bits(0x7fffu)), lowest), upper);
    const I quiet = bit_or(bit_and(u, upper), set1_bits(0x00400000u));
    put(x + i, select(not_a_number(v), from_bits(quiet), from_bits(rounded)));
  });
}

void axpy(float w, const float* x, float* out, std::size_t n) {
  const F weight = set1(w);
  for_lanes(n, [=](std::size_t i, auto get, auto put) { put(out + i, fma(weight, get(x + i), get(out + i))); });
}

void rms_norm(const float* x, const float* w, float eps, float* y, std::size_t n) {
  if (n == 0) return;
  const F r = set1(exact_rsqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps));
  for_lanes(n, [=](std::size_t i, auto get, auto put) { put(y + i, mul(mul(get(x + i), r), get(w + i))); });
}

void rope(float* x, const float* cos, const float* sin, std::size_t dims, RopeOrder order) {
  const std::size_t half = dims / 2;
  const auto turn = [](F a, F b, F c, F s, F& first, F& second) {
    first = fma(a, c, negative(mul(b, s)));
    second = fma(b, c, mul(a, s));
  };
  if (order == RopeOrder::halves) {
    for_lanes(half, [=](std::size_t i, auto get, auto put) {
      F a, b;
      turn(get(x + i), get(x + half + i), get(cos + i), get(sin + i), a, b);
      put(x + i, a);
      put(x + half + i, b);
    });
    return;
  }
  for_lanes(half, [=](std::size_t i, auto get, auto put) {
    const std::size_t pairs = half - i < kLanes ? half - i : kLanes;
    float even[kLanes] = {}, odd[kLanes] = {};
    for (std::size_t j = 0; j < pairs; ++j) {
      even[j] = x[2 * (i + j)];
      odd[j] = x[2 * (i + j) + 1];
    }
    F a, b;
    turn(load(even), load(odd), get(cos + i), get(sin + i), a, b);
    store(even, a);
    store(odd, b);
    for (std::size_t j = 0; j < pairs; ++j) {
      x[2 * (i + j)] = even[j];
      x[2 * (i + j) + 1] = odd[j];
    }
    (void)put;
  });
}

// ---- quantisation

bool quantize_i8(const float* x, std::size_t n, std::int8_t* q, float* scale) {
  for (std::size_t begin = 0; begin < n; begin += 32) {
    const std::size_t count = n - begin < 32 ? n - begin : 32;
    const std::size_t low = count < kLanes ? count : kLanes, high = count - low;
    const F v[2] = {low == kLanes ? load(x + begin) : load_part(x + begin, low),
                    high == kLanes ? load(x + begin + kLanes)
                    : high > 0     ? load_part(x + begin + kLanes, high)
                                   : zero()};
    const I magnitude = set1_bits(0x7fffffffu);
    const std::uint32_t largest =
        largest_bits(max_bits(bit_and(bits(v[0]), magnitude), bit_and(bits(v[1]), magnitude)));
    if (largest >= 0x7f800000u) return false;
    const float s = __builtin_bit_cast(float, largest) / 127.0f;
    scale[begin / 32] = s;
    for (int h = 0; h < 2; ++h) {
      const std::size_t values = h == 0 ? low : high;
      if (values == 0) break;
      F r = zero();
      if (s != 0.0f) {
        r = div(v[h], set1(s));
        r = select(greater(r, set1(127.0f)), set1(127.0f), r);
        r = select(less(r, set1(-127.0f)), set1(-127.0f), r);
      }
      store_int8(q + begin + h * kLanes, r, values);
    }
  }
  return true;
}

}  // namespace
}  // namespace myriad
