// Every instruction set that this CPU has, bit by bit against the scalar definition; the scalar definition against
// plain double precision.
#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace myriad {
namespace {

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
float draw(Random& random, Values kind) {
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

std::vector<float> draw(Random& random, std::size_t n, Values kind) {
  std::vector<float> v(n);
  for (float& x : v) x = draw(random, kind);
  return v;
}

Values any_values(Random& random, bool with_hostile = false) {
  return static_cast<Values>(random.below(with_hostile ? 4 : 3));
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

testing::AssertionResult same_bits(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return testing::AssertionFailure() << "sizes differ";
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!same_bits(got[i], want[i]))
      return testing::AssertionFailure() << "element " << i << " of " << got.size() << ": " << std::hexfloat << got[i]
                                         << ", scalar gives " << want[i];
  return testing::AssertionSuccess();
}

std::vector<const Kernels*> vector_kernels() {
  std::vector<const Kernels*> all;
  for (const Isa isa : {Isa::avx2, Isa::avx512})
    if (const Kernels* kernels = kernels_for(isa)) all.push_back(kernels);
  return all;
}

class VectorKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (vector_kernels().empty()) GTEST_SKIP() << "this CPU has none of the vector instruction sets";
  }
};

// A packed matrix, 64-byte aligned as part files are, of exactly its size: the sanitizer sees a read past the end.
struct Packed {
  explicit Packed(std::size_t size) : bytes(size) {}
  std::vector<std::byte> bytes;
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

Packed packed_f32(const std::vector<float>& w, std::size_t rows, std::size_t k) {
  Packed p(matrix_bytes(DType::f32, rows, k));
  pack_f32(w.data(), rows, k, p.bytes);
  return p;
}

Packed packed_bf16(const std::vector<std::uint16_t>& w, std::size_t rows, std::size_t k) {
  Packed p(matrix_bytes(DType::bf16, rows, k));
  pack_bf16(w.data(), rows, k, p.bytes);
  return p;
}

struct Mxfp4 {
  std::size_t rows, k;
  std::vector<std::uint8_t> codes, scales;
  Packed packed;

  Mxfp4(Random& random, std::size_t rows_, std::size_t k_, bool extreme)
      : rows(rows_), k(k_), codes(rows * k / 2), scales(rows * k / 32), packed(matrix_bytes(DType::mxfp4, rows, k)) {
    for (auto& c : codes) c = static_cast<std::uint8_t>(random.bits());
    for (auto& s : scales) s = static_cast<std::uint8_t>(extreme ? random.below(256) : random.between(110, 123));
    if (extreme)
      for (auto& s : scales)
        if (random.below(3) == 0) s = static_cast<std::uint8_t>(random.below(4));
    pack_mxfp4(codes.data(), scales.data(), rows, k, packed.bytes);
  }
  [[nodiscard]] std::uint8_t code(std::size_t r, std::size_t c) const {
    return codes[r * k / 2 + c / 2] >> (c % 2 * 4) & 15;
  }
  [[nodiscard]] double value(std::size_t r, std::size_t c) const {
    return static_cast<double>(kE2M1[code(r, c)]) * e8m0_to_f32(scales[r * k / 32 + c / 32]);
  }
};

// ---- tiles

TEST(Tiles, LayoutIsTheDocumentedOne) {
  Random random(1);
  const std::size_t rows = 37, k = 7;
  const auto w = draw(random, rows * k, Values::ordinary);
  const Packed f = packed_f32(w, rows, k);
  ASSERT_EQ(f.bytes.size(), 3u * 16 * k * 4);
  std::vector<std::uint16_t> halves(rows * k);
  for (auto& h : halves) h = static_cast<std::uint16_t>(random.bits());
  const Packed b = packed_bf16(halves, rows, k);
  ASSERT_EQ(b.bytes.size(), 3u * 4 * 64);
  for (std::size_t row = 0; row < 48; ++row)
    for (std::size_t c = 0; c < 8; ++c) {
      const bool inside = row < rows && c < k;
      if (c < k) {
        EXPECT_EQ(f.as<float>()[(row / 16 * k + c) * 16 + row % 16], inside ? w[row * k + c] : 0.0f);
      }
      EXPECT_EQ(b.as<std::uint16_t>()[((row / 16 * 4 + c / 2) * 16 + row % 16) * 2 + c % 2],
                inside ? halves[row * k + c] : 0);
    }

  const Mxfp4 m(random, 20, 96, false);
  const std::size_t bytes = 832;  // 272·3 rounded up to 64
  ASSERT_EQ(tile_bytes(DType::mxfp4, 96), bytes);
  const auto* p = m.packed.as<std::uint8_t>();
  for (std::size_t row = 0; row < 32; ++row)
    for (std::size_t a = 0; a < 3; ++a) {
      EXPECT_EQ(p[row / 16 * bytes + 768 + a * 16 + row % 16], row < 20 ? m.scales[row * 3 + a] : 0);
      for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t q = 0; q < 4; ++q) {
          const std::uint8_t byte = p[row / 16 * bytes + ((a * 4 + q) * 16 + row % 16) * 4 + i];
          EXPECT_EQ(byte & 15, row < 20 ? m.code(row, 32 * a + 8 * q + i) : 0);
          EXPECT_EQ(byte >> 4, row < 20 ? m.code(row, 32 * a + 8 * q + 4 + i) : 0);
        }
    }
}

