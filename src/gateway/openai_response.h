// Answers in the form of OpenAI's API: whole bodies, and the chunks of a stream.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generation.h"
#include "gateway/completion_session.h"
#include "model/tokenizer.h"

namespace myriad {

struct Usage {
  std::uint64_t prompt_tokens = 0, completion_tokens = 0;
  std::uint64_t cached_tokens = 0;  // of the prompts'
};

// What all bodies of one request have in common.
struct AnswerHead {
  bool chat = false;
  std::string id;            // "cmpl-…" or "chatcmpl-…"
  std::int64_t created = 0;  // Unix seconds
  std::string model;
  bool logprobs = false;
  bool include_usage = false;  // of a stream: every chunk has a `usage`, null but in the last
};

struct FinishedChoice {
  AnswerPiece answer;
  std::string finish_reason;
};

// A whole answer. `choices` by index.
std::string answer_body(const AnswerHead& head, std::span<const FinishedChoice> choices, const Usage& usage,
                        const Tokenizer& tokenizer);

// Chunks, each a JSON object without framing.
std::string chat_role_chunk(const AnswerHead& head, std::size_t index);
std::string piece_chunk(const AnswerHead& head, std::size_t index, const AnswerPiece& piece,
                        const Tokenizer& tokenizer);
std::string finish_chunk(const AnswerHead& head, std::size_t index, std::string_view finish_reason);
std::string usage_chunk(const AnswerHead& head, const Usage& usage);

// Framing of server-sent events.
std::string sse_event(std::string_view json);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";

std::string model_body(const ModelInfo& info, std::int64_t created);
std::string model_list_body(const ModelInfo& info, std::int64_t created);

// A token as text: its characters, or where its bytes are none, each byte as `\xe2`.
std::string token_as_text(const Tokenizer& tokenizer, std::int32_t token);

}  // namespace myriad
