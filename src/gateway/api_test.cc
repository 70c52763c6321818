#include "gateway/api.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"
#include "gateway/fake_backend.h"
#include "gateway/openai_request.h"
#include "gateway/raw_client.h"

namespace myriad {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

const ModelText& text() {
  static const ModelText loaded =
      load_model_text(std::filesystem::path(MYRIAD_SOURCE_DIR) / "models/tiny-k3", 0).value();
  return loaded;
}
const Tokenizer& tokenizer() {
  return text().tokenizer;
}

std::vector<std::int32_t> byte_tokens(std::string_view text) {
  std::vector<std::int32_t> ids;
  for (const char c : text) {
    const auto one = tokenizer().encode(std::string_view(&c, 1));
    ids.insert(ids.end(), one.begin(), one.end());
  }
  return ids;
}

std::string post(std::string_view path, std::string_view body, std::string_view headers = "") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}",
                     path, body.size(), headers, body);
}
std::string get(std::string_view path, std::string_view headers = "") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, headers);
}

// The JSON of each event of a stream, and its other lines.
struct Events {
  std::vector<Json> json;
  bool done = false;
  std::size_t comments = 0;
};
Events events_of(const std::string& body) {
  Events out;
  std::size_t at = 0;
  while (at < body.size()) {
    const auto end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "an event without its end: " << body.substr(at);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    EXPECT_FALSE(out.done) << "something after [DONE]";
    if (event.starts_with(":"))
      ++out.comments;
    else if (event == "data: [DONE]")
      out.done = true;
    else if (event.starts_with("data: "))
      out.json.push_back(Json::parse(event.substr(6)));
    else
      ADD_FAILURE() << event;
  }
  return out;
}

class Api : public ::testing::Test {
 protected:
  explicit Api() : backend_([this](const GenerationRequest& r) { return script_(r); }) {
    backend_.model.vocabulary = tokenizer().vocab_size();
    log_configure(LogLevel::off, "");
  }
  void open() {
    auto api = HttpApi::open("", 0, text(), backend_, options_);
    ASSERT_TRUE(api) << api.error().message;
    api_ = std::move(*api);
  }
  RawResponse ask(std::string_view request, bool head_only = false) {
    RawClient client(api_->port());
    EXPECT_TRUE(client.connected());
    client.send(request);
    return client.response(head_only);
  }
  Json ask_json(std::string_view path, const Json& body) {
    const RawResponse r = ask(post(path, body.dump()));
    EXPECT_EQ(r.status, 200) << r.body;
    return Json::parse(r.body);
  }
  Events stream(std::string_view path, Json body) {
    body["stream"] = true;
    const RawResponse r = ask(post(path, body.dump()));
    EXPECT_EQ(r.status, 200) << r.body;
    EXPECT_TRUE(r.has("Content-Type: text/event-stream"));
    return events_of(r.body);
  }
  void expect_error(const RawResponse& r, int status, std::string_view code, std::string_view param = "") {
    EXPECT_EQ(r.status, status) << r.head << r.body;
    const Json body = Json::parse(r.body, nullptr, false);
    ASSERT_TRUE(body.is_object() && body.contains("error")) << r.body;
    EXPECT_TRUE(body["error"]["message"].is_string());
    EXPECT_EQ(body["error"]["code"], code) << r.body;
    EXPECT_EQ(body["error"]["param"], param.empty() ? Json() : Json(param)) << r.body;
  }

  FakeBackend::Script script_ = [](const GenerationRequest&) { return byte_tokens("Hello, world"); };
  FakeBackend backend_;
  HttpApi::Options options_;
  std::unique_ptr<HttpApi> api_;
};

