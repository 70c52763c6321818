// Products in f32: weights of every type times f32 activations, one chain of fma for each output. Part of
// kernels_lanes.h.
//
// A block is kTiles tiles by kTokens tokens, with one accumulator each in registers, over some columns; a block that
// does not begin at column 0 goes on from the sums it finds in y, which changes no bit of them. With several blocks of
// tokens the columns are cut into pieces that stay in the nearest cache, so that weights come from memory once.
#pragma once

#include "kernels/lanes_formats.h"

namespace myriad {
namespace {

constexpr std::size_t kColumnPiece = 256;  // a multiple of 256: whole records of quantised types
constexpr int kSingleTokenTiles = 2;       // chains in flight when there is one token

MYRIAD_LANES void prefetch_line(const unsigned char* p) {
  if (kPrefetch.later != 0) prefetch_later(p + kPrefetch.later);
  prefetch_soon(p + kPrefetch.soon);
}

struct Columns {
  std::size_t begin, end;
  bool first;  // the sums begin here
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
    for (int t = 0; t < kTokens; ++t) acc[i][t] = columns.first ? zero() : load(to.y + t * to.ldy + i * kLanes);
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
      for (int i = 0; i < kTiles; ++i) {
        const unsigned char* at = tile + i * stride + 64 * k;
        prefetch_line(at);
        w[i] = from_bits(load_bits(at));
      }
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
      // a 32-bit lane holds columns k and k + 1
      F even[kTiles], odd[kTiles];
      for (int i = 0; i < kTiles; ++i) {
        const unsigned char* at = tile + i * stride + 32 * k;
        prefetch_line(at);
        const I pair = load_bits(at);
        even[i] = from_bits(first_half_on_top(pair));
        odd[i] = from_bits(second_half_on_top(pair));
      }
      step(acc, even, a, k);
      step(acc, odd, a, k + 1);
    }
    if (pairs_end < columns.end) {
      F last[kTiles];
      for (int i = 0; i < kTiles; ++i)
        last[i] = from_bits(first_half_on_top(load_bits(tile + i * stride + 32 * pairs_end)));
      step(acc, last, a, pairs_end);
    }
    end_block(acc, a);
  }
};

struct TilesF16 {
  static std::size_t tile_size(std::size_t k) { return 64 * ((k + 1) / 2); }

  template <int kTiles, int kTokens>
  static void block(const unsigned char* tile, std::size_t stride, Columns columns, Activations a) {
    F acc[kTiles][kTokens];
    begin_block(acc, columns, a);
    for (std::size_t k = columns.begin; k < columns.end; ++k) {
      F w[kTiles];
      for (int i = 0; i < kTiles; ++i) {
        const unsigned char* at = tile + i * stride + 32 * k;
        if (k % 2 == 0) prefetch_line(at);
        w[i] = load_f16(at);
      }
      step(acc, w, a, k);
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
    token_blocks<Tiles, kTiles, kTokens>(tile, Tiles::tile_size(k), {begin, end, begin == 0}, a, tokens);
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

void matmul_f16(const std::uint16_t* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
                std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  product<TilesF16>(weights, k, tile0, tile1, x, ldx, tokens, y, ldy);
}

// ---- quantised weights: a piece of a tile is brought into f32, then it is an f32 tile

// [32][16] f32 of one group.
template <class Type>
MYRIAD_LANES void decode(const typename Type::Decoder& decoder, const Group& group, float* out) {
  F scale[Type::kHalves], other[Type::kHalves] = {};
  Type::scales(group, scale, other);
  const F offset = set1(static_cast<float>(Type::kCodeOffset));
#pragma GCC unroll 8
  for (int quad = 0; quad < 8; ++quad) {
    const int half = quad * Type::kHalves / 8;
    I codes = decoder.codes(group.codes, quad);
    for (int i = 0; i < 4; ++i) {
      F w = to_float(first_byte(codes));  // differences of small integers are exact
      if constexpr (Type::kExtra == Extra::offset) w = sub(w, offset);
      if constexpr (Type::kExtra == Extra::zero) w = sub(w, other[half]);
      w = mul(scale[half], w);
      if constexpr (Type::kExtra == Extra::minimum) w = sub(w, other[half]);
      store(out + (4 * quad + i) * kLanes, w);
      codes = drop_first_byte(codes);
    }
  }
}

template <class Type>
void quantized_product(const unsigned char* weights, std::size_t k, std::size_t tile0, std::size_t tile1,
                       const float* x, std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  const std::size_t groups = (k + 31) / 32, stride = Groups<Type>::tile_size(groups);
  const typename Type::Decoder decoder;
  alignas(16) float piece[kColumnPiece * kLanes];
  for (std::size_t tile = tile0; tile < tile1; ++tile) {
    std::size_t begin = 0;
    do {
      const std::size_t end = k - begin < kColumnPiece ? k : begin + kColumnPiece;
      float* out = piece;
      Groups<Type>::each(weights + tile * stride, groups, begin / 32, (end + 31) / 32,
                         [&](const Group& group, std::size_t) {
                           decode<Type>(decoder, group, out);
                           out += 32 * kLanes;
                         });
      token_blocks<TilesF32, 1, kTokenBlock>(reinterpret_cast<const unsigned char*>(piece), 0,
                                             {0, end - begin, begin == 0}, {x + begin, ldx, y + tile * kLanes, ldy},
                                             tokens);
      begin = end;
    } while (begin < k);
  }
}

void matmul(DType type, const std::byte* weights, std::size_t k, std::size_t tile0, std::size_t tile1, const float* x,
            std::size_t ldx, std::size_t tokens, float* y, std::size_t ldy) {
  switch (type) {
    case DType::f32:
      return product<TilesF32>(weights, k, tile0, tile1, x, ldx, tokens, y, ldy);
    case DType::bf16:
      return product<TilesBf16>(weights, k, tile0, tile1, x, ldx, tokens, y, ldy);
    case DType::f16:
      return product<TilesF16>(weights, k, tile0, tile1, x, ldx, tokens, y, ldy);
    default:
      with_type(type, [&](auto t) {
        quantized_product<decltype(t)>(reinterpret_cast<const unsigned char*>(weights), k, tile0, tile1, x, ldx, tokens,
                                       y, ldy);
      });
  }
}

}  // namespace
}  // namespace myriad
