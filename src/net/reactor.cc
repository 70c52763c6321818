#include "net/reactor.h"

#include <signal.h>

#include <utility>

#include "base/log.h"
#include "net/reactor_impl.h"

namespace myriad {
namespace {

// Sanitizers put red zones and shadow frames on the stack.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = std::size_t{2} << 20;
#else
constexpr std::size_t kStackBytes = std::size_t{256} << 10;
#endif

void run_loop(Core& core) {
  // A peer that is gone is an error code here, not a signal; sendfile has no flag to say so.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  core.loop_thread = std::this_thread::get_id();
  for (;;) {
    try {
      core.context.run();
      break;
    } catch (const std::exception& e) {
      // A bug in a callback, or no memory for it: the loop serves everybody else on.
      log(LogLevel::error, "event=callback_threw what={}", log_value(e.what()));
    }
  }
  core.loop_thread = std::thread::id{};
}

}  // namespace

// One wait. Shared by its handle and the loop, and touched on the loop's thread only.
struct Wait : std::enable_shared_from_this<Wait> {
  Wait(std::shared_ptr<Core> c, std::function<void()> w)
      : core(std::move(c)), timer(core->context), work(std::move(w)) {}

  void start(Nanos at) {
    if (cancelled) return;
    core->open.emplace(this, [this] { timer.cancel(); });
    timer.expires_at(Core::time_point(at));
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      self->core->open.erase(self.get());
      auto due = std::exchange(self->work, nullptr);  // may drop the handle from within
      if (!error && !self->cancelled && !self->core->ended && due) due();
    });
  }
  void cancel() {
    timer.cancel();
    if (core->open.find(this) == core->open.end()) work = nullptr;
  }

  std::shared_ptr<Core> core;
  boost::asio::steady_timer timer;
  std::function<void()> work;
  std::atomic<bool> cancelled{false};
};

struct Reactor::Timer {
  explicit Timer(std::shared_ptr<Wait> w) : wait(std::move(w)) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    wait->cancelled = true;
    wait->core->run_on_loop([w = wait] { w->cancel(); });
  }
  std::shared_ptr<Wait> wait;
};

Reactor::Reactor() : impl_(std::make_unique<Impl>()) {}

Reactor::~Reactor() {
  stop();
  Core& core = *impl_->core;
  if (impl_->started) pthread_join(impl_->thread, nullptr);
  // Everything lets go of its sockets and timers; what their operations still hold is freed by running them out.
  core.ended = true;
  core.loop_thread = std::this_thread::get_id();
  for (auto& entry : std::exchange(core.open, {})) entry.second();
  impl_->work.reset();
  core.context.restart();
  try {
    core.context.run();
  } catch (const std::exception& e) {
    log(LogLevel::error, "event=callback_threw what={}", log_value(e.what()));
  }
  core.loop_thread = std::thread::id{};
}

void Reactor::start() {
  if (impl_->started) return;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  const int failed = pthread_create(
      &impl_->thread, &attributes,
      [](void* core) -> void* {
        run_loop(*static_cast<Core*>(core));
        return nullptr;
      },
      impl_->core.get());
  pthread_attr_destroy(&attributes);
  if (failed != 0) throw std::system_error(failed, std::generic_category(), "starting the thread of the event loop");
  impl_->started = true;
}

void Reactor::run() {
  run_loop(*impl_->core);
}
void Reactor::stop() {
  impl_->core->context.stop();
}
void Reactor::stop_and_join() {
  stop();
  if (std::exchange(impl_->started, false)) pthread_join(impl_->thread, nullptr);
}
void Reactor::post(std::function<void()> work) {
  impl_->core->post(std::move(work));
}
Nanos Reactor::now() const {
  return Core::now();
}
bool Reactor::on_loop_thread() const {
  return impl_->core->on_loop_thread();
}

Reactor::TimerPtr Reactor::after(Nanos delay, std::function<void()> work) {
  auto wait = std::make_shared<Wait>(impl_->core, std::move(work));
  auto timer = std::make_shared<Timer>(wait);
  const Nanos at = Core::now() + bounded_wait(delay);
  if (!impl_->core->ended) impl_->core->run_on_loop([wait, at] { wait->start(at); });
  return timer;
}

}  // namespace myriad
