// Which processors this process may run on, how they make up cores and NUMA nodes, and how much of their time it may
// have: read from the files of the operating system.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace myriad {

// The smallest CPU quota, in cores, of the control groups this process is in (v1 and v2, ancestors too); nothing when
// there is none. `proc` and `sys` are where /proc/self and /sys/fs/cgroup are; tests put folders of their own there.
std::optional<double> cgroup_cpu_quota(const std::string& proc, const std::string& sys);

// Logical processors in the affinity mask of the calling thread, ascending; empty where the mask cannot be read.
std::vector<int> usable_processors();

// A list as the system writes it, "0-3,8\n", ascending and without repetitions; an empty text is an empty list. Nothing
// for any other text, or for a number from 65536 up.
std::optional<std::vector<int>> parse_processor_list(std::string_view text);

// How processors make up cores and NUMA nodes. What the system does not tell (containers, small machines) is taken as
// the plainest case: a processor is a core of its own, all cores are one node.
struct Topology {
  struct Node {
    int id = 0;
    std::vector<std::vector<int>> cores;  // the processors of each physical core
    [[nodiscard]] std::vector<int> processors() const;
  };
  std::vector<Node> nodes;  // by id; only those with a processor that was asked for

  // Of the given processors. `sys` is where /sys/devices/system is; tests put a folder of their own there.
  static Topology read(const std::vector<int>& processors, const std::string& sys);
  // Of those that the calling thread may use, on this machine.
  static Topology here();
};

// How many physical cores the given logical processors belong to. `sys` is where /sys/devices/system/cpu is; a
// processor whose topology cannot be read counts as a core.
std::size_t physical_cores(const std::vector<int>& processors, const std::string& sys);

}  // namespace myriad
