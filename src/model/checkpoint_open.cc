// Opening a checkpoint: which files belong to it, their headers, and whether all that agrees.
#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "model/checkpoint.h"
#include "model/shard_files.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "language_model.";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

// Calls take(tensor, file) for each entry of an index's weight_map, reading the file as a stream: Kimi K3's has half a
// million.
class IndexHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Take = std::function<Status(std::string_view tensor, const std::string& file)>;
  explicit IndexHandler(Take take) : take_(std::move(take)) {}
  [[nodiscard]] bool saw_map() const { return saw_map_; }
  std::optional<Error>& error() { return error_; }

  bool key(std::string& name) override {
    if (depth_ == 1) in_map_ = name == "weight_map";
    if (depth_ == 2 && in_map_) tensor_ = name;
    return true;
  }
  bool string(std::string& value) override {
    if (!in_map_) return true;
    if (depth_ != 2) return refuse();
    if (Status status = take_(tensor_, value); !status) {
      error_ = std::move(status).error();
      return false;
    }
    return true;
  }
  bool start_object(std::size_t /*elements*/) override {
    saw_map_ = saw_map_ || (depth_ == 1 && in_map_);
    return descend() && (depth_ <= 2 || !in_map_ || refuse());
  }
  bool start_array(std::size_t /*elements*/) override { return descend() && (!in_map_ || refuse()); }
  bool end_object() override { return ascend(); }
  bool end_array() override { return ascend(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return !in_map_ || refuse(); }
  bool number_integer(number_integer_t /*value*/) override { return !in_map_ || refuse(); }
  bool number_float(number_float_t /*value*/, const std::string& /*text*/) override { return !in_map_ || refuse(); }
  bool boolean(bool /*value*/) override { return !in_map_ || refuse(); }
  bool null() override { return !in_map_ || refuse(); }
  bool binary(binary_t& /*value*/) override { return refuse(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*e*/) override {
    error_ = Error{Code::corrupt, fmt::format("not JSON at byte {}", position), {}, {}};
    return false;
  }

 private:
  bool refuse() {
    error_ = Error{Code::corrupt, "weight_map is not an object of tensor names and file names", {}, {}};
    return false;
  }
  bool descend() {
    if (++depth_ <= kMaxHeaderDepth) return true;
    error_ = Error{Code::limit, fmt::format("JSON nested more than {} deep", kMaxHeaderDepth), {}, {}};
    return false;
  }
  bool ascend() {
    if (--depth_ == 1) in_map_ = false;
    return true;
  }

  Take take_;
  std::string tensor_;
  std::optional<Error> error_;
  std::size_t depth_ = 0;
  bool in_map_ = false;
  bool saw_map_ = false;
};

Status read_index(const fs::path& path, IndexHandler::Take take) {
  MYRIAD_TRY(const OpenFile file, open_file(path));
  if (file.size > kMaxIndexBytes)
    return fail(Code::limit, "reading {}: {} bytes, expected at most {}", path.string(), file.size, kMaxIndexBytes);
  std::ifstream in(path, std::ios::binary);
  IndexHandler handler(std::move(take));
  const bool parsed = nlohmann::json::sax_parse(in, &handler);
  if (handler.error()) return std::unexpected(std::move(*handler.error()).within("reading " + path.string()));
  if (!parsed || !handler.saw_map()) return fail(Code::corrupt, "reading {}: found no weight_map", path.string());
  return {};
}

// "model-00007-of-000096.safetensors" -> 7 and 96.
struct Numbered {
  std::string stem;
  std::size_t width = 0;  // digits of the number
  std::size_t number = 0;
  std::string total_text;
  std::size_t total = 0;
};
std::optional<Numbered> numbered(std::string_view file) {
  file.remove_suffix(kSuffix.size());
  constexpr std::string_view kOf = "-of-";
  const std::size_t of = file.rfind(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  const std::size_t dash = file.substr(0, of).rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto digits = [](std::string_view text) -> std::optional<std::size_t> {
    if (text.empty() || text.size() > 8) return std::nullopt;
    std::size_t n = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') return std::nullopt;
      n = n * 10 + static_cast<std::size_t>(c - '0');
    }
    return n;
  };
  const std::string_view number = file.substr(dash + 1, of - dash - 1);
  const std::string_view total = file.substr(of + kOf.size());
  if (!digits(number) || !digits(total)) return std::nullopt;
  return Numbered{std::string(file.substr(0, dash)), number.size(), *digits(number), std::string(total),
                  *digits(total)};
}

// Names the first gap in a numbered series of shards, so that an unfinished download is seen at once.
Status check_series(const std::vector<std::string>& files, const fs::path& dir) {
  struct Series {
    Numbered first;
    std::vector<std::size_t> numbers;
  };
  std::map<std::pair<std::string, std::string>, Series> series;
  for (const std::string& file : files) {
    if (auto n = numbered(file)) {
      Series& s = series[{n->stem, n->total_text}];
      s.numbers.push_back(n->number);
      s.first = *n;
    }
  }
  for (auto& [key, s] : series) {
    std::sort(s.numbers.begin(), s.numbers.end());
    if (s.first.total > kMaxShards)
      return fail(Code::limit, "opening {}: files of {} shards, expected at most {}", dir.string(), s.first.total,
                  kMaxShards);
    const std::size_t from = !s.numbers.empty() && s.numbers.front() == 0 ? 0 : 1;
    for (std::size_t i = 0; i < s.first.total; ++i) {
      if (i < s.numbers.size() && s.numbers[i] == from + i) continue;
      return fail(Code::not_found,
                  "opening {}: {}-{:0{}}-of-{}{} is missing ({} of {} files are there); finish the download",
                  dir.string(), s.first.stem, from + i, s.first.width, s.first.total_text, kSuffix, s.numbers.size(),
                  s.first.total);
    }
  }
  return {};
}

}  // namespace

