// The event loop of a process: sockets and timers on one thread that sleeps while nothing happens.
#pragma once

#include <functional>
#include <memory>

#include "base/ids.h"

namespace myriad {

class Reactor {
 public:
  Reactor();
  ~Reactor();  // stops and joins
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  void start();  // runs the loop on a thread of its own (256 KiB stack)
  void run();    // or on the calling thread, until stop()
  void stop();   // thread-safe
  // Stops, and waits until no callback runs any more. Not from the loop's own thread.
  void stop_and_join();
  // Thread-safe: `work` runs on the loop's thread.
  void post(std::function<void()> work);
  // Runs `work` on the loop's thread after `delay`; the handle cancels it when destroyed or reset.
  struct Timer;
  using TimerPtr = std::shared_ptr<Timer>;
  [[nodiscard]] TimerPtr after(Nanos delay, std::function<void()> work);
  [[nodiscard]] Nanos now() const;  // monotonic
  [[nodiscard]] bool on_loop_thread() const;

  struct Impl;
  Impl& impl() { return *impl_; }  // the Asio context, for net/*.cc (net/reactor_impl.h)

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace myriad