TEST(Tiles, PackingOverwritesWhatWasThere) {
  Random random(2);
  const Mxfp4 m(random, 5, 32, false);
  std::vector<std::byte> dirty(m.packed.bytes.size(), std::byte{0xee});
  pack_mxfp4(m.codes.data(), m.scales.data(), 5, 32, dirty);
  EXPECT_EQ(dirty, m.packed.bytes);
}

TEST(Tiles, SwapLeadsToLittleEndianAndBack) {
  Random random(3);
  const auto w = draw(random, 5 * 3, Values::ordinary);
  Packed p = packed_f32(w, 5, 3);
  const auto before = p.bytes;
  swap_tiles(DType::f32, p.bytes);
  for (std::size_t i = 0; i < p.bytes.size() / 4; ++i)
    EXPECT_EQ(load_le<float>(p.bytes.data() + 4 * i), reinterpret_cast<const float*>(before.data())[i]);
  swap_tiles(DType::f32, p.bytes);
  EXPECT_EQ(p.bytes, before);

  const std::vector<std::uint16_t> halves = {0x1234, 0x5678, 0x9abc};
  Packed b = packed_bf16(halves, 1, 3);
  swap_tiles(DType::bf16, b.bytes);
  EXPECT_EQ(load_le<std::uint16_t>(b.bytes.data()), 0x1234);
  EXPECT_EQ(load_le<std::uint16_t>(b.bytes.data() + 2), 0x5678);

  const Mxfp4 m(random, 5, 32, false);
  auto bytes = m.packed.bytes;
  swap_tiles(DType::mxfp4, bytes);
  EXPECT_EQ(bytes, m.packed.bytes);
}

// The bytes given in the specification of the format: four bytes of a real checkpoint, scale 121.
TEST(Tiles, RealMxfp4Bytes) {
  std::vector<std::uint8_t> codes(16, 0), scales = {121};
  codes[0] = 22, codes[1] = 185, codes[2] = 206, codes[3] = 35;
  Packed p(matrix_bytes(DType::mxfp4, 1, 32));
  pack_mxfp4(codes.data(), scales.data(), 1, 32, p.bytes);
  const float expected[8] = {0.0625f, 0.0078125f, -0.0078125f, -0.0234375f, -0.0625f, -0.03125f, 0.0234375f, 0.015625f};
  for (std::size_t c = 0; c < 8; ++c) {
    std::vector<float> x(32, 0.0f), y(16);
    x[c] = 1.0f;
    scalar_kernels().matmul_mxfp4_f32(p.as<std::uint8_t>(), 32, 0, 1, x.data(), 32, 1, y.data(), 16);
    EXPECT_EQ(y[0], expected[c]);
  }
}

// ---- the scalar definition against double precision

TEST(ScalarKernels, ProductsAreCloseToDoublePrecision) {
  Random random(4);
  const Kernels& s = scalar_kernels();
  const std::size_t rows = 35, k = 96, tokens = 2;
  const auto w = draw(random, rows * k, Values::ordinary);
  const auto x = draw(random, tokens * k, Values::ordinary);
  std::vector<std::uint16_t> halves(w.size());
  std::ranges::transform(w, halves.begin(), f32_to_bf16);
  const Mxfp4 m(random, rows, k, false);
  std::vector<std::int8_t> q(tokens * k);
  std::vector<float> scale(tokens * k / 32);
  for (std::size_t t = 0; t < tokens; ++t)
    ASSERT_TRUE(s.quantize_i8(x.data() + t * k, k, q.data() + t * k, scale.data() + t * k / 32));

  std::vector<float> yf(tokens * 48), yb(yf), ym(yf), yi(yf);
  const Packed pf = packed_f32(w, rows, k), pb = packed_bf16(halves, rows, k);
  s.matmul_f32(pf.as<float>(), k, 0, 3, x.data(), k, tokens, yf.data(), 48);
  s.matmul_bf16(pb.as<std::uint16_t>(), k, 0, 3, x.data(), k, tokens, yb.data(), 48);
  s.matmul_mxfp4_f32(m.packed.as<std::uint8_t>(), k, 0, 3, x.data(), k, tokens, ym.data(), 48);
  s.matmul_mxfp4_i8(m.packed.as<std::uint8_t>(), k, 0, 3, {q.data(), scale.data()}, tokens, yi.data(), 48);
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t r = 0; r < 48; ++r) {
      double f = 0, b = 0, p = 0, i = 0, size = 1e-30, size_m = 1e-30;
      for (std::size_t c = 0; c < k && r < rows; ++c) {
        const double v = x[t * k + c], v8 = static_cast<double>(q[t * k + c]) * scale[t * k / 32 + c / 32];
        f += w[r * k + c] * v;
        b += bf16_to_f32(halves[r * k + c]) * v;
        p += m.value(r, c) * v;
        i += m.value(r, c) * v8;
        size += std::fabs(w[r * k + c] * v);
        size_m += std::fabs(m.value(r, c) * v);
      }
      EXPECT_NEAR(yf[t * 48 + r], f, size * k * 0x1p-25);
      EXPECT_NEAR(yb[t * 48 + r], b, size * k * 0x1p-25);
      EXPECT_NEAR(ym[t * 48 + r], p, size_m * k * 0x1p-25);
      EXPECT_NEAR(yi[t * 48 + r], i, size_m * 8 * 0x1p-24);
    }
}

