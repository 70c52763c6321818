// What `myriad cut` writes beside the parts: manifest.json, the list of a cut model's parts and what a fleet needs to
// run it.
//
// A cut directory:  manifest.json   parts/<64 hex digits>.part   tokenizer files as in the checkpoint (tiktoken.model,
// tokenizer_config.json)
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "model/graph.h"

namespace myriad {

struct ManifestPart {
  PartSpec spec;
  PartId id;
  std::uint64_t bytes = 0;  // of the file, and of the memory that it takes when loaded
};

struct ManifestFile {
  std::string name;  // relative, no directory part
  std::uint64_t bytes = 0;
  Sha256Digest digest{};
};

struct Manifest {
  std::string model_name;           // what the API calls it
  std::string config_json;          // the checkpoint's config.json, verbatim
  std::vector<ManifestPart> parts;  // in execution order; each operator's parts ascending and without gaps or overlaps
  std::vector<ManifestFile> files;  // tokenizer files

  [[nodiscard]] std::string to_json() const;
  // Checks that the parts cover every operator of the config's graph exactly once. Errors: corrupt, with what is wrong.
  static Result<Manifest> parse(std::string_view json);
};

inline constexpr std::size_t kMaxManifestBytes = std::size_t{256} << 20;
inline constexpr const char* kManifestName = "manifest.json";

// parts/<hex>.part below a cut directory or a node's store.
std::filesystem::path part_path(const std::filesystem::path& directory, const PartId& id);
Result<Manifest> read_manifest(const std::filesystem::path& cut_directory);

}  // namespace myriad
