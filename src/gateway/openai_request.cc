#include "gateway/openai_request.h"

#include <limits>

#include "gateway/request_fields.h"
#include "model/sampler.h"

namespace myriad {
namespace {

constexpr std::size_t kAnyLength = kMaxRequestBodyBytes;

ApiError unsupported(const std::string& param, std::string_view why) {
  return bad_request(fmt::format("'{}' is not supported here: {}", param, why), param, "unsupported_parameter");
}

ApiResult<void> check_model(const Fields& f, std::string_view served) {
  MYRIAD_TRY(const auto name, f.string("model", kAnyLength));
  if (name && *name != served) return std::unexpected(model_not_found(*name, served));
  return {};
}

// Members that would change the answer in a way that nothing here can do. Values that change nothing are accepted.
ApiResult<void> refuse_unsupported(const Fields& f) {
  for (const char* name : {"frequency_penalty", "presence_penalty"}) {
    MYRIAD_TRY(const auto x, f.number(name, -2, 2));
    if (x && *x != 0) return std::unexpected(unsupported(name, "tokens are drawn without penalties; use 0."));
  }
  MYRIAD_TRY(const auto repetition, f.number("repetition_penalty", 0, 1e6));
  if (repetition && *repetition != 1) return std::unexpected(unsupported("repetition_penalty", "use 1."));
  MYRIAD_TRY(const auto min_p, f.number("min_p", 0, 1));
  if (min_p && *min_p != 0) return std::unexpected(unsupported("min_p", "use top_p, top_k or temperature."));
  MYRIAD_TRY(const auto* bias, f.object("logit_bias"));
  if (bias != nullptr && !bias->empty()) {
    return std::unexpected(unsupported("logit_bias", "logits are sampled as the model gives them; leave it empty."));
  }
  return {};
}

ApiResult<void> read_stops(const Fields& f, std::vector<std::string>& out) {
  const Json* stop = f.find("stop");
  if (stop == nullptr) return {};
  if (stop->is_string()) {
    out.push_back(stop->get<std::string>());
  } else if (stop->is_array()) {
    if (stop->size() > kMaxStops) {
      return std::unexpected(
          bad_request(fmt::format("Invalid 'stop': {} strings; at most {} are taken.", stop->size(), kMaxStops), "stop",
                      "array_above_max_length"));
    }
    for (std::size_t i = 0; i < stop->size(); ++i) {
      if (!(*stop)[i].is_string())
        return std::unexpected(wrong_type(fmt::format("stop[{}]", i), "a string", (*stop)[i]));
      out.push_back((*stop)[i].get<std::string>());
    }
  } else {
    return std::unexpected(wrong_type("stop", "a string or an array of strings", *stop));
  }
  for (const std::string& s : out) {
    if (s.empty()) return std::unexpected(bad_request("Invalid 'stop': a stop string must not be empty.", "stop"));
    if (s.size() > kMaxStopBytes) {
      return std::unexpected(bad_request(
          fmt::format("Invalid 'stop': a stop string of {} bytes; at most {} are taken.", s.size(), kMaxStopBytes),
          "stop", "string_above_max_length"));
    }
  }
  return {};
}

// What both endpoints have in common.
ApiResult<GenerationOptions> read_options(const Fields& f) {
  GenerationOptions o;
  constexpr std::int64_t kMaxU32 = std::numeric_limits<std::uint32_t>::max();
  MYRIAD_TRY(const auto max_tokens, f.integer("max_tokens", 1, kMaxU32));
  MYRIAD_TRY(const auto max_completion_tokens, f.integer("max_completion_tokens", 1, kMaxU32));
  if (max_completion_tokens)
    o.max_tokens = static_cast<std::uint32_t>(*max_completion_tokens);
  else if (max_tokens)
    o.max_tokens = static_cast<std::uint32_t>(*max_tokens);

  MYRIAD_TRY(const auto temperature, f.number("temperature", 0, 2));
  if (temperature) o.temperature = static_cast<float>(*temperature);
  MYRIAD_TRY(const auto top_k, f.integer("top_k", -1, kMaxU32));
  if (top_k && *top_k > 0) o.top_k = static_cast<std::uint32_t>(*top_k);
  MYRIAD_TRY(const auto top_p, f.number("top_p", 0, 1));
  if (top_p) {
    o.top_p = static_cast<float>(*top_p);
    // The smallest set of tokens that has at least probability 0, or one too small for a float: the likeliest one.
    if (o.top_p <= 0) {
      o.top_p = 1;
      o.top_k = 1;
    }
  }
  if (const Json* seed = f.find("seed"); seed != nullptr) {
    if (seed->is_number_unsigned())
      o.seed = seed->get<std::uint64_t>();
    else if (seed->is_number_integer())
      o.seed = static_cast<std::uint64_t>(seed->get<std::int64_t>());
    else
      return std::unexpected(wrong_type("seed", "an integer of at most 64 bits", *seed));
  }
  MYRIAD_TRY_STATUS(read_stops(f, o.stop));
  MYRIAD_TRY(const auto n, f.integer("n", 1, kMaxChoices));
  if (n) o.n = static_cast<std::uint32_t>(*n);
  MYRIAD_TRY(const auto stream, f.boolean("stream"));
  o.stream = stream.value_or(false);
  MYRIAD_TRY(const auto* stream_options, f.object("stream_options"));
  if (stream_options != nullptr) {
    if (!o.stream) {
      return std::unexpected(
          bad_request("'stream_options' may only be given when 'stream' is true.", "stream_options"));
    }
    MYRIAD_TRY(const auto include_usage, Fields(*stream_options, "stream_options").boolean("include_usage"));
    o.include_usage = include_usage.value_or(false);
  }
  MYRIAD_TRY_STATUS(refuse_unsupported(f));
  return o;
}

constexpr std::uint64_t kMaxTokenId = std::numeric_limits<std::int32_t>::max();

// A token id, whose range only the model knows: here just that it is a number of 31 bits.
ApiResult<std::int32_t> token_id(const Json& v, std::size_t prompt, std::size_t at) {
  const bool fits = v.is_number_unsigned() ? v.get<std::uint64_t>() <= kMaxTokenId
                                           : v.is_number_integer() && v.get<std::int64_t>() >= 0 &&
                                                 v.get<std::int64_t>() <= static_cast<std::int64_t>(kMaxTokenId);
  if (!fits) {
    return std::unexpected(
        bad_request(fmt::format("Invalid 'prompt': item {} of prompt {} is {}; a token id from 0 on was expected.", at,
                                prompt, v.is_number_integer() ? v.dump() : std::string(json_kind(v))),
                    "prompt", "invalid_type"));
  }
  return static_cast<std::int32_t>(v.get<std::int64_t>());
}

ApiResult<std::vector<std::int32_t>> token_ids(const Json& list, std::size_t prompt) {
  std::vector<std::int32_t> ids;
  ids.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    MYRIAD_TRY(const std::int32_t id, token_id(list[i], prompt, i));
    ids.push_back(id);
  }
  return ids;
}

ApiResult<std::vector<PromptInput>> read_prompts(const Fields& f) {
  const Json* prompt = f.find("prompt");
  if (prompt == nullptr) {
    return std::unexpected(
        bad_request("Missing required parameter: 'prompt'.", "prompt", "missing_required_parameter"));
  }
  std::vector<PromptInput> out;
  if (prompt->is_string()) {
    out.emplace_back(prompt->get<std::string>());
  } else if (prompt->is_array() && !prompt->empty() && prompt->front().is_number()) {
    MYRIAD_TRY(auto ids, token_ids(*prompt, 0));
    out.emplace_back(std::move(ids));
  } else if (prompt->is_array()) {
    if (prompt->size() > kMaxPrompts) {
      return std::unexpected(
          bad_request(fmt::format("Invalid 'prompt': {} prompts; at most {} are taken.", prompt->size(), kMaxPrompts),
                      "prompt", "array_above_max_length"));
    }
    for (std::size_t i = 0; i < prompt->size(); ++i) {
      const Json& item = (*prompt)[i];
      if (item.type() != prompt->front().type() || (!item.is_string() && !item.is_array())) {
        return std::unexpected(wrong_type(
            "prompt", "a string, an array of strings, an array of token ids or an array of such arrays", item));
      }
      if (item.is_string()) {
        out.emplace_back(item.get<std::string>());
      } else {
        MYRIAD_TRY(auto ids, token_ids(item, i));
        out.emplace_back(std::move(ids));
      }
    }
  } else {
    return std::unexpected(wrong_type(
        "prompt", "a string, an array of strings, an array of token ids or an array of such arrays", *prompt));
  }
  for (const PromptInput& p : out) {
    if (std::visit([](const auto& v) { return v.empty(); }, p)) {
      out.clear();
      break;
    }
  }
  if (out.empty()) {
    return std::unexpected(
        bad_request("Invalid 'prompt': a prompt must have at least one token; no token is added to it here.", "prompt",
                    "empty_prompt"));
  }
  return out;
}

ApiResult<void> read_function_tools(const Json& tools, const std::string& path) {
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!tools[i].is_object()) return std::unexpected(wrong_type(at, "an object", tools[i]));
    const Fields tool(tools[i], at);
    MYRIAD_TRY(const auto type, tool.string("type", kMaxNameBytes));
    if (type.value_or("function") != "function") {
      return std::unexpected(
          bad_request(fmt::format("Invalid '{}.type': '{}'; only 'function' can be served.", at, *type), at + ".type",
                      "unsupported_tool"));
    }
    MYRIAD_TRY(const auto* function, tool.object("function"));
    if (function == nullptr) {
      return std::unexpected(bad_request(fmt::format("Missing required parameter: '{}.function'.", at),
                                         at + ".function", "missing_required_parameter"));
    }
    const Fields fn(*function, at + ".function");
    MYRIAD_TRY(const auto name, fn.string("name", kMaxNameBytes));
    if (!name || name->empty()) {
      return std::unexpected(bad_request(fmt::format("Missing required parameter: '{}'.", fn.param("name")),
                                         fn.param("name"), "missing_required_parameter"));
    }
    MYRIAD_TRY_STATUS(fn.string("description", kAnyLength));
    MYRIAD_TRY_STATUS(fn.object("parameters"));
    MYRIAD_TRY_STATUS(fn.boolean("strict"));
  }
  return {};
}