TEST(ScalarKernels, ReductionsAndElementwise) {
  Random random(5);
  const Kernels& s = scalar_kernels();
  const std::size_t n = 1000;
  const auto a = draw(random, n, Values::ordinary), b = draw(random, n, Values::ordinary),
             w = draw(random, n, Values::ordinary);
  double dot = 0, size = 0, squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    dot += static_cast<double>(a[i]) * b[i];
    size += std::fabs(static_cast<double>(a[i]) * b[i]);
    squares += static_cast<double>(a[i]) * a[i];
  }
  EXPECT_NEAR(s.dot(a.data(), b.data(), n), dot, size * 1e-6);
  EXPECT_NEAR(s.sum_of_squares(a.data(), n), squares, squares * 1e-6);
  EXPECT_EQ(s.dot(a.data(), b.data(), 0), 0.0f);

  std::vector<float> y(n);
  s.rms_norm(a.data(), w.data(), 1e-5f, y.data(), n);
  for (std::size_t i = 0; i < n; ++i)
    EXPECT_NEAR(y[i], a[i] / std::sqrt(squares / n + 1e-5) * w[i], 1e-6 * std::fabs(y[i]) + 1e-12);

  s.glu({ActivationKind::silu, 0, 0}, a.data(), b.data(), y.data(), n);
  for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(y[i], a[i] / (1 + std::exp(-static_cast<double>(a[i]))) * b[i], 1e-6);
  s.glu({ActivationKind::situ, 4, 25}, a.data(), b.data(), y.data(), n);
  for (std::size_t i = 0; i < n; ++i)
    EXPECT_NEAR(y[i],
                4 * std::tanh(a[i] / 4.0) / (1 + std::exp(-static_cast<double>(a[i]))) * 25 * std::tanh(b[i] / 25.0),
                2e-6);
  s.glu({ActivationKind::situ, 4, 0}, a.data(), b.data(), y.data(), n);
  for (std::size_t i = 0; i < n; ++i)
    EXPECT_NEAR(y[i], 4 * std::tanh(a[i] / 4.0) / (1 + std::exp(-static_cast<double>(a[i]))) * b[i], 2e-6);
}

TEST(ScalarKernels, ConvolutionKeepsItsHistory) {
  Random random(6);
  const std::size_t n = 21, taps = 4, steps = 7;
  const auto w = draw(random, n * taps, Values::ordinary);
  std::vector<std::vector<float>> inputs;
  std::vector<float> history((taps - 1) * n, 0.0f), out(n);
  for (std::size_t t = 0; t < steps; ++t) {
    inputs.push_back(draw(random, n, Values::ordinary));
    scalar_kernels().conv_silu(w.data(), taps, history.data(), inputs.back().data(), out.data(), n);
    for (std::size_t c = 0; c < n; ++c) {
      double sum = 0;
      for (std::size_t j = 0; j < taps; ++j)
        if (t + j >= taps - 1) sum += static_cast<double>(w[c * taps + j]) * inputs[t + j - (taps - 1)][c];
      EXPECT_NEAR(out[c], sum / (1 + std::exp(-sum)), 1e-5);
    }
  }
}

TEST(ScalarKernels, KdaStepAgainstDoublePrecision) {
  Random random(7);
  const std::size_t dk = 24, dv = 19;
  auto state = draw(random, dk * dv, Values::ordinary);
  std::vector<double> s(state.begin(), state.end());
  for (int step = 0; step < 4; ++step) {
    const auto q = draw(random, dk, Values::ordinary), v = draw(random, dv, Values::ordinary);
    auto k = draw(random, dk, Values::ordinary), decay = draw(random, dk, Values::ordinary);
    for (float& x : k) x *= 0.2f;
    for (float& x : decay) x = std::fabs(x) * 0.5f;
    const float beta = 0.7f;
    std::vector<float> out(dv);
    scalar_kernels().kda_step(state.data(), dk, dv, q.data(), k.data(), decay.data(), beta, v.data(), out.data());
    for (std::size_t j = 0; j < dv; ++j) {
      double predicted = 0, read = 0;
      for (std::size_t i = 0; i < dk; ++i) predicted += k[i] * (s[i * dv + j] *= decay[i]);
      const double u = beta * (v[j] - predicted);
      for (std::size_t i = 0; i < dk; ++i) read += q[i] * (s[i * dv + j] += k[i] * u);
      EXPECT_NEAR(out[j], read, 1e-4);
    }
  }
}

