// Parts on a node's disk: found by content, written once, fetched resumably.
//
// DIR/parts/<hex>.part       complete, verified when it was written and again whenever it is loaded
// DIR/parts/<hex>.partial    a fetch that was interrupted; goes on where it stopped
// DIR/lock                   held by the process that writes here (part/file_lock.h)
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "part/file_lock.h"
#include "part/part_file.h"

namespace myriad {

inline constexpr const char* kStoreLockName = "lock";

class PartStore {
 public:
  // Makes the directory if need be; it is this object's alone until that is destroyed. `local`: further directories
  // (cut directories or other stores) to read from, never written. Errors: io; busy, at once, when another process
  // writes there.
  static Result<PartStore> open(std::filesystem::path directory, std::vector<std::filesystem::path> local);

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  [[nodiscard]] std::optional<std::filesystem::path> find(const PartId& id) const;
  // What this store holds itself, by name; at most `limit`.
  [[nodiscard]] std::vector<PartId> held(std::size_t limit) const;

  // A fetch: append() from offset() on, then commit(). Left alone, the partial file stays for the next try.
  class Fetch {
   public:
    [[nodiscard]] std::uint64_t offset() const { return offset_; }
    Status append(std::span<const std::byte> bytes);
    // Errors: corrupt, when the bytes do not hash to the id (the partial file is removed).
    Status commit();
    Fetch(Fetch&& other) noexcept;
    Fetch& operator=(Fetch&&) = delete;
    ~Fetch();

   private:
    friend class PartStore;
    Fetch() = default;
    int fd_ = -1;
    PartId id_;
    std::uint64_t offset_ = 0, bytes_ = 0;
    std::filesystem::path partial_, final_;
  };
  Result<Fetch> begin(const PartId& id, std::uint64_t bytes) const;

  // Reads, verifies and parses. A copy in the store itself that is damaged is deleted. Errors: not_found, corrupt.
  Result<Part> load(const PartId& id, const Graph& graph) const;

 private:
  std::filesystem::path directory_;
  std::vector<std::filesystem::path> local_;
  std::optional<FileLock> lock_;
};

}  // namespace myriad
