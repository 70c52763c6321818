#include "gateway/small_thread.h"

#include <cstring>

namespace myriad {

Status SmallThread::start(const char* name, std::size_t stack_bytes, std::function<void()> work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  auto argument = std::make_unique<std::function<void()>>(std::move(work));
  const int error = pthread_create(
      &thread_, &attributes,
      [](void* p) -> void* {
        const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(p));
        (*body)();
        return nullptr;
      },
      argument.get());
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    return fail(Code::io, "starting the thread {} with a stack of {} bytes: {}", name, stack_bytes,
                std::strerror(error));
  }
  argument.release();  // the thread owns it now
  pthread_setname_np(thread_, name);
  running_ = true;
  return {};
}

void SmallThread::join() {
  if (!running_) return;
  pthread_join(thread_, nullptr);
  running_ = false;
}

}  // namespace myriad
