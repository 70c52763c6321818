#include "kernels/numa.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

namespace myriad {

namespace {

constexpr int kInterleave = 3;  // MPOL_INTERLEAVE of linux/mempolicy.h, which not every build machine has

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool left_to_us(std::string_view wish) {
  return wish.empty() || wish == "auto";
}

std::size_t most_cores(const Topology& topology) {
  std::size_t most = 0;
  for (const auto& node : topology.nodes) most = std::max(most, node.cores.size());
  return most;
}

// Whether a process of that many threads can be kept to the node. To keep it to one core would tie its threads to that.
bool has_room(const Topology::Node& node, std::size_t threads) {
  return node.cores.size() >= std::max<std::size_t>(threads, 2);
}

// The node, of those that `suits` holds for, that is least used after it takes `threads` more; the first of equals.
// used[i] counts threads of node i.
template <class Suits>
std::optional<std::size_t> least_used(const Topology& topology, const std::vector<std::size_t>& used,
                                      std::size_t threads, Suits suits) {
  const auto after = [&](std::size_t i) { return used[i] + threads; };
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    if (!suits(i)) continue;
    if (!best || after(i) * topology.nodes[*best].cores.size() < after(*best) * topology.nodes[i].cores.size())
      best = i;
  }
  return best;
}

}  // namespace

Result<NumaPlacement> choose_numa(const Topology& topology, std::size_t threads, std::string_view wish, int processor) {
  NumaPlacement placement;
  if (wish == "none") return placement;
  if (!left_to_us(wish)) {
    int id = -1;
    const auto [end, error] = std::from_chars(wish.data(), wish.data() + wish.size(), id);
    const bool number = error == std::errc() && end == wish.data() + wish.size();
    const auto node = std::ranges::find(topology.nodes, id, &Topology::Node::id);
    if (!number || node == topology.nodes.end()) {
      std::string known;
      for (const auto& one : topology.nodes) known += fmt::format("{}, ", one.id);
      return fail(Code::invalid_argument,
                  "placing the process: MYRIAD_NUMA_NODE is \"{}\", expected a NUMA node whose processors this process "
                  "may use ({}auto or none); unset it to leave the choice to the program",
                  wish.substr(0, 64), known);
    }
    if (topology.nodes.size() > 1) placement.processors = node->processors();
    return placement;
  }
  if (topology.nodes.size() < 2) return placement;
  const Topology::Node* chosen = nullptr;
  for (const auto& node : topology.nodes) {
    if (!has_room(node, threads)) continue;
    if (std::ranges::binary_search(node.processors(), processor)) {
      chosen = &node;
      break;
    }
    if (chosen == nullptr || node.cores.size() > chosen->cores.size()) chosen = &node;
  }
  if (chosen != nullptr) {
    placement.processors = chosen->processors();
  } else if (most_cores(topology) < threads) {
    for (const auto& node : topology.nodes) placement.interleave.push_back(node.id);
  }
  return placement;
}

std::vector<std::string> numa_wishes(const Topology& topology, std::size_t processes, std::size_t threads) {
  const auto roomy = [&](const Topology::Node& node) { return has_room(node, threads); };
  if (topology.nodes.size() < 2 || threads == 0 || std::ranges::none_of(topology.nodes, roomy)) return {};
  std::size_t cores = 0;
  for (const auto& node : topology.nodes) cores += node.cores.size();
  // with more threads than cores every node has too many anyway
  const bool enough = processes <= cores / threads;
  std::vector<std::size_t> used(topology.nodes.size(), 0);
  std::vector<std::string> wishes;
  for (std::size_t i = 0; i < processes; ++i) {
    const auto node = least_used(topology, used, threads, [&](std::size_t n) {
      return roomy(topology.nodes[n]) && (!enough || used[n] + threads <= topology.nodes[n].cores.size());
    });
    if (node) used[*node] += threads;
    wishes.push_back(node ? std::to_string(topology.nodes[*node].id) : "none");
  }
  return wishes;
}

std::vector<std::vector<int>> homes_of_workers(const Topology& topology, std::size_t threads) {
  if (topology.nodes.size() < 2 || most_cores(topology) >= threads) return {};
  std::vector<std::size_t> used(topology.nodes.size(), 0);
  std::vector<std::vector<int>> homes;
  for (std::size_t i = 0; i < threads; ++i) {
    const std::size_t node = least_used(topology, used, 1, [](std::size_t) { return true; }).value_or(0);
    ++used[node];
    if (i == 0) continue;  // the caller's share, wherever it runs
    homes.push_back(topology.nodes[node].cores.size() > 1 ? topology.nodes[node].processors() : std::vector<int>());
  }
  return homes;
}

bool numa_enabled() {
  return environment("MYRIAD_PIN") != "0" && environment("MYRIAD_NUMA_NODE") != "none";
}

Status place_process(std::size_t threads) {
  if (!numa_enabled()) return {};
  MYRIAD_TRY(const NumaPlacement placement,
             choose_numa(Topology::here(), threads, environment("MYRIAD_NUMA_NODE"), sched_getcpu()));
  if (!placement.processors.empty()) keep_to(pthread_self(), placement.processors);
  if (!placement.interleave.empty()) interleave_memory(placement.interleave);
  return {};
}

bool keep_to(pthread_t thread, std::span<const int> processors) {
  if (processors.empty()) return false;
  const auto [least, most] = std::ranges::minmax(processors);
  if (least < 0) return false;
  const std::size_t room = static_cast<std::size_t>(most) + 1;
  cpu_set_t* mask = CPU_ALLOC(room);
  if (mask == nullptr) return false;
  const std::size_t bytes = CPU_ALLOC_SIZE(room);
  CPU_ZERO_S(bytes, mask);
  for (const int processor : processors) CPU_SET_S(static_cast<std::size_t>(processor), bytes, mask);
  const bool done = pthread_setaffinity_np(thread, bytes, mask) == 0;
  CPU_FREE(mask);
  return done;
}

bool interleave_memory(std::span<const int> nodes) {
#if defined(SYS_set_mempolicy)
  constexpr int kBits = static_cast<int>(8 * sizeof(unsigned long));
  std::vector<unsigned long> mask;
  for (const int node : nodes) {
    if (node < 0) return false;
    const auto word = static_cast<std::size_t>(node / kBits);
    if (word >= mask.size()) mask.resize(word + 1, 0);
    mask[word] |= 1UL << (node % kBits);
  }
  // the system reads one bit fewer than it is told
  return !mask.empty() &&
         syscall(SYS_set_mempolicy, kInterleave, mask.data(), mask.size() * static_cast<std::size_t>(kBits) + 1) == 0;
#else
  (void)nodes;
  return false;
#endif
}

}  // namespace myriad
