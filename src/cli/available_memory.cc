#include "cli/available_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace myriad::cli {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
constexpr int kMaxDepth = 64;

// The number that a file begins with; no limit for "max" and for a file that is not there.
std::uint64_t limit_in(const std::string& file) {
  std::ifstream in(file);
  std::uint64_t bytes = 0;
  return in >> bytes ? bytes : kNoLimit;
}

std::uint64_t system_available(const std::string& proc) {
  std::ifstream in(proc + "/meminfo");
  for (std::string name, unit; in >> name;) {
    std::uint64_t kib = 0;
    if (name == "MemAvailable:" && in >> kib) return kib * 1024;
    std::getline(in, unit);
  }
  return kNoLimit;
}

// Lines are hierarchy:controllers:/path; a group's limit holds for those inside it.
std::uint64_t cgroup_limit(const std::string& proc, const std::string& sys) {
  std::uint64_t least = kNoLimit;
  std::ifstream in(proc + "/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",memory,") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    // Inside a container the path may be that of the host: the mounted root is looked at in any case.
    for (int depth = 0; depth < kMaxDepth; ++depth) {
      while (path.ends_with('/')) path.pop_back();
      if (v2)
        least =
            std::min({least, limit_in(sys + path + "/memory.max"), limit_in(sys + "/unified" + path + "/memory.max")});
      else
        least = std::min(least, limit_in(sys + "/memory" + path + "/memory.limit_in_bytes"));
      if (path.empty()) break;
      const std::size_t slash = path.find_last_of('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return least;
}

std::uint64_t own_limit(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return kNoLimit;
  return limit.rlim_cur;
}

}  // namespace

std::uint64_t available_memory(const std::string& proc, const std::string& sys) {
  return std::min({system_available(proc), cgroup_limit(proc, sys), own_limit(RLIMIT_AS), own_limit(RLIMIT_DATA)});
}

}  // namespace myriad::cli
