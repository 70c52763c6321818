#include "kernels/cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "kernels/thread_pool.h"

namespace myriad {

namespace {

constexpr std::size_t kMaxProcessors = 1 << 16;
constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxListBytes = 1 << 16;
constexpr std::size_t kMaxNumaNodes = 1024;

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

// A file that holds a list of processors.
std::optional<std::vector<int>> read_list(const std::string& file) {
  std::ifstream in(file);
  if (!in) return std::nullopt;
  std::string text(kMaxListBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() == kMaxListBytes) return std::nullopt;
  return parse_processor_list(text);
}

// What tells a core from others: the first of its siblings, else package and core, else the processor itself. The first
// member keeps the three apart.
using CoreName = std::tuple<int, long, long>;

CoreName core_of(int processor, const std::string& sys) {
  const std::string topology = sys + "/cpu" + std::to_string(processor) + "/topology/";
  const auto siblings = read_list(topology + "thread_siblings_list");
  if (siblings && std::ranges::binary_search(*siblings, processor)) return {0, siblings->front(), 0};
  std::ifstream package_file(topology + "physical_package_id"), core_file(topology + "core_id");
  long package = 0, core = 0;
  // a core of -1 is one that the system does not know; a package of -1 is the only one of many ARM machines
  if (package_file >> package && core_file >> core && core >= 0) return {1, package, core};
  return {2, processor, 0};
}

// Numbers of the nodes that the folder lists, ascending.
std::vector<int> numa_nodes(const std::string& folder) {
  std::vector<int> all;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("node")) continue;
    int id = 0;
    const auto [rest, wrong] = std::from_chars(name.data() + 4, name.data() + name.size(), id);
    if (wrong != std::errc() || rest != name.data() + name.size()) continue;
    if (id >= 0 && static_cast<std::size_t>(id) < kMaxNumaNodes) all.push_back(id);
  }
  std::ranges::sort(all);
  return all;
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

std::optional<std::vector<int>> parse_processor_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::set<int> all;
  const auto number = [&text]() -> std::optional<int> {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0 || static_cast<std::size_t>(value) >= kMaxProcessors) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
  };
  while (!text.empty()) {
    const auto first = number();
    auto last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = number();
    }
    if (!first || !last || *last < *first) return std::nullopt;
    for (int i = *first; i <= *last; ++i) all.insert(i);
    if (text.empty()) break;
    if (!text.starts_with(',') || text.size() == 1) return std::nullopt;
    text.remove_prefix(1);
  }
  return std::vector<int>(all.begin(), all.end());
}

std::vector<int> Topology::Node::processors() const {
  std::vector<int> all;
  for (const auto& core : cores) all.insert(all.end(), core.begin(), core.end());
  std::ranges::sort(all);
  return all;
}

Topology Topology::read(const std::vector<int>& processors, const std::string& sys) {
  std::map<int, std::vector<int>> nodes;  // processors by node
  std::set<int> left(processors.begin(), processors.end());
  for (const int id : numa_nodes(sys + "/node")) {
    const auto list = read_list(sys + "/node/node" + std::to_string(id) + "/cpulist");
    if (!list) continue;
    for (const int processor : *list)
      if (left.erase(processor) != 0) nodes[id].push_back(processor);
  }
  // those that no node claims
  if (!left.empty()) {
    auto& first = nodes.empty() ? nodes[0] : nodes.begin()->second;
    first.insert(first.end(), left.begin(), left.end());
    std::ranges::sort(first);
  }
  Topology topology;
  for (const auto& [id, members] : nodes) {
    std::map<CoreName, std::size_t> known;
    Node node{id, {}};
    for (const int processor : members) {
      const auto [at, fresh] = known.try_emplace(core_of(processor, sys + "/cpu"), node.cores.size());
      if (fresh) node.cores.emplace_back();
      node.cores[at->second].push_back(processor);
    }
    topology.nodes.push_back(std::move(node));
  }
  return topology;
}

Topology Topology::here() {
  return read(usable_processors(), "/sys/devices/system");
}

std::size_t physical_cores(const std::vector<int>& processors, const std::string& sys) {
  std::set<CoreName> cores;
  for (const int processor : processors) cores.insert(core_of(processor, sys));
  return cores.size();
}

std::vector<int> usable_processors() {
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
  return processors;
}

std::size_t usable_cores() {
  std::size_t cores = physical_cores(usable_processors(), "/sys/devices/system/cpu");
  if (const auto quota = cgroup_cpu_quota("/proc/self", "/sys/fs/cgroup"))
    cores = std::min(cores, static_cast<std::size_t>(std::ceil(std::min(*quota, static_cast<double>(kMaxProcessors)))));
  return std::max<std::size_t>(cores, 1);
}

}  // namespace myriad