TEST_F(Api, SmallRoutes) {
  open();
  EXPECT_EQ(ask(get("/health")).body, R"({"status":"ok"})");
  EXPECT_EQ(ask(get("/ready")).status, 200);
  const auto models = Json::parse(ask(get("/v1/models?limit=5")).body);
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "tiny-k3");
  EXPECT_EQ(Json::parse(ask(get("/v1/models/tiny%2Dk3")).body)["id"], "tiny-k3");
  expect_error(ask(get("/v1/models/other")), 404, "model_not_found", "model");
  expect_error(ask(get("/nowhere")), 404, "unknown_url");
  const auto wrong_method = ask(get("/v1/completions"));
  expect_error(wrong_method, 405, "method_not_allowed");
  EXPECT_TRUE(wrong_method.has("Allow: POST"));
  expect_error(ask(post("/health", "{}")), 405, "method_not_allowed");
  const auto head = ask("HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", true);
  EXPECT_EQ(head.status, 200);
  EXPECT_TRUE(head.has("Content-Length: "));

  backend_.is_ready = false;
  const auto not_ready = ask(get("/ready"));
  expect_error(not_ready, 503, "service_unavailable");
  EXPECT_NE(not_ready.body.find("n7"), std::string::npos) << "the reason is said";
  EXPECT_EQ(ask(get("/health")).status, 200);
  const auto refused = ask(post("/v1/completions", R"({"prompt":"x"})"));
  expect_error(refused, 503, "service_unavailable");
  EXPECT_TRUE(refused.has("Retry-After: "));
}

TEST_F(Api, ListensOnBothFamilies) {
  open();
  RawClient six(api_->port(), true);
  if (!six.connected()) GTEST_SKIP() << "no IPv6 loopback here";
  six.send(get("/health"));
  EXPECT_EQ(six.response().status, 200);
}

TEST_F(Api, Completion) {
  open();
  const Json body =
      ask_json("/v1/completions",
               {{"model", "tiny-k3"}, {"prompt", "Say"}, {"max_tokens", 100}, {"seed", 7}, {"temperature", 0.5}});
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "Hello, world");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
  ASSERT_EQ(backend_.requests().size(), 1U);
  const GenerationRequest r = backend_.requests()[0];
  EXPECT_EQ(r.prompt, tokenizer().encode("Say")) << "nothing is put in front of a prompt";
  EXPECT_EQ(body["usage"]["prompt_tokens"], r.prompt.size());
  EXPECT_EQ(r.max_tokens, 100U);
  EXPECT_EQ(r.sample.seed, 7U);
  EXPECT_EQ(r.sample.temperature, 0.5F);
  EXPECT_NE(std::find(r.stop_tokens.begin(), r.stop_tokens.end(), tokenizer().eos().value()), r.stop_tokens.end());

  EXPECT_EQ(ask_json("/v1/completions", {{"prompt", "Say"}, {"max_tokens", 5}})["choices"][0]["finish_reason"],
            "length");
  EXPECT_EQ(ask_json("/v1/completions", {{"prompt", "Say"}, {"echo", true}})["choices"][0]["text"], "SayHello, world");
  EXPECT_EQ(ask_json("/v1/completions", {{"prompt", tokenizer().encode("Say")}, {"echo", true}})["choices"][0]["text"],
            "SayHello, world");
}

TEST_F(Api, ASeedIsDrawnWhenNoneIsGiven) {
  open();
  ask_json("/v1/completions", {{"prompt", "x"}});
  ask_json("/v1/completions", {{"prompt", "x"}});
  EXPECT_NE(backend_.requests()[0].sample.seed, backend_.requests()[1].sample.seed);
}

TEST_F(Api, ChoicesAndPromptsHaveTheirIndex) {
  script_ = [](const GenerationRequest& r) {
    return byte_tokens(fmt::format("{}:{}", r.prompt.size(), r.sample.choice));
  };
  backend_.room = 2;  // fewer than the request needs: the others wait for the first to end
  open();
  const Json body = ask_json("/v1/completions", {{"prompt", {{1}, {1, 2}}}, {"n", 3}, {"seed", 5}});
  ASSERT_EQ(body["choices"].size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], fmt::format("{}:{}", i / 3 + 1, i % 3));
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(body["usage"]["completion_tokens"], 18);
  for (const auto& r : backend_.requests()) EXPECT_EQ(r.sample.seed, 5U);
  const Events events = stream("/v1/completions", {{"prompt", "x"}, {"n", 3}});
  std::map<int, std::string> texts;
  for (const Json& e : events.json) texts[e["choices"][0]["index"]] += e["choices"][0]["text"];
  EXPECT_EQ(texts, (std::map<int, std::string>{{0, "1:0"}, {1, "1:1"}, {2, "1:2"}}));
}

