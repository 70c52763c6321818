// Every instruction set that this CPU has, bit by bit against the scalar definition; the scalar definition against
// plain double precision. Products are in products_test.cc.
#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/math.h"
#include "kernels/testing.h"

namespace myriad {
namespace {

using namespace kernels_testing;  // NOLINT

// ---- the scalar definition against double precision

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

TEST(ScalarKernels, RopeTurnsPairs) {
  Random random(12);
  for (const RopeOrder order : {RopeOrder::halves, RopeOrder::pairs}) {
    const std::size_t dims = 22, half = dims / 2;
    const auto before = draw(random, dims, Values::ordinary);
    std::vector<float> cosines(half), sines(half);
    for (std::size_t i = 0; i < half; ++i) {
      cosines[i] = exact_sincos(static_cast<double>(i)).cosine;
      sines[i] = exact_sincos(static_cast<double>(i)).sine;
    }
    auto x = before;
    scalar_kernels().rope(x.data(), cosines.data(), sines.data(), dims, order);
    for (std::size_t i = 0; i < half; ++i) {
      const std::size_t a = order == RopeOrder::halves ? i : 2 * i,
                        b = order == RopeOrder::halves ? half + i : 2 * i + 1;
      const double c = cosines[i], sn = sines[i];
      EXPECT_NEAR(x[a], before[a] * c - before[b] * sn, 1e-6) << i;
      EXPECT_NEAR(x[b], before[b] * c + before[a] * sn, 1e-6) << i;
    }
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
  std::vector<std::uint8_t> codes(rows * k / 2), scales(rows * k / 32);
  for (auto& c : codes) c = static_cast<std::uint8_t>(random.bits());
  for (auto& e : scales) e = static_cast<std::uint8_t>(random.between(110, 123));
  Packed pf(matrix_bytes(DType::f32, rows, k)), pb(matrix_bytes(DType::bf16, rows, k)),
      pm(matrix_bytes(DType::mxfp4, rows, k));
  pack_f32(w.data(), rows, k, pf.bytes);
  pack_bf16(halves.data(), rows, k, pb.bytes);
  pack_mxfp4(codes.data(), scales.data(), rows, k, pm.bytes);
  std::vector<std::int8_t> q(tokens * k);
  std::vector<float> scale(tokens * k / 32), y(tokens * 32);
  ASSERT_TRUE(s.quantize_i8(x.data(), tokens * k, q.data(), scale.data()));
  mix(scale);
  s.matmul_f32(pf.as<float>(), k, 0, 2, x.data(), k, tokens, y.data(), 32);
  mix(y);
  s.matmul_bf16(pb.as<std::uint16_t>(), k, 0, 2, x.data(), k, tokens, y.data(), 32);
  mix(y);
  s.matmul(DType::mxfp4, pm.as<std::byte>(), k, 0, 2, x.data(), k, tokens, y.data(), 32);
  mix(y);
  multiply_i8(s, DType::mxfp4, pm.as<std::byte>(), k, 0, 2, {q.data(), scale.data()}, tokens, y.data(), 32);
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
  std::vector<float> scratch(kAttentionKeys), result(34);
  const std::uint32_t count = 70;
  s.attention({.queries = x.data(),
               .query_ld = 45,
               .query_count = 1,
               .counts = &count,
               .type = CacheType::bf16,
               .keys = {halves.data(), 50},
               .values = {halves.data(), 50},
               .key_dims = 45,
               .value_dims = 32,
               .scale = 0.2F,
               .scratch = scratch.data(),
               .max = &result[32],
               .sum = &result[33],
               .acc = result.data(),
               .acc_ld = 32});
  mix(result);
  EXPECT_EQ(hash, 12056230101722898992u);
}

// ---- every instruction set against the scalar definition

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
      kernels.exp(a.data(), out.back().data(), n);
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
    std::vector<std::vector<float>> out(4, std::vector<float>(x.size()));
    kernels.exp(x.data(), out[3].data(), x.size());
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

TEST_F(VectorKernels, Rope) {
  for (int round = 0; round < 80; ++round) {
    Random random(11000 + round);
    const std::size_t half = round < 40 ? static_cast<std::size_t>(round) : random.between(40, 200);
    const Values kind = any_values(random);
    const auto before = draw(random, 2 * half, kind), cosines = draw(random, half, kind),
               sines = draw(random, half, kind);
    for (const RopeOrder order : {RopeOrder::halves, RopeOrder::pairs}) {
      auto want = before;
      scalar_kernels().rope(want.data(), cosines.data(), sines.data(), 2 * half, order);
      for (const Kernels* kernels : vector_kernels()) {
        auto got = before;
        kernels->rope(got.data(), cosines.data(), sines.data(), 2 * half, order);
        EXPECT_TRUE(same_bits(got, want)) << kernels->name << ", " << half << " pairs";
      }
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
  for (const Isa isa : kAllIsas) {
    const std::string name(isa_name(isa));
    setenv("MYRIAD_ISA", name.c_str(), 1);
    const auto chosen = choose_kernels();
    if (kernels_for(isa) != nullptr) {
      ASSERT_TRUE(chosen.has_value());
      EXPECT_EQ((*chosen)->name, name);
    } else {
      ASSERT_FALSE(chosen.has_value());
      EXPECT_EQ(chosen.error().code, Code::unsupported);
      EXPECT_NE(chosen.error().message.find("it has scalar"), std::string::npos) << chosen.error().message;
    }
  }
  setenv("MYRIAD_ISA", "sse9", 1);
  const auto unknown = choose_kernels();
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, Code::invalid_argument);
  for (const Isa isa : kAllIsas)
    EXPECT_NE(unknown.error().message.find(isa_name(isa)), std::string::npos) << unknown.error().message;
  unsetenv("MYRIAD_ISA");
  const auto best = choose_kernels();
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(*best, vector_kernels().empty() ? &scalar_kernels() : vector_kernels().back());
  if (before != nullptr) setenv("MYRIAD_ISA", saved.c_str(), 1);
}

}  // namespace
}  // namespace myriad
