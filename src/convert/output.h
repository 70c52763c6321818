// Where a quantised model goes: a Hugging Face directory or a GGUF file, tensor by tensor, continued where an earlier
// run stopped.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "convert/model_files.h"
#include "convert/plan.h"

namespace myriad {

class QuantizedOutput {
 public:
  // `path` ends in .gguf for a file, else it is a directory; nothing is written yet. `files` must outlive this object.
  // Errors: unsupported (a type that a GGUF file cannot hold), invalid_argument (`files` were opened for the other
  // kind).
  static Result<std::unique_ptr<QuantizedOutput>> create(const ModelFiles& files, const std::vector<TensorPlan>& plan,
                                                         const std::filesystem::path& path);
  virtual ~QuantizedOutput() = default;

  [[nodiscard]] virtual std::uint64_t bytes() const = 0;  // of the weights' files, headers included
  // Opens what is written to (PATH.partial); gives how many of the tensors are there from an interrupted run.
  virtual Result<std::size_t> begin() = 0;
  // The next rows of a tensor that changes its type; tensors come in the order of ModelFiles::tensors().
  virtual Status write_rows(std::size_t tensor, std::span<const std::byte> rows) = 0;
  // A tensor that stays as it is.
  virtual Status copy(std::size_t tensor) = 0;
  // Config and tokenizer; the output gets its name.
  virtual Status finish() = 0;
};

// Whether it is the name of a GGUF file: it ends in .gguf, in letters of either case.
bool is_gguf_name(const std::filesystem::path& path);
// What an unfinished output is called, and removing it.
std::filesystem::path partial_path(const std::filesystem::path& path);
Status remove_partial(const std::filesystem::path& path);

}  // namespace myriad