TEST_F(Api, StreamedCompletion) {
  script_ = [](const GenerationRequest&) {
    return byte_tokens(
        "a\xE2\x82\xAC"
        "b STOP never");
  };
  open();
  const Events events =
      stream("/v1/completions",
             {{"prompt", "x"}, {"max_tokens", 50}, {"stop", "STOP"}, {"stream_options", {{"include_usage", true}}}});
  EXPECT_TRUE(events.done);
  ASSERT_GE(events.json.size(), 3U);
  std::string text;
  std::set<std::string> ids;
  for (std::size_t i = 0; i + 1 < events.json.size(); ++i) {
    EXPECT_TRUE(events.json[i]["usage"].is_null());
    ids.insert(events.json[i]["id"]);
    text += events.json[i]["choices"][0]["text"];
    EXPECT_EQ(events.json[i]["choices"][0]["finish_reason"], i + 2 == events.json.size() ? Json("stop") : Json());
  }
  EXPECT_EQ(text,
            "a\xE2\x82\xAC"
            "b ");
  EXPECT_EQ(ids.size(), 1U);
  EXPECT_TRUE(events.json.back()["choices"].empty());
  EXPECT_EQ(events.json.back()["usage"]["completion_tokens"], 10);
  EXPECT_TRUE(backend_.wait([](const FakeBackend& b) { return b.active() == 0; }));
  EXPECT_GE(backend_.cancels(), 1U) << "what comes after a stop string is not generated";
}

TEST_F(Api, Logprobs) {
  script_ = [](const GenerationRequest&) { return byte_tokens("h\xC3\xA9"); };
  open();
  const Json old = ask_json("/v1/completions", {{"prompt", "x"}, {"logprobs", 2}})["choices"][0]["logprobs"];
  EXPECT_EQ(old["tokens"], (Json{"h", "bytes:\\xc3", "bytes:\\xa9"}));
  EXPECT_EQ(old["text_offset"], (Json{0, 1, 1}));
  EXPECT_EQ(old["token_logprobs"][0], -0.5);
  EXPECT_EQ(old["top_logprobs"][0]["h"], -0.5);
  EXPECT_EQ(old["top_logprobs"][0].size(), 2U);
  EXPECT_EQ(backend_.requests()[0].sample.top_logprobs, 2);

  const Json chat =
      ask_json("/v1/chat/completions",
               {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"logprobs", true}, {"top_logprobs", 1}});
  const Json tokens = chat["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(tokens[1]["bytes"], (Json{0xC3}));
  EXPECT_EQ(tokens[0]["token"], "h");
  EXPECT_EQ(tokens[0]["top_logprobs"][0]["token"], "h");
  EXPECT_EQ(tokens[0]["top_logprobs"][0]["logprob"], -0.5);

  Json streamed = Json::array();
  for (const Json& e : stream("/v1/completions", {{"prompt", "x"}, {"logprobs", 0}}).json) {
    const Json& l = e["choices"][0]["logprobs"];
    if (!l.is_null()) streamed.insert(streamed.end(), l["tokens"].begin(), l["tokens"].end());
  }
  EXPECT_EQ(streamed, old["tokens"]);
}