TEST(ScalarKernels, AttentionAgainstDoublePrecision) {
  Random random(8);
  const std::size_t count = 50, dims = 40, values = 33, ld = 45;
  const auto query = draw(random, dims, Values::ordinary), keys = draw(random, count * ld, Values::ordinary);
  std::vector<float> scratch(1024), acc(values);
  float max = 0, sum = 0;
  scalar_kernels().attention_block_f32(query.data(), keys.data(), ld, count, dims, values, 0.3f, scratch.data(), &max,
                                       &sum, acc.data());
  std::vector<double> score(count);
  for (std::size_t j = 0; j < count; ++j) {
    for (std::size_t i = 0; i < dims; ++i) score[j] += static_cast<double>(query[i]) * keys[j * ld + i];
    score[j] *= static_cast<double>(0.3f);
  }
  const double m = *std::ranges::max_element(score);
  EXPECT_NEAR(max, m, 1e-5);
  double total = 0;
  for (const double v : score) total += std::exp(v - m);
  EXPECT_NEAR(sum, total, 1e-4);
  for (std::size_t c = 0; c < values; ++c) {
    double a = 0;
    for (std::size_t j = 0; j < count; ++j) a += std::exp(score[j] - m) * keys[j * ld + c];
    EXPECT_NEAR(acc[c], a, 1e-4);
  }
}

TEST(ScalarKernels, QuantisationIsHalfAStepAtMost) {
  Random random(9);
  for (const std::size_t n : {1u, 31u, 32u, 33u, 100u}) {
    const auto x = draw(random, n, Values::ordinary);
    std::vector<std::int8_t> q(n);
    std::vector<float> scale((n + 31) / 32);
    ASSERT_TRUE(scalar_kernels().quantize_i8(x.data(), n, q.data(), scale.data()));
    for (std::size_t g = 0; g < scale.size(); ++g) {
      float amax = 0;
      for (std::size_t i = 32 * g; i < std::min(n, 32 * g + 32); ++i) amax = std::max(amax, std::fabs(x[i]));
      EXPECT_EQ(scale[g], amax / 127.0f);
    }
    for (std::size_t i = 0; i < n; ++i) EXPECT_LE(std::fabs(q[i] * scale[i / 32] - x[i]), 0.5001f * scale[i / 32]);
  }
  // ties to even, zeros, and values that are none
  std::vector<float> x = {127.0f, 0.5f, 1.5f, -0.5f, -2.5f, -127.0f};
  std::vector<std::int8_t> q(x.size());
  float scale = 0;
  ASSERT_TRUE(scalar_kernels().quantize_i8(x.data(), x.size(), q.data(), &scale));
  EXPECT_EQ(q, (std::vector<std::int8_t>{127, 0, 2, 0, -2, -127}));
  x.assign(6, -0.0f);
  ASSERT_TRUE(scalar_kernels().quantize_i8(x.data(), x.size(), q.data(), &scale));
  EXPECT_EQ(q, std::vector<std::int8_t>(6, 0));
  EXPECT_EQ(scale, 0.0f);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    x[3] = bad;
    EXPECT_FALSE(scalar_kernels().quantize_i8(x.data(), x.size(), q.data(), &scale));
  }
}

