// A model as GGUF: one file, or the parts NAME-00001-of-000NN.gguf of a split, of which any one may be opened.
//
// Opening reads the headers only. Tensor data is read by pread into the caller's memory when it is asked for, so a
// process of any size reads a file of any size. It is never mapped: a file that is cut short while it is mapped kills
// whoever reads it with a signal, where pread returns an error, and the pages come from the same cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "model/gguf_header.h"
#include "model/gguf_metadata.h"

namespace myriad {

inline constexpr std::size_t kMaxGgufParts = 4096;

// Immutable, thread-safe and cheap to copy: copies share the open files, and whatever reads tensors may keep one.
class GgufFile {
 public:
  // Errors: not_found (the file, or a part, which is named), corrupt, limit, unsupported, io.
  static Result<GgufFile> open(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const;  // as it was opened
  [[nodiscard]] std::uint32_t version() const;              // of the format: 2 or 3
  [[nodiscard]] std::size_t parts() const;                  // files; 1 without a split
  [[nodiscard]] const std::string& part_name(std::size_t part) const;

  // Of the first part; the others repeat none of it but what belongs to the split.
  [[nodiscard]] const GgufMetadata& metadata() const;
  // general.architecture: "llama", "kimi-k3", …
  [[nodiscard]] Result<std::string_view> architecture() const;

  // All tensors of all parts, in ascending order of name.
  [[nodiscard]] std::span<const GgufTensor> tensors() const;
  // nullptr if there is none. O(log n).
  [[nodiscard]] const GgufTensor* find(std::string_view name) const;
  // Errors: not_found, or unsupported (a type that Myriad does not read).
  [[nodiscard]] Result<const GgufTensor*> require(std::string_view name) const;

  // Bytes [offset, offset + out.size()) of the tensor as they are stored. Errors: invalid_argument (outside of the
  // tensor), unsupported (its type), io, corrupt (the file was cut short since it was opened).
  Status read(const GgufTensor& tensor, std::uint64_t offset, std::span<std::byte> out) const;

 private:
  struct State;
  friend struct GgufOpener;
  explicit GgufFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace myriad
