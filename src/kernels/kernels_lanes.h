// The kernels over sixteen f32 lanes, once for all vector instruction sets. Included by exactly one source file of each
// set, after its lanes_*.h. Everything here has internal linkage, and no inline function or template from elsewhere is
// called: one that is compiled here, with this set's instructions, and not inlined could be linked into code that runs
// on every CPU. Each function computes what its twin in kernels_scalar.cc does, operation by operation in each lane.
#pragma once

#include "kernels/math.h"
#include "kernels/math_constants.h"
#include "kernels/table.h"

namespace myriad {
namespace {

constexpr std::size_t kLanes = 16;

// ---- kernels/math.h in each lane

MYRIAD_LANES F exp_lanes(F x) {
  using namespace math_constants;
  const F shifted = fma(x, set1(kLog2E), set1(kShifter));
  const F n = sub(shifted, set1(kShifter));
  const F r = fma(n, set1(-kLn2Low), fma(n, set1(-kLn2High), x));
  F q = fma(set1(kExp[5]), r, set1(kExp[4]));
  for (int i = 3; i >= 0; --i) q = fma(q, r, set1(kExp[i]));
  const F p = add(fma(q, mul(r, r), r), set1(1.0f));
  F result = from_bits(add_bits(bits(p), left<23>(bits(shifted))));
  result = select(greater(x, set1(kExpHigh)), from_bits(set1_bits(0x7f800000u)), result);
  result = select(less(x, set1(kExpLow)), zero(), result);
  return select(not_a_number(x), from_bits(set1_bits(0x7fc00000u)), result);
}

MYRIAD_LANES F negative(F x) {
  return from_bits(bit_xor(bits(x), set1_bits(0x80000000u)));
}

MYRIAD_LANES F sigmoid_lanes(F x) {
  return div(set1(1.0f), add(set1(1.0f), exp_lanes(negative(x))));
}

MYRIAD_LANES F silu_lanes(F x) {
  return mul(x, sigmoid_lanes(x));
}

MYRIAD_LANES F tanh_lanes(F x) {
  using namespace math_constants;
  const I sign = bit_and(bits(x), set1_bits(0x80000000u));
  const F a = from_bits(bit_xor(bits(x), sign));
  const F z = mul(a, a);
  F p = fma(set1(kTanh[4]), z, set1(kTanh[3]));
  for (int i = 2; i >= 0; --i) p = fma(p, z, set1(kTanh[i]));
  const F small = fma(p, mul(z, a), a);
  const F large = sub(set1(1.0f), div(set1(2.0f), add(exp_lanes(add(a, a)), set1(1.0f))));
  const F magnitude = select(less(a, set1(kTanhSmall)), small, large);
  return select(not_a_number(x), from_bits(set1_bits(0x7fc00000u)), from_bits(bit_or(bits(magnitude), sign)));
}

// ---- products
//
// A block is kTiles tiles by kTokens tokens, with one accumulator each in registers, over columns [k0, k1); a block
// that does not begin at column 0 goes on from the sums it finds in y, which changes no bit of them. With several
// blocks of tokens the columns are cut into pieces that stay in the nearest cache, so that weights come from memory
// once.

constexpr std::size_t kColumnPiece = 256;  // a multiple of 32
constexpr int kSingleTokenTiles = 4;       // chains in flight when there is one token

struct Columns {
  std::size_t all, begin, end;
};

// x of one block of tokens and where its results go.
struct Activations {
  const float* x;
  std::size_t ldx;
  float* y;
  std::size_t ldy;
};

template <int kTiles, int kTokens>
MYRIAD_LANES void begin_block(F (&acc)[kTiles][kTokens], Columns columns, Activations to) {
  for (int i = 0; i < kTiles; ++i)
    for (int t = 0; t < kTokens; ++t) acc[i][t] = columns.begin == 0 ? zero() : load(to.y + t * to.ldy + i * kLanes);
}

template <int kTiles, int kTokens>
MYRIAD_LANES void end_block(const F (&acc)[kTiles][kTokens], Activations to) {
  for (int i = 0; i < kTiles; ++i)
    for (int t = 0; t < kTokens; ++t) store(to.y + t * to.ldy + i * kLanes, acc[i][t]);
}

template <int kTiles, int kTokens>
MYRIAD_LANES void step(F (&acc)[kTiles][kTokens], const F (&w)[kTiles], Activations from, std::size_t column) {
  for (int t = 0; t < kTokens; ++t) {
    const F x = set1(from.x[t * from.ldx + column]);
    for (int i = 0; i < kTiles; ++i) acc[i][t] = fma(w[i], x, acc[i][t]);
  }
}

struct TilesF32 {
  static std::size_t tile_size(std::size_t k) { return 64 * k; }

