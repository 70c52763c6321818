#include "quant/blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/bytes.h"

namespace myriad {
namespace {

constexpr DType kTypes[] = {DType::mxfp4,  DType::q8_0,   DType::q4_0,   DType::q4_1,   DType::q5_0, DType::q5_1,
                            DType::q2_k,   DType::q3_k,   DType::q4_k,   DType::q5_k,   DType::q6_k, DType::q8_k,
                            DType::iq4_nl, DType::iq4_xs, DType::i8_row, DType::i4_zero};

// Where a block has f16 fields.
std::vector<std::size_t> halves_of(DType t) {
  switch (t) {
    case DType::mxfp4:
    case DType::q8_k:
    case DType::i8_row:
      return {};
    case DType::q2_k:
      return {80, 82};
    case DType::q3_k:
      return {108};
    case DType::q6_k:
      return {208};
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {0, 2};
    default:
      return {0};
  }
}

// Blocks of arbitrary codes and moderate scales, the same everywhere.
std::vector<std::byte> blocks_of(DType t, std::size_t count) {
  auto state = static_cast<std::uint64_t>(t);
  std::vector<std::byte> out(count * block_bytes(t));
  for (std::byte& b : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    b = static_cast<std::byte>(state >> 56);
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* block = out.data() + i * block_bytes(t);
    for (const std::size_t h : halves_of(t)) block[h + 1] = (block[h + 1] & std::byte{0x83}) | std::byte{0x20};
    if (t == DType::mxfp4) block[0] = static_cast<std::byte>(std::to_integer<unsigned>(block[0]) % 200);
    if (t == DType::q8_k) block[3] = std::byte{0x3c};
  }
  return out;
}

// Bit for bit what llama.cpp's dequantize_row_… give for the same 64 blocks (ggml of node-llama-cpp 3.22.1).
TEST(Blocks, ValuesAreThoseOfGgml) {
  const std::pair<DType, std::uint64_t> expected[] = {
      {DType::mxfp4, 10224374397816193829u},  {DType::q8_0, 843373972330780517u},
      {DType::q4_0, 4402608421973923621u},    {DType::q4_1, 1640153282898431781u},
      {DType::q5_0, 3847213113727992613u},    {DType::q5_1, 6535263376629541413u},
      {DType::q2_k, 4052406745952256037u},    {DType::q3_k, 4550362272729401829u},
      {DType::q4_k, 6180963052693950509u},    {DType::q5_k, 4832771041602805313u},
      {DType::q6_k, 15184971006364057687u},   {DType::q8_k, 5281309938039061990u},
      {DType::iq4_nl, 14848747421640158437u}, {DType::iq4_xs, 9087410896378864609u},
  };
  for (const auto& [t, want] : expected) {
    const std::size_t n = 64 * block_values(t);
    std::vector<float> values(n);
    dequantize(t, blocks_of(t, 64).data(), n, values.data());
    std::uint64_t hash = 14695981039346656037u;
    for (const float v : values) hash = (hash ^ std::bit_cast<std::uint32_t>(v)) * 1099511628211u;
    EXPECT_EQ(hash, want) << dtype_name(t);
  }
}

TEST(Blocks, OwnTypes) {
  std::vector<std::byte> row(row_bytes(DType::i8_row, 5));
  store_le(row.data(), 0.25F);
  for (int i = 0; i < 5; ++i) row[4 + static_cast<std::size_t>(i)] = static_cast<std::byte>(60 * i - 128);
  std::vector<float> five(5);
  dequantize(DType::i8_row, row.data(), 5, five.data());
  EXPECT_EQ(five, (std::vector<float>{-32, -17, -2, 13, 28}));

  std::vector<std::byte> block(19);
  store_le(block.data(), f32_to_f16(0.5F));
  block[2] = std::byte{200};
  for (std::size_t i = 0; i < 16; ++i) block[3 + i] = static_cast<std::byte>(i | (15 - i) << 4);
  std::vector<float> values(32);
  dequantize(DType::i4_zero, block.data(), 32, values.data());
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], 0.5F * (static_cast<float>(i) - 200));
    EXPECT_EQ(values[16 + i], 0.5F * (15 - static_cast<float>(i) - 200));
  }
}

