#include "cli/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

#include "cli/streams.h"

namespace myriad::cli {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
std::array<struct sigaction, kSignals.size()> before;
std::atomic<int> came = 0;
std::atomic<int> wake_end = -1;  // of the pipe
int wait_end = -1;
static_assert(std::atomic<int>::is_always_lock_free);  // a signal handler uses them

extern "C" void note(int signal) {
  const int error = errno;
  int none = 0;
  if (came.compare_exchange_strong(none, signal)) {
    const char byte = 0;
    [[maybe_unused]] const auto n = write(wake_end, &byte, 1);
  }
  errno = error;
}

}  // namespace

Interrupt::Interrupt() {
  came = 0;
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) ends = {-1, -1};
  wait_end = ends[0];
  wake_end = ends[1];
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &before[i]);
  install();
}
Interrupt::~Interrupt() {
  restore();
  if (wait_end >= 0) close(wait_end);
  if (const int fd = wake_end.exchange(-1); fd >= 0) close(fd);
  wait_end = -1;
}

void Interrupt::install() {
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    if (before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
}
void Interrupt::restore() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before[i], nullptr);
}

int Interrupt::signal() const {
  return came;
}
int Interrupt::fd() const {
  return wait_end;
}
int Interrupt::finish() {
  restore();
  if (came != 0) install();
  return came;
}

int end_by(int signal) {
  flush_out();
  std::signal(signal, SIG_DFL);
  raise(signal);
  return 128 + signal;
}

}  // namespace myriad::cli
