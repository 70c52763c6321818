// How fast weights of each type stream through a product with one token, against a plain reader of the same memory, and
// how many operations a second a product with many tokens does, against the bare integer instruction:
//   ninja -C build/release kernels_bench && build/release/src/kernels/kernels_bench [--isa NAME] [--threads N] [--mib
//   N]
//       [--type NAME] [--k N]
// Times are processor seconds of each thread, in short turns of kernel and reader, so that a busy machine spoils both
// alike. A product of many tokens includes laying the activations out.
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <pthread.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernels.h"
#include "kernels/testing.h"

namespace myriad {
namespace {

using kernels_testing::kAllTypes;
using kernels_testing::Random;

double processor_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Keeps the compiler from leaving out what led to v.
void consume(std::uint64_t v) {
  asm volatile("" : : "r"(v));
}

#if defined(__x86_64__)
[[gnu::target("avx512f"), gnu::noinline]] void read_avx512(const std::byte* p, std::size_t bytes) {
  __m512i sum[8] = {};
  for (std::size_t i = 0; i + 512 <= bytes; i += 512)
    for (std::size_t j = 0; j < 8; ++j) sum[j] = _mm512_xor_si512(sum[j], _mm512_loadu_si512(p + i + 64 * j));
  for (std::size_t j = 1; j < 8; ++j) sum[0] = _mm512_xor_si512(sum[0], sum[j]);
  consume(static_cast<std::uint64_t>(_mm512_reduce_add_epi64(sum[0])));
}

[[gnu::target("avx2"), gnu::noinline]] void read_avx2(const std::byte* p, std::size_t bytes) {
  __m256i sum[8] = {};
  for (std::size_t i = 0; i + 256 <= bytes; i += 256)
    for (std::size_t j = 0; j < 8; ++j)
      sum[j] = _mm256_xor_si256(sum[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i + 32 * j)));
  for (std::size_t j = 1; j < 8; ++j) sum[0] = _mm256_xor_si256(sum[0], sum[j]);
  consume(static_cast<std::uint64_t>(_mm256_extract_epi64(sum[0], 0)));
}

// Operations of `rounds` rounds of nothing but the instruction that integer products are made of.
[[gnu::target("avx512f,avx512vnni"), gnu::noinline]] double vnni(std::size_t rounds) {
  __m512i s[12] = {};
  const __m512i a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(2);
  // As twelve instructions: of intrinsics on equal values the compiler makes one chain.
  for (std::size_t i = 0; i < rounds; ++i)
    asm volatile(
        "vpdpbusd %13, %12, %0\n vpdpbusd %13, %12, %1\n vpdpbusd %13, %12, %2\n vpdpbusd %13, %12, %3\n"
        "vpdpbusd %13, %12, %4\n vpdpbusd %13, %12, %5\n vpdpbusd %13, %12, %6\n vpdpbusd %13, %12, %7\n"
        "vpdpbusd %13, %12, %8\n vpdpbusd %13, %12, %9\n vpdpbusd %13, %12, %10\n vpdpbusd %13, %12, %11"
        : "+v"(s[0]), "+v"(s[1]), "+v"(s[2]), "+v"(s[3]), "+v"(s[4]), "+v"(s[5]), "+v"(s[6]), "+v"(s[7]), "+v"(s[8]),
          "+v"(s[9]), "+v"(s[10]), "+v"(s[11])
        : "v"(a), "v"(b));
  return 2.0 * 64 * 12 * static_cast<double>(rounds);
}
#endif

void read_plain(const std::byte* p, std::size_t bytes) {
  std::uint64_t sum[4] = {};
  for (std::size_t i = 0; i + 32 <= bytes; i += 32)
    for (std::size_t j = 0; j < 4; ++j) {
      std::uint64_t v = 0;
      std::memcpy(&v, p + i + 8 * j, 8);
      sum[j] ^= v;
    }
  consume(sum[0] ^ sum[1] ^ sum[2] ^ sum[3]);
}

void read_bytes(const std::byte* p, std::size_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return read_avx512(p, bytes);
  if (__builtin_cpu_supports("avx2")) return read_avx2(p, bytes);
#endif
  read_plain(p, bytes);
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v.empty() ? 0 : v[v.size() / 2];
}
double best(std::vector<double> v) {
  std::ranges::sort(v);
  return v.empty() ? 0 : v[(v.size() - 1) * 49 / 50];
}

struct Options {
  std::string isa, type;
  std::size_t threads = 1, mib = 1200, k = 2048;
};

// A matrix of whole tiles that fills `room`: some random tiles, over and over.
std::size_t fill(DType t, std::size_t k, std::span<std::byte> room) {
  Random random(static_cast<std::uint64_t>(t) + 1);
  const std::size_t some = 16, bytes = tile_bytes(t, k);
  const auto tiles =
      kernels_testing::packed(t, kernels_testing::random_rows(random, t, 16 * some, k, false), 16 * some, k);
  const std::size_t count = room.size() / bytes;
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(room.data() + i * bytes, tiles.bytes.data() + i % some * bytes, bytes);
  return count;
}

struct Input {
  std::size_t k, tokens;
  std::vector<float> x, scales;
  std::vector<std::int8_t> q;

