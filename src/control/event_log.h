// The last things that happened to the fleet, for its status: a ring, so that no amount of trouble fills the memory.
#pragma once

#include <deque>
#include <string>

#include "base/ids.h"
#include "base/log.h"

namespace myriad {

class EventLog {
 public:
  static constexpr std::size_t kMaxEvents = 200;
  static constexpr std::size_t kMaxEventBytes = 1000;
  struct Event {
    Nanos at{};
    LogLevel level = LogLevel::info;
    std::string text;
  };
  void add(Nanos at, LogLevel level, std::string text) {
    if (text.size() > kMaxEventBytes) text.resize(kMaxEventBytes);
    if (events_.size() == kMaxEvents) events_.pop_front();
    events_.push_back({at, level, std::move(text)});
    ++total_;
  }
  [[nodiscard]] const std::deque<Event>& events() const { return events_; }  // oldest first
  [[nodiscard]] std::uint64_t total() const { return total_; }               // ever

 private:
  std::deque<Event> events_;
  std::uint64_t total_ = 0;
};

}  // namespace myriad
