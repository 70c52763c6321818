// Integer products: quantised weights times int8 activations. Part of kernels_lanes.h.
//
// Few tokens are multiplied with tiles as they lie: a tile is read once from its first byte to its last, and memory is
// the limit. Many tokens are multiplied with codes brought into bytes first: a piece of the columns of some tiles is
// expanded into the nearest cache and serves all tokens, and arithmetic is the limit. Sums of integers are exact, so
// neither way shows in the result.
#pragma once

#include "kernels/lanes_products.h"
#include "kernels/table.h"

namespace myriad {
namespace {

// ---- how the tokens of a call are cut into blocks

constexpr std::size_t kFewTokens = 2 * kDirectTokens;  // and no more are multiplied with tiles as they lie
// Bytes of activations that should stay in the second-level cache while weights pass by.
constexpr std::size_t kActivationBytes = std::size_t{1} << 20;
constexpr std::size_t kTokensExpanded = 520;  // of one pass over the expanded weights at most: bounds the stack

// Widths that the kernels for few tokens come in; a block of another width is filled up with zeros.
constexpr int padded_width(int tokens) {
  return tokens <= 4 || tokens == 6 ? tokens : tokens == 5 ? 6 : 8;
}

struct Blocks {
  std::size_t tokens, count, width;  // the first `tokens − width·count` blocks have one token more than `width`
  bool few;

  explicit Blocks(std::size_t n) : tokens(n), few(n <= kFewTokens) {
    const std::size_t most = few ? kDirectTokens : kIntTokens;
    count = (n + most - 1) / most;
    width = count == 0 ? 0 : n / count;
  }
  [[nodiscard]] std::size_t width_of(std::size_t b) const { return width + (b < tokens - width * count ? 1 : 0); }
  [[nodiscard]] std::size_t first_token(std::size_t b) const {
    const std::size_t wide = tokens - width * count;
    return b * width + (b < wide ? b : wide);
  }
  // As laid out, with padding.
  [[nodiscard]] std::size_t room_of(std::size_t b) const {
    return few ? static_cast<std::size_t>(padded_width(static_cast<int>(width_of(b)))) : width_of(b);
  }
  [[nodiscard]] std::size_t first_room(std::size_t b) const {
    if (!few) return first_token(b);
    std::size_t room = 0;
    for (std::size_t i = 0; i < b; ++i) room += room_of(i);
    return room;
  }
};

// ---- activations: entries of
//   q as Dot wants it, f32 scale, for each half of a type of groups of 16 (or once) what kExtra says
// For few tokens they lie as [block][group][token of the block], for many as [piece of the
// columns][block][group][token], in the order in which they are read.

template <class Type>
struct Entry {
  using Dot = typename Type::Dot;
  static constexpr std::size_t kScale = Dot::kInputBytes, kExtras = kScale + 4, kBytes = kExtras + 4 * Type::kHalves;

