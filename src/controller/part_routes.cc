#include "controller/part_routes.h"

namespace myriad {
namespace {

constexpr std::string_view kParts = "/v1/parts/", kFiles = "/v1/files/", kManifest = "/v1/manifest.json",
                           kSuffix = ".part";

}  // namespace

PartRoutes::PartRoutes(std::filesystem::path cut_directory, const Manifest& manifest)
    : directory_(std::move(cut_directory)) {
  parts_.reserve(manifest.parts.size());
  for (const ManifestPart& part : manifest.parts) parts_.insert(part.id);
  // A name with a folder in it would leave the directory; the manifest's reader refuses it too.
  for (const ManifestFile& file : manifest.files)
    if (std::filesystem::path(file.name).filename() == file.name && file.name != "." && file.name != "..")
      files_.insert(file.name);
}

std::optional<std::filesystem::path> PartRoutes::find(std::string_view path) const {
  if (path == kManifest) return directory_ / kManifestName;
  if (path.starts_with(kParts) && path.ends_with(kSuffix) && path.size() == kParts.size() + 64 + kSuffix.size()) {
    const auto digest = digest_from_hex(path.substr(kParts.size(), 64));
    if (!digest || !parts_.contains(PartId{*digest})) return {};
    return part_path(directory_, PartId{*digest});
  }
  if (path.starts_with(kFiles)) {
    const std::string name(path.substr(kFiles.size()));
    if (files_.contains(name)) return directory_ / name;
  }
  return {};
}

}  // namespace myriad