  Input(std::size_t k_, std::size_t tokens_)
      : k(k_), tokens(tokens_), x(k * tokens), scales(tokens * ((k + 31) / 32), 0.01F), q(k * tokens) {
    Random random(7);
    for (auto& v : x) v = random.unit();
    for (auto& v : q) v = static_cast<std::int8_t>(random.below(255));
  }
};

// Tiles [first, last) times `in`; the activations are laid out if `laid_out` is null.
void multiply(const Kernels& kernels, DType t, const std::byte* w, std::size_t first, std::size_t last, const Input& in,
              std::vector<float>& y) {
  const std::size_t ldy = 16 * (last - first);
  if (y.size() < ldy * in.tokens) y.resize(ldy * in.tokens);
  w += first * tile_bytes(t, in.k);
  if (is_quantized(t))
    multiply_i8(kernels, t, w, in.k, 0, last - first, {in.q.data(), in.scales.data()}, in.tokens, y.data(), ldy);
  else
    kernels.matmul(t, w, in.k, 0, last - first, in.x.data(), in.k, in.tokens, y.data(), ldy);
}

// One token over all of the memory, in pieces, each thread in its share of it.
void stream(const Kernels& kernels, DType t, std::span<std::byte> memory, const Options& o) {
  const std::size_t tiles = fill(t, o.k, memory), bytes = tile_bytes(t, o.k);
  const std::size_t share = tiles / o.threads, piece = std::max<std::size_t>(1, (std::size_t{12} << 20) / bytes);
  std::vector<double> ratios, speeds, reads;
  std::vector<std::vector<double>> kernel_speed(o.threads), read_speed(o.threads);
  std::barrier together(static_cast<std::ptrdiff_t>(o.threads));
  const auto work = [&](std::size_t n) {
    const Input in(o.k, 1);
    std::vector<float> y;
    const std::byte* begin = memory.data() + n * share * bytes;
    for (int round = 0; round < 2; ++round)
      for (std::size_t at = 0; at + 2 * piece <= share; at += 2 * piece) {
        together.arrive_and_wait();
        const double t0 = processor_seconds();
        multiply(kernels, t, begin, at, at + piece, in, y);
        const double t1 = processor_seconds();
        together.arrive_and_wait();
        const double t2 = processor_seconds();
        read_bytes(begin + (at + piece) * bytes, piece * bytes);
        const double t3 = processor_seconds();
        kernel_speed[n].push_back(static_cast<double>(piece * bytes) / (t1 - t0) / 1e9);
        read_speed[n].push_back(static_cast<double>(piece * bytes) / (t3 - t2) / 1e9);
      }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t n = 1; n < o.threads; ++n) others.emplace_back(work, n);
    work(0);
  }
  for (std::size_t i = 0; i < kernel_speed[0].size(); ++i) {
    double speed = 0, read = 0;
    for (std::size_t n = 0; n < o.threads; ++n) {
      speed += kernel_speed[n][i];
      read += read_speed[n][i];
    }
    speeds.push_back(speed);
    reads.push_back(read);
    ratios.push_back(speed / read);
  }
  std::printf("%-8s 1 token   %6.2f GB/s, reader %6.2f: %5.1f %%   (98th percentiles %6.2f, %6.2f: %5.1f %%)\n",
              std::string(dtype_name(t)).c_str(), median(speeds), median(reads), 100 * median(speeds) / median(reads),
              best(speeds), best(reads), 100 * best(speeds) / best(reads));
  std::fflush(stdout);
}

