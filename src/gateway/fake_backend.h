// For tests: a backend that says what it is told to, at a pace, from a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/generation.h"

namespace myriad {

class FakeBackend final : public GenerationBackend {
 public:
  using Clock = std::chrono::steady_clock;
  // The tokens of an answer; from a request, so that a seed or a prompt can make a difference.
  using Script = std::function<std::vector<std::int32_t>(const GenerationRequest&)>;

  explicit FakeBackend(Script script) : script_(std::move(script)), thread_([this] { run(); }) {}
  ~FakeBackend() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // --- to be set before requests come ---
  ModelInfo model{"tiny-k3", 512, 64, 64, 0};
  std::chrono::microseconds pace{0};  // between two tokens of one generation
  std::size_t room = 64;              // generations at once; beyond it start() is busy
  std::size_t fail_after = SIZE_MAX;  // tokens, then the generation fails
  std::size_t hang_after = SIZE_MAX;  // tokens, then nothing more happens until it is cancelled
  std::uint32_t kept_tokens = 0;      // of each prompt
  std::atomic<bool> is_ready{true};

  Result<std::uint64_t> start(GenerationRequest request, OnEvent on_event) override {
    const std::lock_guard lock(mutex_);
    if (!is_ready) return fail(Code::unavailable, "the fleet is not ready: node n7 is missing");
    if (active_.size() >= room) return fail(Code::busy, "the queue of {} requests is full", room);
    const std::uint64_t id = next_++;
    requests_.push_back(request);
    std::vector<std::int32_t> tokens = script_(request);
    const bool length = tokens.size() >= request.max_tokens;
    if (length) tokens.resize(request.max_tokens);
    active_.emplace(
        id, Generation{std::move(request), std::move(on_event), std::move(tokens), 0, length, false, Clock::now()});
    changed_.notify_all();
    return id;
  }
  void cancel(std::uint64_t generation) override {
    const std::lock_guard lock(mutex_);
    if (const auto g = active_.find(generation); g != active_.end()) g->second.cancelled = true;
    ++cancels_;
    changed_.notify_all();
  }
  ModelInfo info() const override { return model; }
  Status ready() const override {
    if (is_ready) return {};
    return fail(Code::unavailable, "node n7 is missing");
  }

  // Waits until `condition` holds of this object, which is locked meanwhile.
  template <class Condition>
  bool wait(Condition condition, std::chrono::seconds limit = std::chrono::seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return condition(*this); });
  }
  // Inside wait()'s condition:
  std::size_t active() const { return active_.size(); }
  std::size_t finished_by_cancel = 0;
  // Outside of it:
  std::vector<GenerationRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  std::size_t cancels() const {
    const std::lock_guard lock(mutex_);
    return cancels_;
  }

 private:
  struct Generation {
    GenerationRequest request;
    OnEvent on_event;
    std::vector<std::int32_t> tokens;
    std::size_t said = 0;
    bool length = false;
    bool cancelled = false;
    Clock::time_point next;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      Clock::time_point wake = Clock::now() + std::chrono::hours(1);
      bool worked = false;
      for (auto at = active_.begin(); at != active_.end();) {
        Generation& g = at->second;
        std::vector<GenerationEvent> events;
        bool over = false;
        const auto counts = [this, &g](FinishReason reason) {
          return FinishedEvent{reason, static_cast<std::uint32_t>(g.request.prompt.size()),
                               static_cast<std::uint32_t>(g.said), kept_tokens};
        };
        if (g.cancelled) {
          events.emplace_back(counts(FinishReason::cancelled));
          ++finished_by_cancel;
          over = true;
        } else if (g.said >= hang_after) {
          ++at;
          continue;
        } else if (g.next > Clock::now()) {
          wake = std::min(wake, g.next);
          ++at;
          continue;
        } else if (g.said >= fail_after) {
          events.emplace_back(
              FailedEvent{Error{Code::unavailable, "the last replica of L003.expert.0007 was lost", "n3", {}}});
          over = true;
        } else if (g.said == g.tokens.size()) {
          events.emplace_back(counts(g.length ? FinishReason::length : FinishReason::stop));
          over = true;
        } else {
          Sample s;
          s.token = g.tokens[g.said++];
          s.logprob = -0.5F;
          for (std::uint8_t i = 0; i < g.request.sample.top_logprobs; ++i)
            s.top.push_back({i == 0 ? s.token : i, -0.5F - static_cast<float>(i)});
          events.emplace_back(TokenEvent{std::move(s), kept_tokens});
          g.next += pace;
        }
        worked = true;
        const OnEvent say = g.on_event;
        at = over ? active_.erase(at) : std::next(at);
        // Events are said without the lock: whoever hears them may call back. Generations that are started or ended
        // meanwhile do not move the iterator's element, as only this thread erases.
        lock.unlock();
        for (const auto& e : events) say(e);
        lock.lock();
        changed_.notify_all();
      }
      if (!worked && !stopping_) changed_.wait_until(lock, wake);
    }
  }

  Script script_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Generation> active_;
  std::vector<GenerationRequest> requests_;
  std::size_t cancels_ = 0;
  std::uint64_t next_ = 1;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace myriad