// content: a string, null, or a list of text parts. Pictures, sound and files are refused by name.
ApiResult<Json> read_content(const Fields& message, bool may_be_absent) {
  const Json* content = message.find("content");
  if (content == nullptr) {
    if (may_be_absent) return Json();
    return std::unexpected(bad_request(fmt::format("Missing required parameter: '{}'.", message.param("content")),
                                       message.param("content"), "missing_required_parameter"));
  }
  if (content->is_string()) return *content;
  if (!content->is_array()) {
    return std::unexpected(wrong_type(message.param("content"), "a string or an array of text parts", *content));
  }
  MYRIAD_TRY_STATUS(message.array("content", kMaxContentParts));
  Json parts = Json::array();
  for (std::size_t i = 0; i < content->size(); ++i) {
    const std::string at = fmt::format("{}[{}]", message.param("content"), i);
    const Json& part = (*content)[i];
    if (!part.is_object()) return std::unexpected(wrong_type(at, "an object", part));
    const Fields fields(part, at);
    MYRIAD_TRY(const auto type, fields.string("type", kAnyLength));
    if (!type) {
      return std::unexpected(bad_request(fmt::format("Missing required parameter: '{}.type'.", at), at + ".type",
                                         "missing_required_parameter"));
    }
    if (*type != "text" && *type != "refusal") {
      return std::unexpected(
          bad_request(fmt::format("Invalid '{}': content of type '{}' cannot be served; this model takes text only.",
                                  at, type->substr(0, 64)),
                      at, "unsupported_content"));
    }
    MYRIAD_TRY(auto text, fields.string(*type, kAnyLength));
    if (!text) {
      return std::unexpected(bad_request(fmt::format("Missing required parameter: '{}.{}'.", at, *type),
                                         fmt::format("{}.{}", at, *type), "missing_required_parameter"));
    }
    parts.push_back(Json{{"type", "text"}, {"text", std::move(*text)}});
  }
  return parts;
}

