#include "cli/cut_cache.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/sha256.h"
#include "cli/exit_code.h"
#include "cli/model_source.h"
#include "cli/process_group.h"
#include "part/file_io.h"

namespace myriad::cli {
namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
constexpr std::size_t kFingerprintDigits = 24;

Result<std::filesystem::path> cache_root() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto dir = variable("MYRIAD_CACHE_DIR"); !dir.empty()) return dir;
  if (const auto dir = variable("XDG_CACHE_HOME"); !dir.empty()) return dir / "myriad";
  if (const auto dir = variable("HOME"); !dir.empty()) return dir / ".cache" / "myriad";
  return fail(Code::io, "there is no place for cut models: set MYRIAD_CACHE_DIR (or HOME)");
}

Result<std::string> fingerprint(const std::filesystem::path& model) {
  std::error_code ec;
  const bool is_file = std::filesystem::is_regular_file(model, ec);  // GGUF: with all of its parts, which lie beside it
  std::string text;
  if (!is_file) {
    MYRIAD_TRY(text, read_small_file(model / "config.json", kMaxConfigBytes));
  }
  const std::string series = model.filename().string().substr(0, model.filename().string().rfind("-0"));
  std::vector<std::string> lines;
  for (const auto& entry : std::filesystem::directory_iterator(is_file ? model.parent_path() / "." : model, ec)) {
    if (is_file && !entry.path().filename().string().starts_with(series)) continue;
    const auto size = entry.file_size(ec);
    if (ec) continue;  // directories
    const auto time = entry.last_write_time(ec).time_since_epoch().count();
    lines.push_back(fmt::format("{} {} {}\n", entry.path().filename().string(), size, time));
  }
  std::sort(lines.begin(), lines.end());
  for (const auto& line : lines) text += line;
  return to_hex(sha256(std::as_bytes(std::span(text)))).substr(0, kFingerprintDigits);
}

}  // namespace

std::uint64_t shared_target_bytes(const Graph& graph, std::size_t nodes, Bytes node_memory) {
  return std::bit_floor(target_part_bytes(graph, nodes, node_memory));
}

Result<std::filesystem::path> cached_cut(const WantedCut& wanted) {
  if (is_cut_directory(wanted.model)) return wanted.model;
  MYRIAD_TRY(const std::filesystem::path root, cache_root());
  MYRIAD_TRY(const std::string print, fingerprint(wanted.model));
  const std::string options = wanted.options.random_seed != 0 ? fmt::format("seed{}", wanted.options.random_seed)
                                                              : fmt::format("{}", wanted.options.target_bytes);
  std::string name_key = wanted.name;  // it stands in the manifest
  name_key = to_hex(sha256(std::as_bytes(std::span(name_key)))).substr(0, 8);
  const auto out = root / "cuts" / fmt::format("{}-{}-{}", print, options, name_key);
  if (is_cut_directory(out)) return out;
  std::error_code ec;
  std::filesystem::create_directories(out, ec);
  if (ec) return fail(Code::io, "creating {}: {}", out.string(), ec.message());
  ChildOptions cutter;
  cutter.arguments = {"cut",    wanted.model.string(), "--out",        out.string(),
                      "--name", wanted.name,           "--part-bytes", std::to_string(wanted.options.target_bytes)};
  if (wanted.options.random_seed != 0) {
    cutter.arguments.emplace_back("--cut-seed");
    cutter.arguments.push_back(std::to_string(wanted.options.random_seed));
  }
  cutter.arguments.emplace_back("--wait");
  cutter.ready_pipe = false;
  MYRIAD_TRY(const Child child, spawn(cutter));
  const int status = wait_exit(child);
  if (status != 0)
    return fail(status == kMemory ? Code::does_not_fit : Code::io, "cutting {} into {} failed; the reason stands above",
                wanted.model.string(), out.string());
  return out;
}

}  // namespace myriad::cli
