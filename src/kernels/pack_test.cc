#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/testing.h"
#include "quant/blocks.h"

namespace myriad {
namespace {

using namespace kernels_testing;  // NOLINT

TEST(Tiles, LayoutOfFloatsIsTheDocumentedOne) {
  Random random(1);
  const std::size_t rows = 37, k = 7;
  const auto w = draw(random, rows * k, Values::ordinary);
  Packed f(matrix_bytes(DType::f32, rows, k));
  pack_f32(w.data(), rows, k, f.bytes);
  ASSERT_EQ(f.bytes.size(), 3u * 16 * k * 4);
  std::vector<std::uint16_t> halves(rows * k);
  for (auto& h : halves) h = static_cast<std::uint16_t>(random.bits());
  Packed b(matrix_bytes(DType::bf16, rows, k));
  pack_bf16(halves.data(), rows, k, b.bytes);
  std::vector<std::byte> storage(rows * k * 2);
  for (std::size_t i = 0; i < halves.size(); ++i) store_le(storage.data() + 2 * i, halves[i]);
  const Packed h = packed(DType::f16, storage, rows, k);
  ASSERT_EQ(b.bytes.size(), 3u * 4 * 64);
  ASSERT_EQ(h.bytes.size(), 3u * 4 * 64);
  EXPECT_EQ(packed(DType::bf16, storage, rows, k).bytes, b.bytes);
  for (std::size_t row = 0; row < 48; ++row)
    for (std::size_t c = 0; c < 8; ++c) {
      const bool inside = row < rows && c < k;
      if (c < k) {
        EXPECT_EQ(f.as<float>()[(row / 16 * k + c) * 16 + row % 16], inside ? w[row * k + c] : 0.0f);
      }
      const std::uint16_t want = inside ? halves[row * k + c] : 0;
      EXPECT_EQ(b.as<std::uint16_t>()[((row / 16 * 4 + c / 2) * 16 + row % 16) * 2 + c % 2], want);
      EXPECT_EQ(h.as<std::uint16_t>()[(row / 16 * 8 + c) * 16 + row % 16], want);
    }
}

// Nibbles, scales and the shorter last record of MXFP4; 5 groups are a record of 4 and one of 1.
TEST(Tiles, LayoutOfMxfp4IsTheDocumentedOne) {
  Random random(1);
  const std::size_t rows = 20, k = 160, groups = 5, bytes = 1408;  // 1360 rounded up to 64
  std::vector<std::uint8_t> codes(rows * k / 2), scales(rows * groups);
  for (auto& c : codes) c = static_cast<std::uint8_t>(random.bits());
  for (auto& s : scales) s = static_cast<std::uint8_t>(random.between(1, 254));
  Packed m(matrix_bytes(DType::mxfp4, rows, k));
  pack_mxfp4(codes.data(), scales.data(), rows, k, m.bytes);
  ASSERT_EQ(tile_bytes(DType::mxfp4, k), bytes);
  const auto* p = m.as<std::uint8_t>();
  const auto code = [&](std::size_t row, std::size_t c) {
    return row < rows ? codes[row * k / 2 + c / 2] >> (c % 2 * 4) & 15 : 0;
  };
  for (std::size_t row = 0; row < 32; ++row)
    for (std::size_t a = 0; a < groups; ++a) {
      const std::size_t record = row / 16 * bytes + a / 4 * 1088, n = a / 4 == 0 ? 4 : 1;
      EXPECT_EQ(p[record + 256 * n + a % 4 * 16 + row % 16], row < rows ? scales[row * groups + a] : 0);
      for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t b = 0; b < 4; ++b) {
          const std::uint8_t byte = p[record + a % 4 * 256 + b * 64 + row % 16 * 4 + i];
          EXPECT_EQ(byte & 15, code(row, 32 * a + 8 * b + i));
          EXPECT_EQ(byte >> 4, code(row, 32 * a + 8 * b + 4 + i));
        }
    }
}

// The planes of two and one bits, and scales of a whole block, in the types that have them.
TEST(Tiles, LayoutOfPlanesIsTheDocumentedOne) {
  Random random(2);
  const std::size_t k = 512;
  BlockFields f;
  const auto six = random_rows(random, DType::q6_k, 16, k, false);
  const Packed p6 = packed(DType::q6_k, six, 16, k);
  const auto three = random_rows(random, DType::q3_k, 16, k, false);
  const Packed p3 = packed(DType::q3_k, three, 16, k);
  for (std::size_t r = 0; r < 16; ++r)
    for (std::size_t block = 0; block < 2; ++block) {
      const auto* q6 = p6.as<std::uint8_t>() + block * 3360;
      read_block(DType::q3_k, three.data() + r * row_bytes(DType::q3_k, k) + block * 110, f);
      BlockFields f6;
      read_block(DType::q6_k, six.data() + r * row_bytes(DType::q6_k, k) + block * 210, f6);
      const auto* q3 = p3.as<std::uint8_t>() + block * 1824;
      for (std::size_t c = 0; c < 256; ++c) {
        const std::size_t a = c / 32, quad = c % 32 / 4, byte = r * 4 + c % 4;
        const auto* group6 = q6 + a * 384;
        EXPECT_EQ(group6[quad / 2 * 64 + byte] >> quad % 2 * 4 & 15, f6.codes[c] & 15);
        EXPECT_EQ(group6[256 + quad / 4 * 64 + byte] >> quad % 4 * 2 & 3, f6.codes[c] >> 4);
        const auto* group3 = q3 + a * 192;
        EXPECT_EQ(group3[quad / 4 * 64 + byte] >> quad % 4 * 2 & 3, f.codes[c] & 3);
        EXPECT_EQ(group3[128 + byte] >> quad & 1, f.codes[c] >> 2);
        const std::size_t sixteen = c / 16;
        EXPECT_EQ(static_cast<std::int8_t>(q6[8 * 384 + sixteen * 16 + r]), f6.scales[sixteen]);
        EXPECT_EQ(static_cast<std::int8_t>(q3[8 * 192 + sixteen * 16 + r]), f.scales[sixteen]);
      }
      EXPECT_EQ(reinterpret_cast<const std::uint16_t*>(q6 + 8 * 416)[r], f6.d);
      EXPECT_EQ(reinterpret_cast<const std::uint16_t*>(q3 + 8 * 224)[r], f.d);
    }
}

TEST(Tiles, NothingIsLost) {
  for (const DType t : kAllTypes)
    for (int round = 0; round < 12; ++round) {
      Random random(100 * static_cast<std::uint64_t>(t) + static_cast<std::uint64_t>(round));
      const std::size_t rows = random.between(1, 40);
      const std::size_t k = block_values(t) == 1 ? random.between(1, 150) : block_values(t) * random.between(1, 9);
      const auto storage = random_rows(random, t, rows, k, round % 2 == 0);
      EXPECT_FALSE(find_not_finite(t, storage, rows, k).has_value()) << dtype_name(t);
      const Packed p = packed(t, storage, rows, k);
      std::vector<float> want(k), got(k), tile(16 * k);
      const std::size_t groups = (k + 31) / 32, span = scale_group(t), scales = (k + span - 1) / span;
      std::vector<std::int16_t> q(k);
      std::vector<float> scale(scales), minimum(scales);
      TileGroup group;
      for (std::size_t r = 0; r < rows; ++r) {
        const std::byte* row = storage.data() + r * row_bytes(t, k);
        dequantize(t, row, k, want.data());
        unpack_row(t, p.as<std::byte>(), k, r, got.data());
        ASSERT_TRUE(same_bits(got, want)) << dtype_name(t) << ", round " << round << ", row " << r;
        unpack_tile(t, p.as<std::byte>() + r / 16 * tile_bytes(t, k), k, tile.data());
        std::copy_n(tile.data() + r % 16 * k, k, got.data());
        ASSERT_TRUE(same_bits(got, want)) << dtype_name(t) << ", round " << round << ", row " << r;
        if (!is_quantized(t)) continue;
        read_grouped_row(t, row, k, {q, scale, minimum});
        for (std::size_t a = 0; a < groups; ++a) {
          read_tile_group(t, p.as<std::byte>() + r / 16 * tile_bytes(t, k), k, a, group);
          for (std::size_t c = 0; c < 32; ++c) {
            const std::size_t column = 32 * a + c;
            EXPECT_EQ(group.q[c][r % 16], column < k ? q[column] : 0);
            if (column >= k) continue;
            EXPECT_EQ(group.scale[c / 16][r % 16], scale[column / span]);
            EXPECT_EQ(group.minimum[c / 16][r % 16], has_minima(t) ? minimum[column / span] : 0.0F);
          }
        }
      }
    }
}

TEST(Tiles, TakeLittleMoreRoomThanFiles) {
  for (const DType t : kAllTypes) {
    const std::size_t k = 2048;
    const double more = static_cast<double>(tile_bytes(t, k)) / (16.0 * static_cast<double>(row_bytes(t, k)));
    EXPECT_LE(more, 1.04) << dtype_name(t);
    EXPECT_EQ(tile_bytes(t, k) % 64, 0u);
    EXPECT_EQ(tile_bytes(t, 0), 0u);
  }
}

TEST(Tiles, PackingOverwritesWhatWasThere) {
  for (const DType t : kAllTypes) {
    Random random(2);
    const auto storage = random_rows(random, t, 5, 256, false);
    const Packed p = packed(t, storage, 5, 256);
    std::vector<std::byte> dirty(p.bytes.size(), std::byte{0xee});
    pack_rows(t, storage.data(), 5, 256, dirty);
    EXPECT_EQ(dirty, p.bytes) << dtype_name(t);
  }
  const std::vector<std::uint8_t> codes(5 * 16, 0x12), scales(5, 120);
  std::vector<std::byte> clean(matrix_bytes(DType::mxfp4, 5, 32)), dirty(clean.size(), std::byte{0xee});
  pack_mxfp4(codes.data(), scales.data(), 5, 32, clean);
  pack_mxfp4(codes.data(), scales.data(), 5, 32, dirty);
  EXPECT_EQ(dirty, clean);
}

// What stands in part files has the same bytes whichever host made it.
TEST(Tiles, LittleEndianStorageIsFixed) {
  std::uint64_t hash = 14695981039346656037u;
  for (const DType t : kAllTypes) {
    Random random(3);
    const std::size_t rows = 37, k = block_values(t) == 1 ? 45 : block_values(t) == 256 ? 768 : 224;
    Packed p = packed(t, random_rows(random, t, rows, k, false), rows, k);
    const auto before = p.bytes;
    swap_tiles(t, k, p.bytes);
    for (const std::byte b : p.bytes) hash = (hash ^ std::to_integer<std::uint64_t>(b)) * 1099511628211u;
    swap_tiles(t, k, p.bytes);
    EXPECT_EQ(p.bytes, before) << dtype_name(t);
  }
  EXPECT_EQ(hash, 12742412176954794914u);
}

// The bytes given in the specification of the format: four bytes of a real checkpoint, scale 121.
TEST(Tiles, RealMxfp4Bytes) {
  std::vector<std::uint8_t> codes(16, 0), scales = {121};
  codes[0] = 22, codes[1] = 185, codes[2] = 206, codes[3] = 35;
  Packed p(matrix_bytes(DType::mxfp4, 1, 32));
  pack_mxfp4(codes.data(), scales.data(), 1, 32, p.bytes);
  const float expected[8] = {0.0625f, 0.0078125f, -0.0078125f, -0.0234375f, -0.0625f, -0.03125f, 0.0234375f, 0.015625f};
  std::vector<float> row(32);
  unpack_row(DType::mxfp4, p.as<std::byte>(), 32, 0, row.data());
  for (std::size_t c = 0; c < 8; ++c) EXPECT_EQ(row[c], expected[c]);
}

}  // namespace
}  // namespace myriad
