#include "model/safetensors_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "model/json_text.h"
#include "model/shard_files.h"

namespace myriad {
namespace {

constexpr std::size_t kAlignment = 8;  // of the data's beginning, as the format asks for

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path directory, SafetensorsWriterOptions options)
    : directory_(std::move(directory)), options_(options) {}

SafetensorsWriter::~SafetensorsWriter() = default;

Status SafetensorsWriter::declare(std::string_view name, StorageType type, std::span<const std::uint64_t> shape) {
  const std::string where = directory_.string();
  if (begun_) return fail(Code::invalid_argument, "writing {}: tensor {} after the header", where, name);
  const bool plain = std::none_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 32; });
  if (name.empty() || name.size() > kMaxTensorName || !plain || shape.size() > kMaxTensorRank)
    return fail(Code::invalid_argument,
                "writing {}: a tensor called {} of {} dimensions, expected a name of 1 to {} characters and at most {} "
                "dimensions",
                where, json_quoted(name), shape.size(), kMaxTensorName, kMaxTensorRank);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 56;
  std::uint64_t elements = 1;
  for (const std::uint64_t d : shape) {
    if (d != 0 && elements > kMost / d)
      return fail(Code::limit, "writing {}: tensor {} {} has more than 2^56 elements", where, name, shape_text(shape));
    elements *= d;
  }
  const std::uint64_t bits = elements * storage_type_bits(type);
  if (bits % 8 != 0)
    return fail(Code::invalid_argument, "writing {}: tensor {} {} is no whole number of bytes", where, name,
                shape_text(shape));
  if (!names_.emplace(name).second)
    return fail(Code::invalid_argument, "writing {}: tensor {} is declared twice", where, name);
  const std::uint64_t bytes = bits / 8;
  if (shards_.empty() || (shards_.back().count != 0 && shards_.back().bytes + bytes > options_.shard_bytes) ||
      shards_.back().count == kMaxTensorsPerFile)
    shards_.push_back({tensors_.size()});
  Shard& shard = shards_.back();
  tensors_.push_back({std::string(name), type, {shape.begin(), shape.end()}, bytes, shard.bytes, shards_.size() - 1});
  shard.bytes += bytes;
  ++shard.count;
  return {};
}

std::string SafetensorsWriter::shard_name(std::size_t shard) const {
  if (shards_.size() == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:06}.safetensors", shard + 1, shards_.size());
}

std::vector<std::byte> SafetensorsWriter::header(std::size_t shard) const {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  const Shard& s = shards_[shard];
  for (std::size_t i = s.first; i < s.first + s.count; ++i) {
    const Tensor& t = tensors_[i];
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[)", json_quoted(t.name), storage_type_name(t.type));
    for (std::size_t d = 0; d < t.shape.size(); ++d) text += fmt::format("{}{}", d == 0 ? "" : ",", t.shape[d]);
    text += fmt::format(R"(],"data_offsets":[{},{}]}})", t.offset, t.offset + t.bytes);
  }
  text += '}';
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  std::vector<std::byte> out(8 + text.size());
  store_le(out.data(), std::uint64_t{text.size()});
  std::memcpy(out.data() + 8, text.data(), text.size());
  return out;
}

std::uint64_t SafetensorsWriter::bytes() const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < shards_.size(); ++i) sum += header(i).size() + shards_[i].bytes;
  return sum;
}

