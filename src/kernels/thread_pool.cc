#include "kernels/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "kernels/numa.h"

namespace myriad {

namespace {

constexpr std::size_t kStackBytes = 256 * 1024;
constexpr std::size_t kRangesPerThread =
    4;  // so that a thread that is late, or never gets a core, leaves its share to others
using Clock = std::chrono::steady_clock;
// How long a thread looks for work, or for the others to be done, before it sleeps: longer than the gap between two
// products of one step, shorter than anybody would notice in an idle process.
constexpr auto kSpin = std::chrono::microseconds(100);
// A look that takes so long was interrupted by somebody else's work on this core: spinning then takes from those that
// have work, so for a while nobody does.
constexpr auto kInterrupted = std::chrono::microseconds(500);
constexpr auto kNoSpinFor = std::chrono::milliseconds(100);
constexpr int kPausesPerLook = 16;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

// A call is published as a ticket: its generation in the upper half, the ranges nobody has taken yet in the lower half.
// A thread takes a range by counting the lower half down; a thread that is late finds another generation or nothing
// left and goes back to sleep, so the caller waits only for ranges that were really taken, never for a thread to wake
// up. All other fields of a call are written before its ticket and stay as they are until its last range is done.
struct ThreadPool::Impl {
  std::vector<pthread_t> workers;
  std::atomic<std::uint64_t> ticket = 0;
  std::atomic<std::uint32_t> generation = 0;  // workers sleep on it
  std::atomic<std::uint32_t> done = 0;        // ranges finished; the caller sleeps on it
  std::atomic<bool> stop = false;
  std::atomic<bool> busy = false;
  std::atomic<Clock::rep> spin_again = 0;  // no thread spins before this time

  const std::function<void(std::size_t, std::size_t)>* body = nullptr;
  std::size_t count = 0;
  std::size_t range = 0;
  std::uint32_t ranges = 0;

  // Works on ranges of the call `g` until none is left.
  void work(std::uint32_t g) {
    for (std::uint64_t seen = ticket.load(std::memory_order_acquire);;) {
      const auto left = static_cast<std::uint32_t>(seen);
      if (seen >> 32 != g || left == 0) return;
      if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      const std::uint32_t all = ranges;
      const std::size_t begin = static_cast<std::size_t>(all - left) * range;
      (*body)(begin, std::min(count, begin + range));
      // Nothing of the call may be touched after this: the caller may already be on its way to the next one.
      if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == all) done.notify_one();
      seen = ticket.load(std::memory_order_acquire);
    }
  }

  // Until `ready` says so or spinning is no use any more.
  template <class Ready>
  void spin(Ready ready) {
    const auto begin = Clock::now();
    if (begin.time_since_epoch().count() < spin_again.load(std::memory_order_relaxed)) return;
    for (auto last = begin;;) {
      for (int i = 0; i < kPausesPerLook; ++i) {
        if (ready()) return;
        pause_briefly();
      }
      const auto now = Clock::now();
      if (now - last > kInterrupted)
        spin_again.store((now + kNoSpinFor).time_since_epoch().count(), std::memory_order_relaxed);
      if (now - begin > kSpin || now - last > kInterrupted) return;
      last = now;
    }
  }

  void wait_until_done() {
    spin([&] { return done.load(std::memory_order_acquire) == ranges; });
    for (;;) {
      const std::uint32_t now = done.load(std::memory_order_acquire);
      if (now == ranges) return;
      done.wait(now, std::memory_order_acquire);
    }
  }

  static void* run(void* self) {
    auto& pool = *static_cast<Impl*>(self);
    for (std::uint32_t g = 0;;) {
      pool.spin([&] { return pool.generation.load(std::memory_order_acquire) != g; });
      pool.generation.wait(g, std::memory_order_acquire);
      if (pool.stop.load(std::memory_order_acquire)) return nullptr;
      g = pool.generation.load(std::memory_order_acquire);
      pool.work(g);
    }
  }
};

ThreadPool::ThreadPool(std::size_t threads) : impl_(std::make_unique<Impl>()) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  std::vector<std::vector<int>> homes;
  if (threads > 1 && numa_enabled()) homes = homes_of_workers(Topology::here(), threads);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  for (std::size_t i = 1; i < threads; ++i) {
    pthread_t worker;
    // A machine that has no room for one more thread runs with those it has.
    if (pthread_create(&worker, &attributes, &Impl::run, impl_.get()) != 0) break;
    if (!homes.empty()) keep_to(worker, homes[i - 1]);
    impl_->workers.push_back(worker);
  }
  pthread_attr_destroy(&attributes);
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_release);
  impl_->generation.fetch_add(1, std::memory_order_release);
  impl_->generation.notify_all();
  for (const pthread_t worker : impl_->workers) pthread_join(worker, nullptr);
}

std::size_t ThreadPool::threads() const {
  return impl_->workers.size() + 1;
}

void ThreadPool::parallel(std::size_t count, std::size_t grain,
                          const std::function<void(std::size_t, std::size_t)>& body) {
  if (count == 0) return;
  grain = std::max<std::size_t>(grain, 1);
  Impl& pool = *impl_;
  // A call from within a call is done by its caller alone.
  if (count <= grain || pool.workers.empty() || pool.busy.exchange(true, std::memory_order_acquire)) {
    body(0, count);
    return;
  }
  // ranges are whole grains, about kRangesPerThread for each thread
  const std::size_t grains = (count + grain - 1) / grain;
  const std::size_t wanted = std::min(grains, threads() * kRangesPerThread);
  pool.range = (grains + wanted - 1) / wanted * grain;
  pool.ranges = static_cast<std::uint32_t>((count + pool.range - 1) / pool.range);
  pool.count = count;
  pool.body = &body;
  pool.done.store(0, std::memory_order_relaxed);
  const std::uint32_t g = pool.generation.load(std::memory_order_relaxed) + 1;
  pool.ticket.store(static_cast<std::uint64_t>(g) << 32 | pool.ranges, std::memory_order_release);
  pool.generation.store(g, std::memory_order_release);
  if (pool.ranges > pool.workers.size()) {
    pool.generation.notify_all();
  } else {
    for (std::uint32_t i = 1; i < pool.ranges; ++i) pool.generation.notify_one();
  }
  pool.work(g);
  pool.wait_until_done();
  pool.busy.store(false, std::memory_order_release);
}

}  // namespace myriad
