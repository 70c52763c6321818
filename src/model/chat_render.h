// What the renderers of the chat formats share: writing fragments, and reading foreign requests. Internal to this
// module's chat files.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/chat_format.h"

namespace myriad::chat {

using Json = nlohmann::ordered_json;

// Where a caller leaves a picture in a text.
inline constexpr std::string_view kImagePlaceholder = "<|kimi_image_placeholder|>";

// The member, or null if it is absent or null.
const Json* member(const Json& object, const char* key);
// Whether there is a value that counts as true in Python: not null, false, 0, "" or empty.
bool truthy(const Json* value);
// Errors: invalid_argument, naming `what`, unless it is absent or a string.
Result<std::string> optional_string(const Json* value, std::string_view what);
// `thinking`: true unless the request says false or {"type": "disabled"}.
Result<bool> thinking_of(const Json& request);
Result<bool> boolean_of(const Json& request, const char* key, bool otherwise);
// The list `messages`, every element an object with a string `role`.
Result<const Json*> messages_of(const Json& request);
// The list of tools, null if there are none. Every element is an object.
Result<const Json*> tools_of(const Json& object, std::string_view where);
// `tool_choice`: "auto" (also if absent or an object), "none" or "required".
Result<std::string> tool_choice_of(const Json& request);

// A tool call's function: the member `function`, or the call itself. Errors unless there is a non-empty name.
Result<const Json*> function_of(const Json& call, std::string_view where);

// Hands out the texts of pictures in their order.
class ImagePrompts {
 public:
  static Result<ImagePrompts> of(const Json& request);
  [[nodiscard]] bool given() const { return prompts_.has_value(); }
  // The next picture's text; the placeholder if the request has no image_prompts.
  Result<std::string> next();
  // Errors if some were not used.
  [[nodiscard]] Status all_used() const;

 private:
  std::optional<std::vector<std::string>> prompts_;
  std::size_t used_ = 0;
};

class SegmentWriter {
 public:
  explicit SegmentWriter(ImagePrompts images) : images_(std::move(images)) {}
  void control(std::string_view text) { add(text, true); }
  void plain(std::string_view text) { add(text, false); }
  // A caller's text, with a picture in place of every placeholder if the request has pictures.
  Status text(std::string_view text);
  // A message's content: string, null or list of parts.
  Status content(const Json* content, std::string_view where);
  Result<std::vector<Segment>> finish() &&;

 private:
  void add(std::string_view text, bool is_control) {
    if (!text.empty()) segments_.push_back({std::string(text), is_control});
  }
  ImagePrompts images_;
  std::vector<Segment> segments_;
};

Result<std::vector<Segment>> render_kimi_k3(const Json& request);
Result<std::vector<Segment>> render_kimi_linear(const Json& request);

}  // namespace myriad::chat