// The bits themselves, on every processor and byte order: a change of any of them would let old and new nodes, or nodes
// of two kinds, compute different tokens.
TEST(ScalarKernels, BitsAreFixed) {
  const Kernels& s = scalar_kernels();
  Random random(11);
  std::uint64_t hash = 14695981039346656037u;
  const auto mix = [&hash](std::span<const float> values) {
    for (const float v : values) hash = (hash ^ std::bit_cast<std::uint32_t>(v)) * 1099511628211u;
  };
  const std::size_t rows = 23, k = 160, tokens = 3;
  const auto w = draw(random, rows * k, Values::ordinary), x = draw(random, tokens * k, Values::ordinary);
  std::vector<std::uint16_t> halves(w.size());
  std::ranges::transform(w, halves.begin(), f32_to_bf16);
  const Mxfp4 m(random, rows, k, false);
  std::vector<std::int8_t> q(tokens * k);
  std::vector<float> scale(tokens * k / 32), y(tokens * 32);
  ASSERT_TRUE(s.quantize_i8(x.data(), tokens * k, q.data(), scale.data()));
  mix(scale);
  s.matmul_f32(packed_f32(w, rows, k).as<float>(), k, 0, 2, x.data(), k, tokens, y.data(), 32);
  mix(y);
  s.matmul_bf16(packed_bf16(halves, rows, k).as<std::uint16_t>(), k, 0, 2, x.data(), k, tokens, y.data(), 32);
  mix(y);
  s.matmul_mxfp4_f32(m.packed.as<std::uint8_t>(), k, 0, 2, x.data(), k, tokens, y.data(), 32);
  mix(y);
  s.matmul_mxfp4_i8(m.packed.as<std::uint8_t>(), k, 0, 2, {q.data(), scale.data()}, tokens, y.data(), 32);
  mix(y);

  std::vector<float> out(k), state(w.begin(), w.begin() + 40 * 30), history(w.begin(), w.begin() + 3 * 100);
  const float dot = s.dot(w.data(), x.data(), 477);
  mix({&dot, 1});
  s.rms_norm(x.data(), w.data(), 1e-5f, out.data(), k);
  mix(out);
  s.sigmoid(x.data(), out.data(), k);
  mix(out);
  s.glu({ActivationKind::situ, 4, 25}, x.data(), w.data(), out.data(), k);
  mix(out);
  s.glu({ActivationKind::silu, 0, 0}, x.data(), w.data(), out.data(), k);
  s.axpy(0.3f, w.data(), out.data(), k);
  s.round_bf16(out.data(), k);
  mix(out);
  s.conv_silu(w.data(), 4, history.data(), x.data(), out.data(), 100);
  mix(out);
  mix(history);
  const std::vector<float> decay(40, 0.875f);
  s.kda_step(state.data(), 40, 30, x.data(), w.data(), decay.data(), 0.6f, x.data() + 50, out.data());
  mix(out);
  mix(state);
  std::vector<float> scratch(1024), result(34);
  s.attention_block_bf16(x.data(), halves.data(), 50, 70, 45, 32, 0.2f, scratch.data(), &result[32], &result[33],
                         result.data());
  mix(result);
  EXPECT_EQ(hash, 12056230101722898992u);
}

// ---- every instruction set against the scalar definition

struct ProductShape {
  std::size_t k, tiles, tile0, tile1, tokens, ldx, ldy;
};

ProductShape draw_shape(Random& random, int round, bool groups) {
  ProductShape s{};
  s.tokens = random.between(1, 9);
  s.tiles = random.between(1, 11);
  s.k = groups ? 32 * random.between(1, 7) : random.between(1, 150);
  if (round % 10 == 9) {  // several pieces of columns
    s.tokens = random.between(9, 75);
    s.tiles = random.between(1, 3);
    s.k = groups ? 32 * random.between(15, 70) : random.between(500, 1100);
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
void expect_same_product(const ProductShape& s, std::uint64_t seed, Product product) {
  std::vector<float> want(s.tokens * s.ldy, 77.0f);
  product(scalar_kernels(), want.data());
  for (const Kernels* kernels : vector_kernels()) {
    std::vector<float> got(want.size(), 77.0f);
    product(*kernels, got.data());
    ASSERT_TRUE(same_bits(got, want)) << kernels->name << ", seed " << seed << ", k " << s.k << ", tiles " << s.tile0
                                      << ".." << s.tile1 << ", tokens " << s.tokens;
  }
}

TEST_F(VectorKernels, MatmulF32) {
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t seed = 1000 + round;
    Random random(seed);
    const ProductShape s = draw_shape(random, round, false);
    const std::size_t rows = 16 * s.tiles - random.below(16);
    const Packed w = packed_f32(draw(random, rows * s.k, any_values(random, true)), rows, s.k);
    const auto x = draw(random, s.tokens * s.ldx, any_values(random));
    expect_same_product(s, seed, [&](const Kernels& kernels, float* y) {
      kernels.matmul_f32(w.as<float>(), s.k, s.tile0, s.tile1, x.data(), s.ldx, s.tokens, y, s.ldy);
    });
  }
}

TEST_F(VectorKernels, MatmulBf16) {
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t seed = 2000 + round;
    Random random(seed);
    const ProductShape s = draw_shape(random, round, false);
    const std::size_t rows = 16 * s.tiles - random.below(16);
    const auto f = draw(random, rows * s.k, any_values(random, true));
    std::vector<std::uint16_t> halves(f.size());
    std::ranges::transform(f, halves.begin(), f32_to_bf16);
    const Packed w = packed_bf16(halves, rows, s.k);
    const auto x = draw(random, s.tokens * s.ldx, any_values(random));
    expect_same_product(s, seed, [&](const Kernels& kernels, float* y) {
      kernels.matmul_bf16(w.as<std::uint16_t>(), s.k, s.tile0, s.tile1, x.data(), s.ldx, s.tokens, y, s.ldy);
    });
  }
}

