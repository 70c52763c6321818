#include "part/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace myriad {
namespace {

constexpr std::size_t kMaxNumberBytes = 20;

// Whether the descriptor is still the file of that name: whoever lets a lock go removes its file.
bool is_there(int fd, const std::filesystem::path& path) {
  struct stat held {};
  struct stat named {};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

// What the holder has written about itself.
std::string holder(int fd) {
  std::array<char, kMaxNumberBytes> text{};
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  std::string number(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  number.resize(std::min(number.find_first_not_of("0123456789"), number.size()));
  return number.empty() ? "another process" : "process " + number;
}

}  // namespace

Result<FileLock> FileLock::take(const std::filesystem::path& path) {
  return lock(path, false);
}
Result<FileLock> FileLock::wait(const std::filesystem::path& path) {
  return lock(path, true);
}

Result<FileLock> FileLock::lock(const std::filesystem::path& path, bool wait) {
  for (;;) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
      return fail(errno == ENOENT ? Code::not_found : Code::io, "opening the lock file {}: {}", path.string(),
                  std::strerror(errno));
    FileLock made(fd, path);
    while (::flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) != 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      made.path_.clear();  // not ours to remove
      if (error == EWOULDBLOCK) return fail(Code::busy, "{} holds {}", holder(fd), path.string());
      return fail(Code::io,
                  "locking {}: {}; use a directory on a file system that can lock files, such as a local disk",
                  path.string(), std::strerror(error));
    }
    if (!is_there(fd, path)) {
      made.path_.clear();
      continue;
    }
    const std::string number = fmt::format("{}\n", ::getpid());
    if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, number.data(), number.size(), 0) != static_cast<ssize_t>(number.size()))
      return fail(Code::io, "writing the lock file {}: {}", path.string(), std::strerror(errno));
    return made;
  }
}

FileLock::FileLock(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
FileLock::FileLock(FileLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::exchange(other.path_, {})) {}
FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}
FileLock::~FileLock() {
  if (fd_ < 0) return;
  if (!path_.empty()) ::unlink(path_.c_str());  // while it is held: nobody can have locked the file of this name
  ::close(fd_);
}

}  // namespace myriad
