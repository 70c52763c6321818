// Making tiles of row-major matrices; the layouts are those at the top of kernels.h.
#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "kernels/kernels.h"

namespace myriad {

void pack_f32(const float* w, std::size_t rows, std::size_t k, std::span<std::byte> out) {
  std::byte* at = out.data();
  for (std::size_t tile = 0; tile < tiles_for(rows); ++tile)
    for (std::size_t j = 0; j < k; ++j)
      for (std::size_t r = 0; r < kTileRows; ++r, at += sizeof(float)) {
        const std::size_t row = tile * kTileRows + r;
        const float v = row < rows ? w[row * k + j] : 0.0f;
        std::memcpy(at, &v, sizeof v);
      }
}

void pack_bf16(const std::uint16_t* w, std::size_t rows, std::size_t k, std::span<std::byte> out) {
  std::byte* at = out.data();
  for (std::size_t tile = 0; tile < tiles_for(rows); ++tile)
    for (std::size_t j = 0; j < (k + 1) / 2; ++j)
      for (std::size_t r = 0; r < kTileRows; ++r)
        for (std::size_t i = 0; i < 2; ++i, at += sizeof(std::uint16_t)) {
          const std::size_t row = tile * kTileRows + r, column = 2 * j + i;
          const std::uint16_t v = row < rows && column < k ? w[row * k + column] : std::uint16_t{0};
          std::memcpy(at, &v, sizeof v);
        }
}

void pack_mxfp4(const std::uint8_t* codes, const std::uint8_t* scales, std::size_t rows, std::size_t k,
                std::span<std::byte> out) {
  const std::size_t groups = k / kGroup, bytes = tile_bytes(DType::mxfp4, k);
  std::ranges::fill(out.first(tiles_for(rows) * bytes), std::byte{0});
  for (std::size_t row = 0; row < rows; ++row) {
    std::byte* tile = out.data() + row / kTileRows * bytes;
    const std::size_t r = row % kTileRows;
    const auto code = [&](std::size_t column) { return codes[row * (k / 2) + column / 2] >> (column % 2 * 4) & 15; };
    for (std::size_t a = 0; a < groups; ++a) {
      for (std::size_t b = 0; b < 4; ++b)
        for (std::size_t i = 0; i < 4; ++i) {
          const std::size_t column = kGroup * a + 8 * b + i;
          tile[((a * 4 + b) * kTileRows + r) * 4 + i] = static_cast<std::byte>(code(column) | code(column + 4) << 4);
        }
      tile[256 * groups + a * kTileRows + r] = static_cast<std::byte>(scales[row * groups + a]);
    }
  }
}

void swap_tiles(DType t, std::span<std::byte> packed) {
  if constexpr (std::endian::native == std::endian::little) return;
  const std::size_t width = t == DType::f32 ? 4 : t == DType::bf16 ? 2 : 1;
  if (width == 1) return;
  for (std::size_t i = 0; i + width <= packed.size(); i += width)
    std::reverse(packed.data() + i, packed.data() + i + width);
}

}  // namespace myriad
