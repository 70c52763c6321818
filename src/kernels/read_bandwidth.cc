#include "kernels/read_bandwidth.h"

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace myriad {
namespace {

constexpr std::size_t kTurn = 256;                          // bytes; every loop reads a whole number of turns
constexpr std::size_t kSlice = std::size_t{4} << 20;        // between two looks at the clock
constexpr std::size_t kLeastBytes = std::size_t{64} << 10;  // a thread
constexpr double kMostSeconds = 3600;

using Clock = std::chrono::steady_clock;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) std::uint64_t read_words_avx512(std::span<const std::byte> bytes) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  const std::byte* const end = bytes.data() + bytes.size();
  for (const std::byte* p = bytes.data(); p != end; p += 256) {
    a = _mm512_xor_si512(a, _mm512_load_si512(p));
    b = _mm512_xor_si512(b, _mm512_load_si512(p + 64));
    c = _mm512_xor_si512(c, _mm512_load_si512(p + 128));
    d = _mm512_xor_si512(d, _mm512_load_si512(p + 192));
  }
  std::array<std::uint64_t, 8> words;
  _mm512_storeu_si512(words.data(), _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
  return std::accumulate(words.begin(), words.end(), std::uint64_t{0}, std::bit_xor<>());
}

__attribute__((target("avx2"))) std::uint64_t read_words_avx2(std::span<const std::byte> bytes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  const auto* const end = reinterpret_cast<const __m256i*>(bytes.data() + bytes.size());
  for (const auto* p = reinterpret_cast<const __m256i*>(bytes.data()); p != end; p += 4) {
    a = _mm256_xor_si256(a, _mm256_load_si256(p));
    b = _mm256_xor_si256(b, _mm256_load_si256(p + 1));
    c = _mm256_xor_si256(c, _mm256_load_si256(p + 2));
    d = _mm256_xor_si256(d, _mm256_load_si256(p + 3));
  }
  std::array<std::uint64_t, 4> words;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words.data()),
                      _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)));
  return std::accumulate(words.begin(), words.end(), std::uint64_t{0}, std::bit_xor<>());
}
#endif

// Reads `share` in slices until `deadline`; returns bytes a second.
double read_until(std::span<const std::byte> share, Clock::time_point deadline, std::atomic<std::uint64_t>& sink) {
  const auto start = Clock::now();
  std::uint64_t total = 0, words = 0;
  auto now = start;
  for (std::size_t at = 0; now < deadline; now = Clock::now()) {
    const std::size_t count = std::min(kSlice, share.size() - at);
    words ^= read_words(share.subspan(at, count));
    total += count;
    at = at + count == share.size() ? 0 : at + count;
  }
  sink.fetch_xor(words, std::memory_order_relaxed);  // so that the reading is not for nothing
  return static_cast<double>(total) / std::chrono::duration<double>(now - start).count();
}

}  // namespace

std::uint64_t read_words_portable(std::span<const std::byte> bytes) {
  std::array<std::uint64_t, kTurn / 8> sums{}, words;
  for (std::size_t i = 0; i < bytes.size(); i += kTurn) {
    std::memcpy(words.data(), bytes.data() + i, kTurn);
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] ^= words[j];
  }
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}, std::bit_xor<>());
}

std::uint64_t read_words(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return read_words_avx512(bytes);
  if (__builtin_cpu_supports("avx2")) return read_words_avx2(bytes);
#endif
  return read_words_portable(bytes);
}

Result<double> read_bandwidth(std::size_t threads, std::size_t bytes, double seconds) {
  if (threads == 0 || threads > kReadBandwidthThreads)
    return fail(Code::invalid_argument, "measuring read bandwidth: {} threads, expected 1 to {}", threads,
                kReadBandwidthThreads);
  if (bytes / threads < kLeastBytes)
    return fail(Code::invalid_argument, "measuring read bandwidth: {} bytes for {} threads, expected at least {} each",
                bytes, threads, kLeastBytes);
  if (!(seconds > 0 && seconds <= kMostSeconds))
    return fail(Code::invalid_argument, "measuring read bandwidth: {} seconds, expected more than 0 and at most {}",
                seconds, kMostSeconds);
  const std::size_t share = bytes / threads / kTurn * kTurn;
  MYRIAD_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(share * threads, "measuring read bandwidth"));

  std::barrier filled(static_cast<std::ptrdiff_t>(threads));
  std::atomic<std::uint64_t> sink = 0;
  std::vector<double> rates(threads);
  const auto duration = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const auto work = [&](std::size_t thread) {
    const std::span<std::byte> mine = buffer.bytes().subspan(thread * share, share);
    std::memset(mine.data(), static_cast<int>(thread + 1) & 0xFF, mine.size());
    filled.arrive_and_wait();
    rates[thread] = read_until(mine, Clock::now() + duration, sink);
  };
  {
    std::vector<std::jthread> others;
    others.reserve(threads - 1);
    for (std::size_t thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
    work(0);
  }
  return std::accumulate(rates.begin(), rates.end(), 0.0) / 1e9;
}

}  // namespace myriad