struct CheckpointBuilder {
  Checkpoint out;
  std::shared_ptr<ShardFiles> files;
  bool has_index = false;

  // The files' headers have the last word on types: one matrix in F32 makes the trunk F32 (BF16 ones are widened, which
  // is exact), whatever the config's `dtype` says. What is handed on says so too, since whoever reads it has no
  // headers.
  void trust_headers() {
    if (out.config_.trunk_dtype == DType::f32) return;
    const auto is_f32_matrix = [](const TensorInfo& t) {
      return t.type == StorageType::f32 && t.name.find("conv1d") == std::string_view::npos && t.shape.size() == 2 &&
             t.shape[0] > 1 && t.shape[1] > 1 && t.name.ends_with(".weight");
    };
    if (std::none_of(out.tensors_.begin(), out.tensors_.end(), is_f32_matrix)) return;
    out.config_.trunk_dtype = DType::f32;
    auto json = nlohmann::ordered_json::parse(out.config_json_);
    auto& text = json.contains("text_config") ? json["text_config"] : json;
    for (auto* object : {&json, &text}) {
      object->erase("torch_dtype");
      (*object)["dtype"] = "float32";
    }
    out.config_json_ = json.dump(1);
  }

  Status list_shards() {
    const fs::path& dir = out.directory_;
    std::vector<std::string> names;
    std::error_code ignored;
    has_index = fs::exists(dir / kIndexName, ignored);
    if (has_index) {
      MYRIAD_TRY_STATUS(names_from_index(names));
    } else {
      std::error_code error;
      for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
        std::string name = it->path().filename().string();
        if (name.size() > kSuffix.size() && name.ends_with(kSuffix) && name.front() != '.')
          names.push_back(std::move(name));
        if (names.size() > kMaxShards)
          return fail(Code::limit, "opening {}: more than {} *{} files", dir.string(), kMaxShards, kSuffix);
      }
      if (error) return fail(Code::io, "listing {}: {}", dir.string(), error.message());
      std::sort(names.begin(), names.end());
      MYRIAD_TRY_STATUS(check_series(names, dir));
    }
    if (names.empty())
      return fail(Code::not_found, "opening {}: found no *{} file, expected the weights of a Hugging Face checkpoint",
                  dir.string(), kSuffix);
    files = std::make_shared<ShardFiles>(dir, std::move(names));
    return {};
  }

  Status names_from_index(std::vector<std::string>& names) {
    std::set<std::string, std::less<>> seen;
    const fs::path path = out.directory_ / kIndexName;
    MYRIAD_TRY_STATUS(read_index(path, [&](std::string_view tensor, const std::string& file) -> Status {
      if (seen.contains(file)) return {};
      const bool plain = file.size() > kSuffix.size() && file.ends_with(kSuffix) && file.size() <= 255 &&
                         file.find('/') == std::string::npos && file.find('\0') == std::string::npos;
      if (!plain)
        return fail(Code::corrupt, "tensor {} is said to be in {}, expected a *{} file beside the index", tensor,
                    nlohmann::json(file).dump(-1, ' ', true), kSuffix);
      if (seen.size() == kMaxShards) return fail(Code::limit, "more than {} files are named", kMaxShards);
      seen.insert(file);
      return {};
    }));
    std::size_t there = 0;
    std::string missing;
    for (const std::string& file : seen) {
      std::error_code ignored;
      if (fs::exists(out.directory_ / file, ignored)) {
        ++there;
      } else if (missing.empty()) {
        missing = file;
      }
      names.push_back(file);
    }
    if (!missing.empty())
      return fail(Code::not_found,
                  "opening {}: {}, which the index names, is missing ({} of {} files are there); finish the download",
                  out.directory_.string(), missing, there, seen.size());
    return {};
  }

  Status read_headers() {
    out.names_.resize(files->size());
    out.dims_.resize(files->size());
    for (std::uint32_t shard = 0; shard < files->size(); ++shard) MYRIAD_TRY_STATUS(read_header(shard));
    out.tensors_.shrink_to_fit();
    std::sort(out.tensors_.begin(), out.tensors_.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
    for (std::size_t i = 1; i < out.tensors_.size(); ++i) {
      const TensorInfo& a = out.tensors_[i - 1];
      const TensorInfo& b = out.tensors_[i];
      if (a.name == b.name)
        return fail(Code::corrupt, "opening {}: tensor {} is in {} (as {}) and in {} (as {}), expected once",
                    out.directory_.string(), a.name, files->name(a.shard), a.stored_name, files->name(b.shard),
                    b.stored_name);
    }
    return {};
  }

  Status read_header(std::uint32_t shard) {
    const std::string path = files->path(shard).string();
    MYRIAD_TRY(const OpenFile file, files->open(shard));
    std::array<std::byte, 8> first{};
    MYRIAD_TRY_STATUS(file.size >= 8 ? files->read(shard, 0, first) : Status{});
    MYRIAD_TRY(const std::uint64_t length, safetensors_header_length(first, file.size, path));
    std::vector<std::byte> header(length);
    MYRIAD_TRY_STATUS(files->read(shard, 8, header));
    MYRIAD_TRY(const std::vector<TensorEntry> entries, parse_safetensors_header(header, file.size - 8 - length, path));
    if (entries.size() > kMaxTensors - out.tensors_.size())
      return fail(Code::limit, "opening {}: more than {} tensors", out.directory_.string(), kMaxTensors);
    add(shard, 8 + length, entries);
    return {};
  }

  void add(std::uint32_t shard, std::uint64_t data, const std::vector<TensorEntry>& entries) {
    std::size_t characters = 0;
    std::size_t dimensions = 0;
    for (const TensorEntry& e : entries) {
      characters += e.name.size();
      dimensions += e.shape.rank;
    }
    auto& names = out.names_[shard];
    auto& dims = out.dims_[shard];
    names.reserve(characters);  // the views below point into these
    dims.reserve(dimensions);
    for (const TensorEntry& e : entries) {
      TensorInfo t;
      t.stored_name = {names.data() + names.size(), e.name.size()};
      names.insert(names.end(), e.name.begin(), e.name.end());
      t.name = t.stored_name;
      if (t.name.starts_with(kPrefix) && t.name.size() > kPrefix.size()) {
        t.name.remove_prefix(kPrefix.size());
        out.prefix_ = kPrefix;
      }
      t.shape = {dims.data() + dims.size(), e.shape.rank};
      dims.insert(dims.end(), e.shape.span().begin(), e.shape.span().end());
      t.offset = data + e.begin;
      t.bytes = e.end - e.begin;
      t.type = e.type;
      t.shard = shard;
      out.tensors_.push_back(t);
    }
  }

  // An index that contradicts the headers means files of two downloads in one directory.
  Status check_index() {
    if (!has_index) return {};
    const fs::path path = out.directory_ / kIndexName;
    return read_index(path, [&](std::string_view stored, const std::string& file) -> Status {
      std::string_view name = stored;
      if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
      const TensorInfo* t = out.find(name);
      if (t == nullptr || t->stored_name != stored)
        return fail(Code::corrupt, "tensor {} is said to be in {}, but no header has it", stored, file);
      if (files->name(t->shard) != file)
        return fail(Code::corrupt, "tensor {} is said to be in {}, but it is in {}", stored, file,
                    files->name(t->shard));
      return {};
    });
  }
};

Result<Checkpoint> Checkpoint::open(const fs::path& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error))
    return !fs::exists(dir, error)
               ? fail(Code::not_found, "opening {}: there is no such file or directory", dir.string())
               : fail(Code::invalid_argument,
                      "opening {}: it is not a directory, expected a Hugging Face checkpoint (config.json and "
                      "*.safetensors)",
                      dir.string());
  CheckpointBuilder builder;
  builder.out.directory_ = dir;
  MYRIAD_TRY(builder.out.config_json_, read_text_file(dir / "config.json", kMaxConfigBytes));
  auto config = parse_config(builder.out.config_json_);
  if (!config) return std::unexpected(std::move(config).error().within("opening " + dir.string()));
  builder.out.config_ = std::move(*config);
  MYRIAD_TRY_STATUS(builder.list_shards());
  MYRIAD_TRY_STATUS(builder.read_headers());
  MYRIAD_TRY_STATUS(builder.check_index());
  builder.trust_headers();
  builder.out.files_ = std::move(builder.files);
  return std::move(builder.out);
}

}  // namespace myriad