ApiResult<Json> read_tool_calls(const Json& calls, const std::string& path) {
  Json out = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!calls[i].is_object()) return std::unexpected(wrong_type(at, "an object", calls[i]));
    const Fields call(calls[i], at);
    MYRIAD_TRY(const auto type, call.string("type", kMaxNameBytes));
    if (type.value_or("function") != "function") {
      return std::unexpected(
          bad_request(fmt::format("Invalid '{}.type': '{}'; only 'function' can be served.", at, *type), at + ".type",
                      "unsupported_tool"));
    }
    MYRIAD_TRY(auto id, call.string("id", kMaxNameBytes));
    MYRIAD_TRY(const auto* function, call.object("function"));
    if (function == nullptr) {
      return std::unexpected(bad_request(fmt::format("Missing required parameter: '{}.function'.", at),
                                         at + ".function", "missing_required_parameter"));
    }
    const Fields fn(*function, at + ".function");
    MYRIAD_TRY(auto name, fn.string("name", kMaxNameBytes));
    if (!name || name->empty()) {
      return std::unexpected(bad_request(fmt::format("Missing required parameter: '{}'.", fn.param("name")),
                                         fn.param("name"), "missing_required_parameter"));
    }
    MYRIAD_TRY(auto arguments, fn.string("arguments", kAnyLength));
    // A JSON text inside the JSON text, which is parsed when the prompt is rendered.
    if (arguments)
      MYRIAD_TRY_STATUS(check_json_bounds(*arguments, "A tool call's arguments text", fn.param("arguments")));
    Json rendered{{"type", "function"},
                  {"function", Json{{"name", std::move(*name)}, {"arguments", arguments.value_or("{}")}}}};
    if (id) rendered["id"] = std::move(*id);
    out.push_back(std::move(rendered));
  }
  return out;
}

