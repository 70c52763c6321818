// What the processes that run for long (controller, gateway, node) have in common: they say when they are ready, and
// they end on SIGTERM or SIGINT.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "net/connection.h"

namespace myriad::cli {

// Made before any thread is started, so that the signals wait for wait().
class StopSignal {
 public:
  StopSignal();
  // Blocks until SIGTERM, SIGINT or request().
  void wait();
  // Whether one of them has come, without waiting.
  [[nodiscard]] bool pending() const;
  // From any thread.
  static void request();
};

// Tells whoever started this process by `--ready-fd`; without it (fd < 0) a line on standard output for people.
void report_ready(int fd, const std::string& json, const std::string& sentence);
// Whether this process may listen there now, which is known better before long work than after it. The sentence says
// which option it was. Errors: busy (the port is in use), invalid_argument (no address of this machine), io.
Status check_can_listen(std::string_view option, std::string_view text, const Endpoint& at);
// finish() for a service: an error is told to the starter too, unless he has been told that it is ready (then fd < 0).
int finish_service(const std::string& command, int ready_fd, const Status& status);

}  // namespace myriad::cli
