// Kimi K3's prompt format. The fixed texts are part of the protocol: the model was trained on these very bytes.
#include <algorithm>
#include <map>
#include <utility>

#include "model/chat_render.h"
#include "model/json_text.h"
#include "model/pretokenizer.h"
#include "model/utf8_stream.h"

namespace myriad::chat {
namespace {

constexpr std::string_view kOpen = "<|open|>", kClose = "<|close|>", kSep = "<|sep|>", kEndOfMessage = "<|end_of_msg|>";

constexpr std::string_view kToolsHeading = "# Tools\nHere are the available tools, described in JSONSchema.\n\n";
constexpr std::string_view kNewToolsHeading =
    "## New Tools Available\n"
    "The system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n";
constexpr std::string_view kThinkingEffort =
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported "
    "values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort={}`.";
constexpr std::string_view kToolsRequired =
    "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.";
constexpr std::string_view kToolsForbidden =
    "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.";
constexpr std::string_view kResponseFormat =
    "The system is invoked with `response_format={}`.\n"
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting.";
constexpr std::string_view kResponseSchema = "\nThe JSON data must match the following schema:\n";

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

using Attributes = std::vector<std::pair<std::string_view, std::string>>;

void open_tag(SegmentWriter& out, std::string_view tag, const Attributes& attributes = {}) {
  out.control(kOpen);
  out.plain(tag);
  for (const auto& [key, value] : attributes) {
    out.plain(fmt::format(" {}", key));
    out.plain("=\"");
    out.plain(escaped(value));
    out.plain("\"");
  }
  out.control(kSep);
}

void close_tag(SegmentWriter& out, std::string_view tag) {
  out.control(kClose);
  out.plain(tag);
  out.control(kSep);
}

void end_message(SegmentWriter& out) {
  close_tag(out, "message");
  out.control(kEndOfMessage);
}

// A message of the system that no caller wrote.
void internal_message(SegmentWriter& out, std::string_view type, std::string_view body) {
  open_tag(out, "message", {{"role", "system"}, {"type", std::string(type)}});
  out.plain(body);
  end_message(out);
}

Status declare_tools(SegmentWriter& out, std::string_view heading, const Json& tools) {
  MYRIAD_TRY(const std::string list, json_text(tools, JsonStyle::compact_sorted));
  internal_message(out, "tool-declare", fmt::format("{}```json\n{}\n```", heading, list));
  return {};
}

bool is_blank(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    if (!c.valid || !is_python_space(c.code_point)) return false;
    at += c.length;
  }
  return true;
}

std::string_view type_of_argument(const Json& value) {
  switch (value.type()) {
    case Json::value_t::boolean:
      return "boolean";
    case Json::value_t::null:
      return "null";
    case Json::value_t::string:
      return "string";
    case Json::value_t::object:
      return "object";
    case Json::value_t::array:
      return "array";
    default:
      return "number";  // also an integer of any length, see parse_json_text
  }
}

Status render_arguments(SegmentWriter& out, const Json& function, std::string_view where) {
  const Json* arguments = member(function, "arguments");
  Json parsed;
  if (arguments != nullptr && arguments->is_string()) {
    const auto& text = arguments->get_ref<const std::string&>();
    if (is_blank(text)) return {};
    auto result = parse_json_text(text);
    if (!result && result.error().code != Code::corrupt) {
      return std::unexpected(std::move(result).error().within(fmt::format("rendering a chat: {}.arguments", where)));
    }
    if (!result) {
      // The model sees its own broken text again rather than a repair of it.
      open_tag(out, "json", {{"type", "object"}});
      MYRIAD_TRY_STATUS(out.text(text));
      close_tag(out, "json");
      return {};
    }
    parsed = std::move(*result);
    arguments = &parsed;
  }
  if (arguments == nullptr) return {};
  if (!arguments->is_object()) {
    return fail(Code::invalid_argument,
                "rendering a chat: {}.arguments is of type {}, an object or a JSON text of one is expected", where,
                arguments->type_name());
  }
  for (const auto& [key, value] : arguments->items()) {
    open_tag(out, "argument", {{"key", key}, {"type", std::string(type_of_argument(value))}});
    if (value.is_string()) {
      MYRIAD_TRY_STATUS(out.text(value.get_ref<const std::string&>()));
    } else {
      MYRIAD_TRY(const std::string text, json_text(value, JsonStyle::spaced));
      MYRIAD_TRY_STATUS(out.text(text));
    }
    close_tag(out, "argument");
  }
  return {};
}

// The calls of an assistant message; null if there are none.
Result<const Json*> calls_of(const Json& message, std::string_view where) {
  const Json* calls = member(message, "tool_calls");
  if (!truthy(calls)) return nullptr;
  if (!calls->is_array()) return fail(Code::invalid_argument, "rendering a chat: {}.tool_calls is not a list", where);
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const auto function = function_of((*calls)[i], fmt::format("{}.tool_calls[{}]", where, i));
    if (!function) return std::unexpected(function.error());
  }
  return calls;
}