ApiResult<Json> read_message(const Json& value, const std::string& at) {
  if (!value.is_object()) return std::unexpected(wrong_type(at, "an object", value));
  const Fields m(value, at);
  MYRIAD_TRY(auto role, m.string("role", kAnyLength));
  if (!role) {
    return std::unexpected(bad_request(fmt::format("Missing required parameter: '{}.role'.", at), at + ".role",
                                       "missing_required_parameter"));
  }
  if (*role == "developer") role = "system";
  if (*role != "system" && *role != "user" && *role != "assistant" && *role != "tool") {
    return std::unexpected(
        bad_request(fmt::format("Invalid '{}.role': '{}'; expected system, developer, user, assistant or tool.", at,
                                role->substr(0, 64)),
                    at + ".role"));
  }
  Json out{{"role", *role}};
  MYRIAD_TRY(auto name, m.string("name", kMaxNameBytes));
  if (name) out["name"] = std::move(*name);

  const Json* tools = nullptr;
  if (*role == "system") {
    MYRIAD_TRY(tools, m.array("tools", kMaxTools));
    if (tools != nullptr) {
      MYRIAD_TRY_STATUS(read_function_tools(*tools, m.param("tools")));
      out["tools"] = *tools;
    }
  }
  MYRIAD_TRY(auto content, read_content(m, *role == "assistant" || tools != nullptr));
  out["content"] = std::move(content);

  if (*role == "assistant") {
    for (const char* key : {"reasoning_content", "reasoning"}) {
      MYRIAD_TRY(auto reasoning, m.string(key, kAnyLength));
      if (!reasoning) continue;
      out["reasoning_content"] = std::move(*reasoning);
      break;
    }
    if (m.find("function_call") != nullptr) {
      return std::unexpected(unsupported(m.param("function_call"), "use 'tool_calls'."));
    }
    MYRIAD_TRY(const auto* calls, m.array("tool_calls", kMaxToolCallsPerMessage));
    if (calls != nullptr && !calls->empty()) {
      MYRIAD_TRY(out["tool_calls"], read_tool_calls(*calls, m.param("tool_calls")));
    }
  } else if (*role == "tool") {
    MYRIAD_TRY(auto id, m.string("tool_call_id", kMaxNameBytes));
    MYRIAD_TRY(auto tool, m.string("tool", kMaxNameBytes));
    if (!id && !tool && !out.contains("name")) {
      return std::unexpected(bad_request(fmt::format("Missing required parameter: '{}.tool_call_id'.", at),
                                         at + ".tool_call_id", "missing_required_parameter"));
    }
    if (id) out["tool_call_id"] = std::move(*id);
    if (tool) out["tool"] = std::move(*tool);
  }
  return out;
}

