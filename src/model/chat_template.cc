#include "model/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/jinja_evaluator.h"
#include "model/jinja_lexer.h"
#include "model/jinja_syntax.h"

namespace myriad {
namespace {

using Json = nlohmann::ordered_json;
using namespace jinja;

constexpr std::string_view kDoing = "rendering the chat template";

// Messages' roles of the well-known kind, as text that the template might have written itself.
Status mark_roles(const Value& messages, Heap& heap) {
  const auto* list = std::get_if<List*>(&messages);
  if (list == nullptr) return {};
  for (const Value& message : (*list)->items) {
    const auto* dict = std::get_if<Dict*>(&message);
    const Value* role = dict == nullptr ? nullptr : (*dict)->find("role");
    const Text* name = role == nullptr ? nullptr : text_of(*role);
    if (name == nullptr ||
        std::find(kTemplateRoles.begin(), kTemplateRoles.end(), name->bytes()) == kTemplateRoles.end()) {
      continue;
    }
    MYRIAD_TRY(Value marked, heap.text(name->bytes(), true));
    MYRIAD_TRY(Value key, heap.text("role", false));
    MYRIAD_TRY_STATUS(heap.set(*dict, std::move(key), std::move(marked)));
  }
  return {};
}

// Converts only the variables that occur in the template.
Status set_variables(const Json& variables, bool control, const Syntax& syntax, Evaluator& evaluator, Heap& heap) {
  if (!variables.is_object()) {
    return fail(Code::invalid_argument, "its variables are of type {}, an object is expected", variables.type_name());
  }
  for (const auto& [key, json] : variables.get_ref<const Json::object_t&>()) {
    const auto name = syntax.by_name.find(key);
    if (name == syntax.by_name.end()) continue;
    MYRIAD_TRY(Value value, heap.from_json(json, control));
    if (key == "messages" && !control) MYRIAD_TRY_STATUS(mark_roles(value, heap));
    evaluator.set(name->second, std::move(value));
  }
  return {};
}

void set_default(std::string_view key, Value value, const Syntax& syntax, Evaluator& evaluator) {
  const auto name = syntax.by_name.find(key);
  if (name != syntax.by_name.end()) evaluator.set(name->second, std::move(value));
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view text) {
  auto syntax = parse_syntax(text);
  if (!syntax) return std::unexpected(std::move(syntax).error().within("reading the chat template"));
  return ChatTemplate(std::move(*syntax));
}

Result<std::vector<Segment>> ChatTemplate::render_segments(const Json& variables, const Json& special_tokens,
                                                           std::chrono::local_seconds now) const {
  Heap heap(now);
  Evaluator evaluator(*syntax_, heap);
  set_default("tools", None{}, *syntax_, evaluator);
  set_default("documents", None{}, *syntax_, evaluator);
  set_default("add_generation_prompt", false, *syntax_, evaluator);
  auto status = set_variables(variables, false, *syntax_, evaluator, heap);
  if (status) status = set_variables(special_tokens, true, *syntax_, evaluator, heap);
  if (!status) return std::unexpected(std::move(status).error().within(kDoing));
  TextBuilder out(heap.budget());
  status = evaluator.run(out);
  if (!status) {
    Error error = std::move(status).error();
    if (heap.refused())
      return std::unexpected(std::move(error).within("the model's chat template refuses the request"));
    return std::unexpected(std::move(error).within(place_in(syntax_->source, evaluator.place())).within(kDoing));
  }
  auto segments = std::move(out).finish_segments();
  if (!segments) return std::unexpected(std::move(segments).error().within(kDoing));
  return segments;
}

std::string_view ChatTemplate::source() const {
  return syntax_->source;
}

Result<std::string> ChatTemplate::render(const Json& variables, const Json& special_tokens,
                                         std::chrono::local_seconds now) const {
  MYRIAD_TRY(const std::vector<Segment> segments, render_segments(variables, special_tokens, now));
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  return text;
}

}  // namespace myriad
