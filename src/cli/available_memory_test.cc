#include "cli/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace myriad::cli {
namespace {

class AvailableMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(::testing::TempDir()) /
            ("memory-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(root_);
    write("proc/meminfo", "MemTotal:  9000000 kB\nMemFree:  10 kB\nMemAvailable:   5000 kB\nBuffers: 3 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  std::uint64_t found() { return available_memory((root_ / "proc").string(), (root_ / "cg").string()); }
  std::filesystem::path root_;
};

TEST_F(AvailableMemory, IsWhatTheSystemSays) {
  EXPECT_EQ(found(), 5'120'000U);
}

TEST_F(AvailableMemory, GroupsThatContainThisOneCount) {
  write("proc/self/cgroup", "0::/a/b\nnonsense\n");
  write("cg/a/b/memory.max", "max\n");
  EXPECT_EQ(found(), 5'120'000U);
  write("cg/a/memory.max", "4000000\n");
  EXPECT_EQ(found(), 4'000'000U);
  write("cg/unified/memory.max", "3000000\n");
  EXPECT_EQ(found(), 3'000'000U);
  write("cg/a/memory.max", "9000000000\n");
  write("cg/unified/memory.max", "max\n");
  EXPECT_EQ(found(), 5'120'000U);
}

TEST_F(AvailableMemory, OlderGroups) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/m\n4:hugetlb,memory:/m\n0::/\n");
  write("cg/memory/m/memory.limit_in_bytes", "2000000\n");
  EXPECT_EQ(found(), 2'000'000U);
  write("proc/self/cgroup", "5:cpu,cpuacct:/m\n");
  EXPECT_EQ(found(), 5'120'000U);
}

TEST_F(AvailableMemory, NothingSays) {
  std::filesystem::remove_all(root_);
  EXPECT_GT(found(), std::uint64_t{1} << 40);
}

}  // namespace
}  // namespace myriad::cli
