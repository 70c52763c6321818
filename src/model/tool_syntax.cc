#include "model/tool_syntax.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "model/json_text.h"

namespace myriad {
namespace {

using Json = nlohmann::ordered_json;
using Calls = std::vector<WrittenCall>;

constexpr std::string_view kWhite = " \t\r\n";
constexpr std::string_view kDeepseekSeparator = "<｜tool▁sep｜>", kKimiArguments = "<|tool_call_argument_begin|>";
constexpr std::size_t kMaxNameBytes = 256;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhite);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhite) - first + 1);
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         text.find_first_of(" \t\r\n{}[]\"<>") == std::string_view::npos;
}

// Arguments as the model wrote them, if they are a JSON object, and one that every client can read: parse_json_text
// takes NaN and half surrogates too.
std::optional<std::string> object_text(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text.front() != '{') return std::nullopt;
  const auto value = parse_json_text(text);
  if (!value || !value->is_object() || !Json::accept(text)) return std::nullopt;
  return std::string(text);
}

const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// {"name": …, "arguments" or "parameters": {…}, "id": …}, or the same as the member `function`.
std::optional<WrittenCall> call_of(const Json& value) {
  if (!value.is_object()) return std::nullopt;
  const Json* inner = member(value, "function");
  const Json& call = inner != nullptr && inner->is_object() ? *inner : value;
  const Json* name = member(call, "name");
  if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty()) return std::nullopt;
  WrittenCall out{name->get<std::string>(), "{}", {}};
  const Json* arguments = member(call, "arguments");
  if (arguments == nullptr) arguments = member(call, "parameters");
  if (arguments != nullptr && arguments->is_string()) {
    auto text = object_text(arguments->get_ref<const std::string&>());
    if (!text) return std::nullopt;
    out.arguments = std::move(*text);
  } else if (arguments != nullptr) {
    if (!arguments->is_object()) return std::nullopt;
    auto text = json_text(*arguments, JsonStyle::spaced);
    if (!text || !Json::accept(*text)) return std::nullopt;
    out.arguments = std::move(*text);
  }
  const Json* id = member(value, "id");
  if (id != nullptr && id->is_string()) out.id = id->get<std::string>();
  return out;
}

// One call, or a list of them.
Calls calls_of_json(std::string_view text) {
  const auto value = parse_json_text(trimmed(text));
  if (!value) return {};
  Calls out;
  if (!value->is_array()) {
    if (auto call = call_of(*value)) out.push_back(std::move(*call));
    return out;
  }
  for (const Json& item : *value) {
    auto call = call_of(item);
    if (!call) return {};
    out.push_back(std::move(*call));
  }
  return out;
}

// name.call(key="value", …), the way of Llama's built-in tools. Values are JSON.
Calls calls_of_python(std::string_view text) {
  constexpr std::string_view kCall = ".call(";
  text = trimmed(text);
  const std::size_t dot = text.find(kCall);
  if (dot == std::string_view::npos || !is_name(text.substr(0, dot)) || !text.ends_with(')')) return {};
  const std::string_view name = text.substr(0, dot);
  std::string_view rest = trimmed(text.substr(dot + kCall.size(), text.size() - dot - kCall.size() - 1));
  Json arguments = Json::object();
  while (!rest.empty()) {
    const std::size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return {};
    const std::string_view key = trimmed(rest.substr(0, equals));
    if (!is_name(key)) return {};
    rest = trimmed(rest.substr(equals + 1));
    std::size_t end = 0;
    if (rest.starts_with('"')) {
      for (end = 1; end < rest.size() && rest[end] != '"'; ++end) end += rest[end] == '\\' ? 1 : 0;
      ++end;
    } else {
      end = rest.find(',');
    }
    const auto value = parse_json_text(trimmed(rest.substr(0, std::min(end, rest.size()))));
    if (!value) return {};
    arguments[std::string(key)] = *value;
    rest = end >= rest.size() ? std::string_view() : trimmed(rest.substr(end));
    if (rest.empty()) break;
    if (rest.front() != ',') return {};
    rest = trimmed(rest.substr(1));
  }
  const auto written = json_text(arguments, JsonStyle::spaced);
  if (!written || !Json::accept(*written)) return {};
  return {{std::string(name), *written, {}}};
}

