// From the bytes of a request to what the engine and the answer need: parsed, rendered, tokenised, checked against the
// context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generation.h"
#include "gateway/openai_request.h"
#include "gateway/openai_response.h"
#include "model/chat_format.h"
#include "model/model_text.h"
#include "model/reply_parser.h"
#include "model/tokenizer.h"

namespace myriad {

inline constexpr const char* kWarningHeader = "X-Myriad-Warning";

struct PreparedRequest {
  AnswerHead head;
  GenerationOptions options;  // max_tokens and seed are set
  struct Prompt {
    std::vector<std::int32_t> ids;
    std::uint32_t max_tokens = 0;
    std::string echo;  // shown before the answer
  };
  std::vector<Prompt> prompts;
  std::vector<std::int32_t> stop_tokens;
  std::optional<ReplyParser::Options> chat;
  bool parallel_tool_calls = true;
  std::string warning;  // a sentence for the client, sent as kWarningHeader; empty: none
  // Answers in the order of their index: prompt 0's n choices, then prompt 1's.
  [[nodiscard]] std::size_t choices() const { return prompts.size() * options.n; }
};

struct RequestContext {
  const ModelText& text;
  ModelInfo model;
  std::optional<ChatFormat> chat_format;  // none: the tokenizer is made for no chat format
  std::size_t longest_token = 0;          // bytes of the vocabulary's longest, see longest_token_of
  bool chat = false;                      // which endpoint was asked
  std::string id;                         // 24 hexadecimal digits
  std::int64_t created = 0;
  std::uint64_t random_seed = 0;  // used when the request has none
};

// A text of n bytes has at least n / longest tokens, which tells a hopeless prompt before it is tokenised.
std::size_t longest_token_of(const Tokenizer& tokenizer);

// Takes long for a long prompt (about a second for 16 MiB); touches nothing but its arguments.
ApiResult<PreparedRequest> prepare_request(std::string_view body, const RequestContext& context);

}  // namespace myriad
