// `myriad fleet up | status | kill | down`: a fleet of processes on this machine.
#include <errno.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/cut_cache.h"
#include "cli/exit_code.h"
#include "cli/fleet_client.h"
#include "cli/fleet_report.h"
#include "cli/fleet_size.h"
#include "cli/interrupt.h"
#include "cli/local_fleet.h"
#include "cli/model_source.h"
#include "cli/service.h"
#include "cli/streams.h"
#include "kernels/thread_pool.h"
#include "net/address_option.h"
#include "net/ports.h"
#include "net/token_file.h"
#include "plan/placement.h"

namespace myriad::cli {
namespace {

constexpr auto kDownGrace = std::chrono::milliseconds(5000);

Result<std::unique_ptr<FleetClient>> client_of(const FleetState& state) {
  if (state.controller.empty())
    return fail(
        Code::unavailable,
        "its port is not known yet; wait until `myriad fleet up` is done, or, if that was killed, end the fleet "
        "with `myriad fleet down --fleet {}`",
        state.fleet);
  MYRIAD_TRY(Endpoint controller, parse_endpoint(state.controller, kControllerPort));
  MYRIAD_TRY(std::string token, read_token_file(state.token_file));
  return FleetClient::connect_to(std::move(controller), std::move(token));
}

std::string fleet_option(const std::string& fleet) {
  return fleet == "default" ? "" : " --fleet " + fleet;
}

Status show_ready(const LocalFleet& running, const LocalFleetOptions& fleet, double seconds) {
  MYRIAD_TRY(const std::string status, running.status());
  MYRIAD_TRY(const std::string account, account_of_status(status));
  const FleetState& state = running.state();
  const std::string suffix = fleet_option(fleet.fleet);
  print_out("{}\nfleet '{}' is ready after {:.1f} s: {} on {} node{} of {}\n", account, fleet.fleet, seconds,
            state.model, fleet.nodes, fleet.nodes == 1 ? "" : "s", human(fleet.node_memory));
  const std::string key = fleet.api_key_file.empty()
                              ? std::string()
                              : fmt::format(" -H \"Authorization: Bearer $(cat '{}')\"", fleet.api_key_file.string());
  if (!state.url.empty())
    print_out(
        "API at {}/v1. Try:\n"
        "  curl -N {}/v1/completions{} -H 'Content-Type: application/json' \\\n"
        "       -d '{{\"model\": \"{}\", \"prompt\": \"In the beginning\", \"max_tokens\": 32, \"stream\": true}}'\n",
        state.url, state.url, key, state.model);
  const char* const myriad = program_invocation_name;  // as it was typed
  print_out("  {0} fleet status{1}\n  {0} fleet kill n0{1}\n  {0} fleet down{1}\nlogs in {2}\n", myriad, suffix,
            (state.directory / "logs").string());
  flush_out();
  return {};
}

// `signal`: which one broke it off, 0 if none did.
Status up(FleetUpOptions options, int& signal) {
  MYRIAD_TRY([[maybe_unused]] const FileLock lock, lock_fleet(options.fleet));
  MYRIAD_TRY_STATUS(check_not_running(options.fleet));
  MYRIAD_TRY_STATUS(check_budget(options.budget));
  MYRIAD_TRY(const Endpoint http, parse_listen_option("--http", options.http, kGatewayHttpPort));
  MYRIAD_TRY_STATUS(check_can_listen("--http", options.http, http));
  WantedCut wanted;
  wanted.model = options.engine.model;
  {
    MYRIAD_TRY(const ModelSource model, ModelSource::open(options.engine.model));
    MYRIAD_TRY_STATUS(check_window(model.config(), options.budget.context));
    wanted.name = options.name.empty() ? model.name() : options.name;
    if (model.manifest() != nullptr && wanted.name != model.name())
      return fail(
          Code::invalid_argument,
          "{} was cut under the name '{}'; --name is for what is cut here: GGUF files and Hugging Face directories",
          options.engine.model.string(), model.name());
    wanted.options.target_bytes = shared_target_bytes(model.graph(), options.engine.nodes, options.engine.node_memory);
    if (options.cache_memory) {
      const Manifest planned = model.manifest() != nullptr
                                   ? *model.manifest()
                                   : planned_manifest(model.graph(), wanted.options, wanted.name);
      MYRIAD_TRY(options.budget, with_cache_memory(model.graph(), planned, *options.cache_memory,
                                                   options.engine.profile, options.budget));
    }
    MYRIAD_TRY_STATUS(check_fit(model.graph(), model.manifest(), wanted.options, options.engine.nodes,
                                options.engine.node_memory, options.engine.profile, options.budget));
    warn_of_context("fleet up", options.budget.context, model.config());
    const auto tokenizer = model.tokenizer();
    if (!tokenizer) return std::unexpected(tokenizer.error());
  }
  LocalFleetOptions fleet;
  MYRIAD_TRY(fleet.cut_directory, cached_cut(wanted));
  fleet.cut_directory = std::filesystem::absolute(fleet.cut_directory);
  fleet.fleet = options.fleet;
  fleet.nodes = options.engine.nodes;
  fleet.node_memory = options.engine.node_memory;
  fleet.profile = options.engine.profile;
  fleet.budget = options.budget;
  fleet.threads = options.engine.threads != 0
                      ? options.engine.threads
                      : std::max<std::uint32_t>(1, static_cast<std::uint32_t>(usable_cores()) / options.engine.nodes);
  fleet.local_parts = options.local_parts;
  fleet.http = options.http;
  fleet.api_key_file = options.api_key_file;
  const auto began = std::chrono::steady_clock::now();
  print_err("starting {} nodes of {} …\n", fleet.nodes, human(fleet.node_memory));
  Interrupt interrupt;
  fleet.interrupt = &interrupt;
  const auto running = LocalFleet::start(fleet);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const Status shown = running ? show_ready(**running, fleet, seconds) : std::unexpected(running.error());
  signal = interrupt.finish();
  if (signal == 0) return shown;
  if (running) (*running)->stop();
  return fail(Code::cancelled, "{} came while the fleet '{}' was started; every process of it that ran was ended",
              fmt::format("signal {} ({})", signal, strsignal(signal)), options.fleet);
}

std::string process_lines(const FleetState& state) {
  std::string out;
  for (const auto& p : state.processes)
    if (!is_running(p.id))
      out += fmt::format("{} (process {}) has ended; its log is {}\n", p.name, p.id.pid, p.log.string());
  return out;
}

Status status(const NamedFleetOptions& options) {
  MYRIAD_TRY(const FleetState state, read_state(options.fleet));
  if (state.running() == 0)
    return fail(Code::unavailable,
                "the fleet '{}' is not running any more: none of its {} processes is; logs are in {}", options.fleet,
                state.processes.size(), (state.directory / "logs").string());
  auto client = client_of(state);
  if (!client)
    return std::unexpected(std::move(client).error().within(
        fmt::format("{} of {} processes of the fleet '{}' run, but its controller cannot be asked", state.running(),
                    state.processes.size(), options.fleet)));
  MYRIAD_TRY(const std::string json, (*client)->status());
  if (!options.json) {
    MYRIAD_TRY(const std::string text, status_text(json));
    if (!state.url.empty()) print_out("API {}/v1\n", state.url);
    print_out("{}{}", text, process_lines(state));
    return {};
  }
  auto all = nlohmann::ordered_json::parse(json, nullptr, false);
  if (!all.is_object()) return fail(Code::corrupt, "the controller's status is not JSON");
  all["fleet"] = options.fleet;
  all["controller"] = state.controller;
  all["url"] = state.url;
  all["processes"] = nlohmann::ordered_json::array();
  for (const auto& p : state.processes)
    all["processes"].push_back({{"role", p.role},
                                {"name", p.name},
                                {"pid", p.id.pid},
                                {"running", is_running(p.id)},
                                {"port", p.port},
                                {"log", p.log.string()}});
  print_out("{}\n", all.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  return {};
}

// At once, as a power cut would: nothing is said to anybody.
Status kill_node(const NamedFleetOptions& options) {
  MYRIAD_TRY(const FleetState state, read_state(options.fleet));
  const auto at = std::find_if(state.processes.begin(), state.processes.end(),
                               [&](const auto& p) { return p.name == options.node; });
  if (at == state.processes.end()) {
    std::string names;
    for (const auto& p : state.processes) names += (names.empty() ? "" : ", ") + p.name;
    return fail(Code::unavailable, "the fleet '{}' has no process named {}; it has {}", options.fleet, options.node,
                names);
  }
  if (!kill_now(at->id)) return fail(Code::unavailable, "{} (process {}) has ended already", options.node, at->id.pid);
  print_out("{} (process {}) was killed\n", options.node, at->id.pid);
  return {};
}

Status down(const NamedFleetOptions& options) {
  MYRIAD_TRY([[maybe_unused]] const FileLock lock, lock_fleet(options.fleet));
  MYRIAD_TRY(const FleetState state, read_state(options.fleet));
  const std::size_t running = state.running();
  if (running != 0)
    if (auto client = client_of(state)) (void)(*client)->shutdown();  // the signals below end whoever does not hear it
  std::vector<ProcessId> ids;
  for (const auto& p : state.processes) ids.push_back(p.id);
  stop_all(ids, kDownGrace);
  if (state.running() != 0)
    return fail(Code::busy, "{} processes of the fleet '{}' could not be ended", state.running(), options.fleet);
  std::error_code ec;
  std::filesystem::remove_all(state.directory, ec);
  print_out("fleet '{}' is down; {} processes ended\n", options.fleet, running);
  return {};
}

}  // namespace

int fleet_up_command(const FleetUpOptions& options) {
  int signal = 0;
  const int code = finish("fleet up", up(options, signal));
  return signal == 0 ? code : end_by(signal);
}
int fleet_status_command(const NamedFleetOptions& options) {
  return finish("fleet status", status(options));
}
int fleet_kill_command(const NamedFleetOptions& options) {
  return finish("fleet kill", kill_node(options));
}
int fleet_down_command(const NamedFleetOptions& options) {
  return finish("fleet down", down(options));
}

}  // namespace myriad::cli
