// `myriad node`: one node of a fleet.
#include "node/node.h"

#include <unistd.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/service.h"
#include "control/fleet.h"
#include "net/ports.h"
#include "net/token_file.h"

namespace myriad::cli {
namespace {

Status serve(const NodeCommandOptions& options, StopSignal& stop) {
  NodeOptions node;
  MYRIAD_TRY(node.controller, parse_endpoint(options.join, kControllerPort));
  MYRIAD_TRY(node.token, read_token_file(options.token_file));
  MYRIAD_TRY(PartStore store, PartStore::open(options.store, options.parts));
  node.store = std::make_unique<PartStore>(std::move(store));
  node.id = {options.name};
  if (options.name.empty()) {
    MYRIAD_TRY(node.id, persistent_node_id(*node.store));
  }
  MYRIAD_TRY_STATUS(check_node_id(node.id));
  MYRIAD_TRY(node.listen, parse_endpoint(options.listen, 0));
  node.memory = options.memory;
  node.advertise = options.advertise;
  node.threads = options.threads;
  const std::string id = node.id.value;
  log_configure(log_level_from_environment(LogLevel::warning), "node=" + id);
  MYRIAD_TRY(const std::unique_ptr<Node> running, Node::start(std::move(node), [] { StopSignal::request(); }));
  report_ready(options.ready_fd, fmt::format("{{\"name\": \"{}\", \"port\": {}}}", id, running->port()),
               fmt::format("node {} listens on port {} and joins {}", id, running->port(), options.join));
  stop.wait();
  return {};
}

}  // namespace

int node_command(const NodeCommandOptions& options) {
  StopSignal stop;
  return finish_service("node", options.ready_fd, serve(options, stop));
}

}  // namespace myriad::cli
