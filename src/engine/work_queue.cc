#include "engine/work_queue.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>

#include "base/log.h"

namespace myriad {

struct WorkQueue::Impl {
  mutable std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> work;
  bool stop = false, running = false;
  pthread_t thread{};

  void loop() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stop || !work.empty(); });
      if (stop) return;
      auto piece = std::move(work.front());
      work.pop_front();
      running = true;
      lock.unlock();
      try {
        piece();
      } catch (const std::exception& e) {  // memory that is not there, above all; what the piece held answers for
                                           // itself when it is destroyed
        log(LogLevel::error, "event=work_threw what={}", log_value(e.what()));
      }
      piece = nullptr;
      lock.lock();
      running = false;
    }
  }
};

WorkQueue::WorkQueue(std::size_t stack_bytes) : impl_(std::make_unique<Impl>()) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  const int error = pthread_create(
      &impl_->thread, &attributes,
      [](void* self) -> void* {
        static_cast<Impl*>(self)->loop();
        return nullptr;
      },
      impl_.get());
  pthread_attr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "starting a thread");
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->wake.notify_all();
  pthread_join(impl_->thread, nullptr);
}

void WorkQueue::post(std::function<void()> work) {
  const std::lock_guard lock(impl_->mutex);
  impl_->work.push_back(std::move(work));
  impl_->wake.notify_one();  // with the lock: whoever sees the work done may destroy this object
}

std::size_t WorkQueue::depth() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->work.size() + (impl_->running ? 1 : 0);
}

}  // namespace myriad