// Each prompt's once, as its tokens are counted once; also when the first token that is drawn ends the answer.
TEST_F(Api, CachedTokensAreThoseOfThePrompts) {
  backend_.kept_tokens = 7;
  script_ = [](const GenerationRequest& r) { return byte_tokens(r.prompt.size() == 1 ? "" : "abc"); };
  open();
  const auto cached = [&](const Json& body) {
    return ask_json("/v1/completions", body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached({{"prompt", {5, 6}}}), 7);
  EXPECT_EQ(cached({{"prompt", {5, 6}}, {"n", 3}}), 7);
  EXPECT_EQ(cached({{"prompt", {{5, 6}, {7, 8}}}, {"n", 2}}), 14);
  EXPECT_EQ(cached({{"prompt", {5}}}), 7) << "no token was shown";
}

std::vector<std::int32_t> tag(std::string_view bracket, std::string_view name) {
  std::vector<std::int32_t> ids{tokenizer().special_id(bracket).value()};
  const auto text = tokenizer().encode(name);
  ids.insert(ids.end(), text.begin(), text.end());
  ids.push_back(tokenizer().special_id("<|sep|>").value());
  return ids;
}

std::vector<std::int32_t> chat_reply(std::string_view reasoning, std::string_view content, bool call) {
  std::vector<std::int32_t> ids = byte_tokens(reasoning);
  const auto add = [&ids](const std::vector<std::int32_t>& more) { ids.insert(ids.end(), more.begin(), more.end()); };
  add(tag("<|close|>", "think"));
  add(tag("<|open|>", "response"));
  add(byte_tokens(content));
  add(tag("<|close|>", "response"));
  if (call) {
    add(tag("<|open|>", "tools"));
    add(tag("<|open|>", "call tool=\"weather\" index=\"1\""));
    add(tag("<|open|>", "argument key=\"city\" type=\"string\""));
    add(byte_tokens("Paris"));
    add(tag("<|close|>", "argument"));
    add(tag("<|close|>", "call"));
    add(tag("<|close|>", "tools"));
  }
  add(tag("<|close|>", "message"));
  return ids;
}

const Json kHello = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}};

TEST_F(Api, Chat) {
  script_ = [](const GenerationRequest&) { return chat_reply("hm", "Hi!", false); };
  open();
  const Json whole = ask_json("/v1/chat/completions", kHello);
  EXPECT_EQ(whole["object"], "chat.completion");
  const Json& message = whole["choices"][0]["message"];
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["content"], "Hi!");
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_FALSE(message.contains("tool_calls"));
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(backend_.requests()[0].max_tokens, 512 - backend_.requests()[0].prompt.size()) << "up to the context";

  const Events events = stream("/v1/chat/completions", kHello);
  EXPECT_TRUE(events.done);
  std::string content, reasoning;
  EXPECT_EQ(events.json.front()["choices"][0]["delta"]["role"], "assistant");
  for (const Json& e : events.json) {
    EXPECT_EQ(e["object"], "chat.completion.chunk");
    content += e["choices"][0]["delta"].value("content", "");
    reasoning += e["choices"][0]["delta"].value("reasoning_content", "");
    EXPECT_FALSE(e.contains("usage"));
  }
  EXPECT_EQ(content, "Hi!");
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(events.json.back()["choices"][0]["finish_reason"], "stop");
}

TEST_F(Api, ToolCalls) {
  script_ = [](const GenerationRequest&) { return chat_reply("", "", true); };
  open();
  Json request = kHello;
  request["tools"] =
      Json::parse(R"([{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}])");
  const Json whole = ask_json("/v1/chat/completions", request);
  const Json& message = whole["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null());
  ASSERT_EQ(message["tool_calls"].size(), 1U) << whole;
  EXPECT_TRUE(message["tool_calls"][0]["id"].get<std::string>().starts_with("call_"));
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "weather");
  EXPECT_EQ(Json::parse(message["tool_calls"][0]["function"]["arguments"].get<std::string>())["city"], "Paris");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "tool_calls");

  std::string arguments, id, name;
  for (const Json& e : stream("/v1/chat/completions", request).json) {
    for (const Json& call : e["choices"][0]["delta"].value("tool_calls", Json::array())) {
      EXPECT_EQ(call["index"], 0);
      id += call.value("id", "");
      name += call["function"].value("name", "");
      arguments += call["function"].value("arguments", "");
    }
  }
  EXPECT_TRUE(id.starts_with("call_"));
  EXPECT_EQ(name, "weather");
  EXPECT_EQ(Json::parse(arguments)["city"], "Paris");
}

