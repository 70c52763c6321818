// Where threads and memory of a process lie on a machine with several NUMA nodes (sockets, mostly): memory of another
// node is slower and its road is shared. On a machine with one node nothing here does anything.
//
// A process whose threads fit into the cores of one node keeps to one: its threads by their affinity mask, its memory
// because the system takes a page from the node of the thread that touches it first. A process with more threads uses
// all nodes: workers are spread over them, and pages are taken from the nodes in turn, since every thread reads all
// weights and they would otherwise all lie with the loader's thread.
//
// No thread is tied to a core, nor to a node of which the process has only one: docs/architecture.md has what that was
// measured to cost. MYRIAD_PIN=0 turns all this off.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kernels/cores.h"

namespace myriad {

struct NumaPlacement {
  std::vector<int> processors;  // to keep to; empty: no others than before
  std::vector<int> interleave;  // nodes that pages come from in turn; empty: from the node of who touches them first
};

// For a process of that many threads. `wish` is MYRIAD_NUMA_NODE: empty or "auto" (the node of `processor`, on which
// the caller runs, if the threads fit there; else the node with the most cores, if they fit there; else all), "none"
// (as the system likes) or the number of a node. Errors: invalid_argument.
Result<NumaPlacement> choose_numa(const Topology& topology, std::size_t threads, std::string_view wish, int processor);

// Wishes for the processes of one machine, of that many threads each, so that all nodes have the same share of them:
// the number of a node, or "none" for one that fits in no node beside the others though the machine has the cores.
// Empty when there is nothing to say: one node, or no node has room for such a process.
std::vector<std::string> numa_wishes(const Topology& topology, std::size_t processes, std::size_t threads);

// For each worker of a pool of that many threads (the caller is the first and has none) the processors of its node.
// Empty when they fit into one node; an element is empty where a node has just one core, to which nobody is tied.
std::vector<std::vector<int>> homes_of_workers(const Topology& topology, std::size_t threads);

// MYRIAD_PIN is not 0, and MYRIAD_NUMA_NODE is not none.
bool numa_enabled();

// Takes the calling thread, and those that it starts from now on, to where MYRIAD_NUMA_NODE says: call it before
// threads are started and weights are loaded. What the system refuses is left as it was. Errors: invalid_argument.
Status place_process(std::size_t threads);

// False when the system refuses.
bool keep_to(pthread_t thread, std::span<const int> processors);
// From now on, for the calling thread and those that it starts. False when the system refuses.
bool interleave_memory(std::span<const int> nodes);

}  // namespace myriad