TEST_F(VectorKernels, MatmulMxfp4F32) {
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t seed = 3000 + round;
    Random random(seed);
    const ProductShape s = draw_shape(random, round, true);
    const Mxfp4 m(random, 16 * s.tiles - random.below(16), s.k, round % 3 == 0);
    const auto x = draw(random, s.tokens * s.ldx, any_values(random));
    expect_same_product(s, seed, [&](const Kernels& kernels, float* y) {
      kernels.matmul_mxfp4_f32(m.packed.as<std::uint8_t>(), s.k, s.tile0, s.tile1, x.data(), s.ldx, s.tokens, y, s.ldy);
    });
  }
}

TEST_F(VectorKernels, MatmulMxfp4I8) {
  for (int round = 0; round < 150; ++round) {
    const std::uint64_t seed = 4000 + round;
    Random random(seed);
    const ProductShape s = draw_shape(random, round, true);
    const Mxfp4 m(random, 16 * s.tiles - random.below(16), s.k, round % 3 == 0);
    std::vector<std::int8_t> q(s.tokens * s.k);
    for (auto& v : q) v = static_cast<std::int8_t>(random.bits());  // -128 too: a peer may send it
    if (round % 5 == 0) std::ranges::fill(q, static_cast<std::int8_t>(round % 2 == 0 ? 127 : -128));
    std::vector<float> scale(s.tokens * s.k / 32);
    for (auto& v : scale) v = std::fabs(draw(random, round % 4 == 0 ? Values::wide : Values::ordinary));
    if (round % 7 == 0)
      for (auto& v : scale) v = std::fabs(draw(random, Values::tiny));
    expect_same_product(s, seed, [&](const Kernels& kernels, float* y) {
      kernels.matmul_mxfp4_i8(m.packed.as<std::uint8_t>(), s.k, s.tile0, s.tile1, {q.data(), scale.data()}, s.tokens, y,
                              s.ldy);
    });
  }
}

// All codes at their largest against all activations at theirs: what would overflow 16-bit sums.
TEST_F(VectorKernels, IntegerSumsDoNotOverflow) {
  for (const std::uint8_t code : {0x77, 0xff})
    for (const std::int8_t value : {127, -127, -128}) {
      const std::vector<std::uint8_t> codes(16 * 32 / 2, code), scales(16, 128);
      Packed p(matrix_bytes(DType::mxfp4, 16, 32));
      pack_mxfp4(codes.data(), scales.data(), 16, 32, p.bytes);
      const std::vector<std::int8_t> q(32, value);
      const float one = 1.0f;
      for (const Kernels* kernels : vector_kernels()) {
        std::vector<float> y(16);
        kernels->matmul_mxfp4_i8(p.as<std::uint8_t>(), 32, 0, 1, {q.data(), &one}, 1, y.data(), 16);
        for (const float v : y) EXPECT_EQ(v, (code == 0x77 ? 12 : -12) * 32 * value) << kernels->name;
      }
    }
}

// A row's results do not depend on which other rows or tokens are computed with it.
TEST_F(VectorKernels, BatchAndCutLeaveNoTrace) {
  Random random(10);
  const std::size_t k = 96, tiles = 9, tokens = 13;
  const Mxfp4 m(random, 16 * tiles, k, false);
  std::vector<std::int8_t> q(tokens * k);
  for (auto& v : q) v = static_cast<std::int8_t>(random.bits());
  const auto scale = draw(random, tokens * k / 32, Values::ordinary);
  for (const Kernels* kernels : vector_kernels()) {
    std::vector<float> whole(tokens * 16 * tiles), pieces(whole.size());
    kernels->matmul_mxfp4_i8(m.packed.as<std::uint8_t>(), k, 0, tiles, {q.data(), scale.data()}, tokens, whole.data(),
                             16 * tiles);
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t tile = 0; tile < tiles; ++tile)
        kernels->matmul_mxfp4_i8(m.packed.as<std::uint8_t>(), k, tile, tile + 1,
                                 {q.data() + t * k, scale.data() + t * k / 32}, 1, pieces.data() + t * 16 * tiles,
                                 16 * tiles);
    EXPECT_TRUE(same_bits(pieces, whole)) << kernels->name;
  }
}

std::size_t draw_length(Random& random, int round) {
  return round < 70 ? static_cast<std::size_t>(round) : random.between(70, 3000);
}

TEST_F(VectorKernels, Reductions) {
  for (int round = 0; round < 200; ++round) {
    Random random(5000 + round);
    const std::size_t n = draw_length(random, round);
    const auto a = draw(random, n, any_values(random)), b = draw(random, n, any_values(random));
    for (const Kernels* kernels : vector_kernels()) {
      EXPECT_TRUE(same_bits(kernels->dot(a.data(), b.data(), n), scalar_kernels().dot(a.data(), b.data(), n)))
          << kernels->name << " " << n;
      EXPECT_TRUE(same_bits(kernels->sum_of_squares(a.data(), n), scalar_kernels().sum_of_squares(a.data(), n)))
          << kernels->name << " " << n;
    }
  }
}

