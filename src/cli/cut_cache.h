// Cuts of Hugging Face models, made once and kept: $MYRIAD_CACHE_DIR, else $XDG_CACHE_HOME/myriad, else
// ~/.cache/myriad; below it cuts/FINGERPRINT-OPTIONS. The fingerprint covers the config and names, sizes and times of
// all files of the model, so a changed model is cut anew.
#pragma once

#include <filesystem>
#include <string>

#include "part/cutter.h"

namespace myriad::cli {

struct WantedCut {
  std::filesystem::path model;  // Hugging Face directory, or one that is cut already and is returned as it is
  std::string name;             // what the API calls it
  CutOptions options;
};
// target_part_bytes() rounded down to a power of two, so that fleets of similar sizes share a cut.
std::uint64_t shared_target_bytes(const Graph& graph, std::size_t nodes, Bytes node_memory);
// Blocks while a child process cuts, with its progress on standard error. Errors: as `myriad cut`.
Result<std::filesystem::path> cached_cut(const WantedCut& wanted);

}  // namespace myriad::cli
