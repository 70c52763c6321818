// What the tests of the kernels share: random values of several kinds, random weights of every type, comparison by
// bits.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/bytes.h"
#include "kernels/kernels.h"

namespace myriad {
namespace kernels_testing {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t bits() { return engine_(); }
  std::size_t below(std::size_t n) { return engine_() % n; }
  std::size_t between(std::size_t low, std::size_t high) { return low + below(high - low + 1); }
  float unit() { return static_cast<float>(static_cast<double>(engine_() >> 11) * 0x1p-52 - 1.0); }  // [-1, 1)

 private:
  std::mt19937_64 engine_;
};

enum class Values { ordinary, wide, tiny, hostile };

// ordinary: about 1; wide: exponents over the whole range; tiny: subnormals and zeros of both signs; hostile: any bits,
// infinities and NaNs too
inline float draw(Random& random, Values kind) {
  const auto sign = static_cast<std::uint32_t>(random.bits() & 0x80000000u);
  const auto bits = static_cast<std::uint32_t>(random.bits());
  switch (kind) {
    case Values::ordinary:
      return random.unit() * 2.0f;
    case Values::wide:
      return std::bit_cast<float>(sign | (bits % 0x7f800000u));
    case Values::tiny:
      return random.below(4) == 0 ? std::bit_cast<float>(sign) : std::bit_cast<float>(sign | (bits & 0x00ffffffu));
    case Values::hostile:
      return random.below(8) == 0
                 ? std::bit_cast<float>(sign | 0x7f800000u | (random.below(2) == 0 ? 0 : bits & 0x7fffffu))
                 : std::bit_cast<float>(bits);
  }
  return 0;
}

inline std::vector<float> draw(Random& random, std::size_t n, Values kind) {
  std::vector<float> v(n);
  for (float& x : v) x = draw(random, kind);
  return v;
}

inline Values any_values(Random& random, bool with_hostile = false) {
  return static_cast<Values>(random.below(with_hostile ? 4 : 3));
}

inline bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

inline testing::AssertionResult same_bits(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return testing::AssertionFailure() << "sizes differ";
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!same_bits(got[i], want[i]))
      return testing::AssertionFailure() << "element " << i << " of " << got.size() << ": " << std::hexfloat << got[i]
                                         << ", scalar gives " << want[i];
  return testing::AssertionSuccess();
}

inline std::vector<const Kernels*> vector_kernels() {
  std::vector<const Kernels*> all;
  for (const Isa isa : kAllIsas)
    if (const Kernels* kernels = kernels_for(isa); kernels != nullptr && isa != Isa::scalar) all.push_back(kernels);
  return all;
}

class VectorKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (vector_kernels().empty()) GTEST_SKIP() << "this CPU has none of the vector instruction sets";
  }
};

// A packed matrix of exactly its size: the sanitizer sees a read past the end.
struct Packed {
  explicit Packed(std::size_t size) : bytes(size) {}
  std::vector<std::byte> bytes;
  template <class T>
  [[nodiscard]] const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

inline constexpr DType kAllTypes[] = {DType::f32,    DType::bf16,   DType::f16,    DType::mxfp4,  DType::q8_0,
                                      DType::q4_0,   DType::q4_1,   DType::q5_0,   DType::q5_1,   DType::q2_k,
                                      DType::q3_k,   DType::q4_k,   DType::q5_k,   DType::q6_k,   DType::q8_k,
                                      DType::iq4_nl, DType::iq4_xs, DType::i8_row, DType::i4_zero};

inline std::vector<DType> quantized_types() {
  std::vector<DType> types;
  for (const DType t : kAllTypes)
    if (is_quantized(t)) types.push_back(t);
  return types;
}

// Rows as files store them: any codes; scales about 2^-7, or when `extreme` any finite number, zeros and subnormals
// too.
inline std::vector<std::byte> random_rows(Random& random, DType t, std::size_t rows, std::size_t k, bool extreme) {
  std::vector<std::byte> out(rows * row_bytes(t, k));
  for (std::byte& b : out) b = static_cast<std::byte>(random.bits());
  if (random.below(4) == 0)  // codes at their limits
    for (std::byte& b : out)
      if (random.below(2) == 0)
        b = static_cast<std::byte>(random.below(2) == 0 ? 0x80 : random.below(2) == 0 ? 0xff : 0);
  const auto half = [&](std::byte* at) {
    auto bits = static_cast<std::uint16_t>(random.bits());
    if (!extreme) bits = static_cast<std::uint16_t>((bits & 0x83ff) | (7 + random.below(3)) << 10);
    if ((bits & 0x7c00) == 0x7c00) bits = static_cast<std::uint16_t>(bits & ~0x4000);
    if (extreme && random.below(4) == 0) bits &= 0x83ff;
    store_le(at, bits);
  };
  const auto wide = [&](std::byte* at) {
    store_le(at, draw(random, !extreme               ? Values::ordinary
                              : random.below(2) == 0 ? Values::tiny
                                                     : Values::wide) *
                     0x1p-8F);
  };
  for (std::size_t r = 0; r < rows; ++r) {
    std::byte* row = out.data() + r * row_bytes(t, k);
    if (t == DType::i8_row && k > 0) wide(row);
    for (std::size_t b = 0; b < k / block_values(t); ++b) {
      std::byte* block = row + b * block_bytes(t);
      switch (t) {
        case DType::f32:
          store_le(block, draw(random, extreme ? Values::wide : Values::ordinary));
          break;
        case DType::bf16:
        case DType::f16:
          if (!extreme)
            store_le(block, t == DType::f16 ? f32_to_f16(draw(random, Values::ordinary))
                                            : f32_to_bf16(draw(random, Values::ordinary)));
          if (extreme) half(block);
          break;
        case DType::mxfp4:
          *block = static_cast<std::byte>(!extreme               ? random.between(110, 123)
                                          : random.below(3) == 0 ? random.below(4)
                                                                 : random.below(255));
          break;
        case DType::q2_k:
          half(block + 80);
          half(block + 82);
          break;
        case DType::q3_k:
          half(block + 108);
          break;
        case DType::q6_k:
          half(block + 208);
          break;
        case DType::q8_k:
          wide(block);
          break;
        case DType::i8_row:
          break;
        case DType::q4_1:
        case DType::q5_1:
        case DType::q4_k:
        case DType::q5_k:
          half(block);
          half(block + 2);
          break;
        default:
          half(block);
      }
    }
  }
  return out;
}

inline Packed packed(DType t, const std::vector<std::byte>& rows, std::size_t count, std::size_t k) {
  Packed p(matrix_bytes(t, count, k));
  pack_rows(t, rows.data(), count, k, p.bytes);
  return p;
}

inline std::size_t draw_length(Random& random, int round) {
  return round < 70 ? static_cast<std::size_t>(round) : random.between(70, 3000);
}

}  // namespace kernels_testing
}  // namespace myriad
