#include "model/template_traits.h"

#include <nlohmann/json.hpp>
#include <string>

namespace myriad {
namespace {

using Json = nlohmann::ordered_json;

CallSyntax syntax_in(std::string_view source) {
  const auto has = [source](std::string_view text) { return source.find(text) != std::string_view::npos; };
  if (has("<｜tool▁call▁begin｜>")) return CallSyntax::deepseek;
  if (has("<|tool_call_argument_begin|>")) return CallSyntax::kimi_k2;
  if (has("[TOOL_CALLS]")) return CallSyntax::mistral;
  if (has("<tool_call>")) return CallSyntax::hermes;
  if (has("<|python_tag|>") || (has("<|start_header_id|>") && has("tool_calls"))) return CallSyntax::llama;
  return CallSyntax::none;
}

// A question, a call with arguments, its result. The id is of the only form that Mistral's templates take.
Json probe(bool arguments_as_text, bool null_content) {
  const Json arguments{{"needle", "hay"}};
  Json call{
      {"id", "abcdefghi"},
      {"type", "function"},
      {"function", Json{{"name", "stitch"}, {"arguments", arguments_as_text ? Json(arguments.dump()) : arguments}}}};
  Json messages = Json::array();
  messages.push_back(Json{{"role", "user"}, {"content", "x"}});
  messages.push_back(Json{{"role", "assistant"},
                          {"content", null_content ? Json() : Json("")},
                          {"tool_calls", Json::array({std::move(call)})}});
  messages.push_back(Json{{"role", "tool"}, {"tool_call_id", "abcdefghi"}, {"name", "stitch"}, {"content", "y"}});
  return Json{{"messages", std::move(messages)}};
}

bool shows_call(const ChatTemplate& made, bool arguments_as_text, bool null_content) {
  const Json tokens{{"bos_token", ""}, {"eos_token", ""}};
  const auto text = made.render(probe(arguments_as_text, null_content), tokens, {});
  // A text that tojson has quoted once more does not match, and neither does Python's way to write a dict.
  return text && text->find("\"needle\"") != std::string::npos && text->find("stitch") != std::string::npos &&
         (!null_content || text->find("None") == std::string::npos);
}

}  // namespace

TemplateTraits traits_of(const ChatTemplate& made) {
  const std::string_view source = made.source();
  TemplateTraits out;
  out.calls = syntax_in(source);
  out.thinks = source.find("<think>") != std::string_view::npos || source.find("</think>") != std::string_view::npos;
  if (source.find("tool_calls") == std::string_view::npos) return out;
  for (const bool as_text : {false, true}) {
    for (const bool null : {false, true}) {
      if (!shows_call(made, as_text, null)) continue;
      out.arguments_as_text = as_text;
      out.null_content = null;
      return out;
    }
  }
  return out;
}

}  // namespace myriad
