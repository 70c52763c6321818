#include "kernels/cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

namespace myriad {
namespace {

using Cores = std::vector<std::vector<int>>;

TEST(ProcessorList, AsTheSystemWritesIt) {
  EXPECT_EQ(parse_processor_list("0-3,8,10-11\n"), (std::vector{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_processor_list("5"), std::vector{5});
  EXPECT_EQ(parse_processor_list("7,1-2,2"), (std::vector{1, 2, 7}));
  EXPECT_EQ(parse_processor_list("\n"), std::vector<int>{});  // a node that is memory only
  EXPECT_EQ(parse_processor_list("65535"), std::vector{65535});
  for (const char* wrong :
       {",", "1,", "1-", "-1", "3-1", "x", "1,x", "1 2", "0-3:2", "65536", "0-65536", "99999999999", "1--2", "1,,2"})
    EXPECT_FALSE(parse_processor_list(wrong).has_value()) << wrong;
}

class TopologyFiles : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) / ("myriad_topology_" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void core(int processor, int package, int core, const std::string& siblings) {
    const std::string folder = "cpu/cpu" + std::to_string(processor) + "/topology/";
    write(folder + "physical_package_id", std::to_string(package) + "\n");
    write(folder + "core_id", std::to_string(core) + "\n");
    if (!siblings.empty()) write(folder + "thread_siblings_list", siblings + "\n");
  }
  void node(int id, const std::string& list) { write("node/node" + std::to_string(id) + "/cpulist", list + "\n"); }
  // Two sockets of four cores with two threads each; siblings are eight apart and sockets alternate by halves, as on
  // most x86 servers: 0-3,8-11 and 4-7,12-15.
  void two_sockets() {
    for (int i = 0; i < 16; ++i) core(i, i % 8 / 4, i % 4, std::to_string(i % 8) + "," + std::to_string(i % 8 + 8));
    node(0, "0-3,8-11");
    node(1, "4-7,12-15");
    write("node/online", "0-1\n");
    write("node/nodes", "not a node\n");
    write("node/node01x/cpulist", "0-15\n");
  }
  [[nodiscard]] Topology read(const std::vector<int>& processors) const {
    return Topology::read(processors, root_.string());
  }
  static std::vector<int> up_to(int n) {
    std::vector<int> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::filesystem::path root_;
};

TEST_F(TopologyFiles, TwoSocketsWithTwoThreadsACore) {
  two_sockets();
  const Topology all = read(up_to(16));
  ASSERT_EQ(all.nodes.size(), 2u);
  EXPECT_EQ(all.nodes[0].id, 0);
  EXPECT_EQ(all.nodes[0].cores, (Cores{{0, 8}, {1, 9}, {2, 10}, {3, 11}}));
  EXPECT_EQ(all.nodes[1].id, 1);
  EXPECT_EQ(all.nodes[1].cores, (Cores{{4, 12}, {5, 13}, {6, 14}, {7, 15}}));
  EXPECT_EQ(all.nodes[1].processors(), (std::vector{4, 5, 6, 7, 12, 13, 14, 15}));
}

TEST_F(TopologyFiles, AnAffinityMaskThatCoversPart) {
  two_sockets();
  const Topology part = read({1, 9, 10, 12});
  ASSERT_EQ(part.nodes.size(), 2u);
  EXPECT_EQ(part.nodes[0].cores, (Cores{{1, 9}, {10}}));
  EXPECT_EQ(part.nodes[1].cores, (Cores{{12}}));
  const Topology second = read({5, 13});
  ASSERT_EQ(second.nodes.size(), 1u);
  EXPECT_EQ(second.nodes[0].id, 1);
  EXPECT_EQ(second.nodes[0].cores, (Cores{{5, 13}}));
}

TEST_F(TopologyFiles, OfflineProcessorsAndMemoryOnlyNodes) {
  two_sockets();
  // 8 and 4 are off: the mask has them no more, their folders lose the topology, lists of the others leave them out
  for (const int gone : {8, 4}) std::filesystem::remove_all(root_ / ("cpu/cpu" + std::to_string(gone)) / "topology");
  core(0, 0, 0, "0");
  core(12, 1, 0, "12");
  node(0, "0-3,9-11");
  node(1, "5-7,12-15");
  node(2, "");
  const Topology topology = read({0, 1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15});
  ASSERT_EQ(topology.nodes.size(), 2u);
  EXPECT_EQ(topology.nodes[0].cores, (Cores{{0}, {1, 9}, {2, 10}, {3, 11}}));
  EXPECT_EQ(topology.nodes[1].cores, (Cores{{5, 13}, {6, 14}, {7, 15}, {12}}));
}

TEST_F(TopologyFiles, OneNode) {
  for (int i = 0; i < 4; ++i) core(i, 0, i / 2, "");  // kernels without sibling lists: package and core tell
  node(0, "0-3");
  const Topology topology = read(up_to(4));
  ASSERT_EQ(topology.nodes.size(), 1u);
  EXPECT_EQ(topology.nodes[0].cores, (Cores{{0, 1}, {2, 3}}));
}

TEST_F(TopologyFiles, NothingThere) {
  const Topology topology = read({2, 3, 7});
  ASSERT_EQ(topology.nodes.size(), 1u);
  EXPECT_EQ(topology.nodes[0].id, 0);
  EXPECT_EQ(topology.nodes[0].cores, (Cores{{2}, {3}, {7}}));
  EXPECT_TRUE(read({}).nodes.empty());
}

TEST_F(TopologyFiles, OddContents) {
  core(0, -1, 0, "");  // a package that is not known
  core(1, -1, 1, "");
  core(2, 0, -1, "");  // cores that are not known stand for themselves
  core(3, 0, -1, "");
  core(4, 0, 0, "9-2");       // a list that cannot be read
  core(5, 0, 0, "0-1");       // or does not hold the processor
  core(6, 0, 6, "6,100000");  // or holds one that cannot be
  write("cpu/cpu7/topology/core_id", "no number\n");
  write("cpu/cpu8/topology/thread_siblings_list", std::string(1 << 17, '8'));
  node(0, "nonsense");
  node(3, "4-6,0");
  node(5, "5-8");  // what two nodes claim is the first one's
  std::filesystem::create_directories(root_ / "node/node6");
  node(1024, "1");  // beyond the last node that can be
  const Topology topology = read(up_to(9));
  ASSERT_EQ(topology.nodes.size(), 2u);
  EXPECT_EQ(topology.nodes[0].id, 3);
  // 1, 2 and 3 belong to no node and go to the first
  EXPECT_EQ(topology.nodes[0].cores, (Cores{{0}, {1}, {2}, {3}, {4, 5}, {6}}));
  EXPECT_EQ(topology.nodes[1].id, 5);
  EXPECT_EQ(topology.nodes[1].cores, (Cores{{7}, {8}}));
}

TEST_F(TopologyFiles, ThisMachine) {
  const Topology topology = Topology::here();
  const std::vector<int> mine = usable_processors();
  if (mine.empty()) GTEST_SKIP() << "the affinity mask cannot be read";
  std::vector<int> all;
  std::size_t cores = 0;
  for (const auto& node : topology.nodes) {
    const auto some = node.processors();
    EXPECT_FALSE(some.empty());
    all.insert(all.end(), some.begin(), some.end());
    cores += node.cores.size();
  }
  std::ranges::sort(all);
  EXPECT_EQ(all, mine);
  EXPECT_EQ(cores, physical_cores(mine, "/sys/devices/system/cpu"));
}

}  // namespace
}  // namespace myriad