TEST_F(VectorKernels, Elementwise) {
  for (int round = 0; round < 200; ++round) {
    Random random(6000 + round);
    const std::size_t n = draw_length(random, round);
    const Values kind = any_values(random, true);
    const auto a = draw(random, n, kind), b = draw(random, n, kind), w = draw(random, n, kind);
    const float factor = draw(random, Values::ordinary);
    const ActivationSpec specs[] = {
        {ActivationKind::silu, 0, 0}, {ActivationKind::situ, 4, 25}, {ActivationKind::situ, 3.7f, 0}};
    const auto run = [&](const Kernels& kernels) {
      std::vector<std::vector<float>> out;
      out.emplace_back(n);
      kernels.sigmoid(a.data(), out.back().data(), n);
      out.push_back(a);  // in place
      kernels.sigmoid(out.back().data(), out.back().data(), n);
      for (const ActivationSpec& spec : specs) {
        out.emplace_back(n);
        kernels.glu(spec, a.data(), b.data(), out.back().data(), n);
        out.push_back(a);
        kernels.glu(spec, out.back().data(), b.data(), out.back().data(), n);
      }
      out.push_back(a);
      kernels.round_bf16(out.back().data(), n);
      out.push_back(b);
      kernels.axpy(factor, a.data(), out.back().data(), n);
      out.push_back(a);
      kernels.rms_norm(out.back().data(), w.data(), 1e-5f, out.back().data(), n);
      return out;
    };
    const auto want = run(scalar_kernels());
    for (const Kernels* kernels : vector_kernels()) {
      const auto got = run(*kernels);
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_TRUE(same_bits(got[i], want[i])) << kernels->name << ", round " << round << ", result " << i;
    }
  }
}

// The vector forms of exp, sigmoid and tanh over all magnitudes, and densely where their formulas change.
TEST_F(VectorKernels, ExactMathInLanes) {
  std::vector<float> x;
  for (std::uint32_t bits = 0; bits < 0x7f900000u; bits += 20011) {
    x.push_back(std::bit_cast<float>(bits));
    x.push_back(std::bit_cast<float>(bits | 0x80000000u));
  }
  for (const float edge : {88.7f, 87.3f, 0.55f, 2.2f, 4 * 0.55f, 44.35f})
    for (int i = -100; i <= 100; ++i)
      for (const float sign : {1.0f, -1.0f})
        x.push_back(sign * std::bit_cast<float>(std::bit_cast<std::uint32_t>(edge) + static_cast<std::uint32_t>(i)));
  const std::vector<float> ones(x.size(), 1.0f);
  const auto run = [&](const Kernels& kernels) {
    std::vector<std::vector<float>> out(3, std::vector<float>(x.size()));
    kernels.sigmoid(x.data(), out[0].data(), x.size());
    kernels.glu({ActivationKind::situ, 1, 1}, x.data(), ones.data(), out[1].data(), x.size());
    kernels.glu({ActivationKind::situ, 4, 25}, ones.data(), x.data(), out[2].data(), x.size());
    return out;
  };
  const auto want = run(scalar_kernels());
  for (const Kernels* kernels : vector_kernels()) {
    const auto got = run(*kernels);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << kernels->name << " " << i;
  }
}

TEST_F(VectorKernels, ConvSilu) {
  for (int round = 0; round < 60; ++round) {
    Random random(7000 + round);
    const std::size_t n = round < 40 ? static_cast<std::size_t>(round) : random.between(40, 300),
                      taps = round % 2 == 0 ? 4 : random.between(1, 6);
    const Values kind = any_values(random);
    const auto w = draw(random, n * taps, kind), in = draw(random, n, kind),
               before = draw(random, (taps - 1) * n, kind);
    auto history = before;
    std::vector<float> out(n);
    scalar_kernels().conv_silu(w.data(), taps, history.data(), in.data(), out.data(), n);
    for (const Kernels* kernels : vector_kernels()) {
      auto h = before;
      auto o = in;  // in place
      kernels->conv_silu(w.data(), taps, h.data(), o.data(), o.data(), n);
      EXPECT_TRUE(same_bits(o, out)) << kernels->name << ", " << n << " channels, " << taps << " taps";
      EXPECT_TRUE(same_bits(h, history)) << kernels->name << ", " << n << " channels, " << taps << " taps";
    }
  }
}

