// A lazily started coroutine that another one can await. It owns no thread: whoever resumes it runs it. Destroying a
// Task destroys what it was in the middle of, so an abandoned step leaves nothing behind.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace myriad {

class [[nodiscard]] Task {
 public:
  struct promise_type {
    std::coroutine_handle<> continuation = std::noop_coroutine();
    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
        return h.promise().continuation;
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }  // exceptions are bugs here
  };

  explicit Task(std::coroutine_handle<promise_type> h) : handle_(h) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  [[nodiscard]] bool done() const { return handle_.done(); }
  void start() { handle_.resume(); }

  // Awaiting starts it and resumes the awaiting coroutine when it is done.
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
    handle_.promise().continuation = awaiting;
    return handle_;
  }
  void await_resume() const noexcept {}

 private:
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace myriad
