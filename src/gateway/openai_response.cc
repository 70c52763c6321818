#include "gateway/openai_response.h"

#include <nlohmann/json.hpp>

#include "model/utf8_stream.h"

namespace myriad {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json text_or_null(const std::string& text, bool null) {
  return null ? Json() : Json(text);
}

// The form of the completions API: parallel arrays.
Json completion_logprobs(const std::vector<ShownToken>& tokens, const Tokenizer& tokenizer) {
  // A token that is not text has its bytes written out.
  const auto name = [&tokenizer](std::int32_t id) {
    const std::string text = token_as_text(tokenizer, id);
    return text == tokenizer.token_bytes(id) ? text : "bytes:" + text;
  };
  Json list{{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  for (const ShownToken& t : tokens) {
    list["tokens"].push_back(name(t.sample.token));
    list["token_logprobs"].push_back(t.sample.logprob);
    Json top = Json::object();
    for (const TokenLogprob& l : t.sample.top) top.emplace(name(l.token), l.logprob);
    top.emplace(name(t.sample.token), t.sample.logprob);  // the drawn token is always among them
    list["top_logprobs"].push_back(std::move(top));
    list["text_offset"].push_back(t.text_offset);
  }
  return list;
}

Json chat_token(const Tokenizer& tokenizer, std::int32_t id, float logprob) {
  Json bytes = Json::array();
  for (const char c : tokenizer.token_bytes(id)) bytes.push_back(static_cast<unsigned char>(c));
  return Json{{"token", token_as_text(tokenizer, id)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

Json chat_logprobs(const std::vector<ShownToken>& tokens, const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const ShownToken& t : tokens) {
    Json entry = chat_token(tokenizer, t.sample.token, t.sample.logprob);
    Json top = Json::array();
    for (const TokenLogprob& l : t.sample.top) top.push_back(chat_token(tokenizer, l.token, l.logprob));
    entry["top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return Json{{"content", std::move(list)}, {"refusal", nullptr}};
}

Json logprobs_of(const AnswerHead& head, const AnswerPiece& piece, const Tokenizer& tokenizer) {
  if (!head.logprobs) return nullptr;
  return head.chat ? chat_logprobs(piece.tokens, tokenizer) : completion_logprobs(piece.tokens, tokenizer);
}

Json usage_json(const Usage& usage) {
  return Json{{"prompt_tokens", usage.prompt_tokens},
              {"completion_tokens", usage.completion_tokens},
              {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
              {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json envelope(const AnswerHead& head, bool chunk) {
  return Json{{"id", head.id},
              {"object", !head.chat ? "text_completion"
                         : chunk    ? "chat.completion.chunk"
                                    : "chat.completion"},
              {"created", head.created},
              {"model", head.model}};
}

std::string chunk_of(const AnswerHead& head, Json choices) {
  Json chunk = envelope(head, true);
  chunk["choices"] = std::move(choices);
  if (head.include_usage) chunk["usage"] = nullptr;
  return dump(chunk);
}

Json model_json(const ModelInfo& info, std::int64_t created) {
  Json json{{"id", info.name},
            {"object", "model"},
            {"created", created},
            {"owned_by", "myriad"},
            {"context_window", info.context}};
  if (info.own_context != 0) json["trained_context_window"] = info.own_context;
  return json;
}

}  // namespace

std::string token_as_text(const Tokenizer& tokenizer, std::int32_t token) {
  const std::string_view bytes = tokenizer.token_bytes(token);
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string out;
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

std::string answer_body(const AnswerHead& head, std::span<const FinishedChoice> choices, const Usage& usage,
                        const Tokenizer& tokenizer) {
  Json body = envelope(head, false);
  Json list = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const AnswerPiece& a = choices[i].answer;
    Json choice{{"index", i}};
    if (head.chat) {
      Json message{{"role", "assistant"}, {"content", text_or_null(a.text, a.text.empty() && !a.tool_calls.empty())}};
      if (!a.reasoning.empty()) message["reasoning_content"] = a.reasoning;
      message["refusal"] = nullptr;
      if (!a.tool_calls.empty()) {
        Json calls = Json::array();
        for (const ToolCallPiece& c : a.tool_calls) {
          calls.push_back(Json{
              {"id", c.id}, {"type", "function"}, {"function", Json{{"name", c.name}, {"arguments", c.arguments}}}});
        }
        message["tool_calls"] = std::move(calls);
      }
      choice["message"] = std::move(message);
    } else {
      choice["text"] = a.text;
    }
    choice["logprobs"] = logprobs_of(head, a, tokenizer);
    choice["finish_reason"] = choices[i].finish_reason;
    list.push_back(std::move(choice));
  }
  body["choices"] = std::move(list);
  body["usage"] = usage_json(usage);
  return dump(body);
}

std::string chat_role_chunk(const AnswerHead& head, std::size_t index) {
  return chunk_of(head, Json::array({Json{{"index", index},
                                          {"delta", Json{{"role", "assistant"}, {"content", ""}}},
                                          {"logprobs", nullptr},
                                          {"finish_reason", nullptr}}}));
}

std::string piece_chunk(const AnswerHead& head, std::size_t index, const AnswerPiece& piece,
                        const Tokenizer& tokenizer) {
  Json choice{{"index", index}};
  if (head.chat) {
    Json delta = Json::object();
    if (!piece.reasoning.empty()) delta["reasoning_content"] = piece.reasoning;
    if (!piece.text.empty()) delta["content"] = piece.text;
    Json calls = Json::array();
    for (const ToolCallPiece& c : piece.tool_calls) {
      Json call{{"index", c.index}};
      if (!c.name.empty()) {
        call["id"] = c.id;
        call["type"] = "function";
        call["function"] = Json{{"name", c.name}, {"arguments", c.arguments}};
      } else {
        call["function"] = Json{{"arguments", c.arguments}};
      }
      calls.push_back(std::move(call));
    }
    if (!calls.empty()) delta["tool_calls"] = std::move(calls);
    choice["delta"] = std::move(delta);
  } else {
    choice["text"] = piece.text;
  }
  choice["logprobs"] = logprobs_of(head, piece, tokenizer);
  choice["finish_reason"] = nullptr;
  return chunk_of(head, Json::array({std::move(choice)}));
}

std::string finish_chunk(const AnswerHead& head, std::size_t index, std::string_view finish_reason) {
  Json choice{{"index", index}};
  if (head.chat)
    choice["delta"] = Json::object();
  else
    choice["text"] = "";
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = finish_reason;
  return chunk_of(head, Json::array({std::move(choice)}));
}

std::string usage_chunk(const AnswerHead& head, const Usage& usage) {
  Json chunk = envelope(head, true);
  chunk["choices"] = Json::array();
  chunk["usage"] = usage_json(usage);
  return dump(chunk);
}

std::string sse_event(std::string_view json) {
  return fmt::format("data: {}\n\n", json);
}

std::string model_body(const ModelInfo& info, std::int64_t created) {
  return dump(model_json(info, created));
}

std::string model_list_body(const ModelInfo& info, std::int64_t created) {
  return dump(Json{{"object", "list"}, {"data", Json::array({model_json(info, created)})}});
}

}  // namespace myriad
