// Writes the weights of a model in the Hugging Face layout: safetensors files of bounded size and their index, tensor
// by tensor, never holding more than the headers and a caller's piece.
//
//   SafetensorsWriter out(directory, {});
//   out.declare("lm_head.weight", StorageType::bf16, shape);  …
//   out.begin();  out.append("lm_head.weight", bytes);  …  out.finish();
//
// Sizes are known from the declarations, so each file's header is written first and its data front to back; a file's
// length says how far an interrupted run came. The directory itself is the caller's: one that is renamed when all is
// done is there entirely or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/safetensors.h"

namespace myriad {

class Descriptor;

struct SafetensorsWriterOptions {
  std::uint64_t shard_bytes = std::uint64_t{5'000'000'000};  // of data a file; a tensor that is larger has one alone
  bool resumable = false;  // whether files of an unfinished run with the same headers are continued
};

class SafetensorsWriter {
 public:
  SafetensorsWriter(std::filesystem::path directory, SafetensorsWriterOptions options);
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();

  // The tensors, in the order in which their data will come. Errors: invalid_argument (a name or shape that no reader
  // takes, a name twice), limit.
  Status declare(std::string_view name, StorageType type, std::span<const std::uint64_t> shape);
  [[nodiscard]] std::uint64_t bytes() const;  // of all files together without the index, as declared so far

  // Writes the first header. Gives the number of tensors, from the first one on, whose data is there already from an
  // interrupted run (0 unless resumable): their data must not be given again. Errors: io.
  Result<std::size_t> begin();
  // The next bytes of a tensor, as stored (little-endian). Tensors come in the order of their declaration, each in as
  // many pieces as one likes. Errors: invalid_argument (another tensor's turn, more bytes than it has), io.
  Status append(std::string_view name, std::span<const std::byte> bytes);
  // Everything must have come. Writes model.safetensors.index.json if there is more than one file. Errors:
  // invalid_argument (names the tensor that lacks bytes), io.
  Status finish();

 private:
  struct Tensor {
    std::string name;
    StorageType type = StorageType::u8;
    std::vector<std::uint64_t> shape;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  // in its file's data
    std::size_t shard = 0;
  };
  struct Shard {
    std::size_t first = 0, count = 0;  // tensors
    std::uint64_t bytes = 0;           // of data
  };
  [[nodiscard]] std::string shard_name(std::size_t shard) const;
  [[nodiscard]] std::vector<std::byte> header(std::size_t shard) const;
  // Opens file `shard` for the tensor next_; keeps what it has of the data before it.
  Status open(std::size_t shard);
  Status close();
  Status write(std::uint64_t offset, std::span<const std::byte> bytes);
  Status write_index() const;

  std::filesystem::path directory_;
  SafetensorsWriterOptions options_;
  std::set<std::string, std::less<>> names_;
  std::vector<Tensor> tensors_;
  std::vector<Shard> shards_;
  std::unique_ptr<const Descriptor> file_;
  std::size_t open_shard_ = 0;
  std::uint64_t data_begin_ = 0;
  bool begun_ = false;
  std::size_t next_ = 0;         // the tensor whose turn it is
  std::uint64_t next_done_ = 0;  // bytes of it that came
};

}  // namespace myriad
