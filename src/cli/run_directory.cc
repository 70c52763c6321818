#include "cli/run_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "part/file_io.h"

namespace myriad::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kMaxStateBytes = std::size_t{64} << 20;
constexpr const char* kPrivatePrefix = "private-";

std::filesystem::path root_path() {
  if (const char* dir = std::getenv("MYRIAD_RUN_DIR"); dir != nullptr && *dir != '\0') return dir;
  if (const char* dir = std::getenv("XDG_RUNTIME_DIR"); dir != nullptr && *dir != '\0')
    return std::filesystem::path(dir) / "myriad";
  return fmt::format("/tmp/myriad-{}", getuid());
}

// A directory of this user's that nobody else can look into: /tmp is everybody's.
Status make_private(const std::filesystem::path& path) {
  std::error_code ec;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ec);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return fail(Code::io, "creating {}: {}", path.string(), std::strerror(errno));
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != getuid())
    return fail(Code::io, "{} is not a directory of this user's; set MYRIAD_RUN_DIR to one that is", path.string());
  if ((info.st_mode & 077) != 0 && chmod(path.c_str(), 0700) != 0)
    return fail(Code::io, "closing {} to other users: {}", path.string(), std::strerror(errno));
  return {};
}

Status make_empty(const std::filesystem::path& directory) {
  std::error_code ec;
  std::filesystem::remove_all(directory, ec);
  if (ec) return fail(Code::io, "clearing {}: {}", directory.string(), ec.message());
  MYRIAD_TRY_STATUS(make_private(directory));
  std::filesystem::create_directories(directory / "logs", ec);
  if (ec) return fail(Code::io, "creating {}: {}", (directory / "logs").string(), ec.message());
  return {};
}

void remove_dead_private_directories(const std::filesystem::path& root) {
  std::error_code ec;
  std::vector<std::filesystem::path> dead;
  for (const auto& entry : std::filesystem::directory_iterator(root, ec)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrivatePrefix)) continue;
    const auto pid = static_cast<pid_t>(std::strtol(name.c_str() + std::strlen(kPrivatePrefix), nullptr, 10));
    if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) dead.push_back(entry.path());
  }
  for (const auto& path : dead) std::filesystem::remove_all(path, ec);
}

}  // namespace

std::size_t FleetState::running() const {
  return static_cast<std::size_t>(
      std::count_if(processes.begin(), processes.end(), [](const auto& p) { return is_running(p.id); }));
}

Result<std::filesystem::path> fleet_directory(const std::string& fleet) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (fleet.empty() || fleet.size() > 64 || fleet.front() == '.' || fleet.starts_with(kPrivatePrefix) ||
      fleet.find_first_not_of(allowed) != std::string::npos)
    return fail(
        Code::invalid_argument,
        "'{}' cannot be the name of a fleet: it has 1 to 64 letters, digits, '.', '_' or '-' and does not begin "
        "with '.' or '{}'",
        fleet, kPrivatePrefix);
  return root_path() / fleet;
}

Result<FileLock> lock_fleet(const std::string& fleet) {
  MYRIAD_TRY(const std::filesystem::path directory, fleet_directory(fleet));
  MYRIAD_TRY_STATUS(make_private(root_path()));
  auto lock = FileLock::take(root_path() / fmt::format(".{}.lock", fleet));
  if (!lock && lock.error().code == Code::busy)
    return fail(
        Code::busy,
        "the fleet '{}' is being started or ended by another command ({}); wait until that one is done, or give "
        "another --fleet name",
        fleet, lock.error().message);
  return lock;
}

Status check_not_running(const std::string& fleet) {
  if (const auto state = read_state(fleet); state && state->running() != 0)
    return fail(Code::busy,
                "a fleet named '{}' runs already, with {} processes; look at it with `myriad fleet status --fleet {}`, "
                "end it with `myriad fleet down --fleet {}`, or give this one another --fleet name",
                fleet, state->running(), fleet, fleet);
  return {};
}

Result<std::filesystem::path> claim_fleet_directory(const std::string& fleet) {
  MYRIAD_TRY(const std::filesystem::path directory, fleet_directory(fleet));
  MYRIAD_TRY_STATUS(make_private(root_path()));
  MYRIAD_TRY_STATUS(check_not_running(fleet));
  MYRIAD_TRY_STATUS(make_empty(directory));
  return directory;
}

Result<std::filesystem::path> claim_private_directory() {
  const auto root = root_path();
  MYRIAD_TRY_STATUS(make_private(root));
  remove_dead_private_directories(root);
  const auto directory = root / fmt::format("{}{}", kPrivatePrefix, getpid());
  MYRIAD_TRY_STATUS(make_empty(directory));
  return directory;
}

Status write_state(const FleetState& state) {
  Json processes = Json::array();
  for (const auto& p : state.processes)
    processes.push_back({{"role", p.role},
                         {"name", p.name},
                         {"pid", p.id.pid},
                         {"start", p.id.start},
                         {"port", p.port},
                         {"log", p.log.string()}});
  const Json json{{"version", 1},
                  {"fleet", state.fleet},
                  {"model", state.model},
                  {"token_file", state.token_file.string()},
                  {"controller", state.controller},
                  {"url", state.url},
                  {"processes", processes}};
  const std::string text = json.dump(1) + "\n";
  return write_file_atomically(state.directory / kStateName, std::as_bytes(std::span(text)));
}

Result<FleetState> read_state(const std::string& fleet) {
  MYRIAD_TRY(const std::filesystem::path directory, fleet_directory(fleet));
  const auto path = directory / kStateName;
  std::error_code ec;
  if (!std::filesystem::exists(path, ec))
    return fail(Code::unavailable,
                "there is no fleet named '{}' on this machine (no {}); start one with `myriad fleet up`", fleet,
                path.string());
  MYRIAD_TRY(const std::string text, read_small_file(path, kMaxStateBytes));
  const Json json = Json::parse(text, nullptr, false);
  const auto bad = [&](std::string_view what) {
    return fail(Code::corrupt, "{} is damaged ({}); end its processes by hand and delete it", path.string(), what);
  };
  if (!json.is_object()) return bad("it is not a JSON object");
  FleetState state;
  state.directory = directory;
  const auto string_in = [](const Json& object, const char* key) {
    const auto at = object.find(key);
    return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const auto number_in = [](const Json& object, const char* key) -> std::uint64_t {
    const auto at = object.find(key);
    return at != object.end() && at->is_number_unsigned() ? at->get<std::uint64_t>() : 0;
  };
  state.fleet = string_in(json, "fleet");
  state.model = string_in(json, "model");
  state.token_file = string_in(json, "token_file");
  state.controller = string_in(json, "controller");
  state.url = string_in(json, "url");
  const auto processes = json.find("processes");
  if (processes == json.end() || !processes->is_array()) return bad("it lists no processes");
  for (const Json& p : *processes) {
    if (!p.is_object()) return bad("a process is not an object");
    const std::uint64_t pid = number_in(p, "pid");
    if (pid == 0 || pid > std::uint64_t{1} << 30) return bad("a process has no number");
    state.processes.push_back({string_in(p, "role"),
                               string_in(p, "name"),
                               {static_cast<pid_t>(pid), number_in(p, "start")},
                               static_cast<std::uint16_t>(number_in(p, "port")),
                               string_in(p, "log")});
  }
  return state;
}

}  // namespace myriad::cli