TEST_F(Api, RefusedRequestsNeverReachTheBackend) {
  open();
  RawClient client(api_->port());
  const auto refuse = [&](std::string_view path, std::string_view body, int status, std::string_view code,
                          std::string_view param) {
    client.send(post(path, body));
    expect_error(client.response(), status, code, param);
  };
  refuse("/v1/completions", "{", 400, "invalid_json", "");
  refuse("/v1/completions", "\xff\x00garbage", 400, "invalid_json", "");
  refuse("/v1/completions", R"({"prompt":"x","temperature":5})", 400, "decimal_above_max_value", "temperature");
  refuse("/v1/completions", R"({"prompt":"x","model":"gpt"})", 404, "model_not_found", "model");
  refuse("/v1/completions", R"({"prompt":[999999]})", 400, "invalid_value", "prompt");
  refuse("/v1/completions", R"({"prompt":"x","max_tokens":512})", 400, "context_length_exceeded", "prompt");
  refuse("/v1/completions", fmt::format(R"({{"prompt":"{}"}})", std::string(20000, 'z')), 400,
         "context_length_exceeded", "prompt");
  refuse("/v1/completions", fmt::format(R"({{"prompt":"{}"}})", std::string(1000, 'z')), 400, "context_length_exceeded",
         "prompt");
  refuse("/v1/chat/completions",
         fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}]}})", std::string(1 << 20, 'z')), 400,
         "context_length_exceeded", "messages");
  refuse("/v1/chat/completions", R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
         400, "unsupported_content", "messages[0].content[0]");
  client.send(post("/v1/completions", R"({"prompt":"x"})", "X: y\r\n"));
  EXPECT_EQ(client.response().status, 200) << "all on one connection, which is still good";
  EXPECT_EQ(backend_.requests().size(), 1U);

  // What `curl -d` says of JSON, and what a web page may say without asking.
  const auto form = [&](std::string_view more) {
    return ask(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\n{}Content-Type: "
                    "application/x-www-form-urlencoded\r\nContent-Length: 14\r\n\r\n{{\"prompt\":\"x\"}}",
                    more));
  };
  EXPECT_EQ(form("").status, 200);
  EXPECT_EQ(form("Origin: http://elsewhere.example\r\n").status, 415);
  expect_error(
      ask("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}"), 415,
      "unsupported_media_type");
}

TEST_F(Api, BusyIsSaidWithRetryAfter) {
  backend_.room = 0;
  open();
  const auto r = ask(post("/v1/completions", R"({"prompt":"x","stream":true})"));
  expect_error(r, 429, "rate_limit_exceeded");
  EXPECT_TRUE(r.has("Retry-After: 1"));
}

TEST_F(Api, FailureIsAStatusOrTheLastEvent) {
  backend_.fail_after = 3;
  open();
  expect_error(ask(post("/v1/completions", R"({"prompt":"x"})")), 503, "service_unavailable");
  const Events events = stream("/v1/completions", {{"prompt", "x"}});
  EXPECT_FALSE(events.done);
  ASSERT_FALSE(events.json.empty());
  EXPECT_NE(events.json.back()["error"]["message"].get<std::string>().find("L003.expert.0007"), std::string::npos);
}

