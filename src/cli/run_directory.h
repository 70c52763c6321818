// Where the processes of a fleet on this machine are written down, so that `fleet status`, `kill` and `down` find them.
//
//   ROOT       $MYRIAD_RUN_DIR, else $XDG_RUNTIME_DIR/myriad, else /tmp/myriad-UID; mode 0700
//   ROOT/NAME  state.json, token (0600), logs/, nodes/
//   ROOT/.NAME.lock  while NAME is started or ended
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/process_group.h"
#include "part/file_lock.h"

namespace myriad::cli {

inline constexpr const char* kStateName = "state.json";

struct FleetProcess {
  std::string role;  // "controller", "gateway", "node"
  std::string name;  // a node's id, else the role
  ProcessId id;
  std::uint16_t port = 0;
  std::filesystem::path log;
};

struct FleetState {
  std::string fleet, model;
  std::filesystem::path directory, token_file;
  std::string controller;  // host:port
  std::string url;         // of the API, empty if there is no gateway
  std::vector<FleetProcess> processes;
  [[nodiscard]] std::size_t running() const;
};

// Errors: io, invalid_argument (a name that is no file name).
Result<std::filesystem::path> fleet_directory(const std::string& fleet);
// Held while a fleet is started or ended, until its state is written or gone. Errors: busy, if another process does
// either; io.
Result<FileLock> lock_fleet(const std::string& fleet);
// Errors: busy, if a fleet of this name runs; what it says names the commands that help.
Status check_not_running(const std::string& fleet);
// Makes ROOT/NAME empty, for whoever holds its lock. Errors: those of check_not_running(), io.
Result<std::filesystem::path> claim_fleet_directory(const std::string& fleet);
// The same for a fleet that ends with this process; what earlier ones left behind is removed.
Result<std::filesystem::path> claim_private_directory();

Status write_state(const FleetState& state);
// Errors: not_found, if there is no such fleet; corrupt.
Result<FleetState> read_state(const std::string& fleet);

}  // namespace myriad::cli
