// Prompts for chat models: from a request in the form of OpenAI's chat API to token ids.
//
// A prompt is a list of fragments that are tokenised one by one, never as one text: only control fragments can yield
// special tokens, so whoever writes `<|sep|>` into a message gets its letters and forges nothing.
//
// Kimi K3 (XTML): an open tag is `<|open|>` name ( key="value")* `<|sep|>`, a close tag `<|close|>` name `<|sep|>`; a
// message ends with
// `<|end_of_msg|>`. A prompt is, in this order: declaration of the tools, thinking effort, the conversation, tool
// choice, response format, and the assistant's message opened up to its `think` (or, with thinking off, `response`)
// channel. Kimi Linear: `<|im_user|>user<|im_middle|>`text`<|im_end|>` and so on.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/tokenizer.h"

namespace myriad {

struct Segment {
  std::string text;      // never empty
  bool control = false;  // its special tokens count as such
  friend bool operator==(const Segment&, const Segment&) = default;
};

enum class ChatFormat {
  kimi_k3,      // XTML
  kimi_linear,  // im_user … im_middle … im_end
  templated,    // by the Jinja text that comes with the model (model/chat_template.h)
};
// Which format the special tokens of this tokenizer are made for. Errors: unsupported, with the tokens that were looked
// for.
Result<ChatFormat> chat_format_of(const Tokenizer& tokenizer);
// Ids after which a reply is over: the end of a message, and [EOS] where the tokenizer has one.
std::vector<std::int32_t> chat_stop_ids(const Tokenizer& tokenizer, ChatFormat format);

// Renders a request. Parse its text with parse_json_text (model/json_text.h): the order of tool arguments is part of
// the prompt. Members that are read, all but `messages` optional:
//   messages               objects with `role`: system, user, assistant or tool; `content`: a string, null or a list of
//   parts
//                          {"type": "text", "text"} / {"type": "image"} / {"type": "image_url"}; `name`; for assistant
//                          `reasoning_content` (or `reasoning`) and `tool_calls`; for tool `tool_call_id`, `tool` (or
//                          `name`); for system `tools`, which are then announced at this place of the conversation
//   tools                  OpenAI's list of {"type": "function", "function": …}
//   thinking               true (default) or false; also {"type": "enabled" | "disabled"}
//   thinking_effort        low, high or max; not looked at when thinking is off
//   tool_choice            auto, none, required; an object that names a function is accepted and renders nothing
//   response_format        {"type": "text" | "json_object" | "json_schema", "json_schema": …}, or the bare type
//   response_schema        instead of the schema in response_format
//   add_generation_prompt  true by default; false leaves the opening of the assistant's message out
//   image_prompts          one text a picture, in the order of the picture parts and of the <|kimi_image_placeholder|>s
//   in the
//                          texts. Made by whoever read the pictures; the only control tokens in it may be media tokens.
//                          Without it the placeholders stay
// Other members are ignored. Errors: invalid_argument with the message's index and what was expected.
Result<std::vector<Segment>> render_chat(const nlohmann::ordered_json& request,
                                         ChatFormat format = ChatFormat::kimi_k3);

// Whether render_chat opened the reasoning channel, so that the reply begins inside it.
bool reply_starts_with_reasoning(const nlohmann::ordered_json& request, ChatFormat format);

// `<|media_begin|>image 640x480<|media_content|>` … : an entry of image_prompts, with the picture's original size in
// pixels.
std::string image_prompt(std::uint32_t width, std::uint32_t height);

// The ids of a rendered prompt. Errors: unsupported when the tokenizer lacks a control token.
Result<std::vector<std::int32_t>> segments_to_ids(const Tokenizer& tokenizer, const std::vector<Segment>& segments);

}  // namespace myriad
