// One thread that does pieces of work in the order in which they were posted. Sleeps when there is none.
#pragma once

#include <functional>
#include <memory>

namespace myriad {

class WorkQueue {
 public:
  explicit WorkQueue(std::size_t stack_bytes = std::size_t{1} << 20);
  ~WorkQueue();  // finishes nothing that has not begun; joins
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  void post(std::function<void()> work);
  // Pieces that wait or run.
  [[nodiscard]] std::size_t depth() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace myriad
