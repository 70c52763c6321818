// What the API and the command line ask of a model: start a generation, get events, cancel. Implemented by the batcher
// over a pipeline (a fleet, or all parts in this process).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "model/sampler.h"

namespace myriad {

struct GenerationRequest {
  std::string id;                    // for logs and errors
  std::vector<std::int32_t> prompt;  // at least one token
  std::uint32_t max_tokens = 16;     // new tokens; prompt + max_tokens must fit the context budget
  std::vector<std::int32_t>
      stop_tokens;    // ends (and is reported as finish) when drawn; the stop token itself is not in `TokenEvent`s
  SampleSpec sample;  // position is filled in by the batcher
};

struct TokenEvent {
  Sample sample;
  std::uint32_t kept_tokens = 0;  // of the prompt, that were not computed: a kept prefix had them
};
enum class FinishReason : std::uint8_t { stop, length, cancelled };
struct FinishedEvent {
  FinishReason reason = FinishReason::stop;
  std::uint32_t prompt_tokens = 0, completion_tokens = 0;
  std::uint32_t kept_tokens = 0;  // as of a TokenEvent, of which there may have been none
};
struct FailedEvent {
  Error error;
};
using GenerationEvent = std::variant<TokenEvent, FinishedEvent, FailedEvent>;

struct ModelInfo {
  std::string name;
  std::uint32_t context = 0;    // positions of one sequence, prompt and answer together
  std::uint32_t sequences = 0;  // that run at once
  std::uint32_t queue = 0;      // requests that may wait
  std::int32_t vocabulary = 0;
  std::uint64_t own_context = 0;  // positions that the model was trained for; 0: unknown
};

class GenerationBackend {
 public:
  virtual ~GenerationBackend() = default;
  // Never blocks. `on_event` is called from the backend's own thread, in order, ending with exactly one FinishedEvent
  // or FailedEvent; also after a cancel. Errors at once: limit (prompt + max_tokens over the context budget, with the
  // numbers), busy (queue full), unavailable (fleet not ready, with the reason).
  using OnEvent = std::function<void(const GenerationEvent&)>;
  virtual Result<std::uint64_t> start(GenerationRequest request, OnEvent on_event) = 0;
  virtual void cancel(std::uint64_t generation) = 0;
  [[nodiscard]] virtual ModelInfo info() const = 0;
  // Ready: a probe token passed every stage of the present placement. Otherwise the reason.
  [[nodiscard]] virtual Status ready() const = 0;
};

}  // namespace myriad