Status render_assistant(SegmentWriter& out, const Json& message, bool thinking, std::string_view where) {
  if (thinking) {
    const Json* reasoning = member(message, "reasoning_content");
    if (!truthy(reasoning)) reasoning = member(message, "reasoning");
    MYRIAD_TRY(const std::string text, optional_string(reasoning, fmt::format("{}.reasoning_content", where)));
    open_tag(out, "think");
    if (!is_blank(text)) MYRIAD_TRY_STATUS(out.text(text));
    close_tag(out, "think");
  }
  open_tag(out, "response");
  MYRIAD_TRY_STATUS(out.content(member(message, "content"), where));
  close_tag(out, "response");

  MYRIAD_TRY(const Json* const calls, calls_of(message, where));
  if (calls == nullptr) return {};
  open_tag(out, "tools");
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const std::string call = fmt::format("{}.tool_calls[{}]", where, i);
    MYRIAD_TRY(const Json* const function, function_of((*calls)[i], call));
    open_tag(out, "call", {{"tool", function->at("name").get<std::string>()}, {"index", std::to_string(i + 1)}});
    MYRIAD_TRY_STATUS(render_arguments(out, *function, call));
    close_tag(out, "call");
  }
  close_tag(out, "tools");
  return {};
}

// A message in the order in which it is rendered.
struct Turn {
  const Json* message = nullptr;
  std::size_t index = 0;  // in the request
  std::string tool;       // of a tool's result: the name of the call that it answers, if that was found by its id
};

// An id as a text, empty if there is none.
std::string id_text(const Json& object, const char* key, const char* other) {
  auto id = object.find(key);
  if (id == object.end()) id = object.find(other);
  if (id == object.end() || id->is_null()) return {};
  if (id->is_string()) return id->get<std::string>();
  return json_text(*id, JsonStyle::spaced).value_or("");
}

// In the prompt a tool's result has no id: its place says which call it answers. So every run of results that all name
// a call of the assistant message before it is sorted into the order of the calls; any other run stays as it is.
Result<std::vector<Turn>> turns_in_call_order(const Json& messages) {
  struct Answered {
    std::size_t position = 0;
    std::string tool;
  };
  std::map<std::string, Answered> calls;  // by id, of the latest assistant message; of equal ids the first counts
  std::vector<Turn> turns;
  for (std::size_t i = 0; i < messages.size();) {
    const Json& message = messages[i];
    const std::string role = message.at("role").get<std::string>();
    if (role == "assistant") {
      calls.clear();
      MYRIAD_TRY(const Json* const list, calls_of(message, fmt::format("messages[{}]", i)));
      for (std::size_t c = 0; list != nullptr && c < list->size(); ++c) {
        const Json& call = (*list)[c];
        const std::string id = id_text(call, "id", "id");
        MYRIAD_TRY(const Json* const function, function_of(call, "a tool call"));
        if (!id.empty()) calls.emplace(id, Answered{c, function->at("name").get<std::string>()});
      }
    }
    if (role != "tool") {
      turns.push_back({&message, i, {}});
      ++i;
      continue;
    }
    std::vector<std::pair<std::size_t, Turn>> run;  // with the position of the call
    bool all_found = true;
    for (; i < messages.size() && messages[i].at("role") == "tool"; ++i) {
      const auto call = calls.find(id_text(messages[i], "tool_call_id", "id"));
      all_found = all_found && call != calls.end();
      if (call == calls.end()) {
        run.push_back({0, {&messages[i], i, {}}});
      } else {
        run.push_back({call->second.position, {&messages[i], i, call->second.tool}});
      }
    }
    if (all_found) std::stable_sort(run.begin(), run.end(), [](auto& a, auto& b) { return a.first < b.first; });
    for (auto& [position, turn] : run) {
      if (!all_found) turn.tool.clear();
      turns.push_back(std::move(turn));
    }
  }
  return turns;
}

// The name of the tool that a result comes from.
Result<std::string> tool_name(const Turn& turn, const Json* calls, std::size_t number, std::string_view where) {
  if (!turn.tool.empty()) return turn.tool;
  auto name = turn.message->find("tool");
  if (name == turn.message->end()) name = turn.message->find("name");
  if (name != turn.message->end() && !name->is_null()) return optional_string(&*name, fmt::format("{}.tool", where));
  if (calls != nullptr && number <= calls->size()) {
    MYRIAD_TRY(const Json* const function, function_of((*calls)[number - 1], "a tool call"));
    return function->at("name").get<std::string>();
  }
  return fail(Code::invalid_argument,
              "rendering a chat: {} is a tool's result, but of which tool? It has no 'tool' or 'name', and there is no "
              "call before "
              "it that it answers by tool_call_id or by its place",
              where);
}

