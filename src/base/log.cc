#include "base/log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <utility>

namespace myriad {
namespace {

struct Logger {
  std::atomic<LogLevel> level{LogLevel::warning};
  std::mutex mutex;
  std::string who;
  std::time_t second = 0;
  int lines = 0;
  long dropped = 0;
};

Logger& logger() {
  static Logger instance;
  return instance;
}

constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};

}  // namespace

void log_configure(LogLevel level, std::string who) {
  auto& l = logger();
  const std::lock_guard lock(l.mutex);
  l.level = level;
  l.who = std::move(who);
}

LogLevel log_level_from_environment(LogLevel otherwise) {
  const char* text = std::getenv("MYRIAD_LOG");
  for (int i = 0; text != nullptr && i < 5; ++i)
    if (kNames[i] == text) return static_cast<LogLevel>(i);
  return otherwise;
}

bool log_enabled(LogLevel level) {
  return level >= logger().level.load(std::memory_order_relaxed) && level != LogLevel::off;
}

void log_write(LogLevel level, std::string_view text) {
  auto& l = logger();
  const auto now = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const auto second = static_cast<std::time_t>(ms / 1000);
  const std::lock_guard lock(l.mutex);
  if (second != l.second) {
    l.second = second;
    l.lines = 0;
  }
  if (++l.lines > kLogLinesPerSecond) {
    ++l.dropped;
    return;
  }
  std::tm tm{};
  gmtime_r(&second, &tm);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
  std::string line = fmt::format("{}.{:03}Z {}", stamp, ms % 1000, kNames[static_cast<int>(level)]);
  if (!l.who.empty()) line += " " + l.who;
  line += " ";
  line += text;
  if (l.dropped > 0) line += fmt::format(" log_lines_dropped={}", std::exchange(l.dropped, 0));
  line += "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string log_value(std::string_view value) {
  bool plain = !value.empty();
  for (const char c : value) plain = plain && static_cast<unsigned char>(c) > ' ' && c != '"' && c != '=' && c != 127;
  if (plain) return std::string(value);
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 32 || c == 127)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + "\"";
}

}  // namespace myriad
