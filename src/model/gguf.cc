#include "model/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "model/shard_files.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".gguf";
constexpr std::string_view kOf = "-of-";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitTensors = "split.tensors.count";

// "kimi-00007-of-00070.gguf": stem "kimi", width 5, number 7, total 70.
struct PartName {
  std::string stem;
  std::size_t width = 0;
  std::uint64_t number = 0;
  std::string total_text;
  std::uint64_t total = 0;

  [[nodiscard]] std::string of(std::uint64_t part) const {
    return fmt::format("{}-{:0{}}{}{}{}", stem, part, width, kOf, total_text, kSuffix);
  }
};

std::optional<std::uint64_t> digits(std::string_view text) {
  if (text.empty() || text.size() > 8) return std::nullopt;
  std::uint64_t n = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    n = n * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return n;
}

std::optional<PartName> part_name_of(std::string_view file) {
  if (!file.ends_with(kSuffix)) return std::nullopt;
  file.remove_suffix(kSuffix.size());
  const std::size_t of = file.rfind(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  const std::size_t dash = file.substr(0, of).rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view number = file.substr(dash + 1, of - dash - 1);
  const std::string_view total = file.substr(of + kOf.size());
  if (!digits(number) || !digits(total)) return std::nullopt;
  return PartName{std::string(file.substr(0, dash)), number.size(), *digits(number), std::string(total),
                  *digits(total)};
}

Result<GgufHeader> read_header(const fs::path& path) {
  MYRIAD_TRY(const OpenFile file, open_file(path));
  const GgufReadAt read = [&](std::uint64_t offset, std::span<std::byte> out) {
    return read_at(*file.descriptor, offset, out, path);
  };
  return parse_gguf_header(read, file.size, path.string());
}

}  // namespace

struct GgufFile::State {
  State(fs::path file, std::vector<std::string> part_names)
      : path(std::move(file)), files(path.parent_path(), std::move(part_names)) {}

  fs::path path;
  ShardFiles files;
  std::uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;       // in ascending order of name
  std::vector<std::vector<char>> names;  // of each part; the tensors point into them
};

struct GgufOpener {
  const fs::path& path;
  std::shared_ptr<GgufFile::State> state;

  Result<GgufFile> open() {
    MYRIAD_TRY(GgufHeader header, read_header(path));
    MYRIAD_TRY(const std::uint64_t parts, header.metadata.get_or<std::uint64_t>(kSplitCount, 1));
    if (parts > 1) {
      MYRIAD_TRY_STATUS(open_parts(std::move(header), parts));
    } else {
      state = std::make_shared<GgufFile::State>(path, std::vector{path.filename().string()});
      state->version = header.version;
      state->metadata = header.metadata;
      MYRIAD_TRY_STATUS(add(0, std::move(header)));
    }
    MYRIAD_TRY_STATUS(check_tensors());
    return GgufFile(std::move(state));
  }

  // `opened` is the header of `path`, which tells that it is one of `parts` parts.
  Status open_parts(GgufHeader opened, std::uint64_t parts) {
    const std::string own = path.filename().string();
    if (parts > kMaxGgufParts)
      return fail(Code::limit, "opening {}: it is one of {} parts, expected at most {}", path.string(), parts,
                  kMaxGgufParts);
    const auto name = part_name_of(own);
    if (!name || name->total != parts)
      return fail(Code::invalid_argument,
                  "opening {}: it is one of {} parts, which are found by their names, expected the name "
                  "NAME-00001-of-{:05}{}",
                  path.string(), parts, parts, kSuffix);
    std::vector<std::string> names;
    std::string missing;
    std::uint64_t found = 0;
    for (std::uint64_t i = 1; i <= parts; ++i) {
      names.push_back(name->of(i));
      std::error_code ignored;
      if (fs::exists(path.parent_path() / names.back(), ignored)) {
        ++found;
      } else if (missing.empty()) {
        missing = names.back();
      }
    }
    if (!missing.empty())
      return fail(Code::not_found, "opening {}: {} is missing ({} of {} parts are there); finish the download",
                  path.string(), missing, found, parts);
    state = std::make_shared<GgufFile::State>(path, std::move(names));
    for (std::uint32_t i = 0; i < parts; ++i) {
      if (i + 1 == name->number) {
        MYRIAD_TRY_STATUS(add_part(i, parts, std::move(opened)));
      } else {
        MYRIAD_TRY(GgufHeader header, read_header(state->files.path(i)));
        MYRIAD_TRY_STATUS(add_part(i, parts, std::move(header)));
      }
    }
    return {};
  }

