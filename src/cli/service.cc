#include "cli/service.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "cli/exit_code.h"
#include "cli/streams.h"
#include "model/json_text.h"

namespace myriad::cli {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

void tell(int fd, std::string line) {
  line += '\n';
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t n = write(fd, rest.data(), rest.size());
    if (n <= 0) break;  // whoever wanted to know has gone
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  close(fd);
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}
void StopSignal::wait() {
  const sigset_t set = stop_signals();
  int which = 0;
  sigwait(&set, &which);
}
bool StopSignal::pending() const {
  sigset_t waiting;
  sigemptyset(&waiting);
  sigpending(&waiting);
  return sigismember(&waiting, SIGTERM) == 1 || sigismember(&waiting, SIGINT) == 1;
}
void StopSignal::request() {
  kill(getpid(), SIGTERM);
}

void report_ready(int fd, const std::string& json, const std::string& sentence) {
  if (fd >= 0) return tell(fd, json);
  print_out("{}\n", sentence);
  flush_out();
}

Status check_can_listen(std::string_view option, std::string_view text, const Endpoint& at) {
  Reactor reactor;
  auto open = Listener::open(reactor, at, "-----------------", Hello{Role::tool, {"probe"}, 1}, {}, {});
  if (open) return {};
  return std::unexpected(std::move(open).error().within(fmt::format("{} {}", option, text)));
}

int finish_service(const std::string& command, int ready_fd, const Status& status) {
  if (!status && ready_fd >= 0)
    tell(ready_fd, fmt::format("{{\"error\": {}, \"code\": {}}}", json_quoted(status.error().to_string()),
                               static_cast<int>(status.error().code)));
  return finish(command, status);
}

}  // namespace myriad::cli
