// `myriad controller`: keeps track of a fleet's nodes and hands out the parts of one cut model.
#include "controller/controller.h"

#include "base/log.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/fleet_size.h"
#include "cli/model_source.h"
#include "cli/service.h"
#include "net/address_option.h"
#include "net/ports.h"
#include "net/token_file.h"

namespace myriad::cli {
namespace {

Status serve(const ControllerCommandOptions& options, StopSignal& stop) {
  ControllerOptions controller;
  MYRIAD_TRY(controller.listen, parse_listen_option("--listen", options.listen, kControllerPort));
  MYRIAD_TRY_STATUS(check_can_listen("--listen", options.listen, controller.listen));
  MYRIAD_TRY(controller.token, read_token_file(options.token_file));
  MYRIAD_TRY(controller.http_port, parse_port_option("--http-port", options.http_port, kPartServerPort));
  controller.cut_directory = options.cut_directory;
  controller.fleet.profile = options.profile;
  controller.fleet.budget = options.budget;
  if (options.nodes != 0) controller.fleet.expect = options.nodes;
  controller.on_stop = [] { StopSignal::request(); };
  log_configure(log_level_from_environment(LogLevel::warning), "controller");
  if (!std::filesystem::exists(options.cut_directory / kManifestName))
    return fail(Code::not_found,
                "{} is not a cut model: it has no {}. Cut one first: myriad cut MODEL --out DIR --node-memory 256MiB",
                options.cut_directory.string(), kManifestName);
  MYRIAD_TRY(const ModelSource model, ModelSource::open(options.cut_directory));
  warn_of_context("controller", options.budget.context, model.config());
  if (options.cache_memory) {
    MYRIAD_TRY(controller.fleet.budget, with_cache_memory(model.graph(), *model.manifest(), *options.cache_memory,
                                                          options.profile, options.budget));
  }
  Reactor reactor;
  MYRIAD_TRY(const std::unique_ptr<Controller> running, Controller::start(reactor, std::move(controller)));
  reactor.start();
  report_ready(options.ready_fd,
               fmt::format("{{\"port\": {}, \"http_port\": {}}}", running->port(), running->http_port()),
               fmt::format("controller listens on port {}, parts on port {}", running->port(), running->http_port()));
  stop.wait();
  return {};
}

}  // namespace

int controller_command(const ControllerCommandOptions& options) {
  StopSignal stop;
  return finish_service("controller", options.ready_fd, serve(options, stop));
}

}  // namespace myriad::cli
