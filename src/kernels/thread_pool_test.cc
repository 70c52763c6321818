#include "kernels/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "kernels/cores.h"

namespace myriad {
namespace {

TEST(ThreadPool, RangesCoverEverythingExactlyOnce) {
  for (const std::size_t threads : {1u, 2u, 3u, 7u}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    std::mt19937 random(static_cast<unsigned>(threads));
    for (int round = 0; round < 300; ++round) {
      const std::size_t count = random() % (round % 10 == 0 ? 5000 : 60), grain = random() % 9;
      const auto seen = std::make_unique<std::atomic<int>[]>(count + 1);
      std::atomic<std::size_t> calls = 0, short_ranges = 0;
      pool.parallel(count, grain, [&](std::size_t begin, std::size_t end) {
        ASSERT_LT(begin, end);
        ASSERT_LE(end, count);
        ++calls;
        if (end - begin < grain && end != count) ++short_ranges;
        for (std::size_t i = begin; i < end; ++i) ++seen[i];
      });
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(seen[i], 1) << count << " by " << grain;
      ASSERT_EQ(short_ranges, 0u);
      if (count <= grain) {
        ASSERT_EQ(calls, count == 0 ? 0u : 1u);
      }
    }
  }
}

TEST(ThreadPool, OtherThreadsTakePart) {
  ThreadPool pool(2);
  // Each of two ranges waits for the other: only two threads at once can finish.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::atomic<int> inside = 0;
  pool.parallel(2, 1, [&](std::size_t begin, std::size_t end) {
    ASSERT_EQ(end - begin, 1u);
    ++inside;
    while (inside < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 2);
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
}

TEST(ThreadPool, WritesOfTheBodyAreSeenByTheCaller) {
  ThreadPool pool(3);
  std::vector<int> values(1000, 0);  // not atomic: the sanitizer for threads watches
  for (int round = 1; round <= 200; ++round) {
    pool.parallel(values.size(), 10, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) values[i] += round;
    });
    ASSERT_EQ(values.front(), values.back());
  }
  EXPECT_EQ(values[500], 200 * 201 / 2);
}

TEST(ThreadPool, ACallFromWithinACallIsDoneByItsCaller) {
  ThreadPool pool(3);
  std::atomic<std::size_t> total = 0;
  pool.parallel(20, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      pool.parallel(50, 1, [&](std::size_t b, std::size_t e) { total += e - b; });
  });
  EXPECT_EQ(total, 1000u);
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

class Cores : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) / ("myriad_cores_" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] std::optional<double> quota() const {
    return cgroup_cpu_quota((root_ / "proc").string(), (root_ / "cg").string());
  }
  std::filesystem::path root_;
};

TEST_F(Cores, NoQuotaWhereThereIsNone) {
  EXPECT_FALSE(quota().has_value());
  write("proc/cgroup", "0::/a/b\nnonsense\n3:\n");
  EXPECT_FALSE(quota().has_value());
  write("cg/a/b/cpu.max", "max 100000\n");
  EXPECT_FALSE(quota().has_value());
  write("cg/a/b/cpu.max", "50000 0\n");
  EXPECT_FALSE(quota().has_value());
}

TEST_F(Cores, SmallestQuotaOfAllAncestorsInVersion2) {
  write("proc/cgroup", "0::/a/b\n");
  write("cg/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 4.0);
  write("cg/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("cg/cpu.max", "20000 100000\n");
  EXPECT_EQ(quota(), 0.2);
}

TEST_F(Cores, Version1) {
  write("proc/cgroup", "4:memory:/m\n2:cpu,cpuacct:/x\n0::/\n");
  write("cg/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
  write("cg/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(quota().has_value());
  write("cg/cpu,cpuacct/x/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(quota(), 2.5);
  write("cg/memory/m/cpu.cfs_quota_us", "1\n");
  write("cg/memory/m/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 2.5);
  write("proc/cgroup", "1:cpu:/y\n");
  write("cg/cpu/y/cpu.cfs_quota_us", "100000\n");
  write("cg/cpu/y/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 1.0);
}

TEST_F(Cores, HyperthreadsOfACoreCountOnce) {
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::string topology = "cpu" + std::to_string(cpu) + "/topology/";
    write(topology + "physical_package_id", cpu < 4 ? "0\n" : "1\n");
    write(topology + "core_id", std::to_string(cpu % 2) + "\n");
  }
  EXPECT_EQ(physical_cores({0, 1, 2, 3, 4, 5, 6, 7}, root_.string()), 4u);
  EXPECT_EQ(physical_cores({0, 2}, root_.string()), 1u);
  EXPECT_EQ(physical_cores({0, 1, 77, 78}, root_.string()), 4u);
  EXPECT_EQ(physical_cores({}, root_.string()), 0u);
}

TEST_F(Cores, UsableCoresFollowTheAffinityMask) {
  EXPECT_GE(usable_cores(), 1u);
  cpu_set_t before;
  if (sched_getaffinity(0, sizeof before, &before) != 0) GTEST_SKIP() << "the affinity mask cannot be read";
  int one = 0;
  while (!CPU_ISSET(one, &before)) ++one;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(one, &mask);
  ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
  EXPECT_EQ(usable_cores(), 1u);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace myriad