TEST(Blocks, GroupedRowIsTheSameRow) {
  for (const DType t : kTypes) {
    const std::size_t k = t == DType::i8_row ? 77 : 4 * block_values(t), span = scale_group(t);
    std::vector<std::byte> row = blocks_of(t, k / block_values(t));
    if (t == DType::i8_row) {
      row.insert(row.begin(), 4, std::byte{0});
      store_le(row.data(), 0.3F);
    }
    const std::size_t groups = (k + span - 1) / span;
    std::vector<float> want(k), scale(groups), minimum(groups);
    std::vector<std::int16_t> q(k);
    dequantize(t, row.data(), k, want.data());
    read_grouped_row(t, row.data(), k, {q, scale, minimum});
    for (std::size_t i = 0; i < k; ++i) {
      float value = scale[i / span] * static_cast<float>(q[i]);
      if (has_minima(t)) value -= minimum[i / span];
      EXPECT_EQ(value, want[i]) << dtype_name(t) << " " << i;
    }
  }
}

TEST(Blocks, SizesAreThoseOfTheFiles) {
  EXPECT_EQ(row_bytes(DType::q4_k, 512), 288u);
  EXPECT_EQ(row_bytes(DType::i8_row, 100), 104u);
  EXPECT_EQ(row_bytes(DType::f16, 7), 14u);
  EXPECT_EQ(row_bytes(DType::i8_row, 0), 0u);
  EXPECT_TRUE(fits_blocks(DType::q6_k, 256));
  EXPECT_FALSE(fits_blocks(DType::q6_k, 128));
}

TEST(Blocks, ValuesThatAreNotFiniteAreFound) {
  for (const DType t : kTypes) {
    const std::size_t k = 2 * block_values(t), rows = 3;
    std::vector<std::byte> good;
    for (std::size_t r = 0; r < rows; ++r) {
      if (t == DType::i8_row) good.insert(good.end(), {std::byte{0}, std::byte{0}, std::byte{0x80}, std::byte{0x3f}});
      const auto blocks = blocks_of(t, 2);
      good.insert(good.end(), blocks.begin(), blocks.end());
    }
    EXPECT_FALSE(find_not_finite(t, good, rows, k).has_value()) << dtype_name(t);
    const auto spoil = [&](std::size_t at, std::uint32_t bits, std::size_t bytes) {
      auto bad = good;
      for (std::size_t i = 0; i < bytes; ++i) bad[at + i] = static_cast<std::byte>(bits >> 8 * i);
      EXPECT_EQ(find_not_finite(t, bad, rows, k), 1u) << dtype_name(t) << " at " << at;
    };
    const std::size_t row = row_bytes(t, k);
    if (t == DType::mxfp4) spoil(row + 17, 255, 1);
    if (t == DType::i8_row) spoil(row, 0x7f800000, 4);
    if (t == DType::q8_k) spoil(row + 292, 0x7fc00000, 4);
    if (t == DType::q8_k) spoil(row + 292, 0x7f000000, 4);  // finite, but 128 times it is not
    for (const std::size_t h : halves_of(t)) {
      spoil(row + block_bytes(t) + h, 0x7c00, 2);
      spoil(row + block_bytes(t) + h, 0xfe12, 2);
    }
  }
  for (const DType t : {DType::f32, DType::bf16, DType::f16}) {
    const std::size_t k = 37, bytes = t == DType::f32 ? 4 : 2;
    std::vector<std::byte> rows(3 * k * bytes, std::byte{0x38});
    EXPECT_FALSE(find_not_finite(t, rows, 3, k).has_value());
    const std::uint32_t infinite = t == DType::f32 ? 0x7f800000U : t == DType::bf16 ? 0x7f80U : 0x7c00U;
    for (const std::size_t at : {k, k + 20, 2 * k - 1})
      for (const std::uint32_t bits : {infinite, infinite | 1U << (8 * bytes - 1) | 3U}) {
        auto bad = rows;
        for (std::size_t i = 0; i < bytes; ++i) bad[at * bytes + i] = static_cast<std::byte>(bits >> 8 * i);
        EXPECT_EQ(find_not_finite(t, bad, 3, k), 1U) << dtype_name(t) << " at " << at;
      }
  }
}

}  // namespace
}  // namespace myriad