// name[CALL_ID]id[ARGS]{…}; both words may be missing.
Calls calls_of_mistral(std::string_view text) {
  constexpr std::string_view kId = "[CALL_ID]", kArguments = "[ARGS]";
  text = trimmed(text);
  if (text.starts_with('[') || text.starts_with('{')) return calls_of_json(text);
  const std::size_t brace = text.find('{');
  if (brace == std::string_view::npos) return {};
  auto arguments = object_text(text.substr(brace));
  if (!arguments) return {};
  std::string_view head = trimmed(text.substr(0, brace)), id;
  if (head.ends_with(kArguments)) head.remove_suffix(kArguments.size());
  if (const std::size_t at = head.find(kId); at != std::string_view::npos) {
    id = trimmed(head.substr(at + kId.size()));
    head = head.substr(0, at);
  }
  head = trimmed(head);
  if (!is_name(head)) return {};
  return {{std::string(head), std::move(*arguments), std::string(id)}};
}

Calls calls_of_deepseek(std::string_view text) {
  constexpr std::string_view kFence = "```", kJsonFence = "```json";
  const std::size_t at = text.find(kDeepseekSeparator);
  if (at == std::string_view::npos) return {};
  std::string_view name = trimmed(text.substr(0, at)), rest = trimmed(text.substr(at + kDeepseekSeparator.size()));
  if (const std::size_t fence = rest.find(kJsonFence); fence != std::string_view::npos && !rest.starts_with('{')) {
    name = trimmed(rest.substr(0, fence));
    rest = trimmed(rest.substr(fence + kJsonFence.size()));
    if (rest.ends_with(kFence)) rest.remove_suffix(kFence.size());
  }
  auto arguments = object_text(rest);
  if (!arguments || !is_name(name)) return {};
  return {{std::string(name), std::move(*arguments), {}}};
}

Calls calls_of_kimi(std::string_view text) {
  const std::size_t at = text.find(kKimiArguments);
  if (at == std::string_view::npos) return {};
  const std::string_view id = trimmed(text.substr(0, at)), name = name_in_call_id(id);
  auto arguments = object_text(text.substr(at + kKimiArguments.size()));
  if (!arguments || !is_name(name)) return {};
  return {{std::string(name), std::move(*arguments), std::string(id)}};
}

}  // namespace

std::vector<MarkName> marks_of(CallSyntax syntax, bool thinks) {
  std::vector<MarkName> out;
  if (thinks) out = {{ReplyMark::think, "<think>"}, {ReplyMark::end_think, "</think>"}};
  const auto add = [&out](std::initializer_list<MarkName> marks) { out.insert(out.end(), marks); };
  switch (syntax) {
    case CallSyntax::none:
      break;
    case CallSyntax::hermes:
      add({{ReplyMark::call, "<tool_call>"}, {ReplyMark::end_call, "</tool_call>"}});
      break;
    case CallSyntax::llama:
      add({{ReplyMark::call, "<|python_tag|>"}});
      break;
    case CallSyntax::mistral:
      add({{ReplyMark::call, "[TOOL_CALLS]"}});
      break;
    case CallSyntax::deepseek:
      add({{ReplyMark::section, "<｜tool▁calls▁begin｜>"},
           {ReplyMark::end_section, "<｜tool▁calls▁end｜>"},
           {ReplyMark::call, "<｜tool▁call▁begin｜>"},
           {ReplyMark::end_call, "<｜tool▁call▁end｜>"}});
      break;
    case CallSyntax::kimi_k2:
      add({{ReplyMark::section, "<|tool_calls_section_begin|>"},
           {ReplyMark::end_section, "<|tool_calls_section_end|>"},
           {ReplyMark::call, "<|tool_call_begin|>"},
           {ReplyMark::end_call, "<|tool_call_end|>"}});
      break;
  }
  return out;
}

std::vector<WrittenCall> read_calls(CallSyntax syntax, std::string_view body) {
  switch (syntax) {
    case CallSyntax::none:
      return {};
    case CallSyntax::hermes:
      return calls_of_json(body);
    case CallSyntax::llama:
      return trimmed(body).starts_with('{') ? calls_of_json(body) : calls_of_python(body);
    case CallSyntax::mistral:
      return calls_of_mistral(body);
    case CallSyntax::deepseek:
      return calls_of_deepseek(body);
    case CallSyntax::kimi_k2:
      return calls_of_kimi(body);
  }
  return {};
}

std::string_view name_in_call_id(std::string_view id) {
  id = id.substr(0, std::min(id.rfind(':'), id.size()));
  if (id.starts_with("functions.")) id.remove_prefix(10);
  return id;
}

}  // namespace myriad