  MYRIAD_LANES static void put(unsigned char* out, const std::int8_t* q, float scale) {
    Dot::lay_out(q, out);
    __builtin_memcpy(out + kScale, &scale, 4);
    const std::int32_t sums[2] = {sum_of_16(q), sum_of_16(q + 16)};
    for (int h = 0; h < Type::kHalves; ++h) {
      const std::int32_t sum = Type::kHalves == 2 ? sums[h] : sums[0] + sums[1];
      if constexpr (Type::kExtra == Extra::offset) {
        const std::int32_t correction = -Dot::kCorrection * sum;
        __builtin_memcpy(out + kExtras + 4 * h, &correction, 4);
      } else {
        float extra = static_cast<float>(sum);
        if constexpr (Type::kExtra == Extra::minimum) extra *= scale;
        __builtin_memcpy(out + kExtras + 4 * h, &extra, 4);
      }
    }
  }
};

constexpr std::size_t kGroupPiece = 16;  // groups expanded at a time: whole records, and they stay in the nearest cache

// Which entry is the first of block `b`, group `a`.
MYRIAD_LANES std::size_t entry_of(const Blocks& blocks, std::size_t groups, std::size_t b, std::size_t a) {
  if (blocks.few) return blocks.first_room(b) * groups + a * blocks.room_of(b);
  const std::size_t begin = a / kGroupPiece * kGroupPiece,
                    in_piece = groups - begin < kGroupPiece ? groups - begin : kGroupPiece;
  return begin * blocks.tokens + blocks.first_token(b) * in_piece + (a - begin) * blocks.width_of(b);
}

template <class Type>
void lay_out(Int8Rows x, std::size_t k, std::size_t tokens, std::size_t group0, std::size_t group1,
             unsigned char* out) {
  const Blocks blocks(tokens);
  const std::size_t groups = (k + 31) / 32;
  for (std::size_t b = 0; b < blocks.count; ++b) {
    const std::size_t width = blocks.width_of(b), room = blocks.room_of(b), first = blocks.first_token(b);
    for (std::size_t a = group0; a < group1; ++a) {
      unsigned char* entry = out + entry_of(blocks, groups, b, a) * Entry<Type>::kBytes;
      for (std::size_t t = 0; t < room; ++t, entry += Entry<Type>::kBytes) {
        if (t >= width) {
          __builtin_memset(entry, 0, Entry<Type>::kBytes);
          continue;
        }
        const std::int8_t* q = x.q + (first + t) * k + 32 * a;
        std::int8_t filled[32] = {};
        if (k - 32 * a < 32) {
          __builtin_memcpy(filled, q, k - 32 * a);
          q = filled;
        }
        Entry<Type>::put(entry, q, x.scale[(first + t) * groups + a]);
      }
    }
  }
}

// ---- one group times the tokens of a block

// Adds a group (or half of one) to the sums: `sum` is exact, `entry` the token's activations.
template <class Type>
MYRIAD_LANES F add_group(F acc, I sum, F scale, F other, const unsigned char* entry, int half) {
  using E = Entry<Type>;
  const F as = set1_at(entry + E::kScale);
  F s = to_float(sum);
  if constexpr (Type::kExtra == Extra::zero) s = fnma(other, set1_at(entry + E::kExtras + 4 * half), s);  // exact
  acc = fma(mul(scale, as), s, acc);
  if constexpr (Type::kExtra == Extra::minimum) acc = fnma(other, set1_at(entry + E::kExtras + 4 * half), acc);
  return acc;
}

template <class Type>
MYRIAD_LANES I first_sum(const unsigned char* entry, int half) {
  if constexpr (Type::kExtra == Extra::offset && Type::Dot::kCorrection != 0)
    return set1_bits_at(entry + Entry<Type>::kExtras + 4 * half);
  return set1_bits(0);
}

// kTiles tiles by kTokens tokens: weights(tile, quad) gives four columns, scales and others [tile][half].
template <class Type, int kTiles, int kTokens, class Weights>
MYRIAD_LANES void multiply_group(F (&acc)[kTiles][kTokens], const unsigned char* x,
                                 const F (&scale)[kTiles][Type::kHalves], const F (&other)[kTiles][Type::kHalves],
                                 Weights weights) {
  using Dot = typename Type::Dot;
  using E = Entry<Type>;
  constexpr int kQuads = 8 / Type::kHalves;
#pragma GCC unroll 2
  for (int half = 0; half < Type::kHalves; ++half) {
    typename Dot::template Sum<kQuads, kTiles * kTokens <= 2> sum[kTiles][kTokens];
    for (int t = 0; t < kTokens; ++t)
      for (int i = 0; i < kTiles; ++i) sum[i][t].start(first_sum<Type>(x + t * E::kBytes, half));
#pragma GCC unroll 8
    for (int c = 0; c < kQuads; ++c) {
      const int quad = half * kQuads + c;
      typename Dot::Weights w[kTiles];
      for (int i = 0; i < kTiles; ++i) w[i] = weights(i, quad);
      for (int t = 0; t < kTokens; ++t) {
        const typename Dot::Input input = Dot::input(x + t * E::kBytes, quad);
        for (int i = 0; i < kTiles; ++i) sum[i][t].add(w[i], input, c);
      }
    }
    for (int t = 0; t < kTokens; ++t)
      for (int i = 0; i < kTiles; ++i)
        acc[i][t] =
            add_group<Type>(acc[i][t], sum[i][t].total(), scale[i][half], other[i][half], x + t * E::kBytes, half);
  }
}

// ---- few tokens

// One tile from its first byte to its last; the first `live` of kTokens tokens have a place in y.
template <class Type, int kTokens>
[[gnu::noinline]] void direct_tile(const unsigned char* tile, std::size_t groups, const unsigned char* x, float* y,
                                   std::size_t ldy, std::size_t live) {
  using G = Groups<Type>;
  const typename Type::Decoder decoder;
  F acc[1][kTokens];
  for (int t = 0; t < kTokens; ++t) acc[0][t] = zero();
  const unsigned char* ahead = tile;
  G::each(
      tile, groups, 0, groups, [&](const Group& group, std::size_t) __attribute__((always_inline)) {
        for (std::size_t line = 0; line < (G::kStep + 63) / 64; ++line) prefetch_line(ahead + 64 * line);
        ahead += G::kStep;
        F scale[1][Type::kHalves], other[1][Type::kHalves] = {};
        Type::scales(group, scale[0], other[0]);
        multiply_group<Type>(
            acc, x, scale, other, [&](int, int quad) __attribute__((always_inline)) {
              return Type::Dot::weights(decoder.codes(group.codes, quad));
            });
        x += kTokens * Entry<Type>::kBytes;
      });
  for (int t = 0; t < kTokens; ++t)
    if (static_cast<std::size_t>(t) < live) store(y + t * ldy, acc[0][t]);
}

using DirectTile = void (*)(const unsigned char*, std::size_t, const unsigned char*, float*, std::size_t, std::size_t);

template <class Type>
DirectTile direct_for(std::size_t room) {
  switch (room) {
    case 1:
      return direct_tile<Type, 1>;
    case 2:
      return direct_tile<Type, 2>;
    case 3:
      return direct_tile<Type, 3>;
  }
  if constexpr (kDirectTokens >= 8) switch (room) {
      case 4:
        return direct_tile<Type, 4>;
      case 6:
        return direct_tile<Type, 6>;
      case 8:
        return direct_tile<Type, 8>;
    }
  return nullptr;
}

template <class Type>
void few_tokens(const unsigned char* weights, std::size_t groups, std::size_t tile0, std::size_t tile1,
                const unsigned char* laid_out, const Blocks& blocks, float* y, std::size_t ldy) {
  const std::size_t stride = Groups<Type>::tile_size(groups);
  for (std::size_t tile = tile0; tile < tile1; ++tile) {
    const unsigned char* x = laid_out;
    for (std::size_t b = 0; b < blocks.count; ++b) {
      const std::size_t room = blocks.room_of(b);
      direct_for<Type>(room)(weights + tile * stride, groups, x, y + blocks.first_token(b) * ldy + tile * kLanes, ldy,
                             blocks.width_of(b));
      x += room * groups * Entry<Type>::kBytes;
    }
  }
}

// ---- many tokens

// Expanded groups: codes as Dot wants them, scales, minima or zero points; [group][tile].
template <class Type>
struct Expanded {
  using Dot = typename Type::Dot;
  static constexpr std::size_t kScales = Dot::kWeightBytes, kOthers = kScales + 64 * Type::kHalves,
                               kBytes = kOthers + (Type::kExtra == Extra::offset ? 0 : 64 * Type::kHalves);
};

// Groups [begin, end) of a tile to out, `stride` bytes from one to the next. The same bytes `ahead` of them are asked
// for.
template <class Type>
[[gnu::noinline]] void expand(const unsigned char* tile, std::size_t groups, std::size_t begin, std::size_t end,
                              std::ptrdiff_t ahead, unsigned char* out, std::size_t stride) {
  using G = Groups<Type>;
  using E = Expanded<Type>;
  const typename Type::Decoder decoder;
  G::each(
      tile, groups, begin, end, [&](const Group& group, std::size_t a) __attribute__((always_inline)) {
        const unsigned char* next = tile + static_cast<std::ptrdiff_t>(a * G::kStep) + ahead;
        for (std::size_t line = 0; line < (G::kStep + 63) / 64; ++line) prefetch_later(next + 64 * line);
        F scale[Type::kHalves], other[Type::kHalves] = {};
        Type::scales(group, scale, other);
#pragma GCC unroll 8
        for (int quad = 0; quad < 8; ++quad)
          Type::Dot::store_weights(out, quad, Type::Dot::weights(decoder.codes(group.codes, quad)));
        for (int h = 0; h < Type::kHalves; ++h) {
          store_bits(out + E::kScales + 64 * h, bits(scale[h]));
          if constexpr (Type::kExtra != Extra::offset) store_bits(out + E::kOthers + 64 * h, bits(other[h]));
        }
        out += stride;
      });
}

// Adds kTiles expanded tiles by kTokens tokens over `groups` groups to the sums at `before` (null: to zero). What comes
// of it goes to y[t·ldy + 16·tile …]; `before` is [token][tile][16].
template <class Type, int kTiles, int kTokens>
[[gnu::noinline]] void expanded_block(const unsigned char* w, std::size_t groups, const unsigned char* x,
                                      const float* before, float* y, std::size_t ldy) {
  using E = Expanded<Type>;
  F acc[kTiles][kTokens];
  for (int t = 0; t < kTokens; ++t)
    for (int i = 0; i < kTiles; ++i) acc[i][t] = before == nullptr ? zero() : load(before + (t * kTiles + i) * kLanes);
  for (std::size_t a = 0; a < groups; ++a) {
    F scale[kTiles][Type::kHalves], other[kTiles][Type::kHalves] = {};
    for (int i = 0; i < kTiles; ++i)
      for (int h = 0; h < Type::kHalves; ++h) {
        scale[i][h] = from_bits(load_bits(w + i * E::kBytes + E::kScales + 64 * h));
        if constexpr (Type::kExtra != Extra::offset)
          other[i][h] = from_bits(load_bits(w + i * E::kBytes + E::kOthers + 64 * h));
      }
    multiply_group<Type>(
        acc, x, scale, other, [&](int i, int quad) __attribute__((always_inline)) {
          return Type::Dot::load_weights(w + i * E::kBytes, quad);
        });
    w += kTiles * E::kBytes;
    x += kTokens * Entry<Type>::kBytes;
  }
  for (int t = 0; t < kTokens; ++t)
    for (int i = 0; i < kTiles; ++i) store(y + t * ldy + i * kLanes, acc[i][t]);
}

using ExpandedBlock = void (*)(const unsigned char*, std::size_t, const unsigned char*, const float*, float*,
                               std::size_t);

template <class Type, int kTiles>
ExpandedBlock expanded_for(std::size_t tokens) {
  switch (tokens) {
    case 1:
      return expanded_block<Type, kTiles, 1>;
    case 2:
      return expanded_block<Type, kTiles, 2>;
    case 3:
      return expanded_block<Type, kTiles, 3>;
  }
  if constexpr (kIntTokens >= 5) switch (tokens) {
      case 4:
        return expanded_block<Type, kTiles, 4>;
      case 5:
        return expanded_block<Type, kTiles, 5>;
      case 6:
        return expanded_block<Type, kTiles, 6>;
    }
  return nullptr;
}

// Blocks [b0, b1) of the tokens times kTiles tiles; `ahead`: from these tiles to those that come next.
template <class Type, int kTiles>
void many_tokens(const unsigned char* tile, std::size_t groups, const unsigned char* laid_out, const Blocks& blocks,
                 std::size_t b0, std::size_t b1, float* y, std::size_t ldy, std::ptrdiff_t ahead) {
  using G = Groups<Type>;
  using E = Expanded<Type>;
  alignas(64) unsigned char w[kGroupPiece * kTiles * E::kBytes];
  alignas(64) float sums[kTokensExpanded * kTiles * kLanes];
  const std::size_t stride = G::tile_size(groups), first = blocks.first_token(b0);
  std::size_t begin = 0;
  do {
    const std::size_t end = groups - begin < kGroupPiece ? groups : begin + kGroupPiece;
    const std::ptrdiff_t next = static_cast<std::ptrdiff_t>(kGroupPiece * G::kStep);
    for (int i = 0; i < kTiles; ++i)
      expand<Type>(tile + i * stride, groups, begin, end,
                   end < groups ? next : ahead - static_cast<std::ptrdiff_t>(begin * G::kStep), w + i * E::kBytes,
                   kTiles * E::kBytes);
    for (std::size_t b = b0; b < b1; ++b) {
      const unsigned char* x = laid_out + entry_of(blocks, groups, b, begin) * Entry<Type>::kBytes;
      const std::size_t token = blocks.first_token(b);
      float* kept = sums + (token - first) * kTiles * kLanes;
      const float* before = begin == 0 ? nullptr : kept;
      const auto block = expanded_for<Type, kTiles>(blocks.width_of(b));
      if (end == groups)  // to y at once: its lines come while the next block is computed
        block(w, end - begin, x, before, y + token * ldy, ldy);
      else
        block(w, end - begin, x, before, kept, kTiles * kLanes);
    }
    begin = end;
  } while (begin < groups);
}

template <class Type>
void int8_product(const unsigned char* weights, std::size_t k, std::size_t tile0, std::size_t tile1,
                  const unsigned char* laid_out, std::size_t tokens, float* y, std::size_t ldy) {
  const std::size_t groups = (k + 31) / 32, stride = Groups<Type>::tile_size(groups);
  const Blocks blocks(tokens);
  if (blocks.few) return few_tokens<Type>(weights, groups, tile0, tile1, laid_out, blocks, y, ldy);
  // Passes over the weights, each with as many blocks as stay in the cache.
  const std::size_t block_bytes = kIntTokens * (groups == 0 ? 1 : groups) * Entry<Type>::kBytes;
  std::size_t in_pass = kActivationBytes / block_bytes;
  if (in_pass > kTokensExpanded / kIntTokens) in_pass = kTokensExpanded / kIntTokens;
  if (in_pass < 8) in_pass = 8;
  const std::size_t passes = (blocks.count + in_pass - 1) / in_pass;
  for (std::size_t pass = 0; pass < passes; ++pass) {
    const std::size_t b0 = blocks.count * pass / passes, b1 = blocks.count * (pass + 1) / passes;
    std::size_t tile = tile0;
    for (; tile + kIntTiles <= tile1; tile += kIntTiles)
      many_tokens<Type, kIntTiles>(weights + tile * stride, groups, laid_out, blocks, b0, b1, y + tile * kLanes, ldy,
                                   static_cast<std::ptrdiff_t>(kIntTiles * stride));
    if constexpr (kIntTiles > 1)
      for (; tile < tile1; ++tile)
        many_tokens<Type, 1>(weights + tile * stride, groups, laid_out, blocks, b0, b1, y + tile * kLanes, ldy,
                             static_cast<std::ptrdiff_t>(stride));
  }
}

// ---- the functions of the table

std::size_t laid_out_bytes(DType type, std::size_t k, std::size_t tokens) {
  const Blocks blocks(tokens);
  std::size_t bytes = 0;
  with_type(type,
            [&](auto t) { bytes = blocks.first_room(blocks.count) * ((k + 31) / 32) * Entry<decltype(t)>::kBytes; });
  return bytes;
}

void lay_out_i8(DType type, Int8Rows x, std::size_t k, std::size_t tokens, std::size_t group0, std::size_t group1,
                std::byte* out) {
  with_type(type,
            [&](auto t) { lay_out<decltype(t)>(x, k, tokens, group0, group1, reinterpret_cast<unsigned char*>(out)); });
}

void matmul_i8(DType type, const std::byte* weights, std::size_t k, std::size_t tile0, std::size_t tile1,
               const std::byte* laid_out, std::size_t tokens, float* y, std::size_t ldy) {
  with_type(type, [&](auto t) {
    int8_product<decltype(t)>(reinterpret_cast<const unsigned char*>(weights), k, tile0, tile1,
                              reinterpret_cast<const unsigned char*>(laid_out), tokens, y, ldy);
  });
}

}  // namespace
}  // namespace myriad