// Many tokens times a matrix of 512 rows, one thread.
void many(const Kernels& kernels, DType t, std::span<std::byte> memory, std::size_t tokens, const Options& o) {
  const std::size_t tiles = std::min<std::size_t>(32, fill(t, o.k, memory.first(tile_bytes(t, o.k) * 32)));
  const Input in(o.k, tokens);
  std::vector<float> y;
  std::vector<double> speeds, peaks;
  const double operations = 2.0 * 16 * static_cast<double>(tiles * o.k * tokens);
  const int repeat = static_cast<int>(std::max(1.0, 4e8 / operations));
  for (int round = 0; round < 250; ++round) {
    const double t0 = processor_seconds();
    for (int i = 0; i < repeat; ++i) multiply(kernels, t, memory.data(), 0, tiles, in, y);
    const double t1 = processor_seconds();
    speeds.push_back(operations * repeat / (t1 - t0) / 1e9);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vnni")) {
      const double done = vnni(40000);
      peaks.push_back(done / (processor_seconds() - t1) / 1e9);
    }
#endif
  }
  std::printf("%-8s %3zu tokens %5.0f Gop/s", std::string(dtype_name(t)).c_str(), tokens, median(speeds));
  if (!peaks.empty())
    std::printf(", VNNI %4.0f: %5.1f %%   (98th percentiles %4.0f, %4.0f: %5.1f %%)", median(peaks),
                100 * median(speeds) / median(peaks), best(speeds), best(peaks), 100 * best(speeds) / best(peaks));
  std::printf("\n");
  std::fflush(stdout);
}

// Runs `once` on one piece of memory after the other, with a reader between, and prints bytes a second of both.
void against_reader(const char* what, std::span<std::byte> memory, std::size_t piece, double bytes_moved,
                    const std::function<void(std::byte*)>& once) {
  std::vector<double> speeds, reads;
  const std::size_t together = std::max<std::size_t>(1, (std::size_t{4} << 20) / piece) * piece;
  for (std::size_t at = 0; at + 2 * together <= memory.size(); at += 2 * together) {
    const double t0 = processor_seconds();
    for (std::size_t i = 0; i < together; i += piece) once(memory.data() + at + i);
    const double t1 = processor_seconds();
    read_bytes(memory.data() + at + together, together);
    const double t2 = processor_seconds();
    speeds.push_back(bytes_moved * static_cast<double>(together / piece) / (t1 - t0) / 1e9);
    reads.push_back(static_cast<double>(together) / (t2 - t1) / 1e9);
  }
  std::printf("%-34s %6.2f GB/s, reader %6.2f: %5.1f %%   (98th percentiles %6.2f, %6.2f: %5.1f %%)\n", what,
              median(speeds), median(reads), 100 * median(speeds) / median(reads), best(speeds), best(reads),
              100 * best(speeds) / best(reads));
}

