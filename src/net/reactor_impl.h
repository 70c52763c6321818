// Private to net/*.cc: what the reactor and everything that has a socket on it share.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "net/reactor.h"

namespace myriad {

inline constexpr std::size_t kScratchBytes = std::size_t{128} << 10;

// Outlives the Reactor for as long as a connection that somebody still holds needs its socket's services.
struct Core {
  boost::asio::io_context context{1};
  std::atomic<std::thread::id> loop_thread{};
  std::atomic<bool> ended{false};  // the reactor is being destroyed: no work of its users runs any more
  // Loop thread only: what is read from a socket passes through here, so that an idle connection needs no buffer of its
  // own.
  std::vector<std::byte> scratch = std::vector<std::byte>(kScratchBytes);
  // Loop thread only: how everything that has an operation under way lets go of it when the reactor ends.
  std::unordered_map<const void*, std::function<void()>> open;

  [[nodiscard]] bool on_loop_thread() const { return loop_thread.load() == std::this_thread::get_id(); }

  template <class F>
  void post(F work) {
    if (ended) return;
    boost::asio::post(context, [this, work = std::move(work)]() mutable {
      if (!ended) work();
    });
  }
  // At once when on the loop's thread already.
  template <class F>
  void run_on_loop(F work) {
    if (on_loop_thread()) {
      work();
    } else {
      post(std::move(work));
    }
  }
  [[nodiscard]] static Nanos now() { return std::chrono::steady_clock::now().time_since_epoch(); }
  [[nodiscard]] static std::chrono::steady_clock::time_point time_point(Nanos at) {
    return std::chrono::steady_clock::time_point(std::chrono::duration_cast<std::chrono::steady_clock::duration>(at));
  }
};

struct Reactor::Impl {
  std::shared_ptr<Core> core = std::make_shared<Core>();
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{core->context.get_executor()};
  pthread_t thread{};
  bool started = false;
};

// A wait that is never longer than what a steady clock can add to its present time.
inline Nanos bounded_wait(Nanos wait) {
  return std::clamp<Nanos>(wait, Nanos{0}, std::chrono::hours(24 * 365));
}

}  // namespace myriad