  template <int kTiles, int kTokens>
  static void block(const unsigned char* tile, std::size_t stride, Columns columns, Activations a) {
    F acc[kTiles][kTokens];
    begin_block(acc, columns, a);
    for (std::size_t k = columns.begin; k < columns.end; ++k) {
      F w[kTiles];
      for (int i = 0; i < kTiles; ++i) w[i] = from_bits(load_bits(tile + i * stride + 64 * k));
      step(acc, w, a, k);
    }
    end_block(acc, a);
  }
};

struct TilesBf16 {
  static std::size_t tile_size(std::size_t k) { return 64 * ((k + 1) / 2); }

  template <int kTiles, int kTokens>
  static void block(const unsigned char* tile, std::size_t stride, Columns columns, Activations a) {
    F acc[kTiles][kTokens];
    begin_block(acc, columns, a);
    const std::size_t pairs_end = columns.end / 2 * 2;
    for (std::size_t k = columns.begin; k < pairs_end; k += 2) {
      // a 32-bit lane holds column k in its lower half and k + 1 in its upper
      F even[kTiles], odd[kTiles];
      for (int i = 0; i < kTiles; ++i) {
        const I pair = load_bits(tile + i * stride + 32 * k);
        even[i] = from_bits(left<16>(pair));
        odd[i] = from_bits(bit_and(pair, set1_bits(0xffff0000u)));
      }
      step(acc, even, a, k);
      step(acc, odd, a, k + 1);
    }
    if (pairs_end < columns.end) {
      F last[kTiles];
      for (int i = 0; i < kTiles; ++i) last[i] = from_bits(left<16>(load_bits(tile + i * stride + 32 * pairs_end)));
      step(acc, last, a, pairs_end);
    }
    end_block(acc, a);
  }
};

// 2^(e-127) for the 16 scales at `p`; e = 0 is the subnormal.
MYRIAD_LANES F weight_scales(const unsigned char* p) {
  return from_bits(max_bits(left<23>(load_bytes(p)), set1_bits(0x00400000u)));
}

struct TilesMxfp4 {
  static std::size_t tile_size(std::size_t k) { return (272 * (k / 32) + 63) / 64 * 64; }

