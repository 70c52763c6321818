// A model that is ready to take steps: all its parts in this process, or in a private fleet that ends with this object.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/commands.h"
#include "cli/model_source.h"
#include "engine/pipeline.h"

namespace myriad::cli {

class Session {
 public:
  // `budget` is what the command needs; EngineOptions::context, if given, overrides its context. Blocks until
  // everything is loaded. A context beyond the model's own is warned of in the command's name; "": that has been done.
  static Result<std::unique_ptr<Session>> open(std::string_view command, const EngineOptions& options,
                                               ModelSource model, Budget budget);
  virtual ~Session() = default;

  [[nodiscard]] virtual const ModelSource& model() const = 0;
  [[nodiscard]] virtual std::shared_ptr<Pipeline> pipeline() const = 0;
  // For people: where the bytes went. Ends with a newline.
  [[nodiscard]] virtual std::string account() const = 0;
};

// How many rows of all logits one frame can carry back, at most `wanted`, at least 1.
std::uint32_t rows_of_logits(const ModelConfig& config, std::uint32_t wanted);
// Resident set of this process, in bytes; 0 where the system does not say.
std::uint64_t resident_bytes();

}  // namespace myriad::cli