  Status add_part(std::uint32_t part, std::uint64_t parts, GgufHeader header) {
    const std::string file = state->files.path(part).string();
    const auto count = header.metadata.require<std::uint64_t>(kSplitCount);
    const auto number = header.metadata.require<std::uint64_t>(kSplitNumber);
    for (const auto* key : {&count, &number})
      if (!*key) return std::unexpected(Error(key->error()).within(fmt::format("opening {}", path.string())));
    if (*count != parts || *number != part)
      return fail(Code::corrupt,
                  "opening {}: {} says of itself that it is part {} of {} (keys {} and {}, counted from 0), expected "
                  "part {} of {}: it belongs to another split or was renamed",
                  path.string(), file, *number, *count, kSplitNumber, kSplitCount, part, parts);
    if (part == 0) {
      state->version = header.version;
      state->metadata = header.metadata;
    } else if (header.version != state->version) {
      return fail(Code::corrupt, "opening {}: {} is GGUF of version {} and the first part of version {}, expected one",
                  path.string(), file, header.version, state->version);
    }
    MYRIAD_TRY_STATUS(check_agreement(header.metadata, file));
    return add(part, std::move(header));
  }

  // What a later part says again must be what the first one said: else it comes from another model.
  Status check_agreement(const GgufMetadata& metadata, const std::string& file) const {
    std::vector<std::byte> first;
    std::vector<std::byte> later;
    for (const GgufKey& key : metadata.keys()) {
      if (key.name == kSplitNumber || key.name == kGgufAlignmentKey || !state->metadata.has(key.name)) continue;
      first.clear();
      later.clear();
      state->metadata.append_value(key.name, first);
      metadata.append_value(key.name, later);
      if (first != later)
        return fail(Code::corrupt,
                    "opening {}: the key {} is {} in {} and {} in the first part: they are of two models",
                    path.string(), gguf_printable(key.name), metadata.value_text(key.name), file,
                    state->metadata.value_text(key.name));
    }
    return {};
  }

  Status add(std::uint32_t part, GgufHeader header) {
    if (header.tensors.size() > kMaxGgufTensors - state->tensors.size())
      return fail(Code::limit, "opening {}: more than {} tensors", path.string(), kMaxGgufTensors);
    for (GgufTensor& t : header.tensors) {
      t.part = part;
      state->tensors.push_back(t);
    }
    state->names.push_back(std::move(header.names));
    return {};
  }

  Status check_tensors() {
    auto& tensors = state->tensors;
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (std::size_t i = 1; i < tensors.size(); ++i)
      if (tensors[i - 1].name == tensors[i].name)
        return fail(Code::corrupt, "opening {}: tensor {} is in {} and again in {}", path.string(), tensors[i].name,
                    state->files.name(tensors[i - 1].part), state->files.name(tensors[i].part));
    MYRIAD_TRY(const auto expected, state->metadata.get<std::uint64_t>(kSplitTensors));
    if (expected && *expected != tensors.size())
      return fail(Code::corrupt, "opening {}: {} tensors in {} files, expected {} (key {})", path.string(),
                  tensors.size(), state->files.size(), *expected, kSplitTensors);
    return {};
  }
};

Result<GgufFile> GgufFile::open(const fs::path& path) {
  return GgufOpener{path, nullptr}.open();
}

const fs::path& GgufFile::path() const {
  return state_->path;
}
std::uint32_t GgufFile::version() const {
  return state_->version;
}
std::size_t GgufFile::parts() const {
  return state_->files.size();
}
const std::string& GgufFile::part_name(std::size_t part) const {
  return state_->files.name(static_cast<std::uint32_t>(part));
}
const GgufMetadata& GgufFile::metadata() const {
  return state_->metadata;
}
Result<std::string_view> GgufFile::architecture() const {
  return metadata().require<std::string_view>("general.architecture");
}
std::span<const GgufTensor> GgufFile::tensors() const {
  return state_->tensors;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto& tensors = state_->tensors;
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const GgufTensor& t, std::string_view n) { return t.name < n; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

Result<const GgufTensor*> GgufFile::require(std::string_view name) const {
  const GgufTensor* const tensor = find(name);
  if (tensor == nullptr)
    return fail(Code::not_found, "reading {}: tensor {} is missing", path().string(), gguf_printable(name));
  if (!ggml_type_readable(tensor->type))
    return fail(Code::unsupported, "reading {}: tensor {} is of {}, a type that Myriad does not read", path().string(),
                tensor->name, ggml_type_text(tensor->type));
  return tensor;
}

Status GgufFile::read(const GgufTensor& tensor, std::uint64_t offset, std::span<std::byte> out) const {
  MYRIAD_TRY(const GgufTensor* const own, require(tensor.name));
  if (offset > own->bytes || out.size() > own->bytes - offset)
    return fail(Code::invalid_argument, "reading {}: bytes [{}, {} + {}) of tensor {}, which has {}", path().string(),
                offset, offset, out.size(), own->name, own->bytes);
  if (Status status = state_->files.read(own->part, own->offset + offset, out); !status)
    return std::unexpected(std::move(status).error().within(fmt::format("reading tensor {}", own->name)));
  return {};
}

}  // namespace myriad
