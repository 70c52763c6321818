#include "gateway/prepare_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/json_text.h"
#include "model/own_context.h"
#include "model/utf8_stream.h"

namespace myriad {
namespace {

ApiError too_long(std::string_view at_least, std::uint64_t prompt, std::uint64_t answer, const RequestContext& c) {
  return bad_request(
      fmt::format("This model's context is {} tokens; {}{} tokens were asked for ({}{} in the {}, {} for the answer). "
                  "Shorten the prompt or "
                  "ask for fewer tokens.",
                  c.model.context, at_least, prompt + answer, at_least, prompt, c.chat ? "messages" : "prompt", answer),
      c.chat ? "messages" : "prompt", "context_length_exceeded");
}

ApiResult<void> check_bytes(std::size_t bytes, std::optional<std::uint32_t> max_tokens, const RequestContext& c) {
  const std::uint64_t fewest = bytes / std::max<std::size_t>(c.longest_token, 1);
  const std::uint64_t answer = max_tokens.value_or(1);
  if (fewest + answer > c.model.context) return std::unexpected(too_long("at least ", fewest, answer, c));
  return {};
}

ApiResult<PreparedRequest::Prompt> fit(std::vector<std::int32_t> ids, std::optional<std::uint32_t> max_tokens,
                                       const RequestContext& c) {
  const std::uint64_t context = c.model.context, answer = max_tokens.value_or(1);
  if (ids.size() + answer > context) return std::unexpected(too_long("", ids.size(), answer, c));
  PreparedRequest::Prompt prompt;
  // Who names no number is not taken behind the positions that the model was trained for, unless his prompt is.
  const std::uint64_t own = c.model.own_context;
  const std::uint64_t sensible = own > ids.size() ? std::min(own, context) : context;
  prompt.max_tokens = max_tokens.value_or(static_cast<std::uint32_t>(sensible - ids.size()));
  prompt.ids = std::move(ids);
  return prompt;
}

ApiResult<std::vector<std::int32_t>> checked_ids(std::vector<std::int32_t> ids, const RequestContext& c) {
  const std::int32_t end = c.model.vocabulary > 0 ? std::min(c.model.vocabulary, c.text.tokenizer.vocab_size())
                                                  : c.text.tokenizer.vocab_size();
  const auto wrong = std::find_if(ids.begin(), ids.end(), [end](std::int32_t id) { return id < 0 || id >= end; });
  if (wrong == ids.end()) return ids;
  return std::unexpected(bad_request(
      fmt::format("Invalid 'prompt': token id {} is not in the vocabulary of {} tokens.", *wrong, end), "prompt"));
}

ApiResult<PreparedRequest> prepare_completion(std::string_view body, const RequestContext& c) {
  MYRIAD_TRY(CompletionRequest request, parse_completion_request(body, c.model.name));
  PreparedRequest out;
  out.options = std::move(request.options);
  for (PromptInput& input : request.prompts) {
    std::vector<std::int32_t> ids;
    std::string echo;
    if (auto* text = std::get_if<std::string>(&input)) {
      MYRIAD_TRY_STATUS(check_bytes(text->size(), out.options.max_tokens, c));
      ids = c.text.tokenizer.encode_prompt(*text);  // with BOS where the model's texts begin with it
      if (request.echo) echo = std::move(*text);
    } else {
      MYRIAD_TRY(ids, checked_ids(std::move(std::get<1>(input)), c));
      if (request.echo) {
        Utf8Stream utf8;
        echo = utf8.push(c.text.tokenizer.decode(ids));
        echo += utf8.flush();
      }
    }
    MYRIAD_TRY(auto prompt, fit(std::move(ids), out.options.max_tokens, c));
    prompt.echo = std::move(echo);
    out.prompts.push_back(std::move(prompt));
  }
  return out;
}

using Json = nlohmann::ordered_json;

// A conversation in the forms that templates know. Text in parts is one text: most templates take nothing else.
void fit_message(Json& message, const TemplateTraits& traits) {
  auto& content = message["content"];
  if (content.is_array()) {
    std::string text;
    for (const Json& part : content) text += part.at("text").get_ref<const std::string&>();
    content = std::move(text);
  }
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) {
    if (content.is_null()) content = "";
    return;
  }
  if (traits.null_content && content == "") content = nullptr;
  if (!traits.null_content && content.is_null()) content = "";
  if (traits.arguments_as_text) return;
  for (Json& call : *calls) {
    Json& arguments = call["function"]["arguments"];
    if (!arguments.is_string()) continue;
    // What is no object stays the text that it is.
    if (auto object = parse_json_text(arguments.get_ref<const std::string&>()); object && object->is_object()) {
      arguments = std::move(*object);
    }
  }
}

// What a template cannot say is refused, not left out in silence.
Status check_template_can(const Json& conversation) {
  if (conversation.value("tool_choice", "auto") == "required") {
    return fail(Code::unsupported,
                "rendering a chat: this model's template cannot require a tool call; leave tool_choice out");
  }
  if (conversation.contains("response_format")) {
    return fail(Code::unsupported,
                "rendering a chat: this model's template has no response_format; ask for JSON in a message");
  }
  return {};
}

// A prompt by the model's own template: the whole text as one, special tokens only where the template wrote it.
struct RenderedPrompt {
  std::vector<std::int32_t> ids;
  bool in_reasoning = false;  // it ends with an opened <think>
};
Result<RenderedPrompt> render_by_template(const Json& conversation, const RequestContext& c) {
  MYRIAD_TRY_STATUS(check_template_can(conversation));
  Json variables = {{"add_generation_prompt", true}, {"messages", conversation.at("messages")}};
  for (Json& message : variables["messages"]) fit_message(message, c.text.template_traits);
  if (conversation.contains("tools") && conversation.value("tool_choice", "auto") != "none") {
    variables["tools"] = conversation["tools"];
  }
  if (conversation.contains("thinking_effort")) variables["reasoning_effort"] = conversation["thinking_effort"];
  if (conversation.contains("thinking") && conversation["thinking"].is_boolean())
    variables["enable_thinking"] = variables["thinking"] = conversation["thinking"];
  const std::chrono::local_seconds now{std::chrono::seconds(c.created)};
  MYRIAD_TRY(const auto segments, c.text.chat_template->render_segments(variables, c.text.special_tokens, now));
  std::vector<Tokenizer::Span> spans;
  for (const Segment& segment : segments) spans.push_back({segment.text, segment.control});
  RenderedPrompt out{c.text.tokenizer.encode_spans(spans)};
  if (!segments.empty() && segments.back().control) {
    std::string_view end = segments.back().text;
    while (!end.empty() && (end.back() == '\n' || end.back() == ' ')) end.remove_suffix(1);
    out.in_reasoning = end.ends_with("<think>");
  }
  return out;
}

ApiResult<PreparedRequest> prepare_chat(std::string_view body, const RequestContext& c) {
  if (!c.chat_format) {
    return std::unexpected(bad_request(
        c.text.template_error
            ? fmt::format("The chat template of model '{}' cannot be used ({}); use /v1/completions.", c.model.name,
                          c.text.template_error->message)
            : fmt::format("Model '{}' brings no chat template and its tokens are made for no chat format that is known "
                          "here; use /v1/completions.",
                          c.model.name),
        {}, "unsupported"));
  }
  MYRIAD_TRY(ChatRequest request, parse_chat_request(body, c.model.name));
  PreparedRequest out;
  out.options = std::move(request.options);
  out.parallel_tool_calls = request.parallel_tool_calls;
  out.chat.emplace();
  out.chat->format = *c.chat_format;
  out.chat->starts_with_reasoning = reply_starts_with_reasoning(request.conversation, *c.chat_format);
  out.chat->call_id_prefix = fmt::format("call_{}_", c.id);
  std::vector<std::int32_t> ids;
  if (*c.chat_format == ChatFormat::templated) {
    auto rendered = render_by_template(request.conversation, c);
    if (!rendered) {
      ApiError e = api_error_of(rendered.error());
      if (e.status == 400) e.param = "messages";
      return std::unexpected(std::move(e));
    }
    ids = std::move(rendered->ids);
    out.chat->starts_with_reasoning = rendered->in_reasoning;
    out.chat->calls = c.text.template_traits.calls;
    out.chat->thinks = c.text.template_traits.thinks;
    if (request.conversation.contains("tools") && request.conversation.value("tool_choice", "auto") != "none") {
      for (const auto& tool : request.conversation["tools"]) {
        out.chat->tools.push_back(tool.at("function").at("name").get<std::string>());
      }
    }
  } else {
    auto segments = render_chat(request.conversation, *c.chat_format);
    if (!segments) {
      ApiError e = api_error_of(segments.error());
      if (e.status == 400) e.param = "messages";
      return std::unexpected(std::move(e));
    }
    request.conversation = nullptr;  // its memory is wanted for the ids
    std::size_t bytes = 0;
    for (const Segment& segment : *segments) bytes += segment.control ? 0 : segment.text.size();
    MYRIAD_TRY_STATUS(check_bytes(bytes, out.options.max_tokens, c));
    auto tokens = segments_to_ids(c.text.tokenizer, *segments);
    if (!tokens) return std::unexpected(api_error_of(tokens.error()));
    ids = std::move(*tokens);
  }
  MYRIAD_TRY(auto prompt, fit(std::move(ids), out.options.max_tokens, c));
  out.prompts.push_back(std::move(prompt));
  return out;
}

}  // namespace

std::size_t longest_token_of(const Tokenizer& tokenizer) {
  return std::max<std::size_t>(1, tokenizer.longest_token());
}

ApiResult<PreparedRequest> prepare_request(std::string_view body, const RequestContext& c) {
  MYRIAD_TRY(PreparedRequest out, c.chat ? prepare_chat(body, c) : prepare_completion(body, c));
  out.head.chat = c.chat;
  out.head.id = fmt::format("{}-{}", c.chat ? "chatcmpl" : "cmpl", c.id);
  out.head.created = c.created;
  out.head.model = c.model.name;
  out.head.logprobs = out.options.logprobs;
  out.head.include_usage = out.options.include_usage;
  std::uint64_t longest = 0;
  for (const auto& prompt : out.prompts)
    longest = std::max<std::uint64_t>(longest, prompt.ids.size() + prompt.max_tokens);
  out.warning = beyond_own_context(longest, c.model.own_context);
  if (!out.options.seed) out.options.seed = c.random_seed;
  if (c.chat_format)
    out.stop_tokens = chat_stop_ids(c.text.tokenizer, *c.chat_format);
  else if (c.text.tokenizer.eos())
    out.stop_tokens = {*c.text.tokenizer.eos()};
  return out;
}

}  // namespace myriad
