#include "kernels/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "kernels/thread_pool.h"

namespace myriad {

namespace {

constexpr std::size_t kMaxProcessors = 1 << 16;
constexpr int kMaxDepth = 64;

// "max 100000" or "50000 100000"
std::optional<double> quota_v2(const std::string& file) {
  std::ifstream in(file);
  double quota = 0, period = 0;
  if (in >> quota >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

std::optional<double> quota_v1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

// Whether the comma-separated list of controllers holds "cpu".
bool has_cpu(const std::string& controllers) {
  std::istringstream in(controllers);
  for (std::string one; std::getline(in, one, ',');)
    if (one == "cpu") return true;
  return false;
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const std::string& proc, const std::string& sys) {
  std::optional<double> least;
  const auto take = [&least](std::optional<double> quota) {
    if (quota && (!least || *quota < *least)) least = quota;
  };
  std::ifstream in(proc + "/cgroup");
  for (std::string line; std::getline(in, line);) {  // hierarchy:controllers:/path
    const std::size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && !has_cpu(controllers)) continue;
    std::string path = line.substr(second + 1);
    // inside a container the path may be that of the host: the mounted root is looked at in any case
    for (int depth = 0; depth < kMaxDepth; ++depth) {
      while (path.ends_with('/')) path.pop_back();
      if (v2) {
        take(quota_v2(sys + path + "/cpu.max"));
        take(quota_v2(sys + "/unified" + path + "/cpu.max"));
      } else {
        take(quota_v1(sys + "/" + controllers + path));
        if (controllers != "cpu") take(quota_v1(sys + "/cpu" + path));
      }
      if (path.empty()) break;
      path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
    }
  }
  return least;
}

std::size_t physical_cores(const std::vector<int>& processors, const std::string& sys) {
  std::set<std::pair<long, long>> cores;
  std::size_t unknown = 0;
  for (const int processor : processors) {
    const std::string topology = sys + "/cpu" + std::to_string(processor) + "/topology/";
    std::ifstream package_file(topology + "physical_package_id"), core_file(topology + "core_id");
    long package = 0, core = 0;
    if (package_file >> package && core_file >> core) {
      cores.emplace(package, core);
    } else {
      ++unknown;
    }
  }
  return cores.size() + unknown;
}

std::size_t usable_cores() {
  std::vector<int> processors;
  for (std::size_t room = 1024; room <= kMaxProcessors; room *= 2) {  // the kernel refuses a mask smaller than its own
    cpu_set_t* mask = CPU_ALLOC(room);
    if (mask == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(room);
    CPU_ZERO_S(bytes, mask);
    const bool known = sched_getaffinity(0, bytes, mask) == 0;
    if (known)
      for (std::size_t i = 0; i < room; ++i)
        if (CPU_ISSET_S(i, bytes, mask)) processors.push_back(static_cast<int>(i));
    CPU_FREE(mask);
    if (known) break;
  }
  std::size_t cores = physical_cores(processors, "/sys/devices/system/cpu");
  if (const auto quota = cgroup_cpu_quota("/proc/self", "/sys/fs/cgroup"))
    cores = std::min(cores, static_cast<std::size_t>(std::ceil(std::min(*quota, static_cast<double>(kMaxProcessors)))));
  return std::max<std::size_t>(cores, 1);
}

}  // namespace myriad
