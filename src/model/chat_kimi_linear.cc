// Kimi Linear's prompt format, which it shares with Kimi K2: a marker of the speaker, a label, `<|im_middle|>`, text,
// `<|im_end|>`.
#include <utility>

#include "model/chat_render.h"
#include "model/json_text.h"

namespace myriad::chat {
namespace {

void begin_turn(SegmentWriter& out, std::string_view marker, std::string_view label) {
  out.control(marker);
  out.plain(label);
  out.control("<|im_middle|>");
}

// Content as one text; this model sees no pictures.
Result<std::string> text_of(const Json& message, std::string_view where) {
  MYRIAD_TRY(ImagePrompts none, ImagePrompts::of(Json::object()));
  SegmentWriter out(std::move(none));
  MYRIAD_TRY_STATUS(out.content(member(message, "content"), where));
  MYRIAD_TRY(const std::vector<Segment> segments, std::move(out).finish());
  std::string text;
  for (const Segment& segment : segments) {
    if (segment.control)
      return fail(Code::unsupported, "rendering a chat: {} has a picture; this model takes text only", where);
    text += segment.text;
  }
  return text;
}

Status render_calls(SegmentWriter& out, const Json& message, std::string_view where) {
  const Json* calls = member(message, "tool_calls");
  if (!truthy(calls)) return {};
  if (!calls->is_array()) return fail(Code::invalid_argument, "rendering a chat: {}.tool_calls is not a list", where);
  out.control("<|tool_calls_section_begin|>");
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const Json& call = (*calls)[i];
    const std::string which = fmt::format("{}.tool_calls[{}]", where, i);
    MYRIAD_TRY(const Json* const function, function_of(call, which));
    MYRIAD_TRY(std::string id, optional_string(member(call, "id"), which + ".id"));
    if (id.empty()) id = fmt::format("functions.{}:{}", function->at("name").get<std::string>(), i);
    std::string arguments = "{}";
    if (const Json* given = member(*function, "arguments")) {
      if (given->is_string()) {
        arguments = given->get<std::string>();
      } else {
        MYRIAD_TRY(arguments, json_text(*given, JsonStyle::spaced));
      }
    }
    out.control("<|tool_call_begin|>");
    out.plain(id);
    out.control("<|tool_call_argument_begin|>");
    out.plain(arguments);
    out.control("<|tool_call_end|>");
  }
  out.control("<|tool_calls_section_end|>");
  return {};
}

Status render_message(SegmentWriter& out, const Json& message, std::size_t index) {
  const std::string where = fmt::format("messages[{}]", index), role = message.at("role").get<std::string>();
  MYRIAD_TRY(std::string label, optional_string(member(message, "name"), where + ".name"));
  if (label.empty()) label = role;
  MYRIAD_TRY(std::string text, text_of(message, where));
  if (role == "tool") {
    MYRIAD_TRY(const std::string id, optional_string(member(message, "tool_call_id"), where + ".tool_call_id"));
    text = fmt::format("## Return of {}\n{}", id, text);
  }
  begin_turn(out, role == "user" ? "<|im_user|>" : role == "assistant" ? "<|im_assistant|>" : "<|im_system|>", label);
  out.plain(text);
  if (role == "assistant") MYRIAD_TRY_STATUS(render_calls(out, message, where));
  out.control("<|im_end|>");
  return {};
}

}  // namespace

Result<std::vector<Segment>> render_kimi_linear(const Json& request) {
  MYRIAD_TRY(const Json* const messages, messages_of(request));
  MYRIAD_TRY(const Json* const tools, tools_of(request, "tools"));
  MYRIAD_TRY(const bool opening, boolean_of(request, "add_generation_prompt", true));
  MYRIAD_TRY(const std::string choice, tool_choice_of(request));
  if (choice == "required") {
    return fail(Code::unsupported,
                "rendering a chat: this model's format cannot require a tool call; leave tool_choice out");
  }
  const Json* format = member(request, "response_format");
  if (format != nullptr && *format != "text" && (!format->is_object() || format->value("type", "") != "text")) {
    return fail(Code::unsupported,
                "rendering a chat: this model's format has no response_format; ask for JSON in a message");
  }
  MYRIAD_TRY(ImagePrompts none, ImagePrompts::of(Json::object()));
  SegmentWriter out(std::move(none));
  if (tools != nullptr && choice != "none") {
    MYRIAD_TRY(const std::string list, json_text(*tools, JsonStyle::compact));
    begin_turn(out, "<|im_system|>", "tool_declare");
    out.plain(list);
    out.control("<|im_end|>");
  }
  for (std::size_t i = 0; i < messages->size(); ++i) MYRIAD_TRY_STATUS(render_message(out, (*messages)[i], i));
  if (opening) begin_turn(out, "<|im_assistant|>", "assistant");
  return std::move(out).finish();
}

}  // namespace myriad::chat
