#include "node/resources.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/allocator.h"
#include "kernels/cores.h"

namespace myriad {

Bytes resident_bytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "r"), std::fclose);
  unsigned long long total = 0, resident = 0;
  if (!file || std::fscanf(file.get(), "%llu %llu", &total, &resident) != 2) return {};
  return {resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))};
}

std::uint64_t measure_speed(const Kernels& kernels, ThreadPool& pool, Bytes memory) {
  constexpr std::size_t kColumns = 1024, kMostRows = 4096;  // 8 MiB of bf16: more than a core's second-level cache
  constexpr int kRounds = 16;
  const std::size_t rows =
      std::clamp<std::size_t>(memory.value / 8 / (2 * kColumns) / kTileRows * kTileRows, kTileRows, kMostRows);
  double best = 0;
  {
    const std::vector<std::uint16_t> weights(matrix_bytes(DType::bf16, rows, kColumns) / 2, 0x3c00);
    const std::vector<float> x(kColumns, 1.0F);
    std::vector<float> y(rows);
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      pool.parallel(tiles_for(rows), 16, [&](std::size_t first, std::size_t last) {
        kernels.matmul_bf16(weights.data(), kColumns, first, last, x.data(), kColumns, 1, y.data(), rows);
      });
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      best = std::max(best, static_cast<double>(weights.size() * 2) / std::max(took.count(), 1e-9));
    }
  }
  trim_allocator();
  // A quota is not seen in short rounds: it cuts whole tenths of a second out later.
  const auto quota = cgroup_cpu_quota("/proc/self", "/sys/fs/cgroup");
  if (quota) best *= std::min(1.0, *quota / static_cast<double>(pool.threads()));
  return static_cast<std::uint64_t>(best);
}

}  // namespace myriad
