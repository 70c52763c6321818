// A small pool for splitting one operation over cores. Idle threads sleep; the caller works too.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace myriad {

class ThreadPool {
 public:
  // `threads` counts the calling thread: 1 starts none. Stacks are 256 KiB so that they do not eat a small node's
  // budget. Workers of a pool that needs the cores of several NUMA nodes are spread over them (kernels/numa.h).
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] std::size_t threads() const;
  // Calls body(begin, end) on disjoint ranges that cover [0, count); returns when all are done. Ranges are never
  // smaller than `grain` (but for the last); with count <= grain the caller does it alone. One call at a time. Which
  // thread does what never changes a result. body must not throw.
  void parallel(std::size_t count, std::size_t grain, const std::function<void(std::size_t, std::size_t)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Physical cores this process may run on (affinity mask and cgroup CPU quota considered), at least 1.
std::size_t usable_cores();

}  // namespace myriad
