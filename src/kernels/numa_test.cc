#include "kernels/numa.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>

#include "kernels/thread_pool.h"

namespace myriad {
namespace {

// Nodes of so many cores, with one processor each, numbered from 0 up; node i has the number 2 i.
Topology machine(const std::vector<int>& cores) {
  Topology topology;
  int processor = 0;
  for (const int n : cores) {
    Topology::Node node{static_cast<int>(2 * topology.nodes.size()), {}};
    for (int i = 0; i < n; ++i) node.cores.push_back({processor++});
    topology.nodes.push_back(std::move(node));
  }
  return topology;
}

NumaPlacement chosen(const Topology& topology, std::size_t threads, std::string_view wish, int processor) {
  auto placement = choose_numa(topology, threads, wish, processor);
  EXPECT_TRUE(placement.has_value()) << placement.error().to_string();
  return placement.value_or(NumaPlacement{});
}

// For the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    if (value != nullptr)
      setenv(name, value, 1);
    else
      unsetenv(name);
  }
  ~Variable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(Numa, OneNodeIsLeftAlone) {
  for (const std::size_t threads : {1u, 4u, 99u})
    for (const char* wish : {"", "auto", "none", "0"}) {
      const auto placement = chosen(machine({4}), threads, wish, 0);
      EXPECT_TRUE(placement.processors.empty() && placement.interleave.empty()) << wish;
    }
  EXPECT_TRUE(numa_wishes(machine({4}), 8, 2).empty());
  EXPECT_TRUE(homes_of_workers(machine({4}), 8).empty());
  const auto nothing = chosen(Topology{}, 1, "auto", 0);
  EXPECT_TRUE(nothing.processors.empty() && nothing.interleave.empty());
}

TEST(Numa, AProcessThatFitsKeepsToTheNodeItRunsOn) {
  const Topology topology = machine({4, 4});
  EXPECT_EQ(chosen(topology, 4, "", 1).processors, (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(chosen(topology, 4, "auto", 6).processors, (std::vector{4, 5, 6, 7}));
  EXPECT_TRUE(chosen(topology, 4, "auto", 6).interleave.empty());
  EXPECT_EQ(chosen(topology, 1, "", -1).processors, (std::vector{0, 1, 2, 3}));  // nobody knows where it runs
  EXPECT_EQ(chosen(machine({2, 3, 5}), 3, "", 0).processors, (std::vector{5, 6, 7, 8, 9}));  // no room on its own
}

TEST(Numa, NothingIsTiedToOneCore) {
  const auto placement = chosen(machine({1, 1}), 1, "", 0);
  EXPECT_TRUE(placement.processors.empty() && placement.interleave.empty());
  EXPECT_EQ(chosen(machine({1, 2}), 1, "", 0).processors, (std::vector{1, 2}));
  EXPECT_EQ(chosen(machine({1, 1}), 2, "", 0).interleave, (std::vector{0, 2}));
  EXPECT_TRUE(numa_wishes(machine({1, 1}), 2, 1).empty());
  EXPECT_EQ(numa_wishes(machine({1, 2}), 3, 1), (std::vector<std::string>{"2", "2", "none"}));
  EXPECT_EQ(chosen(machine({1, 1}), 1, "2", 0).processors, std::vector{1});  // but by wish
}

TEST(Numa, AProcessThatDoesNotFitTakesMemoryFromAll) {
  const auto placement = chosen(machine({4, 4}), 5, "", 1);
  EXPECT_TRUE(placement.processors.empty());
  EXPECT_EQ(placement.interleave, (std::vector{0, 2}));
}

TEST(Numa, WishesAreFollowed) {
  const Topology topology = machine({4, 4});
  EXPECT_EQ(chosen(topology, 1, "2", 0).processors, (std::vector{4, 5, 6, 7}));
  EXPECT_EQ(chosen(topology, 8, "0", 7).processors, (std::vector{0, 1, 2, 3}));
  const auto none = chosen(topology, 8, "none", 0);
  EXPECT_TRUE(none.processors.empty() && none.interleave.empty());
  for (const char* wrong : {"1", "-2", "2x", "x", " 2", "99999999999999999999"}) {
    const auto placement = choose_numa(topology, 1, wrong, 0);
    ASSERT_FALSE(placement.has_value()) << wrong;
    EXPECT_EQ(placement.error().code, Code::invalid_argument);
    EXPECT_NE(placement.error().message.find("(0, 2, auto or none)"), std::string::npos) << placement.error().message;
  }
  EXPECT_FALSE(choose_numa(machine({4}), 1, "1", 0).has_value());
}

TEST(Numa, ProcessesAreSpread) {
  EXPECT_EQ(numa_wishes(machine({4, 4}), 4, 2), (std::vector<std::string>{"0", "2", "0", "2"}));
  EXPECT_EQ(numa_wishes(machine({2, 6}), 4, 2), (std::vector<std::string>{"2", "2", "0", "2"}));
  // the third fits in no node beside the others, though there are cores for it
  EXPECT_EQ(numa_wishes(machine({32, 32}), 3, 21), (std::vector<std::string>{"0", "2", "none"}));
  // too many for the machine: every node gets the same
  std::map<std::string, int> count;
  for (const auto& wish : numa_wishes(machine({4, 4, 4}), 300, 3)) ++count[wish];
  EXPECT_EQ(count, (std::map<std::string, int>{{"0", 100}, {"2", 100}, {"4", 100}}));
  // nodes that are too small for one get none
  EXPECT_EQ(numa_wishes(machine({1, 4}), 2, 2), (std::vector<std::string>{"2", "2"}));
  EXPECT_TRUE(numa_wishes(machine({4, 4}), 1, 5).empty());
  EXPECT_TRUE(numa_wishes(machine({4, 4}), 2, 0).empty());
}

TEST(Numa, WorkersAreSpreadWhenOneNodeIsTooSmall) {
  const Topology topology = machine({4, 4});
  EXPECT_TRUE(homes_of_workers(topology, 4).empty());
  const auto homes = homes_of_workers(topology, 8);
  ASSERT_EQ(homes.size(), 7u);
  EXPECT_EQ(std::ranges::count(homes, std::vector{0, 1, 2, 3}), 3);  // and the caller
  EXPECT_EQ(std::ranges::count(homes, std::vector{4, 5, 6, 7}), 4);
  // nobody is tied to one core
  const auto lopsided = homes_of_workers(machine({3, 1}), 4);
  ASSERT_EQ(lopsided.size(), 3u);
  EXPECT_EQ(std::ranges::count(lopsided, std::vector<int>()), 1);
  EXPECT_EQ(std::ranges::count(lopsided, std::vector{0, 1, 2}), 2);
}

TEST(Numa, CanBeTurnedOff) {
  {
    const Variable pin("MYRIAD_PIN", nullptr), node("MYRIAD_NUMA_NODE", nullptr);
    EXPECT_TRUE(numa_enabled());
  }
  {
    const Variable pin("MYRIAD_PIN", "0"), node("MYRIAD_NUMA_NODE", "no such node");
    EXPECT_FALSE(numa_enabled());
    EXPECT_TRUE(place_process(1).has_value());
  }
  const Variable pin("MYRIAD_PIN", "1"), node("MYRIAD_NUMA_NODE", "no such node");
  const Status wrong = place_process(1);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, Code::invalid_argument);
}

// In threads of their own, whose masks and policies end with them.
TEST(Numa, AThreadIsKeptToProcessors) {
  const std::vector<int> mine = usable_processors();
  if (mine.empty()) GTEST_SKIP() << "the affinity mask cannot be read";
  std::thread([&] {
    const std::vector last{mine.back()};
    ASSERT_TRUE(keep_to(pthread_self(), last));
    EXPECT_EQ(usable_processors(), last);
    std::thread([&] { EXPECT_EQ(usable_processors(), last); }).join();
    EXPECT_FALSE(keep_to(pthread_self(), {}));
    EXPECT_FALSE(keep_to(pthread_self(), std::vector{-1}));
    EXPECT_FALSE(keep_to(pthread_self(), std::vector{65000}));
    EXPECT_EQ(usable_processors(), last);
  }).join();
  EXPECT_EQ(usable_processors(), mine);
}

TEST(Numa, PlacingChangesNothingOnAMachineWithOneNode) {
  if (Topology::here().nodes.size() != 1) GTEST_SKIP() << "this machine has several NUMA nodes";
  const Variable pin("MYRIAD_PIN", nullptr), node("MYRIAD_NUMA_NODE", nullptr);
  const std::vector<int> mine = usable_processors();
  for (const std::size_t threads : {std::size_t{1}, usable_cores(), std::size_t{1000}}) {
    EXPECT_TRUE(place_process(threads).has_value());
    EXPECT_EQ(usable_processors(), mine);
  }
}

#if defined(SYS_get_mempolicy)
TEST(Numa, PagesComeFromTheNodesInTurn) {
  std::thread([] {
    unsigned long mask[64] = {};
    int policy = -1;
    constexpr unsigned long kBits = 8 * sizeof mask;
    if (syscall(SYS_get_mempolicy, &policy, mask, kBits, nullptr, 0) != 0)
      GTEST_SKIP() << "the system does not tell memory policies";
    const std::vector nodes{Topology::here().nodes.front().id};
    if (!interleave_memory(nodes)) GTEST_SKIP() << "the system refuses memory policies";
    ASSERT_EQ(syscall(SYS_get_mempolicy, &policy, mask, kBits, nullptr, 0), 0);
    EXPECT_EQ(policy, 3);
    for (std::size_t i = 0; i < kBits; ++i)
      EXPECT_EQ(mask[i / (8 * sizeof *mask)] >> (i % (8 * sizeof *mask)) & 1,
                static_cast<int>(i) == nodes.front() ? 1u : 0u);
    EXPECT_FALSE(interleave_memory({}));
    EXPECT_FALSE(interleave_memory(std::vector{-1}));
  }).join();
}
#endif

}  // namespace
}  // namespace myriad
