// Writes a model as one GGUF file (version 3), tensor by tensor, never holding more than the header and a caller's
// piece.
//
//   GgufWriter out(path, {});
//   out.set("general.architecture", "llama");  …  out.declare("output.weight", GgmlType::q8_0, dims);  …
//   out.begin();  out.append("output.weight", bytes);  …  out.finish();
//
// The file is written as PATH.partial and gets its name at the end: under its name it is there entirely or not at all.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "model/ggml_type.h"
#include "model/gguf_header.h"
#include "model/gguf_metadata.h"

namespace myriad {

class Descriptor;

inline constexpr std::uint64_t kMaxWrittenGgufTensorName = 63;  // bytes; what llama.cpp reads

// A type that a value is stored as.
template <class T>
concept GgufStored = std::same_as<T, bool> || std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, std::uint8_t> || std::same_as<T, std::int8_t> || std::same_as<T, std::uint16_t> ||
    std::same_as<T, std::int16_t> || std::same_as<T, std::uint32_t> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::uint64_t> || std::same_as<T, std::int64_t>;

struct GgufWriterOptions {
  std::uint64_t alignment = kDefaultGgufAlignment;  // power of two, at most kMaxGgufAlignment
  // Whether an unfinished PATH.partial with the same header is continued, and left behind when this one is not
  // finished.
  bool resumable = false;
};

class GgufWriter {
 public:
  GgufWriter(std::filesystem::path path, GgufWriterOptions options);
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;
  // Removes an unfinished file, unless it is resumable.
  ~GgufWriter();

  // Metadata, in any order, each key once; the type of the value is the type in the file: set("a.b", std::uint32_t{5}).
  // general.alignment is the writer's own. Errors: invalid_argument, limit.
  template <GgufStored T>
  Status set(std::string_view key, T value);
  Status set(std::string_view key, std::string_view value);
  template <GgufStored T>
  requires(!std::same_as<T, bool>) Status set_array(std::string_view key, std::span<const T> values);
  Status set_bools(std::string_view key, const std::vector<bool>& values);
  Status set_strings(std::string_view key, std::span<const std::string_view> values);
  // Copies every key that is not set yet, as it is stored; without general.alignment and split.*, which describe the
  // other file, and without keys that end with `but`, if that is not empty.
  Status copy_metadata(const GgufMetadata& from, std::string_view but = {});

  // The tensors, in the order in which their data will come. dims[0] is contiguous. Errors: invalid_argument, limit.
  Status declare(std::string_view name, GgmlType type, std::span<const std::uint64_t> dims);
  [[nodiscard]] std::uint64_t file_bytes() const;  // of the finished file, as declared so far

  // Writes the header. Gives the number of tensors, from the first one on, whose data is there already from an
  // interrupted run (0 unless resumable): their data must not be given again. Errors: io, busy (somebody else is
  // writing this file).
  Result<std::size_t> begin();
  // The next bytes of a tensor, as stored (little-endian). Tensors come in the order of their declaration, each in as
  // many pieces as one likes. Errors: invalid_argument (another tensor's turn, more bytes than it has), io.
  Status append(std::string_view name, std::span<const std::byte> bytes);
  // Everything must have come. Errors: invalid_argument (names the tensor that lacks bytes), io.
  Status finish();

 private:
  struct Tensor {
    std::string name;
    GgmlType type = GgmlType::f32;
    std::vector<std::uint64_t> dims;
    std::uint64_t offset = 0;  // relative to the data
    std::uint64_t bytes = 0;
  };
  // Begins a key with its type.
  Status begin_key(std::string_view key, GgufValueType type);
  Status check_metadata_size(std::string_view key) const;
  [[nodiscard]] std::uint64_t aligned(std::uint64_t offset) const;
  [[nodiscard]] std::vector<std::byte> header() const;
  // Whether the open file begins with `header`; then sets next_ to the first tensor that is not all there.
  Result<bool> resume(std::span<const std::byte> header);
  Status write(std::uint64_t offset, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  GgufWriterOptions options_;
  std::set<std::string, std::less<>> keys_;
  std::vector<std::byte> metadata_;  // encoded
  std::set<std::string, std::less<>> names_;
  std::vector<Tensor> tensors_;
  std::uint64_t data_bytes_ = 0;
  std::unique_ptr<const Descriptor> file_;
  std::uint64_t data_begin_ = 0;
  std::size_t next_ = 0;         // the tensor whose turn it is
  std::uint64_t next_done_ = 0;  // bytes of it that came
};

}  // namespace myriad
