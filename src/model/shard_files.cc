#include "model/shard_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace myriad {

Descriptor::~Descriptor() {
  ::close(fd_);
}

Result<OpenFile> open_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return fail(errno == ENOENT ? Code::not_found : Code::io, "opening {}: {}", path.string(), std::strerror(errno));
  auto descriptor = std::make_shared<const Descriptor>(fd);
  struct stat status {};
  if (::fstat(fd, &status) != 0) return fail(Code::io, "opening {}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return fail(Code::io, "opening {}: it is not a regular file", path.string());
  return OpenFile{std::move(descriptor), static_cast<std::uint64_t>(status.st_size)};
}

Status read_at(const Descriptor& file, std::uint64_t offset, std::span<std::byte> out,
               const std::filesystem::path& path) {
  while (!out.empty()) {
    const std::size_t piece = std::min(out.size(), kReadPiece);
    const ssize_t got = ::pread(file.get(), out.data(), piece, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(Code::io, "reading {} at {}: {}", path.string(), offset, std::strerror(errno));
    if (got == 0)
      return fail(Code::corrupt, "reading {}: the file ends at {}, expected {} bytes more; it is cut short",
                  path.string(), offset, out.size());
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t limit) {
  MYRIAD_TRY(const OpenFile file, open_file(path));
  if (file.size > limit)
    return fail(Code::limit, "reading {}: {} bytes, expected at most {}", path.string(), file.size, limit);
  std::string text(file.size, '\0');
  MYRIAD_TRY_STATUS(read_at(*file.descriptor, 0, std::as_writable_bytes(std::span(text)), path));
  return text;
}

ShardFiles::ShardFiles(std::filesystem::path directory, std::vector<std::string> names)
    : directory_(std::move(directory)), names_(std::move(names)), slots_(names_.size()) {}

Result<OpenFile> ShardFiles::open(std::uint32_t shard) const {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[shard];
  slot.used = ++clock_;
  if (slot.file.descriptor) return slot.file;
  MYRIAD_TRY(OpenFile file, open_file(path(shard)));
  if (open_ == kMaxOpenShards) {
    Slot* oldest = nullptr;
    for (Slot& s : slots_)
      if (s.file.descriptor && (oldest == nullptr || s.used < oldest->used)) oldest = &s;
    oldest->file = {};  // whoever reads from it just now still holds it
    --open_;
  }
  slot.file = file;
  ++open_;
  return file;
}

Status ShardFiles::read(std::uint32_t shard, std::uint64_t offset, std::span<std::byte> out) const {
  MYRIAD_TRY(const OpenFile file, open(shard));
  return read_at(*file.descriptor, offset, out, path(shard));
}

std::size_t ShardFiles::open_handles() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

}  // namespace myriad
