#include "part/part_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "part/file_io.h"
#include "part/manifest.h"

namespace myriad {

Result<PartStore> PartStore::open(std::filesystem::path directory, std::vector<std::filesystem::path> local) {
  std::error_code ec;
  std::filesystem::create_directories(directory / "parts", ec);
  if (ec)
    return fail(Code::io, "opening the part store {}: {}; give --store a directory that can be written",
                directory.string(), ec.message());
  auto lock = FileLock::take(directory / kStoreLockName);
  if (!lock && lock.error().code == Code::busy)
    return fail(
        Code::busy,
        "opening the part store {}: it is in use, {}, and two processes must not write into one; give each node "
        "a --store of its own, or end that process first",
        directory.string(), lock.error().message);
  if (!lock)
    return std::unexpected(
        std::move(lock).error().within(fmt::format("opening the part store {}", directory.string())));
  PartStore store;
  store.lock_ = std::move(*lock);
  store.directory_ = std::move(directory);
  store.local_ = std::move(local);
  return store;
}

std::optional<std::filesystem::path> PartStore::find(const PartId& id) const {
  std::error_code ec;
  if (auto path = part_path(directory_, id); std::filesystem::is_regular_file(path, ec)) return path;
  for (const auto& dir : local_)
    if (auto path = part_path(dir, id); std::filesystem::is_regular_file(path, ec)) return path;
  return std::nullopt;
}

std::vector<PartId> PartStore::held(std::size_t limit) const {
  std::vector<PartId> out;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ / "parts", ec)) {
    if (out.size() >= limit) break;
    if (entry.path().extension() != ".part") continue;
    if (const auto digest = digest_from_hex(entry.path().stem().string())) out.push_back({*digest});
  }
  return out;
}

Result<PartStore::Fetch> PartStore::begin(const PartId& id, std::uint64_t bytes) const {
  Fetch f;
  f.id_ = id;
  f.bytes_ = bytes;
  f.final_ = part_path(directory_, id);
  f.partial_ = f.final_;
  f.partial_.replace_extension(".partial");
  f.fd_ = ::open(f.partial_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (f.fd_ < 0)
    return fail(Code::io, "storing part {} in {}: {}", id.hex(), f.partial_.string(), std::strerror(errno));
  const off_t end = ::lseek(f.fd_, 0, SEEK_END);
  if (end < 0) return fail(Code::io, "storing part {} in {}: {}", id.hex(), f.partial_.string(), std::strerror(errno));
  f.offset_ = static_cast<std::uint64_t>(end);
  if (f.offset_ > bytes) {  // of something else: from the start
    if (::ftruncate(f.fd_, 0) != 0 || ::lseek(f.fd_, 0, SEEK_SET) != 0)
      return fail(Code::io, "storing part {}: {}", id.hex(), std::strerror(errno));
    f.offset_ = 0;
  }
  return f;
}

PartStore::Fetch::Fetch(Fetch&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      id_(other.id_),
      offset_(other.offset_),
      bytes_(other.bytes_),
      partial_(std::move(other.partial_)),
      final_(std::move(other.final_)) {}

PartStore::Fetch::~Fetch() {
  if (fd_ >= 0) ::close(fd_);
}

Status PartStore::Fetch::append(std::span<const std::byte> bytes) {
  if (bytes.size() > bytes_ - offset_)
    return fail(Code::corrupt, "fetching part {}: more than its {} bytes came", id_.hex(), bytes_);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(Code::io, "storing part {} in {}: {}", id_.hex(), partial_.string(), std::strerror(errno));
    offset_ += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Status PartStore::Fetch::commit() {
  if (offset_ != bytes_)
    return fail(Code::corrupt, "fetching part {}: {} of {} bytes came", id_.hex(), offset_, bytes_);
  MYRIAD_TRY(const AlignedBuffer whole, read_aligned_file(partial_, kMaxPartBytes));
  if (sha256(whole.bytes()) != id_.digest) {
    ::unlink(partial_.c_str());
    return fail(
        Code::corrupt,
        "fetching part {}: the {} bytes that came have another SHA-256; they are thrown away and will be fetched again",
        id_.hex(), bytes_);
  }
  if (::rename(partial_.c_str(), final_.c_str()) != 0)
    return fail(Code::io, "storing part {}: {}", final_.string(), std::strerror(errno));
  return {};
}

Result<Part> PartStore::load(const PartId& id, const Graph& graph) const {
  const auto path = find(id);
  if (!path) return fail(Code::not_found, "part {} is not in the store {}", id.hex(), directory_.string());
  MYRIAD_TRY(AlignedBuffer bytes, read_aligned_file(*path, kMaxPartBytes));
  auto part = Part::parse(std::move(bytes), graph, &id);
  if (part) return part;
  if (*path == part_path(directory_, id)) ::unlink(path->c_str());
  return std::unexpected(std::move(part).error().within(fmt::format("loading {}", path->string())));
}

}  // namespace myriad