// K3's switches, and OpenAI's reasoning_effort in their terms: none turns thinking off, minimal and low are low, medium
// is what the model does when nothing is said, high is high, xhigh and max are max.
ApiResult<void> read_thinking(const Fields& f, Json& conversation) {
  std::optional<bool> thinking;
  std::optional<std::string> effort;
  if (f.find("reasoning_effort") != nullptr) {
    MYRIAD_TRY(const auto asked, f.string("reasoning_effort", kMaxNameBytes));
    if (*asked == "none")
      thinking = false;
    else if (*asked == "minimal" || *asked == "low")
      effort = "low";
    else if (*asked == "high")
      effort = "high";
    else if (*asked == "xhigh" || *asked == "max")
      effort = "max";
    else if (*asked != "medium") {
      return std::unexpected(bad_request(
          fmt::format("Invalid 'reasoning_effort': '{}'; expected none, minimal, low, medium, high, xhigh or max.",
                      *asked),
          "reasoning_effort"));
    }
  }
  if (const Json* t = f.find("thinking"); t != nullptr) {
    if (t->is_boolean()) {
      thinking = t->get<bool>();
    } else if (t->is_object()) {
      MYRIAD_TRY(const auto type, Fields(*t, "thinking").string("type", kMaxNameBytes));
      if (type != "enabled" && type != "disabled") {
        return std::unexpected(
            bad_request("Invalid 'thinking.type': expected 'enabled' or 'disabled'.", "thinking.type"));
      }
      thinking = *type == "enabled";
    } else {
      return std::unexpected(wrong_type("thinking", "a boolean or an object with 'type'", *t));
    }
  }
  // As other servers call the same switch.
  MYRIAD_TRY(const auto enable, f.boolean("enable_thinking"));
  if (enable) thinking = enable;
  MYRIAD_TRY(const auto* kwargs, f.object("chat_template_kwargs"));
  if (kwargs != nullptr) {
    const Fields fields(*kwargs, "chat_template_kwargs");
    for (const auto& [name, value] : kwargs->items()) {
      if (name != "thinking" && name != "enable_thinking")
        return std::unexpected(unsupported(fields.param(name.substr(0, 64)), "only thinking and enable_thinking are."));
      MYRIAD_TRY(thinking, fields.boolean(name));
    }
  }
  MYRIAD_TRY(const auto own_effort, f.string("thinking_effort", kMaxNameBytes));
  if (own_effort) {
    if (*own_effort != "low" && *own_effort != "high" && *own_effort != "max") {
      return std::unexpected(bad_request(
          fmt::format("Invalid 'thinking_effort': '{}'; expected low, high or max.", *own_effort), "thinking_effort"));
    }
    effort = own_effort;
  }
  if (thinking) conversation["thinking"] = *thinking;
  if (effort && thinking.value_or(true)) conversation["thinking_effort"] = *effort;
  return {};
}

