#include "node/resources.h"

#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

namespace myriad {

Bytes resident_bytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "r"), std::fclose);
  unsigned long long total = 0, resident = 0;
  if (!file || std::fscanf(file.get(), "%llu %llu", &total, &resident) != 2) return {};
  return {resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))};
}

std::uint64_t measure_speed(const Kernels& kernels, ThreadPool& pool) {
  constexpr std::size_t kColumns = 1024, kRows = 8192;  // 16 MiB of bf16: more than a core's second-level cache
  std::uint64_t best = 0;
  {
    const std::vector<std::uint16_t> weights(matrix_bytes(DType::bf16, kRows, kColumns) / 2, 0x3c00);
    const std::vector<float> x(kColumns, 1.0F);
    std::vector<float> y(kRows);
    for (int round = 0; round < 3; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      pool.parallel(tiles_for(kRows), 16, [&](std::size_t first, std::size_t last) {
        kernels.matmul_bf16(weights.data(), kColumns, first, last, x.data(), kColumns, 1, y.data(), kRows);
      });
      const auto ns =
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
      best = std::max<std::uint64_t>(best, static_cast<std::uint64_t>(static_cast<double>(weights.size() * 2) * 1e9 /
                                                                      static_cast<double>(std::max<long long>(ns, 1))));
    }
  }
  ::malloc_trim(0);
  return best;
}

}  // namespace myriad
