// What one process at a time may write to: a lock file, held by flock(2). The kernel lets it go when the process ends,
// however it ends; the file that then stays behind locks nobody out.
#pragma once

#include <filesystem>

#include "base/error.h"

namespace myriad {

class FileLock {
 public:
  // Makes `path` if need be and writes this process's number into it. Its directory must exist. Errors: busy (the
  // message names the process that holds it, and nothing else); io, not_found.
  static Result<FileLock> take(const std::filesystem::path& path);
  // The same, but blocks until whoever holds it has let it go.
  static Result<FileLock> wait(const std::filesystem::path& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  // Removes the file and lets it go.
  ~FileLock();

 private:
  FileLock(int fd, std::filesystem::path path);
  static Result<FileLock> lock(const std::filesystem::path& path, bool wait);

  int fd_ = -1;
  std::filesystem::path path_;
};

}  // namespace myriad
