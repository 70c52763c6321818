#include "cli/local_fleet.h"

#include <poll.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/fleet_client.h"
#include "kernels/numa.h"
#include "net/ports.h"
#include "net/reactor.h"
#include "net/token_file.h"

namespace myriad::cli {
namespace {

constexpr auto kStopGrace = std::chrono::milliseconds(3000);
constexpr auto kStartLimit = std::chrono::seconds(60);   // of one process until it says that it is ready
constexpr auto kRefusedLimit = std::chrono::seconds(3);  // all nodes are there and still the plan fails
constexpr auto kLook = std::chrono::milliseconds(50);

std::uint16_t number(const nlohmann::json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number_unsigned()
             ? object[key].get<std::uint16_t>()
             : std::uint16_t{0};
}

// A wish for the processes that are started while this lives, unless the user has one (kernels/numa.h). Nothing else in
// this process reads the environment then.
class NumaWish {
 public:
  explicit NumaWish(const std::string& wish) : ours_(std::getenv(kName) == nullptr) {
    if (ours_) setenv(kName, wish.c_str(), 1);
  }
  ~NumaWish() {
    if (ours_) unsetenv(kName);
  }
  NumaWish(const NumaWish&) = delete;
  NumaWish& operator=(const NumaWish&) = delete;

 private:
  static constexpr const char* kName = "MYRIAD_NUMA_NODE";
  const bool ours_;
};

}  // namespace

Result<std::unique_ptr<LocalFleet>> LocalFleet::start(const LocalFleetOptions& options) {
  auto fleet = std::unique_ptr<LocalFleet>(new LocalFleet());
  fleet->private_ = options.fleet.empty();
  if (fleet->private_) {
    MYRIAD_TRY(fleet->state_.directory, claim_private_directory());
  } else {
    MYRIAD_TRY(fleet->state_.directory, claim_fleet_directory(options.fleet));
  }
  fleet->interrupt_ = options.interrupt;
  auto launched = fleet->launch(options);
  if (launched && fleet->interrupted()) launched = fail(Code::cancelled, "interrupted");
  fleet->interrupt_ = nullptr;
  if (launched) return fleet;
  std::vector<ProcessId> ids;
  for (const auto& child : fleet->children_) ids.push_back(child.id);
  stop_all(ids, kStopGrace);
  std::error_code ec;
  if (fleet->private_ || launched.error().code == Code::cancelled)
    std::filesystem::remove_all(fleet->state_.directory, ec);
  else
    std::filesystem::remove(fleet->state_.directory / kStateName, ec);  // the logs stay
  fleet->children_.clear();
  fleet->state_.processes.clear();
  return std::unexpected(std::move(launched).error());
}

LocalFleet::~LocalFleet() {
  if (private_ && !children_.empty()) stop();
}

void LocalFleet::stop() {
  std::vector<ProcessId> ids;
  for (const auto& process : state_.processes) ids.push_back(process.id);
  stop_all(ids, kStopGrace);
  children_.clear();
  state_.processes.clear();
  std::error_code ec;
  std::filesystem::remove_all(state_.directory, ec);
}

Status LocalFleet::start_process(std::string role, std::string name, std::vector<std::string> arguments, Bytes limit,
                                 bool daemon) {
  if (interrupted()) return fail(Code::cancelled, "interrupted before {} was started", name);
  ChildOptions child;
  child.arguments = std::move(arguments);
  child.log = state_.directory / "logs" / (name + ".log");
  child.data_limit = limit;
  child.dies_with_parent = !daemon;
  const auto record = [&](const ProcessId& id) -> Status {
    state_.processes.push_back({role, name, id, 0, child.log});
    return daemon ? write_state(state_) : Status{};
  };
  if (daemon) child.record = record;
  MYRIAD_TRY(Child started, spawn(child));
  if (!daemon) MYRIAD_TRY_STATUS(record(started.id));
  children_.push_back(std::move(started));
  return {};
}

// Reads the ready lines that have not been read yet.
Status LocalFleet::collect_ready(SteadyTime deadline) {
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if (children_[i].ready < 0) continue;
    auto line = wait_ready(children_[i], deadline, interrupt_fd());
    if (!line)
      return std::unexpected(std::move(line).error().within(fmt::format("starting {}", state_.processes[i].name)));
    const auto json = nlohmann::json::parse(*line, nullptr, false);
    state_.processes[i].port = number(json, "port");
    if (json.contains("url") && json["url"].is_string()) state_.url = json["url"].get<std::string>();
  }
  return {};
}

