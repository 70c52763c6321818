// A fleet of processes on this machine: a controller, nodes with a memory limit each, and perhaps a gateway.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "cli/interrupt.h"
#include "cli/run_directory.h"
#include "model/graph.h"
#include "proto/messages.h"

namespace myriad::cli {

struct LocalFleetOptions {
  std::filesystem::path cut_directory;
  std::string fleet;  // whose lock the caller holds (lock_fleet); empty: a private fleet, which ends with this process
  std::uint32_t nodes = 1;
  Bytes node_memory;
  Profile profile = Profile::fast;
  Budget budget;
  std::uint32_t threads = 1;  // of each node
  bool local_parts = false;   // nodes read the cut directory instead of fetching parts from the controller
  std::string http;           // host:port of the gateway; empty: none
  std::filesystem::path api_key_file;
  std::chrono::seconds patience{300};    // until everything is loaded
  const Interrupt* interrupt = nullptr;  // breaks the start off; not owned
};

class LocalFleet {
 public:
  // Blocks until every node has loaded its parts (and the gateway answers). A named fleet's processes are in its state
  // before they run: should this process be killed, `fleet down` finds all of them. On failure nothing is left behind
  // but the logs of a named fleet. Errors: does_not_fit, busy, unavailable, deadline, and those of the processes;
  // cancelled, by options.interrupt, which leaves nothing behind.
  static Result<std::unique_ptr<LocalFleet>> start(const LocalFleetOptions& options);
  // A private fleet ends; a named one goes on.
  ~LocalFleet();

  [[nodiscard]] const FleetState& state() const { return state_; }
  [[nodiscard]] const std::string& token() const { return token_; }
  // Fleet::status_json, now.
  [[nodiscard]] Result<std::string> status() const;
  // Ends all processes and removes the directory.
  void stop();

 private:
  LocalFleet() = default;
  Status launch(const LocalFleetOptions& options);
  Status start_process(std::string role, std::string name, std::vector<std::string> arguments, Bytes limit,
                       bool daemon);
  Status collect_ready(SteadyTime deadline);
  Status wait_loaded(const LocalFleetOptions& options, SteadyTime deadline);

  [[nodiscard]] bool interrupted() const { return interrupt_ != nullptr && interrupt_->signal() != 0; }
  [[nodiscard]] int interrupt_fd() const { return interrupt_ != nullptr ? interrupt_->fd() : -1; }

  bool private_ = true;
  const Interrupt* interrupt_ = nullptr;  // while it is started
  FleetState state_;
  std::string token_;
  std::vector<Child> children_;  // as state_.processes
};

}  // namespace myriad::cli