TEST_F(Api, AClientThatLeavesEndsItsGenerations) {
  backend_.hang_after = 2;  // nothing is written when the client leaves
  open();
  for (const bool streamed : {true, false}) {
    std::size_t before = 0;
    ASSERT_TRUE(backend_.wait([&](const FakeBackend& b) {
      before = b.finished_by_cancel;
      return b.active() == 0;
    }));
    RawClient client(api_->port());
    client.send(post("/v1/completions", fmt::format(R"({{"prompt":"x","n":3,"stream":{}}})", streamed)));
    ASSERT_TRUE(backend_.wait([](const FakeBackend& b) { return b.active() == 3; }));
    ASSERT_TRUE(!streamed || client.receive_until("data: "));
    client.close();
    EXPECT_TRUE(
        backend_.wait([&](const FakeBackend& b) { return b.active() == 0 && b.finished_by_cancel == before + 3; }));
  }
}

TEST_F(Api, TheApisEndCancelsWhatRuns) {
  backend_.hang_after = 1;
  open();
  RawClient client(api_->port());
  client.send(post("/v1/completions", R"({"prompt":"x"})"));
  ASSERT_TRUE(backend_.wait([](const FakeBackend& b) { return b.active() == 1; }));
  api_.reset();
  EXPECT_TRUE(backend_.wait([](const FakeBackend& b) { return b.active() == 0; }));
  EXPECT_TRUE(client.ends());
}

TEST_F(Api, KeepAliveCommentsWhileNothingIsProduced) {
  options_.http.idle_interval = 20ms;
  backend_.hang_after = 1;
  open();
  RawClient client(api_->port());
  client.send(post("/v1/completions", R"({"prompt":"x","stream":true})"));
  EXPECT_TRUE(client.receive_until(": keep-alive\n\n\r\n"));
  client.buffer().clear();
  EXPECT_TRUE(client.receive_until(": keep-alive\n\n\r\n"));
}

TEST_F(Api, ASlowReaderIsCutOff) {
  options_.http.socket_send_buffer = 4096;
  backend_.model.context = 1 << 20;
  script_ = [](const GenerationRequest& r) { return std::vector<std::int32_t>(r.max_tokens, byte_tokens("a")[0]); };
  open();
  RawClient client(api_->port(), false, 4096);
  client.send(post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":1000000})"));
  EXPECT_TRUE(backend_.wait([](const FakeBackend& b) { return b.finished_by_cancel == 1; }));
}

TEST_F(Api, AReaderThatTakesNothingIsCutOffAfterTheWriteLimit) {
  options_.http.socket_send_buffer = 4096;
  options_.http.write_limit = 100ms;
  backend_.model.context = 1 << 20;
  backend_.hang_after = 1500;  // about 300 KB: less than the queue's limit, more than the sockets take
  script_ = [](const GenerationRequest& r) { return std::vector<std::int32_t>(r.max_tokens, byte_tokens("a")[0]); };
  open();
  RawClient client(api_->port(), false, 4096);
  client.send(post("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":1000000})"));
  EXPECT_TRUE(backend_.wait([](const FakeBackend& b) { return b.finished_by_cancel == 1; }));
}

TEST_F(Api, FiftyStreamsAtOnce) {
  backend_.pace = 500us;
  script_ = [](const GenerationRequest& r) {
    return byte_tokens(fmt::format("answer to {} \xE2\x82\xAC", r.prompt.back()));
  };
  open();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(std::make_unique<RawClient>(api_->port()));
    clients.back()->send(
        post("/v1/completions", fmt::format(R"({{"prompt":[1,{}],"max_tokens":64,"stream":true}})", 100 + i)));
  }
  for (int i = 0; i < 50; ++i) {
    const RawResponse r = clients[static_cast<std::size_t>(i)]->response();
    ASSERT_EQ(r.status, 200);
    const Events events = events_of(r.body);
    EXPECT_TRUE(events.done);
    std::string text;
    for (const Json& e : events.json) text += e["choices"][0]["text"];
    EXPECT_EQ(text, fmt::format("answer to {} \xE2\x82\xAC", 100 + i));
  }
}