// One step of KDA over heads of 128 x 128 (bytes read and written), and attention of grouped queries over caches of
// 1,024 positions and heads of 128.
void state_and_caches(const Kernels& kernels, std::span<std::byte> memory) {
  std::memset(memory.data(), 0, memory.size());
  constexpr std::size_t kDim = 128, kState = kDim * kDim * sizeof(float);
  const std::vector<float> v(kDim, 0.01F), decay(kDim, 0.9F);
  std::vector<float> out(kDim);
  against_reader("KDA step", memory, kState, 2.0 * kState, [&](std::byte* at) {
    kernels.kda_step(reinterpret_cast<float*>(at), kDim, kDim, v.data(), v.data(), decay.data(), 0.5F, v.data(),
                     out.data());
  });
  for (const auto& [type, bytes, name] : {std::tuple{CacheType::f32, 4, "f32"}, std::tuple{CacheType::bf16, 2, "bf16"},
                                          std::tuple{CacheType::f16, 2, "f16"}, std::tuple{CacheType::i8, 1, "i8"}})
    for (const std::size_t queries : {1u, 4u, 8u, 32u}) {
      const std::size_t rows = kAttentionKeys * kDim * static_cast<std::size_t>(bytes);
      const std::vector<float> q(queries * kDim, 0.1F), scales(kAttentionKeys * kDim / 32, 0.01F);
      const std::vector<std::uint32_t> counts(queries, kAttentionKeys);
      std::vector<float> scratch(queries * kAttentionKeys), max(queries), sum(queries), acc(queries * kDim);
      const std::string what = std::string("attention, ") + name + ", " + std::to_string(queries) + " queries";
      against_reader(what.c_str(), memory.first(memory.size() / 4), 2 * rows, 2.0 * static_cast<double>(rows),
                     [&](std::byte* at) {
                       kernels.attention({.queries = q.data(),
                                          .query_ld = kDim,
                                          .query_count = queries,
                                          .counts = counts.data(),
                                          .type = type,
                                          .keys = {at, kDim, scales.data(), kDim / 32},
                                          .values = {at + rows, kDim, scales.data(), kDim / 32},
                                          .key_dims = kDim,
                                          .value_dims = kDim,
                                          .scale = 0.1F,
                                          .scratch = scratch.data(),
                                          .max = max.data(),
                                          .sum = sum.data(),
                                          .acc = acc.data(),
                                          .acc_ld = kDim});
                     });
    }
}

int run(const Options& o) {
  if (!o.isa.empty()) ::setenv("MYRIAD_ISA", o.isa.c_str(), 1);
  const auto kernels = choose_kernels();
  if (!kernels) {
    std::fprintf(stderr, "%s\n", kernels.error().message.c_str());
    return 1;
  }
  auto buffer = AlignedBuffer::allocate(o.mib << 20, "the weights");
  if (!buffer) {
    std::fprintf(stderr, "%s\n", buffer.error().message.c_str());
    return 1;
  }
  std::printf("%s, %zu threads, %zu MiB of weights, k %zu\n", std::string((*kernels)->name).c_str(), o.threads, o.mib,
              o.k);
  if (o.type.empty() || o.type == "state") state_and_caches(**kernels, buffer->bytes());
  for (const DType t : kAllTypes) {
    if (!o.type.empty() && o.type != dtype_name(t)) continue;
    if (o.mib > 0) stream(**kernels, t, buffer->bytes(), o);
    for (const std::size_t tokens : {2u, 4u, 8u, 16u, 64u, 512u})
      if (o.threads == 1 && (is_quantized(t) || tokens <= 64)) many(**kernels, t, buffer->bytes(), tokens, o);
  }
  return 0;
}

}  // namespace
}  // namespace myriad

int main(int argc, char** argv) {
  myriad::Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--isa") o.isa = value;
    if (name == "--type") o.type = value;
    if (name == "--threads") o.threads = std::max(1UL, std::stoul(value));
    if (name == "--mib") o.mib = std::max(64UL, std::stoul(value));
    if (name == "--k") o.k = std::stoul(value);
  }
  return myriad::run(o);
}