  template <int kTiles, int kTokens>
  static void block(const unsigned char* tile, std::size_t stride, Columns columns, Activations a) {
    const unsigned char* scales = tile + 8 * columns.all;
    const E2M1 value;
    F acc[kTiles][kTokens];
    begin_block(acc, columns, a);
    for (std::size_t k = columns.begin; k < columns.end; k += 8) {
      I low[kTiles], high[kTiles];
      F scale[kTiles];
      for (int i = 0; i < kTiles; ++i) {
        low[i] = load_bits(tile + i * stride + 8 * k);
        high[i] = right<4>(low[i]);
        scale[i] = weight_scales(scales + i * stride + k / 32 * 16);
      }
      for (int byte = 0; byte < 4; ++byte) {
        F w[kTiles];
        for (int i = 0; i < kTiles; ++i) {
          w[i] = mul(value(low[i]), scale[i]);
          low[i] = right<8>(low[i]);
        }
        step(acc, w, a, k + byte);
      }
      for (int byte = 0; byte < 4; ++byte) {
        F w[kTiles];
        for (int i = 0; i < kTiles; ++i) {
          w[i] = mul(value(high[i]), scale[i]);
          high[i] = right<8>(high[i]);
        }
        step(acc, w, a, k + 4 + byte);
      }
    }
    end_block(acc, a);
  }
};

// All tokens of kTiles tiles and one piece of the columns; blocks of kTokens tokens, then of half as many.
template <class Tiles, int kTiles, int kTokens>
void token_blocks(const unsigned char* tile, std::size_t stride, Columns columns, Activations a, std::size_t tokens) {
  for (; tokens >= kTokens; tokens -= kTokens) {
    Tiles::template block<kTiles, kTokens>(tile, stride, columns, a);
    a.x += kTokens * a.ldx;
    a.y += kTokens * a.ldy;
  }
  if constexpr (kTokens > 1)
    if (tokens > 0) token_blocks<Tiles, kTiles, kTokens / 2>(tile, stride, columns, a, tokens);
}

template <class Tiles, int kTiles, int kTokens>
void tile_group(const unsigned char* tile, std::size_t k, Activations a, std::size_t tokens) {
  const std::size_t piece = tokens <= kTokens ? k : kColumnPiece;
  std::size_t begin = 0;
  do {  // once even when k is 0: the sums are zeros then
    const std::size_t end = k - begin < piece ? k : begin + piece;
    token_blocks<Tiles, kTiles, kTokens>(tile, Tiles::tile_size(k), {k, begin, end}, a, tokens);
    begin = end;
  } while (begin < k);
}

template <class Tiles>
void product(const void* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x, std::size_t ldx,
             std::size_t tokens, float* y, std::size_t ldy) {
  const std::size_t stride = Tiles::tile_size(k);
  const auto* first_tile = static_cast<const unsigned char*>(weights);
  std::size_t tile = tile0;
  const auto activations = [&] { return Activations{x, ldx, y + tile * kLanes, ldy}; };
  if (tokens == 1)
    for (; tile + kSingleTokenTiles <= tile1; tile += kSingleTokenTiles)
      tile_group<Tiles, kSingleTokenTiles, 1>(first_tile + tile * stride, k, activations(), 1);
  if constexpr (kTileBlock > 1)
    for (; tile + kTileBlock <= tile1; tile += kTileBlock)
      tile_group<Tiles, kTileBlock, kTokenBlock>(first_tile + tile * stride, k, activations(), tokens);
  for (; tile < tile1; ++tile) tile_group<Tiles, 1, kTokenBlock>(first_tile + tile * stride, k, activations(), tokens);
}

void matmul_f32(const float* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
                std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  product<TilesF32>(weights, k, tile0, tile1, x, ldx, tokens, y, ldy);
}

void matmul_bf16(const std::uint16_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
                 std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  product<TilesBf16>(weights, k, tile0, tile1, x, ldx, tokens, y, ldy);
}

void matmul_mxfp4_f32(const std::uint8_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
                      std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  product<TilesMxfp4>(weights, k, tile0, tile1, x, ldx, tokens, y, ldy);
}

// Integer products. Every set makes the codes unsigned by adding 12 to each, for its instructions multiply unsigned by
// signed bytes; the 12·Σq too much is taken off again: sums of integers are exact, so the way there does not show in
// the result. The activations of a piece of the columns are laid out once, for all tiles, in the order in which they
// are read.

struct Int8Group {
  std::int8_t q[32];
  float scale;
  std::int32_t correction;  // −12·Σq
};
constexpr std::size_t kGroupsLaidOut = 2048;  // 80 KiB of stack
constexpr int kCodeOffset = 12;

struct Int8Block {
  const Int8Group* x;              // [end − begin, kTokens]
  std::size_t groups, begin, end;  // of the whole row; of this piece
};

// Four bytes as they lie in memory, for all lanes to multiply with.
using FourBytes [[gnu::may_alias, gnu::aligned(1)]] = std::int32_t;
MYRIAD_LANES std::int32_t four_bytes(const std::int8_t* p) {
  return *reinterpret_cast<const FourBytes*>(p);
}

// Defined for each instruction set: kTiles tiles, kTokens tokens, from group block.begin to block.end.
template <int kTiles, int kTokens>
void int8_block(const unsigned char* tile, std::size_t stride, const Int8Block& block, float* y, std::size_t ldy);

template <int kTokens>
void int8_token_blocks(const unsigned char* tile, Int8Block block, std::size_t tokens, float* y, std::size_t ldy) {
  for (; tokens >= kTokens; tokens -= kTokens) {
    int8_block<1, kTokens>(tile, 0, block, y, ldy);
    block.x += kTokens * (block.end - block.begin);
    y += kTokens * ldy;
  }
  if constexpr (kTokens > 1)
    if (tokens > 0) int8_token_blocks<kTokens / 2>(tile, block, tokens, y, ldy);
}

// Lays out groups [begin, end) of `count` tokens in blocks of kTokenBlock, kTokenBlock / 2, … tokens.
MYRIAD_LANES void lay_out(Int8Rows x, std::size_t groups, std::size_t begin, std::size_t end, std::size_t count,
                          Int8Group* out) {
  std::size_t width = kTokenBlock;
  for (std::size_t t0 = 0; t0 < count; t0 += width) {
    while (width > count - t0) width /= 2;
    for (std::size_t a = begin; a < end; ++a)
      for (std::size_t t = t0; t < t0 + width; ++t, ++out) {
        const std::int8_t* q = x.q + 32 * (t * groups + a);
        __builtin_memcpy(out->q, q, 32);
        out->scale = x.scale[t * groups + a];
        out->correction = -kCodeOffset * sum_of_32(q);
      }
  }
}

void matmul_mxfp4_i8(const std::uint8_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, Int8Rows x,
                     std::size_t tokens, float* y, std::size_t ldy) {
  constexpr std::size_t kTokensAtOnce = 64;
  const std::size_t groups = k / 32, stride = TilesMxfp4::tile_size(k);
  Int8Group laid_out[kGroupsLaidOut];
  for (std::size_t t0 = 0; t0 < tokens; t0 += kTokensAtOnce) {
    const std::size_t count = tokens - t0 < kTokensAtOnce ? tokens - t0 : kTokensAtOnce;
    const std::size_t piece = kGroupsLaidOut / (count <= kTokenBlock ? count : kTokensAtOnce);
    std::size_t begin = 0;
    do {
      const std::size_t end = groups - begin < piece ? groups : begin + piece;
      lay_out({x.q + t0 * k, x.scale + t0 * groups}, groups, begin, end, count, laid_out);
      const Int8Block block{laid_out, groups, begin, end};
      std::size_t tile = tile0;
      if (count == 1)
        for (; tile + kSingleTokenTiles <= tile1; tile += kSingleTokenTiles)
          int8_block<kSingleTokenTiles, 1>(weights + tile * stride, stride, block, y + t0 * ldy + tile * kLanes, ldy);
      for (; tile < tile1; ++tile)
        int8_token_blocks<kTokenBlock>(weights + tile * stride, block, count, y + t0 * ldy + tile * kLanes, ldy);
      begin = end;
    } while (begin < groups);
  }
}

// ---- reductions

template <class B>
MYRIAD_LANES F dot_stripes(const float* a, const B* b, std::size_t n) {
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

// Calls body(i, load, store) for each sixteen of n elements, the last perhaps short.
template <class Body>
MYRIAD_LANES void for_lanes(std::size_t n, Body body) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    body(
        i, [](const float* p) { return load(p); }, [](float* p, F v) { store(p, v); });
  if (const std::size_t rest = n - i; rest > 0)
    body(
        i, [rest](const float* p) { return load_part(p, rest); }, [rest](float* p, F v) { store_part(p, v, rest); });
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

// ---- KDA

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

// ---- attention

// Scores of kKeys keys before scaling; several at a time so that their chains overlap.
template <int kKeys, class Key>
MYRIAD_LANES void score_keys(const float* query, const Key* keys, std::size_t ld, std::size_t dims, float scale,
                             float* scores) {
  F s[kKeys];
  for (int u = 0; u < kKeys; ++u) s[u] = zero();
  std::size_t i = 0;
  for (; i + kLanes <= dims; i += kLanes) {
    const F q = load(query + i);
    for (int u = 0; u < kKeys; ++u) s[u] = fma(q, load(keys + u * ld + i), s[u]);
  }
  if (const std::size_t rest = dims - i; rest > 0) {
    const F q = load_part(query + i, rest);
    for (int u = 0; u < kKeys; ++u) s[u] = select(first(rest), fma(q, load_part(keys + u * ld + i, rest), s[u]), s[u]);
  }
  for (int u = 0; u < kKeys; ++u) scores[u] = tree(s[u]) * scale;
}

// acc[0 … 16·kColumns) over keys [begin, end), going on from what is there unless begin is 0.
template <int kColumns, class Key>
MYRIAD_LANES void add_values(const float* p, const Key* keys, std::size_t ld, std::size_t begin, std::size_t end,
                             float* acc) {
  F s[kColumns];
  for (int c = 0; c < kColumns; ++c) s[c] = begin == 0 ? zero() : load(acc + c * kLanes);
  for (std::size_t j = begin; j < end; ++j) {
    const F weight = set1(p[j]);
    for (int c = 0; c < kColumns; ++c) s[c] = fma(weight, load(keys + j * ld + c * kLanes), s[c]);
  }
  for (int c = 0; c < kColumns; ++c) store(acc + c * kLanes, s[c]);
}

template <class Key>
MYRIAD_LANES void attention_block(const float* query, const Key* keys, std::size_t ld, std::size_t count,
                                  std::size_t key_dims, std::size_t value_dims, float scale, float* scratch, float* max,
                                  float* sum, float* acc) {
  std::size_t j = 0;
  for (; j + kKeyBlock <= count; j += kKeyBlock)
    score_keys<kKeyBlock>(query, keys + j * ld, ld, key_dims, scale, scratch + j);
  for (; j < count; ++j) score_keys<1>(query, keys + j * ld, ld, key_dims, scale, scratch + j);

  const F lowest = from_bits(set1_bits(0xff800000u));
  F largest = lowest;
  for (j = 0; j + kLanes <= count; j += kLanes) {
    const F s = load(scratch + j);
    largest = select(greater(s, largest), s, largest);
  }
  if (j < count) {
    const F s = select(first(count - j), load_part(scratch + j, count - j), lowest);
    largest = select(greater(s, largest), s, largest);
  }
  float lanes[kLanes];
  store(lanes, largest);
  float m = lanes[0];
  for (std::size_t i = 1; i < kLanes; ++i)
    if (lanes[i] > m) m = lanes[i];
  m += 0.0f;

  F stripes = zero();
  for (j = 0; j + kLanes <= count; j += kLanes) {
    const F p = exp_lanes(sub(load(scratch + j), set1(m)));
    store(scratch + j, p);
    stripes = add(stripes, p);
  }
  if (const std::size_t rest = count - j; rest > 0) {
    const F p = exp_lanes(sub(load_part(scratch + j, rest), set1(m)));
    store_part(scratch + j, p, rest);
    stripes = select(first(rest), add(stripes, p), stripes);
  }
  *max = m;
  *sum = tree(stripes);

  // keys in pieces that stay in the nearest cache while the columns go over them
  constexpr std::size_t kKeyPiece = 32;
  std::size_t begin = 0;
  do {  // once even without keys: zeros
    const std::size_t end = count - begin < kKeyPiece ? count : begin + kKeyPiece;
    std::size_t c = 0;
    for (; c + kValueBlock * kLanes <= value_dims; c += kValueBlock * kLanes)
      add_values<kValueBlock>(scratch, keys + c, ld, begin, end, acc + c);
    for (; c + kLanes <= value_dims; c += kLanes) add_values<1>(scratch, keys + c, ld, begin, end, acc + c);
    if (const std::size_t rest = value_dims - c; rest > 0) {
      F s = begin == 0 ? zero() : load_part(acc + c, rest);
      for (std::size_t i = begin; i < end; ++i) s = fma(set1(scratch[i]), load_part(keys + i * ld + c, rest), s);
      store_part(acc + c, s, rest);
    }
    begin = end;
  } while (begin < count);
}

void attention_block_f32(const float* query, const float* keys, std::size_t ld, std::size_t count, std::size_t key_dims,
                         std::size_t value_dims, float scale, float* scratch, float* max, float* sum, float* acc) {
  attention_block(query, keys, ld, count, key_dims, value_dims, scale, scratch, max, sum, acc);
}

void attention_block_bf16(const float* query, const std::uint16_t* keys, std::size_t ld, std::size_t count,
                          std::size_t key_dims, std::size_t value_dims, float scale, float* scratch, float* max,
                          float* sum, float* acc) {
  attention_block(query, keys, ld, count, key_dims, value_dims, scale, scratch, max, sum, acc);
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

constexpr Kernels table_named(std::string_view name) {
  return {
      .name = name,
      .matmul_f32 = matmul_f32,
      .matmul_bf16 = matmul_bf16,
      .matmul_mxfp4_f32 = matmul_mxfp4_f32,
      .matmul_mxfp4_i8 = matmul_mxfp4_i8,
      .dot = dot,
      .sum_of_squares = sum_of_squares,
      .sigmoid = sigmoid,
      .glu = glu,
      .round_bf16 = round_bf16,
      .axpy = axpy,
      .rms_norm = rms_norm,
      .conv_silu = conv_silu,
      .kda_step = kda_step,
      .attention_block_f32 = attention_block_f32,
      .attention_block_bf16 = attention_block_bf16,
      .quantize_i8 = quantize_i8,
  };
}

}  // namespace
}  // namespace myriad
