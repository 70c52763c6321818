// How much processor time this process may have, read from the files of the operating system.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace myriad {

// The smallest CPU quota, in cores, of the control groups this process is in (v1 and v2, ancestors too); nothing when
// there is none. `proc` and `sys` are where /proc/self and /sys/fs/cgroup are; tests put folders of their own there.
std::optional<double> cgroup_cpu_quota(const std::string& proc, const std::string& sys);

// How many physical cores the given logical processors belong to. `sys` is where /sys/devices/system/cpu is; a
// processor whose topology cannot be read counts as a core.
std::size_t physical_cores(const std::vector<int>& processors, const std::string& sys);

}  // namespace myriad
