// Deterministic random numbers: the same on every machine, from a seed that a failing test can print.
#pragma once

#include <cstdint>

namespace myriad {

// SplitMix64 over a counter.
class CounterRandom {
 public:
  explicit CounterRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }
  // [0, n), n > 0.
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  // [-1, 1), a multiple of 2^-23.
  float symmetric() { return static_cast<float>(static_cast<std::int64_t>(next() >> 40) - (1 << 23)) * 0x1p-23F; }

 private:
  std::uint64_t state_;
};

}  // namespace myriad