Status LocalFleet::launch(const LocalFleetOptions& options) {
  const bool daemon = !private_;
  state_.fleet = options.fleet;
  state_.token_file = state_.directory / "token";
  MYRIAD_TRY(token_, create_token_file(state_.token_file));
  const std::string token_file = state_.token_file.string();
  const auto soon = [] { return std::chrono::steady_clock::now() + kStartLimit; };

  MYRIAD_TRY_STATUS(start_process("controller", "controller",
                                  {"controller",        options.cut_directory.string(),
                                   "--listen",          "127.0.0.1:0",
                                   "--http-port",       "0",
                                   "--token-file",      token_file,
                                   "--nodes",           std::to_string(options.nodes),
                                   "--profile",         std::string(profile_name(options.profile)),
                                   "--context",         std::to_string(options.budget.context),
                                   "--sequences",       std::to_string(options.budget.sequences),
                                   "--step-rows",       std::to_string(options.budget.step_rows),
                                   "--cache-positions", std::to_string(options.budget.positions),
                                   "--prefixes",        std::to_string(options.budget.prefixes),
                                   "--cache-type",      std::string(kv_cache_name(options.budget.cache)),
                                   "--draft-tokens",    std::to_string(options.budget.drafts)},
                                  Bytes{0}, daemon));
  MYRIAD_TRY_STATUS(collect_ready(soon()));
  state_.controller = fmt::format("127.0.0.1:{}", state_.processes.front().port);
  if (daemon) MYRIAD_TRY_STATUS(write_state(state_));
  const auto wishes = numa_wishes(Topology::here(), options.nodes, options.threads);
  for (std::uint32_t i = 0; i < options.nodes; ++i) {
    const std::string name = fmt::format("n{}", i);
    std::vector<std::string> arguments{"node",
                                       "--join",
                                       state_.controller,
                                       "--token-file",
                                       token_file,
                                       "--memory",
                                       std::to_string(options.node_memory.value),
                                       "--store",
                                       (state_.directory / "nodes" / name).string(),
                                       "--name",
                                       name,
                                       "--threads",
                                       std::to_string(options.threads),
                                       "--listen",
                                       "127.0.0.1:0"};
    if (options.local_parts) {
      arguments.emplace_back("--parts");
      arguments.push_back(options.cut_directory.string());
    }
    std::optional<NumaWish> wish;
    if (!wishes.empty()) wish.emplace(wishes[i]);
    MYRIAD_TRY_STATUS(start_process("node", name, std::move(arguments), options.node_memory, daemon));
  }
  MYRIAD_TRY_STATUS(collect_ready(soon()));
  if (daemon) MYRIAD_TRY_STATUS(write_state(state_));
  MYRIAD_TRY_STATUS(wait_loaded(options, std::chrono::steady_clock::now() + options.patience));
  if (!options.http.empty()) {
    std::vector<std::string> arguments{"gateway",  "--join", state_.controller, "--token-file",
                                       token_file, "--http", options.http};
    if (!options.api_key_file.empty()) {
      arguments.emplace_back("--api-key-file");
      arguments.push_back(options.api_key_file.string());
    }
    MYRIAD_TRY_STATUS(start_process("gateway", "gateway", std::move(arguments), Bytes{0}, daemon));
    MYRIAD_TRY_STATUS(collect_ready(soon()));
  }
  return daemon ? write_state(state_) : Status{};
}

Result<std::string> LocalFleet::status() const {
  MYRIAD_TRY(Endpoint controller, parse_endpoint(state_.controller, kControllerPort));
  MYRIAD_TRY(const std::unique_ptr<FleetClient> client, FleetClient::connect_to(std::move(controller), token_));
  return client->status();
}

// Asks the controller until everything is loaded, and looks after the processes meanwhile.
Status LocalFleet::wait_loaded(const LocalFleetOptions& options, SteadyTime deadline) {
  MYRIAD_TRY(Endpoint controller, parse_endpoint(state_.controller, kControllerPort));
  MYRIAD_TRY(const std::unique_ptr<FleetClient> client, FleetClient::connect_to(std::move(controller), token_));
  SteadyTime all_there{};
  for (;;) {
    MYRIAD_TRY(const std::string text, client->status());
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("state") || !json.contains("nodes"))
      return fail(Code::corrupt, "the controller's status is not what was expected");
    const auto state = json["state"].get<std::string>();
    const auto reason = json.value("reason", std::string());
    if (json.contains("model") && json["model"].is_string()) state_.model = json["model"].get<std::string>();
    if (state == "ready") return {};
    for (std::size_t i = 0; i < children_.size(); ++i)
      if (const int status = exit_status(children_[i]); status != -1)
        return fail(Code::unavailable, "{} ended ({} {}) while the fleet was loading; its log ends with:\n{}",
                    state_.processes[i].name, status > 128 ? "signal" : "exit code",
                    status > 128 ? status - 128 : status, tail_of(state_.processes[i].log, 600));
    if (interrupted()) return fail(Code::cancelled, "interrupted while the fleet was {}", state);
    const auto now = std::chrono::steady_clock::now();
    if (state == "waiting" && json["nodes"].size() >= options.nodes && !reason.empty()) {
      if (all_there == SteadyTime{}) all_there = now;
      if (now - all_there > kRefusedLimit) return fail(Code::does_not_fit, "{}", reason);
    } else {
      all_there = {};
    }
    if (now > deadline)
      return fail(Code::deadline, "the fleet is still {} after {} s: {}", state, options.patience.count(), reason);
    pollfd p{interrupt_fd(), POLLIN, 0};
    poll(&p, 1, static_cast<int>(kLook.count()));  // between two questions
  }
}

}  // namespace myriad::cli
