#include "part/manifest.h"

#include <nlohmann/json.hpp>
#include <set>

#include "part/file_io.h"

namespace myriad {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFiles = 64;

// A field of the right type or an error that names it.
template <class T>
Result<T> field(const json& object, const char* name, const char* where) {
  const auto it = object.find(name);
  if (it == object.end()) return fail(Code::corrupt, "{}: field '{}' is missing", where, name);
  try {
    return it->get<T>();
  } catch (const json::exception&) {
    return fail(Code::corrupt, "{}: field '{}' is {}, of a type that it cannot have", where, name,
                it->dump().substr(0, 60));
  }
}

// Every operator once, without gaps or overlaps.
Status check_cover(const Manifest& manifest) {
  MYRIAD_TRY(const ModelConfig config, parse_config(manifest.config_json));
  MYRIAD_TRY(const Graph graph, Graph::build(config));
  std::size_t at = 0;
  for (const auto& op : graph.operators()) {
    std::uint32_t begin = 0;
    while (begin < op.extent) {
      if (at == manifest.parts.size())
        return fail(Code::corrupt, "the manifest ends before {}", PartSpec{op.ref, begin, op.extent}.name());
      const auto& part = manifest.parts[at++];
      const auto& spec = part.spec;
      if (spec.op != op.ref || spec.begin != begin || spec.end <= begin || spec.end > op.extent ||
          (spec.end != op.extent && spec.end % op.granule != 0))
        return fail(Code::corrupt, "the manifest lists {} where a part of {} from {} on was expected", spec.name(),
                    PartSpec{op.ref, 0, op.extent}.name(), begin);
      if (part.bytes != op.weight_bytes(spec.units()))
        return fail(Code::corrupt, "the manifest gives part {} {} bytes, it has {}", spec.name(), part.bytes,
                    op.weight_bytes(spec.units()));
      begin = spec.end;
    }
  }
  if (at != manifest.parts.size())
    return fail(Code::corrupt, "the manifest lists {} parts, the model has {}", manifest.parts.size(), at);
  return {};
}

}  // namespace

std::string Manifest::to_json() const {
  // By hand around the list: one part a line, so that a person (and diff) can read it.
  json head = {{"format", "myriad-manifest"}, {"version", 1}, {"model", model_name}, {"config", config_json}};
  json file_list = json::array();
  for (const auto& f : files) file_list.push_back({{"name", f.name}, {"bytes", f.bytes}, {"sha256", to_hex(f.digest)}});
  head["files"] = file_list;
  std::string out = head.dump(1, ' ', false, json::error_handler_t::replace);
  out.resize(out.rfind('\n'));
  out += ",\n \"parts\": [\n";
  for (std::size_t i = 0; i < parts.size(); ++i)
    out += fmt::format("  [\"{}\", {}, \"{}\"]{}\n", parts[i].spec.name(), parts[i].bytes, parts[i].id.hex(),
                       i + 1 < parts.size() ? "," : "");
  out += " ]\n}\n";
  return out;
}

Result<Manifest> Manifest::parse(std::string_view text) {
  if (text.size() > kMaxManifestBytes)
    return fail(Code::limit, "a manifest of {} bytes; at most {} are read", text.size(), kMaxManifestBytes);
  const json root = json::parse(text, nullptr, false);
  if (!root.is_object()) return fail(Code::corrupt, "the manifest is not a JSON object");
  const char* where = "manifest";
  MYRIAD_TRY(const std::string format, field<std::string>(root, "format", where));
  MYRIAD_TRY(const int version, field<int>(root, "version", where));
  if (format != "myriad-manifest" || version != 1)
    return fail(Code::version, "manifest format '{}' version {}; this program reads myriad-manifest version 1", format,
                version);
  Manifest m;
  MYRIAD_TRY(m.model_name, field<std::string>(root, "model", where));
  MYRIAD_TRY(m.config_json, field<std::string>(root, "config", where));
  const auto parts = root.find("parts"), files = root.find("files");
  if (parts == root.end() || !parts->is_array() || files == root.end() || !files->is_array() ||
      files->size() > kMaxFiles)
    return fail(Code::corrupt, "the manifest's 'parts' and 'files' must be lists (of at most {} files)", kMaxFiles);
  for (const auto& p : *parts) {
    if (!p.is_array() || p.size() != 3 || !p[0].is_string() || !p[1].is_number_unsigned() || !p[2].is_string())
      return fail(Code::corrupt, "the manifest's part {} is not [name, bytes, sha256]", p.dump().substr(0, 100));
    MYRIAD_TRY(const PartSpec spec, parse_part_name(p[0].get_ref<const std::string&>()));
    MYRIAD_TRY(const Sha256Digest digest, digest_from_hex(p[2].get_ref<const std::string&>()));
    m.parts.push_back({spec, {digest}, p[1].get<std::uint64_t>()});
  }
  for (const auto& f : *files) {
    ManifestFile file;
    MYRIAD_TRY(file.name, field<std::string>(f, "name", "manifest file"));
    MYRIAD_TRY(file.bytes, field<std::uint64_t>(f, "bytes", "manifest file"));
    MYRIAD_TRY(const std::string hex, field<std::string>(f, "sha256", "manifest file"));
    MYRIAD_TRY(file.digest, digest_from_hex(hex));
    if (file.name.empty() || file.name.size() > 128 || file.name.find('/') != std::string::npos ||
        file.name.starts_with("."))
      return fail(Code::corrupt, "the manifest names a file '{}'; names have no directory part", file.name);
    m.files.push_back(std::move(file));
  }
  MYRIAD_TRY_STATUS(check_cover(m));
  return m;
}

std::filesystem::path part_path(const std::filesystem::path& directory, const PartId& id) {
  return directory / "parts" / (id.hex() + ".part");
}

Result<Manifest> read_manifest(const std::filesystem::path& cut_directory) {
  const auto path = cut_directory / kManifestName;
  auto text = read_small_file(path, kMaxManifestBytes);
  if (!text)
    return std::unexpected(std::move(text).error().within(
        fmt::format("opening the cut model {} (make one with: myriad cut MODEL --out DIR)", cut_directory.string())));
  auto manifest = Manifest::parse(*text);
  if (!manifest) return std::unexpected(std::move(manifest).error().within(path.string()));
  return manifest;
}

}  // namespace myriad
