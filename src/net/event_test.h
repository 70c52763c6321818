// For tests: waiting for something that happens on the reactor's thread, with a deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace myriad::test {

inline constexpr std::chrono::seconds kPatience{8};

// What one thread puts, another waits for.
template <class T>
class Mailbox {
 public:
  void put(T value) {
    // Notified under the lock: whoever waits may destroy the mailbox as soon as the value is out.
    const std::lock_guard lock(mutex_);
    values_.push_back(std::move(value));
    filled_.notify_all();
  }
  // Nothing after kPatience.
  std::optional<T> take() {
    std::unique_lock lock(mutex_);
    if (!filled_.wait_for(lock, kPatience, [&] { return !values_.empty(); })) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    return value;
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<T> values_;
};

// Looks again and again, for what cannot be waited for.
template <class F>
bool eventually(F condition) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    never.wait_for(lock, std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace myriad::test