Status render_conversation(SegmentWriter& out, const Json& messages, bool thinking) {
  MYRIAD_TRY(const std::vector<Turn> turns, turns_in_call_order(messages));
  const Json* calls = nullptr;  // of the latest assistant message
  std::size_t results = 0;      // since then
  for (const Turn& turn : turns) {
    const Json& message = *turn.message;
    const std::string role = message.at("role").get<std::string>(), where = fmt::format("messages[{}]", turn.index);
    if (role == "tool") {
      ++results;
      MYRIAD_TRY(const std::string name, tool_name(turn, calls, results, where));
      open_tag(out, "message", {{"role", role}, {"tool", name}, {"index", std::to_string(results)}});
      MYRIAD_TRY_STATUS(out.content(member(message, "content"), where));
      end_message(out);
      continue;
    }
    if (role == "system") {
      MYRIAD_TRY(const Json* const tools, tools_of(message, where + ".tools"));
      if (tools != nullptr) {
        MYRIAD_TRY_STATUS(declare_tools(out, kNewToolsHeading, *tools));
        continue;
      }
    }
    Attributes attributes{{"role", role}};
    MYRIAD_TRY(const std::string name, optional_string(member(message, "name"), where + ".name"));
    if (!name.empty()) attributes.emplace_back("name", name);
    open_tag(out, "message", attributes);
    if (role == "assistant") {
      MYRIAD_TRY(calls, calls_of(message, where));
      results = 0;
      MYRIAD_TRY_STATUS(render_assistant(out, message, thinking, where));
    } else {
      MYRIAD_TRY_STATUS(out.content(member(message, "content"), where));
    }
    end_message(out);
  }
  return {};
}

Status render_thinking_effort(SegmentWriter& out, const Json& request) {
  const Json* effort = member(request, "thinking_effort");
  if (effort == nullptr) return {};
  MYRIAD_TRY(const std::string name, optional_string(effort, "thinking_effort"));
  if (name != "low" && name != "high" && name != "max") {
    return fail(Code::invalid_argument, "rendering a chat: thinking_effort is '{}'; low, high or max is expected",
                name);
  }
  internal_message(out, "thinking-effort", fmt::format(fmt::runtime(kThinkingEffort), name));
  return {};
}

// The schema: `response_schema`, else that in `response_format`, which clients nest in several ways; null if there is
// none.
Json schema_of(const Json& request, const Json& format) {
  if (const auto given = request.find("response_schema"); given != request.end()) return *given;
  const Json* holder = member(format, "json_schema");
  if (holder == nullptr || !holder->is_object()) return holder == nullptr ? Json() : *holder;
  for (const char* key : {"schema", "json_schema"}) {
    if (const auto inner = holder->find(key); inner != holder->end()) return *inner;
  }
  return *holder;
}

Status render_response_format(SegmentWriter& out, const Json& request) {
  const Json* format = member(request, "response_format");
  if (format == nullptr) return {};
  const Json* type = format->is_object() ? member(*format, "type") : format;
  MYRIAD_TRY(const std::string name, optional_string(type, "response_format.type"));
  if (name.empty() || name == "text") return {};
  if (name != "json_object" && name != "json_schema") {
    return fail(Code::invalid_argument,
                "rendering a chat: response_format is '{}'; text, json_object or json_schema is expected", name);
  }
  std::string body = fmt::format(fmt::runtime(kResponseFormat), name);
  if (name == "json_schema") {
    MYRIAD_TRY(const std::string schema, json_text(schema_of(request, *format), JsonStyle::compact_sorted));
    body += fmt::format("{}```json\n{}\n```", kResponseSchema, schema);
  }
  internal_message(out, "response-format", body);
  return {};
}

}  // namespace

Result<std::vector<Segment>> render_kimi_k3(const Json& request) {
  MYRIAD_TRY(const Json* const messages, messages_of(request));
  MYRIAD_TRY(const Json* const tools, tools_of(request, "tools"));
  MYRIAD_TRY(const bool thinking, thinking_of(request));
  MYRIAD_TRY(const bool opening, boolean_of(request, "add_generation_prompt", true));
  MYRIAD_TRY(const std::string choice, tool_choice_of(request));
  MYRIAD_TRY(ImagePrompts images, ImagePrompts::of(request));
  SegmentWriter out(std::move(images));

  if (tools != nullptr) MYRIAD_TRY_STATUS(declare_tools(out, kToolsHeading, *tools));
  if (thinking) MYRIAD_TRY_STATUS(render_thinking_effort(out, request));
  MYRIAD_TRY_STATUS(render_conversation(out, *messages, thinking));
  if (choice == "required") internal_message(out, "tool-choice", kToolsRequired);
  if (choice == "none") internal_message(out, "tool-choice", kToolsForbidden);
  MYRIAD_TRY_STATUS(render_response_format(out, request));
  if (opening) {
    open_tag(out, "message", {{"role", "assistant"}});
    open_tag(out, thinking ? "think" : "response");
  }
  return std::move(out).finish();
}

}  // namespace myriad::chat
