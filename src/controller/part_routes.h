// Which file of a cut directory a path of the part server means. Nothing else of the machine can be named.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "part/manifest.h"

namespace myriad {

//   /v1/parts/<64 hex digits>.part   a part of the manifest
//   /v1/manifest.json                the manifest
//   /v1/files/<name>                 a tokenizer file that the manifest lists
class PartRoutes {
 public:
  PartRoutes(std::filesystem::path cut_directory, const Manifest& manifest);
  // `path` as it stands in the request, without query. Nothing for every other path: no escapes are decoded and no dots
  // resolved.
  [[nodiscard]] std::optional<std::filesystem::path> find(std::string_view path) const;

 private:
  std::filesystem::path directory_;
  std::unordered_set<PartId> parts_;
  std::unordered_set<std::string> files_;
};

}  // namespace myriad
