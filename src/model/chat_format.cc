#include "model/chat_format.h"

#include <algorithm>

#include "model/chat_render.h"

namespace myriad {

Result<ChatFormat> chat_format_of(const Tokenizer& tokenizer) {
  const auto has_all = [&](std::initializer_list<std::string_view> names) {
    return std::all_of(names.begin(), names.end(),
                       [&](std::string_view name) { return tokenizer.special_id(name).has_value(); });
  };
  if (has_all({"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"})) return ChatFormat::kimi_k3;
  if (has_all({"<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"})) {
    return ChatFormat::kimi_linear;
  }
  return fail(
      Code::unsupported,
      "finding the chat format: the model has neither a chat template nor the control tokens of Kimi's formats "
      "(<|open|> and so on, <|im_user|> and so on); is its tokenizer_config.json missing? Plain completions work "
      "without");
}

std::vector<std::int32_t> chat_stop_ids(const Tokenizer& tokenizer, ChatFormat format) {
  if (format == ChatFormat::templated) return tokenizer.end_ids();
  std::vector<std::int32_t> ids;
  for (const std::string_view name : {format == ChatFormat::kimi_k3 ? "<|end_of_msg|>" : "<|im_end|>", "[EOS]"}) {
    if (const auto id = tokenizer.special_id(name)) ids.push_back(*id);
  }
  return ids;
}

Result<std::vector<Segment>> render_chat(const nlohmann::ordered_json& request, ChatFormat format) {
  if (format == ChatFormat::templated)
    return fail(Code::internal, "a chat template is rendered by ChatTemplate, not by its format");
  return format == ChatFormat::kimi_k3 ? chat::render_kimi_k3(request) : chat::render_kimi_linear(request);
}

bool reply_starts_with_reasoning(const nlohmann::ordered_json& request, ChatFormat format) {
  return format == ChatFormat::kimi_k3 && chat::thinking_of(request).value_or(true);
}

std::string image_prompt(std::uint32_t width, std::uint32_t height) {
  return fmt::format("<|media_begin|>image {}x{}<|media_content|><|media_pad|><|media_end|>", width, height);
}

Result<std::vector<std::int32_t>> segments_to_ids(const Tokenizer& tokenizer, const std::vector<Segment>& segments) {
  std::vector<std::int32_t> ids;
  for (const Segment& segment : segments) {
    const auto more = segment.control ? tokenizer.encode_with_specials(segment.text) : tokenizer.encode(segment.text);
    if (segment.control &&
        std::none_of(more.begin(), more.end(), [&](std::int32_t id) { return tokenizer.is_special(id); })) {
      return fail(Code::unsupported, "tokenising a prompt: the tokenizer has no token {}: is it that of another model?",
                  segment.text);
    }
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

}  // namespace myriad
