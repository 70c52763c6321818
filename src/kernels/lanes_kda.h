// Kimi Delta Attention: convolution and recurrence. Part of kernels_lanes.h.
#pragma once

#include "kernels/lanes_math.h"

namespace myriad {
namespace {

void conv_silu(const float* weights, std::size_t taps, float* history, const float* in, float* out, std::size_t n) {
  if (taps == 0) return;
  const auto shift = [=](std::size_t c, F now, auto get, auto put) {
    for (std::size_t j = 0; j + 2 < taps; ++j) put(history + j * n + c, get(history + (j + 1) * n + c));
    if (taps > 1) put(history + (taps - 2) * n + c, now);
  };
  for_lanes(n, [=](std::size_t c, auto get, auto put) {
    const F now = get(in + c);
    F acc = zero();
    if (taps == 4 && c + kLanes <= n) {
      F w[4];
      load_by_four(weights + 4 * c, w);
      for (std::size_t j = 0; j < 3; ++j) acc = fma(w[j], get(history + j * n + c), acc);
      acc = fma(w[3], now, acc);
    } else {
      const std::size_t channels = n - c < kLanes ? n - c : kLanes;
      for (std::size_t j = 0; j < taps; ++j) {
        float w[kLanes] = {};
        for (std::size_t i = 0; i < channels; ++i) w[i] = weights[(c + i) * taps + j];
        acc = fma(load(w), j + 1 < taps ? get(history + j * n + c) : now, acc);
      }
    }
    shift(c, now, get, put);
    put(out + c, silu_lanes(acc));
  });
}

// kColumns·16 value channels from `state`, or the first `rest` of 16 when rest is not 0.
template <int kColumns, class Get, class Put>
MYRIAD_LANES void kda_columns(float* state, std::size_t dk, std::size_t dv, const float* q, const float* k,
                              const float* decay, float beta, const float* v, float* out, Get get, Put put) {
  // The decayed state is not written in the first pass: the second computes the same product again.
  F predicted[kColumns], u[kColumns], read[kColumns];
  for (int c = 0; c < kColumns; ++c) predicted[c] = read[c] = zero();
  for (std::size_t i = 0; i < dk; ++i) {
    const F d = set1(decay[i]), key = set1(k[i]);
    for (int c = 0; c < kColumns; ++c) predicted[c] = fma(key, mul(get(state + i * dv + c * kLanes), d), predicted[c]);
  }
  for (int c = 0; c < kColumns; ++c) u[c] = mul(set1(beta), sub(get(v + c * kLanes), predicted[c]));
  for (std::size_t i = 0; i < dk; ++i) {
    const F d = set1(decay[i]), key = set1(k[i]), query = set1(q[i]);
    for (int c = 0; c < kColumns; ++c) {
      float* at = state + i * dv + c * kLanes;
      const F s = fma(key, u[c], mul(get(at), d));
      put(at, s);
      read[c] = fma(query, s, read[c]);
    }
  }
  for (int c = 0; c < kColumns; ++c) put(out + c * kLanes, read[c]);
}

void kda_step(float* state, std::size_t dk, std::size_t dv, const float* q, const float* k, const float* decay,
              float beta, const float* v, float* out) {
  const auto get = [](const float* p) { return load(p); };
  const auto put = [](float* p, F value) { store(p, value); };
  std::size_t j = 0;
  for (; j + kStateBlock * kLanes <= dv; j += kStateBlock * kLanes)
    kda_columns<kStateBlock>(state + j, dk, dv, q, k, decay, beta, v + j, out + j, get, put);
  for (; j + kLanes <= dv; j += kLanes) kda_columns<1>(state + j, dk, dv, q, k, decay, beta, v + j, out + j, get, put);
  if (const std::size_t rest = dv - j; rest > 0)
    kda_columns<1>(
        state + j, dk, dv, q, k, decay, beta, v + j, out + j, [rest](const float* p) { return load_part(p, rest); },
        [rest](float* p, F value) { store_part(p, value, rest); });
}

}  // namespace
}  // namespace myriad
