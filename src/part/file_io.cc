#include "part/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace myriad {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

std::unexpected<Error> system_error(std::string_view doing, const std::filesystem::path& path) {
  const int error = errno;
  return fail(error == ENOENT ? Code::not_found : Code::io, "{} {}: {}", doing, path.string(), std::strerror(error));
}

Result<std::size_t> size_of(int fd, const std::filesystem::path& path, std::size_t limit) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error("reading", path);
  if (!S_ISREG(info.st_mode)) return fail(Code::io, "reading {}: it is not a regular file", path.string());
  if (static_cast<std::uint64_t>(info.st_size) > limit)
    return fail(Code::limit, "reading {}: {} bytes, at most {} are read", path.string(), info.st_size, limit);
  return static_cast<std::size_t>(info.st_size);
}

Status read_all(int fd, const std::filesystem::path& path, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = ::read(fd, out.data(), std::min<std::size_t>(out.size(), std::size_t{8} << 20));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("reading", path);
    if (n == 0) return fail(Code::corrupt, "reading {}: it ended {} bytes early", path.string(), out.size());
    out = out.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace

Result<std::string> read_small_file(const std::filesystem::path& path, std::size_t limit) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return system_error("opening", path);
  MYRIAD_TRY(const std::size_t size, size_of(fd.get(), path, limit));
  std::string text(size, '\0');
  MYRIAD_TRY_STATUS(read_all(fd.get(), path, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<AlignedBuffer> read_aligned_file(const std::filesystem::path& path, std::size_t limit) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return system_error("opening", path);
  MYRIAD_TRY(const std::size_t size, size_of(fd.get(), path, limit));
  MYRIAD_TRY(AlignedBuffer bytes, AlignedBuffer::allocate(size, path.string()));
  MYRIAD_TRY_STATUS(read_all(fd.get(), path, bytes.bytes()));
  return bytes;
}

Status write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  auto temporary = path;
  temporary += fmt::format(".{}.tmp", ::getpid());
  {
    const Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (fd.get() < 0) return system_error("writing", temporary);
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd.get(), bytes.data(), std::min<std::size_t>(bytes.size(), std::size_t{8} << 20));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        auto error = system_error("writing", temporary);
        ::unlink(temporary.c_str());
        return error;
      }
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return system_error("renaming to", path);
  return {};
}

}  // namespace myriad
