#include "model/gguf_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "model/shard_files.h"

namespace myriad {
namespace {

constexpr std::uint32_t kVersion = 3;

template <class T>
void put(std::vector<std::byte>& out, T value) {
  out.resize(out.size() + sizeof value);
  store_le(out.data() + out.size() - sizeof value, value);
}

void put_string(std::vector<std::byte>& out, std::string_view text) {
  put(out, std::uint64_t{text.size()});
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <GgufStored T>
constexpr GgufValueType stored_type() {
  if constexpr (std::same_as<T, bool>) return GgufValueType::boolean;
  if constexpr (std::same_as<T, float>) return GgufValueType::f32;
  if constexpr (std::same_as<T, double>) return GgufValueType::f64;
  if constexpr (std::same_as<T, std::uint8_t>) return GgufValueType::u8;
  if constexpr (std::same_as<T, std::int8_t>) return GgufValueType::i8;
  if constexpr (std::same_as<T, std::uint16_t>) return GgufValueType::u16;
  if constexpr (std::same_as<T, std::int16_t>) return GgufValueType::i16;
  if constexpr (std::same_as<T, std::uint32_t>) return GgufValueType::u32;
  if constexpr (std::same_as<T, std::int32_t>) return GgufValueType::i32;
  if constexpr (std::same_as<T, std::uint64_t>) return GgufValueType::u64;
  if constexpr (std::same_as<T, std::int64_t>) return GgufValueType::i64;
}

}  // namespace

GgufWriter::GgufWriter(std::filesystem::path path, GgufWriterOptions options)
    : path_(std::move(path)), temporary_(path_), options_(options) {
  temporary_ += ".partial";
}

GgufWriter::~GgufWriter() {
  if (file_ && !options_.resumable) ::unlink(temporary_.c_str());
}

Status GgufWriter::begin_key(std::string_view key, GgufValueType type) {
  if (file_) return fail(Code::invalid_argument, "writing {}: key {} after the header", path_.string(), key);
  if (!gguf_valid_name(key, kMaxGgufKeyBytes))
    return fail(
        Code::invalid_argument,
        "writing {}: a key called \"{}\" ({} bytes), expected 1 to {} bytes of UTF-8 without control characters",
        path_.string(), gguf_printable(key), key.size(), kMaxGgufKeyBytes);
  if (key == kGgufAlignmentKey)
    return fail(Code::invalid_argument, "writing {}: key {} is set by the writer", path_.string(), key);
  if (keys_.size() == kMaxGgufKeys)
    return fail(Code::limit, "writing {}: key {} is one more than {}", path_.string(), key, kMaxGgufKeys);
  if (!keys_.emplace(key).second)
    return fail(Code::invalid_argument, "writing {}: key {} is set twice", path_.string(), key);
  put_string(metadata_, key);
  put(metadata_, static_cast<std::uint32_t>(type));
  return {};
}

Status GgufWriter::check_metadata_size(std::string_view key) const {
  constexpr std::uint64_t kOfKey = 32;  // what a reader keeps of a key besides its name and value
  if (metadata_.size() + kOfKey * keys_.size() > kMaxGgufMetadata)
    return fail(Code::limit, "writing {}: with key {} the metadata has {} bytes, expected at most {}", path_.string(),
                key, metadata_.size(), kMaxGgufMetadata);
  return {};
}

template <GgufStored T>
Status GgufWriter::set(std::string_view key, T value) {
  MYRIAD_TRY_STATUS(begin_key(key, stored_type<T>()));
  if constexpr (std::same_as<T, bool>) {
    put(metadata_, static_cast<std::uint8_t>(value ? 1 : 0));
  } else {
    put(metadata_, value);
  }
  return check_metadata_size(key);
}

Status GgufWriter::set(std::string_view key, std::string_view value) {
  MYRIAD_TRY_STATUS(begin_key(key, GgufValueType::string));
  put_string(metadata_, value);
  return check_metadata_size(key);
}

template <GgufStored T>
requires(!std::same_as<T, bool>) Status GgufWriter::set_array(std::string_view key, std::span<const T> values) {
  MYRIAD_TRY_STATUS(begin_key(key, GgufValueType::array));
  put(metadata_, static_cast<std::uint32_t>(stored_type<T>()));
  put(metadata_, std::uint64_t{values.size()});
  for (const T value : values) put(metadata_, value);
  return check_metadata_size(key);
}

Status GgufWriter::set_bools(std::string_view key, const std::vector<bool>& values) {
  MYRIAD_TRY_STATUS(begin_key(key, GgufValueType::array));
  put(metadata_, static_cast<std::uint32_t>(GgufValueType::boolean));
  put(metadata_, std::uint64_t{values.size()});
  for (const bool value : values) put(metadata_, static_cast<std::uint8_t>(value ? 1 : 0));
  return check_metadata_size(key);
}

Status GgufWriter::set_strings(std::string_view key, std::span<const std::string_view> values) {
  MYRIAD_TRY_STATUS(begin_key(key, GgufValueType::array));
  put(metadata_, static_cast<std::uint32_t>(GgufValueType::string));
  put(metadata_, std::uint64_t{values.size()});
  for (const std::string_view value : values) put_string(metadata_, value);
  return check_metadata_size(key);
}

Status GgufWriter::copy_metadata(const GgufMetadata& from, std::string_view but) {
  std::vector<std::byte> value;
  for (const GgufKey& key : from.keys()) {
    if (key.name == kGgufAlignmentKey || key.name.starts_with("split.") || keys_.contains(key.name)) continue;
    if (!but.empty() && key.name.ends_with(but)) continue;
    value.clear();
    from.append_value(key.name, value);  // begins with the type, which begin_key writes
    MYRIAD_TRY_STATUS(begin_key(key.name, key.type));
    metadata_.insert(metadata_.end(), value.begin() + sizeof(std::uint32_t), value.end());
    MYRIAD_TRY_STATUS(check_metadata_size(key.name));
  }
  return {};
}

std::uint64_t GgufWriter::aligned(std::uint64_t offset) const {
  return (offset + options_.alignment - 1) / options_.alignment * options_.alignment;
}

Status GgufWriter::declare(std::string_view name, GgmlType type, std::span<const std::uint64_t> dims) {
  if (!std::has_single_bit(options_.alignment) || options_.alignment > kMaxGgufAlignment)
    return fail(Code::invalid_argument, "writing {}: an alignment of {}, expected a power of two of at most {}",
                path_.string(), options_.alignment, kMaxGgufAlignment);
  if (file_) return fail(Code::invalid_argument, "writing {}: tensor {} after the header", path_.string(), name);
  if (!gguf_valid_name(name, kMaxWrittenGgufTensorName))
    return fail(
        Code::invalid_argument,
        "writing {}: a tensor called \"{}\" ({} bytes), expected 1 to {} bytes of UTF-8 without control characters",
        path_.string(), gguf_printable(name), name.size(), kMaxWrittenGgufTensorName);
  if (tensors_.size() == kMaxGgufTensors)
    return fail(Code::limit, "writing {}: tensor {} is one more than {}", path_.string(), name, kMaxGgufTensors);
  const auto bytes = ggml_tensor_bytes(type, dims);
  if (!bytes || *bytes == 0 || dims.empty() || dims.size() > kMaxGgufRank)
    return fail(
        Code::invalid_argument,
        "writing {}: tensor {} of {} {}, expected 1 to {} dimensions of at least 1, rows of whole blocks and at "
        "most 2^56 values",
        path_.string(), name, ggml_type_text(type), gguf_dims_text(dims), kMaxGgufRank);
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;
  if (*bytes > kMostBytes - data_bytes_)
    return fail(Code::limit, "writing {}: with tensor {} the data has more than 2^60 bytes", path_.string(), name);
  if (!names_.emplace(name).second)
    return fail(Code::invalid_argument, "writing {}: tensor {} is declared twice", path_.string(), name);
  tensors_.push_back({std::string(name), type, {dims.begin(), dims.end()}, data_bytes_, *bytes});
  data_bytes_ = aligned(data_bytes_ + *bytes);
  return {};
}

std::vector<std::byte> GgufWriter::header() const {
  const bool own_alignment = options_.alignment != kDefaultGgufAlignment;
  std::vector<std::byte> out;
  const auto magic = std::as_bytes(std::span(std::string_view("GGUF")));
  out.insert(out.end(), magic.begin(), magic.end());
  put(out, kVersion);
  put(out, std::uint64_t{tensors_.size()});
  put(out, std::uint64_t{keys_.size() + (own_alignment ? 1 : 0)});
  if (own_alignment) {
    put_string(out, kGgufAlignmentKey);
    put(out, static_cast<std::uint32_t>(GgufValueType::u32));
    put(out, static_cast<std::uint32_t>(options_.alignment));
  }
  out.insert(out.end(), metadata_.begin(), metadata_.end());
  for (const Tensor& t : tensors_) {
    put_string(out, t.name);
    put(out, static_cast<std::uint32_t>(t.dims.size()));
    for (const std::uint64_t d : t.dims) put(out, d);
    put(out, static_cast<std::uint32_t>(t.type));
    put(out, t.offset);
  }
  out.resize(aligned(out.size()));
  return out;
}

std::uint64_t GgufWriter::file_bytes() const {
  return header().size() + data_bytes_;
}

Status GgufWriter::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t piece = std::min(bytes.size(), kReadPiece);
    const ssize_t n = ::pwrite(file_->get(), bytes.data(), piece, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(Code::io, "writing {} at {}: {}", temporary_.string(), offset, std::strerror(errno));
    offset += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<bool> GgufWriter::resume(std::span<const std::byte> header) {
  struct stat status {};
  if (::fstat(file_->get(), &status) != 0)
    return fail(Code::io, "reading {}: {}", temporary_.string(), std::strerror(errno));
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size < header.size()) return false;
  std::vector<std::byte> there(header.size());
  MYRIAD_TRY_STATUS(read_at(*file_, 0, there, temporary_));
  if (!std::equal(header.begin(), header.end(), there.begin())) return false;
  // Data is written front to back: what lies before the file's end is there.
  const std::uint64_t data = size - header.size();
  while (next_ < tensors_.size() && aligned(tensors_[next_].offset + tensors_[next_].bytes) <= data) ++next_;
  return true;
}

Result<std::size_t> GgufWriter::begin() {
  if (file_) return fail(Code::invalid_argument, "writing {}: begun twice", path_.string());
  const std::vector<std::byte> head = header();
  data_begin_ = head.size();
  const int fd = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return fail(Code::io, "writing {}: {}", temporary_.string(), std::strerror(errno));
  auto file = std::make_unique<const Descriptor>(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0)
    return fail(Code::busy, "writing {}: somebody else is writing it", temporary_.string());
  file_ = std::move(file);
  bool resumed = false;
  if (options_.resumable) {
    MYRIAD_TRY(resumed, resume(head));
  }
  const std::uint64_t begin = resumed && next_ < tensors_.size() ? data_begin_ + tensors_[next_].offset : 0;
  if (!resumed || next_ < tensors_.size())
    if (::ftruncate(fd, static_cast<off_t>(begin)) != 0)
      return fail(Code::io, "writing {}: {}", temporary_.string(), std::strerror(errno));
  if (!resumed) MYRIAD_TRY_STATUS(write(0, head));
  return next_;
}

Status GgufWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  if (!file_) return fail(Code::invalid_argument, "writing {}: data before the header", path_.string());
  if (next_ == tensors_.size() || tensors_[next_].name != name)
    return fail(Code::invalid_argument, "writing {}: data of tensor {}, expected {}", path_.string(), name,
                next_ == tensors_.size() ? "no more" : "that of " + tensors_[next_].name);
  const Tensor& t = tensors_[next_];
  if (bytes.size() > t.bytes - next_done_)
    return fail(Code::invalid_argument, "writing {}: {} bytes of tensor {} at {}, expected {} in all", path_.string(),
                bytes.size(), name, next_done_, t.bytes);
  MYRIAD_TRY_STATUS(write(data_begin_ + t.offset + next_done_, bytes));
  next_done_ += bytes.size();
  if (next_done_ < t.bytes) return {};
  const std::vector<std::byte> padding(aligned(t.bytes) - t.bytes);
  MYRIAD_TRY_STATUS(write(data_begin_ + t.offset + t.bytes, padding));
  ++next_;
  next_done_ = 0;
  return {};
}

Status GgufWriter::finish() {
  if (!file_) return fail(Code::invalid_argument, "writing {}: finished before the header", path_.string());
  if (next_ < tensors_.size())
    return fail(Code::invalid_argument, "writing {}: tensor {} has got {} of {} bytes", path_.string(),
                tensors_[next_].name, next_done_, tensors_[next_].bytes);
  if (::fdatasync(file_->get()) != 0)
    return fail(Code::io, "writing {}: {}", temporary_.string(), std::strerror(errno));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return fail(Code::io, "renaming {} to {}: {}", temporary_.string(), path_.string(), std::strerror(errno));
  file_.reset();
  return {};
}

#define MYRIAD_GGUF_STORED(T)                              \
  template Status GgufWriter::set<T>(std::string_view, T); \
  template Status GgufWriter::set_array<T>(std::string_view, std::span<const T>);
template Status GgufWriter::set<bool>(std::string_view, bool);
MYRIAD_GGUF_STORED(std::uint8_t)
MYRIAD_GGUF_STORED(std::int8_t)
MYRIAD_GGUF_STORED(std::uint16_t)
MYRIAD_GGUF_STORED(std::int16_t)
MYRIAD_GGUF_STORED(std::uint32_t)
MYRIAD_GGUF_STORED(std::int32_t)
MYRIAD_GGUF_STORED(std::uint64_t)
MYRIAD_GGUF_STORED(std::int64_t)
MYRIAD_GGUF_STORED(float)
MYRIAD_GGUF_STORED(double)
#undef MYRIAD_GGUF_STORED

}  // namespace myriad