TEST_F(Api, AnswersThatWouldNotFitAreRefused) {
  backend_.model.context = 1 << 20;
  script_ = [](const GenerationRequest& r) { return std::vector<std::int32_t>(r.max_tokens, byte_tokens("a")[0]); };
  open();
  expect_error(ask(post("/v1/completions", R"({"prompt":"x","max_tokens":1000000,"logprobs":20})")), 400,
               "answer_too_large");
}

// -------------------------------------------------------------------------------------------------------------------
// HTTP

TEST_F(Api, BodyLimits) {
  open();
  const auto declared = ask(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", kMaxRequestBodyBytes + 1));
  expect_error(declared, 413, "request_too_large");

  // Sixteen MiB are taken, one byte more in chunks is not.
  RawClient client(api_->port());
  const std::string piece(1 << 20, ' ');
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  bool sent = true;
  for (int i = 0; i < 16 && sent; ++i) sent = client.send("100000\r\n" + piece + "\r\n");
  client.send("1\r\nx\r\n0\r\n\r\n");
  expect_error(client.response(), 413, "request_too_large");

  // Blanks, because parsing so much takes long where sanitizers watch: it is read, and found to hold nothing.
  expect_error(ask(post("/v1/completions", std::string(kMaxRequestBodyBytes, ' '))), 400, "invalid_json");
}

TEST_F(Api, BodiesInChunksAndAfterContinue) {
  open();
  const auto chunked =
      ask("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
          "chunked\r\n\r\n8\r\n{\"prompt\r\n5;ext=1\r\n\":\"x\"\r\n1\r\n}\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.status, 200) << chunked.body;
  expect_error(ask("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 400,
               "bad_request");

  RawClient client(api_->port());
  const std::string body = R"({"prompt":"x"})";
  client.send(fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n", body.size()));
  EXPECT_EQ(client.response().status, 100);
  client.send(body);
  EXPECT_EQ(client.response().status, 200);

  RawClient refused(api_->port());
  refused.send("POST /nowhere HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(refused.response().status, 404) << "without asking for a body that is not wanted";
  EXPECT_TRUE(refused.ends());
}

TEST_F(Api, KeepAlivePipeliningAndOldClients) {
  open();
  RawClient client(api_->port());
  client.send(get("/health") + get("/v1/models") + post("/v1/completions", R"({"prompt":"x"})") + get("/ready") +
              "garbage\r\n\r\n");
  EXPECT_EQ(client.response().body, R"({"status":"ok"})");
  EXPECT_EQ(client.response().status, 200);
  EXPECT_EQ(Json::parse(client.response().body)["object"], "text_completion");
  EXPECT_EQ(client.response().body, R"({"status":"ready"})");
  EXPECT_EQ(client.response().status, 400);
  EXPECT_TRUE(client.ends());

  RawClient old(api_->port());
  const std::string body = R"({"prompt":"x","stream":true})";
  old.send(fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  const auto streamed = old.response();
  EXPECT_FALSE(streamed.has("chunked"));
  EXPECT_TRUE(streamed.has("Connection: close"));
  EXPECT_TRUE(events_of(streamed.body).done);

  RawClient last(api_->port());
  last.send(get("/health", "Connection: close\r\n"));
  EXPECT_TRUE(last.response().has("Connection: close"));
  EXPECT_TRUE(last.ends());

  RawClient half(api_->port());
  half.send(get("/health") + get("/v1/models"));
  half.end_sending();
  EXPECT_EQ(half.response().status, 200);
  EXPECT_EQ(half.response().status, 200) << "what was asked before the end is answered";
  EXPECT_TRUE(half.ends());
}

TEST_F(Api, GarbageIsRefused) {
  open();
  for (const std::string_view bytes :
       {std::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15),
        std::string_view("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), std::string_view("GET\r\n\r\n"),
        std::string_view("POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n"),
        std::string_view("POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n")}) {
    RawClient client(api_->port());
    client.send(bytes);
    const int status = client.response().status;
    EXPECT_TRUE(status == 400 || status == 413) << status << " for " << bytes;
    EXPECT_TRUE(client.ends());
  }
  EXPECT_EQ(ask(get("/health", fmt::format("X: {}\r\n", std::string(20000, 'h')))).status, 431);
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST_F(Api, SlowHeadersAndBodiesAreEnded) {
  options_.http.header_limit = 50ms;
  options_.http.body_step_limit = 50ms;
  options_.http.idle_limit = 100ms;
  open();
  RawClient header(api_->port());
  header.send("GET /health HT");
  EXPECT_EQ(header.response().status, 408);
  EXPECT_TRUE(header.ends());
  RawClient body(api_->port());
  body.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{");
  EXPECT_EQ(body.response().status, 408);
  EXPECT_TRUE(body.ends());
  RawClient idle(api_->port());
  EXPECT_TRUE(idle.ends());
}

TEST_F(Api, ConnectionsAreLimited) {
  options_.http.max_connections = 3;
  backend_.hang_after = 0;
  open();
  std::vector<std::unique_ptr<RawClient>> busy;
  for (std::size_t i = 0; i < 3; ++i) {
    busy.push_back(std::make_unique<RawClient>(api_->port()));
    busy.back()->send(post("/v1/completions", R"({"prompt":"x"})"));
    ASSERT_TRUE(backend_.wait([&](const FakeBackend& b) { return b.active() == i + 1; }));
  }
  RawClient fourth(api_->port());
  EXPECT_EQ(fourth.response().status, 503);
  busy.pop_back();
  ASSERT_TRUE(backend_.wait([](const FakeBackend& b) { return b.active() == 2; }));
  RawClient idle(api_->port());
  idle.send(get("/health"));
  EXPECT_EQ(idle.response().status, 200);
  EXPECT_EQ(ask(get("/health")).status, 200) << "an idle connection makes room";
  EXPECT_TRUE(idle.ends());
}

TEST_F(Api, ApiKey) {
  options_.api_key = "sk-secret";
  open();
  expect_error(ask(get("/v1/models")), 401, "invalid_api_key");
  for (const char* wrong :
       {"Bearer sk-secreT", "Bearer ", "Bearer sk-secret2", "sk-secret", "Basic sk-secret", "Bearer sk-secre"}) {
    expect_error(ask(get("/v1/models", fmt::format("Authorization: {}\r\n", wrong))), 401, "invalid_api_key");
  }
  EXPECT_EQ(ask(get("/v1/models", "Authorization: Bearer sk-secret\r\n")).status, 200);
  EXPECT_EQ(ask(get("/v1/models", "authorization: bearer sk-secret\r\n")).status, 200);
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST_F(Api, CrossOriginOnlyWhenConfigured) {
  open();
  EXPECT_FALSE(ask(get("/v1/models", "Origin: https://a.example\r\n")).has("Access-Control"));
  EXPECT_FALSE(
      ask("OPTIONS /v1/completions HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\n\r\n").has("Access-Control"));
  options_.cors_origins = {"https://a.example"};
  open();
  const auto preflight =
      ask("OPTIONS /v1/completions HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\nAccess-Control-Request-Headers: "
          "x-custom\r\n\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_TRUE(preflight.has("Access-Control-Allow-Origin: https://a.example"));
  EXPECT_TRUE(preflight.has("Access-Control-Allow-Headers: x-custom"));
  EXPECT_TRUE(ask(post("/v1/completions", R"({"prompt":"x","stream":true})", "Origin: https://a.example\r\n"))
                  .has("Access-Control-Allow-Origin"));
  EXPECT_FALSE(ask(get("/v1/models", "Origin: https://b.example\r\n")).has("Access-Control"));
}

TEST_F(Api, APortThatIsTakenIsSaid) {
  open();
  const auto second = HttpApi::open("", api_->port(), text(), backend_, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::busy);
  EXPECT_NE(second.error().message.find(std::to_string(api_->port())), std::string::npos);
}

}  // namespace
}  // namespace myriad
