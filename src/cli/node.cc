// `myriad node`: one node of a fleet.
#include "node/node.h"

#include <unistd.h>

#include <mutex>
#include <utility>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/service.h"
#include "control/fleet.h"
#include "net/address_option.h"
#include "net/ports.h"
#include "net/token_file.h"

namespace myriad::cli {
namespace {

// `ready_fd` becomes -1 when it has been told.
Status serve(const NodeCommandOptions& options, StopSignal& stop, int& ready_fd) {
  NodeOptions node;
  MYRIAD_TRY(node.controller, parse_join_option("--join", options.join, kControllerPort));
  MYRIAD_TRY(node.listen, parse_listen_option("--listen", options.listen, 0));
  MYRIAD_TRY_STATUS(check_can_listen("--listen", options.listen, node.listen));
  MYRIAD_TRY(node.advertise, parse_host_option("--advertise", options.advertise));
  MYRIAD_TRY(node.token, read_token_file(options.token_file));
  MYRIAD_TRY(PartStore store, PartStore::open(options.store, options.parts));
  node.store = std::make_unique<PartStore>(std::move(store));
  node.id = {options.name};
  if (options.name.empty()) {
    MYRIAD_TRY(node.id, persistent_node_id(*node.store));
  }
  MYRIAD_TRY_STATUS(check_node_id(node.id));
  node.memory = options.memory;
  node.threads = options.threads;
  const std::string id = node.id.value;
  log_configure(log_level_from_environment(LogLevel::warning), "node=" + id);
  std::mutex mutex;
  Status ended;
  MYRIAD_TRY(const std::unique_ptr<Node> running, Node::start(std::move(node), [&](Status why) {
               {
                 const std::lock_guard lock(mutex);
                 ended = std::move(why);
               }
               StopSignal::request();
             }));
  report_ready(std::exchange(ready_fd, -1), fmt::format("{{\"name\": \"{}\", \"port\": {}}}", id, running->port()),
               fmt::format("node {} listens on port {} and joins {}", id, running->port(), options.join));
  stop.wait();
  const std::lock_guard lock(mutex);
  return ended;
}

}  // namespace

int node_command(const NodeCommandOptions& options) {
  StopSignal stop;
  int ready_fd = options.ready_fd;
  const Status status = serve(options, stop, ready_fd);
  return finish_service("node", ready_fd, status);
}

}  // namespace myriad::cli