ApiResult<void> read_tools(const Fields& f, Json& conversation) {
  for (const char* name : {"functions", "function_call"}) {
    if (f.find(name) != nullptr) return std::unexpected(unsupported(name, "use 'tools' and 'tool_choice'."));
  }
  MYRIAD_TRY(const auto* tools, f.array("tools", kMaxTools));
  const bool any = tools != nullptr && !tools->empty();
  if (any) {
    MYRIAD_TRY_STATUS(read_function_tools(*tools, "tools"));
    conversation["tools"] = *tools;
  }
  const Json* choice = f.find("tool_choice");
  if (choice == nullptr) return {};
  if (choice->is_string()) {
    const auto& s = choice->get_ref<const std::string&>();
    if (s != "auto" && s != "none" && s != "required") {
      return std::unexpected(bad_request(
          fmt::format("Invalid 'tool_choice': '{}'; expected auto, none, required or a function.", s.substr(0, 64)),
          "tool_choice"));
    }
    if (s == "required" && !any) {
      return std::unexpected(bad_request("'tool_choice' is required, but there are no 'tools'.", "tool_choice"));
    }
    if (any) conversation["tool_choice"] = s;
    return {};
  }
  if (!choice->is_object()) return std::unexpected(wrong_type("tool_choice", "a string or an object", *choice));
  // The prompt format can say that a call is required, not which: so the named function is the only one that is
  // declared.
  MYRIAD_TRY(const auto* function, Fields(*choice, "tool_choice").object("function"));
  std::optional<std::string> name;
  if (function != nullptr) {
    MYRIAD_TRY(name, Fields(*function, "tool_choice.function").string("name", kMaxNameBytes));
  }
  if (!name) {
    return std::unexpected(bad_request("Missing required parameter: 'tool_choice.function.name'.",
                                       "tool_choice.function.name", "missing_required_parameter"));
  }
  for (std::size_t i = 0; any && i < tools->size(); ++i) {
    if ((*tools)[i]["function"]["name"] == *name) {
      conversation["tools"] = Json::array({(*tools)[i]});
      conversation["tool_choice"] = "required";
      return {};
    }
  }
  return std::unexpected(bad_request(fmt::format("Invalid 'tool_choice': there is no function '{}' in 'tools'.", *name),
                                     "tool_choice.function.name"));
}

ApiResult<void> read_response_format(const Fields& f, Json& conversation) {
  MYRIAD_TRY(const auto* format, f.object("response_format"));
  if (format == nullptr) return {};
  const Fields fields(*format, "response_format");
  MYRIAD_TRY(const auto type, fields.string("type", kMaxNameBytes));
  if (type != "text" && type != "json_object" && type != "json_schema") {
    return std::unexpected(bad_request("Invalid 'response_format.type': expected text, json_object or json_schema.",
                                       "response_format.type"));
  }
  if (*type == "text") return {};
  Json out{{"type", *type}};
  if (*type == "json_schema") {
    MYRIAD_TRY(const auto* schema, fields.object("json_schema"));
    if (schema == nullptr) {
      return std::unexpected(bad_request("Missing required parameter: 'response_format.json_schema'.",
                                         "response_format.json_schema", "missing_required_parameter"));
    }
    MYRIAD_TRY_STATUS(Fields(*schema, "response_format.json_schema").object("schema"));
    out["json_schema"] = *schema;
  }
  conversation["response_format"] = std::move(out);
  return {};
}

ApiResult<void> refuse_other_modalities(const Fields& f) {
  MYRIAD_TRY(const auto* modalities, f.array("modalities", 16));
  if (modalities != nullptr) {
    for (const Json& m : *modalities) {
      if (m != "text") return std::unexpected(unsupported("modalities", "this model answers in text only."));
    }
  }
  for (const char* name : {"audio", "web_search_options"}) {
    if (f.find(name) != nullptr)
      return std::unexpected(unsupported(name, "this model answers in text and has no tools of its own."));
  }
  return {};
}

}  // namespace

ApiError model_not_found(std::string_view asked, std::string_view served) {
  return {404,
          fmt::format("The model '{}' does not exist here; this server serves '{}'.", asked.substr(0, 128), served),
          "invalid_request_error",
          "model",
          "model_not_found",
          {}};
}