TEST_F(VectorKernels, KdaStep) {
  for (int round = 0; round < 60; ++round) {
    Random random(8000 + round);
    const std::size_t dk = random.between(1, 40), dv = round == 0 ? 128 : random.between(1, 150);
    const Values kind = any_values(random);
    const auto before = draw(random, dk * dv, kind), q = draw(random, dk, kind), k = draw(random, dk, kind),
               v = draw(random, dv, kind);
    auto decay = draw(random, dk, Values::ordinary);
    for (float& d : decay) d = std::fabs(d) * 0.5f;
    auto state = before;
    std::vector<float> out(dv);
    scalar_kernels().kda_step(state.data(), dk, dv, q.data(), k.data(), decay.data(), 0.6f, v.data(), out.data());
    for (const Kernels* kernels : vector_kernels()) {
      auto s = before;
      std::vector<float> o(dv);
      kernels->kda_step(s.data(), dk, dv, q.data(), k.data(), decay.data(), 0.6f, v.data(), o.data());
      EXPECT_TRUE(same_bits(o, out)) << kernels->name << " " << dk << "x" << dv;
      EXPECT_TRUE(same_bits(s, state)) << kernels->name << " " << dk << "x" << dv;
    }
  }
}

TEST_F(VectorKernels, Attention) {
  for (int round = 0; round < 80; ++round) {
    Random random(9000 + round);
    std::size_t count = round == 0 ? 1024 : random.between(1, 90), dims = random.between(1, 200);
    if (round == 1) count = 70, dims = 576;
    const std::size_t values = round == 1 ? 512 : random.between(1, dims), ld = dims + random.below(9);
    const auto query = draw(random, dims, Values::ordinary);
    const auto keys = draw(random, (count - 1) * ld + dims, round % 5 == 4 ? Values::tiny : Values::ordinary);
    std::vector<std::uint16_t> halves(keys.size());
    std::ranges::transform(keys, halves.begin(), f32_to_bf16);
    const auto run = [&](const Kernels& kernels, bool bf16) {
      std::vector<float> scratch(count), result(values + 2);
      if (bf16)
        kernels.attention_block_bf16(query.data(), halves.data(), ld, count, dims, values, 0.4f, scratch.data(),
                                     &result[values], &result[values + 1], result.data());
      else
        kernels.attention_block_f32(query.data(), keys.data(), ld, count, dims, values, 0.4f, scratch.data(),
                                    &result[values], &result[values + 1], result.data());
      return result;
    };
    for (const bool bf16 : {false, true}) {
      const auto want = run(scalar_kernels(), bf16);
      for (const Kernels* kernels : vector_kernels())
        EXPECT_TRUE(same_bits(run(*kernels, bf16), want))
            << kernels->name << ", " << count << " keys of " << dims << ", bf16 " << bf16;
    }
  }
}

TEST_F(VectorKernels, QuantizeI8) {
  for (int round = 0; round < 300; ++round) {
    Random random(10000 + round);
    const std::size_t n = draw_length(random, round);
    auto x = draw(random, n, any_values(random));
    if (round % 3 == 0)  // many exact ties
      for (float& v : x) v = static_cast<float>(random.below(509)) * 0.5f - 127.0f;
    if (round % 11 == 10 && n > 0)
      x[random.below(n)] = round % 2 == 0 ? std::nanf("") : -std::numeric_limits<float>::infinity();
    std::vector<std::int8_t> q(n);
    std::vector<float> scale((n + 31) / 32);
    const bool finite = scalar_kernels().quantize_i8(x.data(), n, q.data(), scale.data());
    for (const Kernels* kernels : vector_kernels()) {
      std::vector<std::int8_t> q2(n);
      std::vector<float> scale2(scale.size());
      ASSERT_EQ(kernels->quantize_i8(x.data(), n, q2.data(), scale2.data()), finite) << kernels->name << " " << n;
      if (!finite) continue;
      EXPECT_EQ(q2, q) << kernels->name << " " << n;
      EXPECT_TRUE(same_bits(scale2, scale)) << kernels->name << " " << n;
    }
  }
}

// ---- the choice

TEST(ChooseKernels, EnvironmentForcesASet) {
  const char* before = std::getenv("MYRIAD_ISA");
  const std::string saved = before == nullptr ? "" : before;
  setenv("MYRIAD_ISA", "scalar", 1);
  const auto scalar = choose_kernels();
  ASSERT_TRUE(scalar.has_value());
  EXPECT_EQ((*scalar)->name, "scalar");
  for (const auto& [name, isa] : {std::pair{"avx2", Isa::avx2}, std::pair{"avx512", Isa::avx512}}) {
    setenv("MYRIAD_ISA", name, 1);
    const auto chosen = choose_kernels();
    if (kernels_for(isa) != nullptr) {
      ASSERT_TRUE(chosen.has_value());
      EXPECT_EQ((*chosen)->name, name);
    } else {
      ASSERT_FALSE(chosen.has_value());
      EXPECT_EQ(chosen.error().code, Code::unsupported);
    }
  }
  setenv("MYRIAD_ISA", "sse9", 1);
  const auto unknown = choose_kernels();
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, Code::invalid_argument);
  unsetenv("MYRIAD_ISA");
  const auto best = choose_kernels();
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(*best, vector_kernels().empty() ? &scalar_kernels() : vector_kernels().back());
  if (before != nullptr) setenv("MYRIAD_ISA", saved.c_str(), 1);
}

}  // namespace
}  // namespace myriad
