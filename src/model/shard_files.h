// The open files behind a checkpoint: bounded in number, read by pread, safe for many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace myriad {

inline constexpr std::size_t kMaxOpenShards = 128;               // file handles held at a time
inline constexpr std::size_t kReadPiece = std::size_t{8} << 20;  // bytes asked of one pread

// A file descriptor that is closed with its last holder.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

struct OpenFile {
  std::shared_ptr<const Descriptor> descriptor;
  std::uint64_t size = 0;
};

// Opens a regular file for reading; a FIFO or device in a model directory is refused instead of waited for.
Result<OpenFile> open_file(const std::filesystem::path& path);
// Fills `out` from `offset` on, in bounded pieces. `path` is for messages. Errors: io, corrupt (the file ends before).
Status read_at(const Descriptor& file, std::uint64_t offset, std::span<std::byte> out,
               const std::filesystem::path& path);
// A whole file of at most `limit` bytes.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t limit);

// The shards of a checkpoint by number; at most kMaxOpenShards are open at a time, the one longest unused is closed for
// the next.
class ShardFiles {
 public:
  ShardFiles(std::filesystem::path directory, std::vector<std::string> names);
  [[nodiscard]] std::size_t size() const { return names_.size(); }
  [[nodiscard]] const std::string& name(std::uint32_t shard) const { return names_[shard]; }
  [[nodiscard]] std::filesystem::path path(std::uint32_t shard) const { return directory_ / names_[shard]; }

  Result<OpenFile> open(std::uint32_t shard) const;
  Status read(std::uint32_t shard, std::uint64_t offset, std::span<std::byte> out) const;
  // Handles held now, for tests.
  [[nodiscard]] std::size_t open_handles() const;

 private:
  struct Slot {
    OpenFile file;
    std::uint64_t used = 0;
  };
  std::filesystem::path directory_;
  std::vector<std::string> names_;
  mutable std::mutex mutex_;
  mutable std::vector<Slot> slots_;
  mutable std::uint64_t clock_ = 0;
  mutable std::size_t open_ = 0;
};

}  // namespace myriad
