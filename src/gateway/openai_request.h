// Requests of OpenAI's completions and chat API: from the bytes of a body to checked values. Everything that a body can
// ask for is either served, or refused by the name of the member, or known to be without influence on the answer
// (`user`, `metadata`, …).
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gateway/api_error.h"

namespace myriad {

// Bounds on a request, checked before memory is spent on it.
inline constexpr std::size_t kMaxRequestBodyBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMaxRequestDepth = 64;                               // of nested arrays and objects
inline constexpr std::size_t kMaxRequestValues = (std::size_t{1} << 20) + 65536;  // a million token ids fit
inline constexpr std::size_t kMaxRequestMembers = 131072;  // members of objects, and containers, in all
inline constexpr std::size_t kMaxMessages = 8192;
inline constexpr std::size_t kMaxTools = 512;
inline constexpr std::size_t kMaxToolCallsPerMessage = 512;
inline constexpr std::size_t kMaxContentParts = 1024;  // of one message
inline constexpr std::size_t kMaxNameBytes = 256;      // of a function or a speaker
inline constexpr std::size_t kMaxStops = 4;
inline constexpr std::size_t kMaxStopBytes = 1024;
inline constexpr std::uint32_t kMaxChoices = 16;                  // n
inline constexpr std::size_t kMaxPrompts = 64;                    // of one completions request
inline constexpr std::uint32_t kMaxGenerations = 128;             // prompts · n
inline constexpr std::uint32_t kCompletionMaxTokensDefault = 16;  // as OpenAI; chat goes up to the context

struct GenerationOptions {
  std::optional<std::uint32_t> max_tokens;
  float temperature = 1;
  float top_p = 1;
  std::uint32_t top_k = 0;  // 0: no limit
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  std::uint32_t n = 1;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  std::uint8_t top_logprobs = 0;
};

using PromptInput = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionRequest {
  GenerationOptions options;
  std::vector<PromptInput> prompts;  // at least one; none is empty
  bool echo = false;
};

struct ChatRequest {
  GenerationOptions options;
  // What render_chat takes, and nothing else: messages, tools, thinking, thinking_effort, tool_choice, response_format.
  nlohmann::ordered_json conversation;
  bool parallel_tool_calls = true;
};

// `model` is the name that is served; a request names it or none. Errors: 400 with `param`, 404 model_not_found.
ApiResult<CompletionRequest> parse_completion_request(std::string_view body, std::string_view model);
ApiResult<ChatRequest> parse_chat_request(std::string_view body, std::string_view model);

// Why `model` is not served here.
ApiError model_not_found(std::string_view asked, std::string_view served);

}  // namespace myriad