ApiResult<CompletionRequest> parse_completion_request(std::string_view body, std::string_view model) {
  MYRIAD_TRY(const Json json, parse_request_json(body));
  const Fields f(json, "");
  MYRIAD_TRY_STATUS(check_model(f, model));
  CompletionRequest r;
  MYRIAD_TRY(r.options, read_options(f));
  if (!r.options.max_tokens) r.options.max_tokens = kCompletionMaxTokensDefault;
  MYRIAD_TRY(const auto logprobs, f.integer("logprobs", 0, kMaxTopLogprobs));
  r.options.logprobs = logprobs.has_value();
  r.options.top_logprobs = static_cast<std::uint8_t>(logprobs.value_or(0));
  MYRIAD_TRY(const auto echo, f.boolean("echo"));
  r.echo = echo.value_or(false);
  if (r.echo && r.options.logprobs) {
    return std::unexpected(
        unsupported("logprobs", "log probabilities of the prompt are not computed; leave out 'echo' or 'logprobs'."));
  }
  MYRIAD_TRY(const auto best_of, f.integer("best_of", 1, kMaxChoices));
  if (best_of && *best_of != r.options.n) {
    return std::unexpected(unsupported("best_of", fmt::format("it must equal n ({}).", r.options.n)));
  }
  MYRIAD_TRY(const auto suffix, f.string("suffix", kAnyLength));
  if (suffix && !suffix->empty())
    return std::unexpected(unsupported("suffix", "this model does not fill in the middle."));
  MYRIAD_TRY(r.prompts, read_prompts(f));
  if (r.prompts.size() * r.options.n > kMaxGenerations) {
    return std::unexpected(
        bad_request(fmt::format("{} prompts with n = {} are {} answers; at most {} are taken.", r.prompts.size(),
                                r.options.n, r.prompts.size() * r.options.n, kMaxGenerations),
                    "n"));
  }
  return r;
}

ApiResult<ChatRequest> parse_chat_request(std::string_view body, std::string_view model) {
  MYRIAD_TRY(const Json json, parse_request_json(body));
  const Fields f(json, "");
  MYRIAD_TRY_STATUS(check_model(f, model));
  ChatRequest r;
  MYRIAD_TRY(r.options, read_options(f));
  MYRIAD_TRY(const auto logprobs, f.boolean("logprobs"));
  MYRIAD_TRY(const auto top_logprobs, f.integer("top_logprobs", 0, kMaxTopLogprobs));
  r.options.logprobs = logprobs.value_or(false);
  r.options.top_logprobs = static_cast<std::uint8_t>(top_logprobs.value_or(0));
  if (r.options.top_logprobs > 0 && !r.options.logprobs) {
    return std::unexpected(bad_request("'top_logprobs' may only be given when 'logprobs' is true.", "top_logprobs"));
  }
  MYRIAD_TRY_STATUS(refuse_other_modalities(f));

  MYRIAD_TRY(const auto* messages, f.array("messages", kMaxMessages));
  if (messages == nullptr) {
    return std::unexpected(
        bad_request("Missing required parameter: 'messages'.", "messages", "missing_required_parameter"));
  }
  if (messages->empty()) {
    return std::unexpected(
        bad_request("Invalid 'messages': at least one message is needed.", "messages", "empty_array"));
  }
  Json list = Json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    MYRIAD_TRY(auto message, read_message((*messages)[i], fmt::format("messages[{}]", i)));
    list.push_back(std::move(message));
  }
  r.conversation["messages"] = std::move(list);
  MYRIAD_TRY_STATUS(read_tools(f, r.conversation));
  MYRIAD_TRY_STATUS(read_thinking(f, r.conversation));
  MYRIAD_TRY_STATUS(read_response_format(f, r.conversation));
  MYRIAD_TRY(const auto parallel, f.boolean("parallel_tool_calls"));
  r.parallel_tool_calls = parallel.value_or(true);
  return r;
}

}  // namespace myriad
