// Products with weights of every type: the scalar definition against double precision, every instruction set that this
// CPU has against it, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/testing.h"
#include "quant/blocks.h"

namespace myriad {
namespace {

using namespace kernels_testing;  // NOLINT

// Activations in int8 of one or several rows.
struct Int8 {
  std::size_t k, tokens;
  std::vector<std::int8_t> q;
  std::vector<float> scale;

  Int8(Random& random, std::size_t k_, std::size_t tokens_, Values scales)
      : k(k_), tokens(tokens_), q(tokens * k), scale(tokens * groups()) {
    for (auto& v : q) v = static_cast<std::int8_t>(random.bits());  // -128 too: a peer may send it
    if (random.below(5) == 0) std::ranges::fill(q, static_cast<std::int8_t>(random.below(2) == 0 ? 127 : -128));
    for (auto& v : scale) v = std::fabs(draw(random, scales));
  }
  [[nodiscard]] std::size_t groups() const { return (k + 31) / 32; }
  [[nodiscard]] Int8Rows rows(std::size_t first = 0) const {
    return {q.data() + first * k, scale.data() + first * groups()};
  }
};

std::size_t draw_columns(Random& random, DType t, std::size_t blocks) {
  if (t == DType::i8_row) return random.between(1, 32 * blocks);
  return block_values(t) * std::max<std::size_t>(1, block_values(t) == 256 ? blocks / 8 : blocks);
}

// ---- the scalar definition

TEST(ScalarProducts, AreCloseToDoublePrecision) {
  for (const DType t : kAllTypes) {
    Random random(4 + static_cast<std::uint64_t>(t));
    const Kernels& s = scalar_kernels();
    const std::size_t rows = 35, k = t == DType::i8_row ? 301 : 512, tokens = 2;
    const auto storage = random_rows(random, t, rows, k, false);
    const Packed w = packed(t, storage, rows, k);
    std::vector<float> values(rows * k);
    for (std::size_t r = 0; r < rows; ++r)
      dequantize(t, storage.data() + r * row_bytes(t, k), k, values.data() + r * k);
    const auto x = draw(random, tokens * k, Values::ordinary);
    const std::size_t groups = (k + 31) / 32;
    std::vector<std::int8_t> q(tokens * k);
    std::vector<float> scale(tokens * groups), y(tokens * 48), yi(y);
    for (std::size_t n = 0; n < tokens; ++n)
      ASSERT_TRUE(s.quantize_i8(x.data() + n * k, k, q.data() + n * k, scale.data() + n * groups));
    s.matmul(t, w.as<std::byte>(), k, 0, 3, x.data(), k, tokens, y.data(), 48);
    if (is_quantized(t)) multiply_i8(s, t, w.as<std::byte>(), k, 0, 3, {q.data(), scale.data()}, tokens, yi.data(), 48);
    for (std::size_t n = 0; n < tokens; ++n)
      for (std::size_t r = 0; r < rows; ++r) {
        double f = 0, i = 0, size = 1e-30;
        for (std::size_t c = 0; c < k; ++c) {
          const double v = x[n * k + c], v8 = static_cast<double>(q[n * k + c]) * scale[n * groups + c / 32];
          f += values[r * k + c] * v;
          i += values[r * k + c] * v8;
          size += std::fabs(values[r * k + c] * v);
        }
        EXPECT_NEAR(y[n * 48 + r], f, size * k * 0x1p-25) << dtype_name(t);
        // a value with a minimum is rounded once more than the sums are
        if (is_quantized(t)) {
          EXPECT_NEAR(yi[n * 48 + r], i, size * (has_minima(t) ? 64 : 24) * 0x1p-24) << dtype_name(t);
        }
      }
  }
}

// The bits themselves, of every type on every processor and byte order.
TEST(ScalarProducts, BitsAreFixed) {
  std::uint64_t hash = 14695981039346656037u;
  const auto mix = [&hash](const std::vector<float>& values) {
    for (const float v : values) hash = (hash ^ std::bit_cast<std::uint32_t>(v)) * 1099511628211u;
  };
  for (const DType t : kAllTypes) {
    Random random(90 + static_cast<std::uint64_t>(t));
    const std::size_t rows = 20, k = t == DType::i8_row ? 77 : 512, tokens = 3;
    const Packed w = packed(t, random_rows(random, t, rows, k, false), rows, k);
    const auto x = draw(random, tokens * k, Values::ordinary);
    std::vector<float> y(tokens * 32);
    scalar_kernels().matmul(t, w.as<std::byte>(), k, 0, 2, x.data(), k, tokens, y.data(), 32);
    mix(y);
    if (!is_quantized(t)) continue;
    const Int8 a(random, k, tokens, Values::ordinary);
    multiply_i8(scalar_kernels(), t, w.as<std::byte>(), k, 0, 2, a.rows(), tokens, y.data(), 32);
    mix(y);
  }
  EXPECT_EQ(hash, 2100459898026707587u);
}

// ---- every instruction set against it

struct ProductShape {
  std::size_t k, tiles, tile0, tile1, tokens, ldx, ldy;
};

ProductShape draw_shape(Random& random, int round, DType t) {
  ProductShape s{};
  s.tokens = random.between(1, 9);
  s.tiles = random.between(1, 7);
  s.k = is_quantized(t) ? draw_columns(random, t, random.between(1, 9)) : random.between(1, 150);
  if (round % 5 == 4) {  // several pieces of columns, blocks of tokens
    s.tokens = random.between(9, 75);
    s.tiles = random.between(1, 3);
    s.k = is_quantized(t) ? draw_columns(random, t, random.between(15, 48)) : random.between(300, 800);
  }
  s.tile0 = random.below(s.tiles);
  s.tile1 = random.between(s.tile0, s.tiles);
  if (random.below(2) == 0) s.tile0 = 0, s.tile1 = s.tiles;
  s.ldx = s.k + random.below(5);
  s.ldy = 16 * s.tiles + random.below(5);
  return s;
}

// Calls product(kernels, y) for scalar and every vector set, and compares all of y, what was not to be written
// included.
template <class Product>
void expect_same_product(const ProductShape& s, const std::string& what, Product product) {
  std::vector<float> want(s.tokens * s.ldy, 77.0f);
  product(scalar_kernels(), want.data());
  for (const Kernels* kernels : vector_kernels()) {
    std::vector<float> got(want.size(), 77.0f);
    product(*kernels, got.data());
    ASSERT_TRUE(same_bits(got, want)) << kernels->name << ", " << what << ", k " << s.k << ", tiles " << s.tile0 << ".."
                                      << s.tile1 << ", tokens " << s.tokens;
  }
}

TEST_F(VectorKernels, ProductsInF32) {
  for (const DType t : kAllTypes)
    for (int round = 0; round < (is_quantized(t) ? 20 : 60); ++round) {
      const std::uint64_t seed = 1000 * (1 + static_cast<std::uint64_t>(t)) + round;
      Random random(seed);
      const ProductShape s = draw_shape(random, round, t);
      const std::size_t rows = 16 * s.tiles - random.below(16);
      Packed w = packed(t, random_rows(random, t, rows, s.k, round % 3 == 0), rows, s.k);
      if (t == DType::f32 && round % 4 == 1)
        pack_f32(draw(random, rows * s.k, Values::hostile).data(), rows, s.k, w.bytes);
      const auto x = draw(random, s.tokens * s.ldx, any_values(random));
      expect_same_product(
          s, std::string(dtype_name(t)) + ", seed " + std::to_string(seed), [&](const Kernels& kernels, float* y) {
            kernels.matmul(t, w.as<std::byte>(), s.k, s.tile0, s.tile1, x.data(), s.ldx, s.tokens, y, s.ldy);
          });
    }
}

// The entries of the table that are for one type.
TEST_F(VectorKernels, ProductsOfFloatTypes) {
  Random random(7);
  const std::size_t rows = 50, k = 37, tokens = 5;
  const Packed f = packed(DType::f32, random_rows(random, DType::f32, rows, k, false), rows, k),
               b = packed(DType::bf16, random_rows(random, DType::bf16, rows, k, false), rows, k),
               h = packed(DType::f16, random_rows(random, DType::f16, rows, k, false), rows, k);
  const auto x = draw(random, tokens * k, Values::ordinary);
  const ProductShape s{k, 4, 1, 4, tokens, k, 64};
  expect_same_product(s, "f32", [&](const Kernels& kernels, float* y) {
    kernels.matmul_f32(f.as<float>(), k, 1, 4, x.data(), k, tokens, y, 64);
  });
  expect_same_product(s, "bf16", [&](const Kernels& kernels, float* y) {
    kernels.matmul_bf16(b.as<std::uint16_t>(), k, 1, 4, x.data(), k, tokens, y, 64);
  });
  expect_same_product(s, "f16", [&](const Kernels& kernels, float* y) {
    kernels.matmul_f16(h.as<std::uint16_t>(), k, 1, 4, x.data(), k, tokens, y, 64);
  });
}

TEST_F(VectorKernels, ProductsInInt8) {
  for (const DType t : quantized_types())
    for (int round = 0; round < 30; ++round) {
      const std::uint64_t seed = 100000 + 1000 * static_cast<std::uint64_t>(t) + round;
      Random random(seed);
      const ProductShape s = draw_shape(random, round, t);
      const std::size_t rows = 16 * s.tiles - random.below(16);
      const Packed w = packed(t, random_rows(random, t, rows, s.k, round % 3 == 0), rows, s.k);
      const Int8 x(random, s.k, s.tokens,
                   round % 7 == 0   ? Values::tiny
                   : round % 4 == 0 ? Values::wide
                                    : Values::ordinary);
      expect_same_product(
          s, std::string(dtype_name(t)) + ", seed " + std::to_string(seed), [&](const Kernels& kernels, float* y) {
            multiply_i8(kernels, t, w.as<std::byte>(), s.k, s.tile0, s.tile1, x.rows(), s.tokens, y, s.ldy);
          });
    }
}

// More tokens than one pass over the weights takes, and columns of more than one piece.
TEST_F(VectorKernels, ProductsOfManyTokens) {
  for (const DType t : {DType::q4_0, DType::q8_0, DType::q6_k, DType::q2_k, DType::i4_zero}) {
    Random random(500 + static_cast<std::uint64_t>(t));
    const ProductShape s{768, 3, 0, 3, 301, 768, 48};
    const Packed w = packed(t, random_rows(random, t, 48, s.k, false), 48, s.k);
    const Int8 x(random, s.k, s.tokens, Values::ordinary);
    expect_same_product(s, std::string(dtype_name(t)), [&](const Kernels& kernels, float* y) {
      multiply_i8(kernels, t, w.as<std::byte>(), s.k, 0, 3, x.rows(), s.tokens, y, s.ldy);
    });
  }
}

// All codes alike, the smallest, the largest and all others, against all activations at their limits: what would
// overflow 16-bit sums.
TEST_F(VectorKernels, IntegerSumsDoNotOverflow) {
  for (const DType t : quantized_types())
    for (int byte = 0; byte < 256; byte += t == DType::q8_0 || t == DType::i8_row ? 1 : 17)
      for (const std::int8_t value : {127, -127, -128}) {
        const std::size_t k = block_values(t) == 256 ? 256 : 64;
        Random random(1);
        auto storage = random_rows(random, t, 16, k, false);
        const auto scales = storage;  // good ones
        std::ranges::fill(storage, static_cast<std::byte>(byte));
        for (std::size_t r = 0; r < 16; ++r)  // whatever the fill made of the scales is put right
          for (std::size_t b = 0; b < k / block_values(t); ++b) {
            const std::size_t at = r * row_bytes(t, k) + b * block_bytes(t);
            const std::size_t fields[] = {0, t == DType::q2_k   ? 80u
                                             : t == DType::q3_k ? 108u
                                             : t == DType::q6_k ? 208u
                                                                : 0u};
            for (const std::size_t f : fields)
              for (std::size_t i = f; i < f + 4 && i < row_bytes(t, k); ++i) storage[at + i] = scales[at + i];
          }
        const Packed w = packed(t, storage, 16, k);
        const std::vector<std::int8_t> q(k, value);
        const std::vector<float> one(k / 32, 1.0F);
        for (const std::size_t tokens : {1u, 20u}) {
          std::vector<std::int8_t> many;
          std::vector<float> ones;
          for (std::size_t n = 0; n < tokens; ++n) {
            many.insert(many.end(), q.begin(), q.end());
            ones.insert(ones.end(), one.begin(), one.end());
          }
          const ProductShape s{k, 1, 0, 1, tokens, k, 16};
          expect_same_product(
              s, std::string(dtype_name(t)) + ", bytes " + std::to_string(byte), [&](const Kernels& kernels, float* y) {
                multiply_i8(kernels, t, w.as<std::byte>(), k, 0, 1, {many.data(), ones.data()}, tokens, y, 16);
              });
        }
      }
}

// A row's results do not depend on which other rows or tokens are computed with it, nor on who laid out what.
TEST_F(VectorKernels, BatchAndCutLeaveNoTrace) {
  for (const DType t : quantized_types()) {
    Random random(10);
    const std::size_t k = 512, tiles = 5;
    const Packed w = packed(t, random_rows(random, t, 16 * tiles, k, false), 16 * tiles, k);
    for (const std::size_t tokens : {5u, 13u, 26u}) {
      const Int8 x(random, k, tokens, Values::ordinary);
      for (const Kernels* kernels : vector_kernels()) {
        std::vector<float> whole(tokens * 16 * tiles), pieces(whole.size());
        const auto laid_out = std::make_unique<std::byte[]>(kernels->laid_out_bytes(t, k, tokens));
        for (std::size_t g : {0u, 5u, 6u}) {
          const std::size_t end = g == 0 ? 5 : g == 5 ? 6 : k / 32;
          kernels->lay_out_i8(t, x.rows(), k, tokens, g, end, laid_out.get());
        }
        kernels->matmul_i8(t, w.as<std::byte>(), k, 0, tiles, laid_out.get(), tokens, whole.data(), 16 * tiles);
        for (std::size_t n = 0; n < tokens; ++n)
          for (std::size_t tile = 0; tile < tiles; ++tile)
            multiply_i8(*kernels, t, w.as<std::byte>(), k, tile, tile + 1, x.rows(n), 1, pieces.data() + n * 16 * tiles,
                        16 * tiles);
        EXPECT_TRUE(same_bits(pieces, whole)) << kernels->name << ", " << dtype_name(t) << ", " << tokens << " tokens";
      }
    }
  }
}

}  // namespace
}  // namespace myriad
