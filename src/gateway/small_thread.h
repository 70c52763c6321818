// A thread whose stack is as large as its work needs: a default stack (8 MiB) counts against a node's address space.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "base/error.h"

namespace myriad {

class SmallThread {
 public:
  SmallThread() = default;
  ~SmallThread() { join(); }
  SmallThread(const SmallThread&) = delete;
  SmallThread& operator=(const SmallThread&) = delete;

  // Starts `work`; `name` (at most 15 characters) is what `ps -L` shows. Errors: io.
  Status start(const char* name, std::size_t stack_bytes, std::function<void()> work);
  void join();

 private:
  pthread_t thread_{};
  bool running_ = false;
};

}  // namespace myriad
