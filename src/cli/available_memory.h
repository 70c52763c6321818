// How much memory this process can take now.
#pragma once

#include <cstdint>
#include <string>

namespace myriad::cli {

// The least of what the system says is available, the limits of the control groups that this process is in, and its own
// limits (ulimit -v, ulimit -d); the largest number where nothing says. `proc` and `sys` are where /proc and
// /sys/fs/cgroup are; tests put folders of their own there.
std::uint64_t available_memory(const std::string& proc = "/proc", const std::string& sys = "/sys/fs/cgroup");

}  // namespace myriad::cli