Status SafetensorsWriter::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t piece = std::min(bytes.size(), kReadPiece);
    const ssize_t n = ::pwrite(file_->get(), bytes.data(), piece, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return fail(Code::io, "writing {} at {}: {}", (directory_ / shard_name(open_shard_)).string(), offset,
                  std::strerror(errno));
    offset += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Status SafetensorsWriter::open(std::size_t shard) {
  open_shard_ = shard;
  const auto path = directory_ / shard_name(shard);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return fail(Code::io, "writing {}: {}", path.string(), std::strerror(errno));
  file_ = std::make_unique<const Descriptor>(fd);
  const std::vector<std::byte> head = header(shard);
  data_begin_ = head.size();
  const std::uint64_t kept = next_ < tensors_.size() && tensors_[next_].shard == shard ? tensors_[next_].offset : 0;
  if (::ftruncate(fd, static_cast<off_t>(kept == 0 ? 0 : data_begin_ + kept)) != 0)
    return fail(Code::io, "writing {}: {}", path.string(), std::strerror(errno));
  return kept == 0 ? write(0, head) : Status{};
}

Status SafetensorsWriter::close() {
  if (!file_) return {};
  if (::fdatasync(file_->get()) != 0)
    return fail(Code::io, "writing {}: {}", (directory_ / shard_name(open_shard_)).string(), std::strerror(errno));
  file_.reset();
  return {};
}

Result<std::size_t> SafetensorsWriter::begin() {
  if (begun_) return fail(Code::invalid_argument, "writing {}: begun twice", directory_.string());
  if (tensors_.empty()) return fail(Code::invalid_argument, "writing {}: no tensor is declared", directory_.string());
  if (shards_.size() > 99'999) return fail(Code::limit, "writing {}: {} files", directory_.string(), shards_.size());
  begun_ = true;
  for (std::size_t s = 0; options_.resumable && s < shards_.size(); ++s) {
    const auto path = directory_ / shard_name(s);
    std::error_code none;
    if (!std::filesystem::is_regular_file(path, none)) break;
    MYRIAD_TRY(const OpenFile there, open_file(path));
    const std::vector<std::byte> wanted = header(s);
    std::vector<std::byte> found(wanted.size());
    if (there.size < wanted.size()) break;
    MYRIAD_TRY_STATUS(read_at(*there.descriptor, 0, found, path));
    if (found != wanted) break;
    // Data is written front to back: what lies before the file's end is there.
    const std::uint64_t data = there.size - wanted.size();
    while (next_ < tensors_.size() && tensors_[next_].shard == s &&
           tensors_[next_].offset + tensors_[next_].bytes <= data)
      ++next_;
    if (next_ < tensors_.size() && tensors_[next_].shard == s) break;
  }
  if (next_ < tensors_.size()) MYRIAD_TRY_STATUS(open(tensors_[next_].shard));
  return next_;
}

Status SafetensorsWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  const std::string where = directory_.string();
  if (!begun_) return fail(Code::invalid_argument, "writing {}: data before the header", where);
  if (next_ == tensors_.size() || tensors_[next_].name != name)
    return fail(Code::invalid_argument, "writing {}: data of tensor {}, expected {}", where, name,
                next_ == tensors_.size() ? "no more" : "that of " + tensors_[next_].name);
  const Tensor& t = tensors_[next_];
  if (bytes.size() > t.bytes - next_done_)
    return fail(Code::invalid_argument, "writing {}: {} bytes of tensor {} at {}, expected {} in all", where,
                bytes.size(), name, next_done_, t.bytes);
  if (!file_ || open_shard_ != t.shard) {
    MYRIAD_TRY_STATUS(close());
    MYRIAD_TRY_STATUS(open(t.shard));
  }
  MYRIAD_TRY_STATUS(write(data_begin_ + t.offset + next_done_, bytes));
  next_done_ += bytes.size();
  if (next_done_ < t.bytes) return {};
  ++next_;
  next_done_ = 0;
  return {};
}

Status SafetensorsWriter::write_index() const {
  const auto path = directory_ / "model.safetensors.index.json";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return fail(Code::io, "writing {}: {}", path.string(), std::strerror(errno));
  const Descriptor file(fd);
  std::uint64_t total = 0;
  for (const Shard& s : shards_) total += s.bytes;
  std::string text = fmt::format("{{\n \"metadata\": {{\"total_size\": {}}},\n \"weight_map\": {{", total);
  const auto flush = [&]() -> Status {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = ::write(file.get(), text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(Code::io, "writing {}: {}", path.string(), std::strerror(errno));
      done += static_cast<std::size_t>(n);
    }
    text.clear();
    return {};
  };
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    text += fmt::format("{}\n  {}: \"{}\"", i == 0 ? "" : ",", json_quoted(tensors_[i].name),
                        shard_name(tensors_[i].shard));
    if (text.size() > (std::size_t{1} << 20)) MYRIAD_TRY_STATUS(flush());
  }
  text += "\n }\n}\n";
  MYRIAD_TRY_STATUS(flush());
  if (::fdatasync(fd) != 0) return fail(Code::io, "writing {}: {}", path.string(), std::strerror(errno));
  return {};
}

Status SafetensorsWriter::finish() {
  if (!begun_) return fail(Code::invalid_argument, "writing {}: finished before the header", directory_.string());
  // Tensors without a byte come by themselves.
  while (next_ < tensors_.size() && tensors_[next_].bytes == 0) ++next_;
  if (next_ < tensors_.size())
    return fail(Code::invalid_argument, "writing {}: tensor {} has got {} of {} bytes", directory_.string(),
                tensors_[next_].name, next_done_, tensors_[next_].bytes);
  MYRIAD_TRY_STATUS(close());
  if (shards_.size() > 1) MYRIAD_TRY_STATUS(write_index());
  return {};
}

}  // namespace myriad
