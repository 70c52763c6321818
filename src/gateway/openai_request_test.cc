#include "gateway/openai_request.h"

#include <gtest/gtest.h>

#include <random>

namespace myriad {
namespace {

constexpr std::string_view kModel = "tiny";

struct Refusal {
  std::string body;
  int status;
  std::string param;  // "" for none
  std::string code;
};

void check(const ApiError& e, const Refusal& r) {
  EXPECT_EQ(e.status, r.status) << r.body << "\n" << e.message;
  EXPECT_EQ(e.param.value_or(""), r.param) << r.body << "\n" << e.message;
  EXPECT_EQ(e.code.value_or(""), r.code) << r.body << "\n" << e.message;
  EXPECT_EQ(e.type, "invalid_request_error");
  EXPECT_FALSE(e.message.empty());
}

std::string completion(std::string_view more) {
  return fmt::format(R"({{"prompt":"x",{}}})", more);
}
std::string chat(std::string_view more) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}],{}}})", more);
}
std::string message(std::string_view m) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"x"}},{}]}})", m);
}

TEST(CompletionRequest, Refusals) {
  const std::string deep(65, '['), deep_close(65, ']');
  const std::vector<Refusal> table = {
      {"", 400, "", "invalid_json"},
      {"  \n", 400, "", "invalid_json"},
      {"{", 400, "", "invalid_json"},
      {R"({"prompt":"x"} trailing)", 400, "", "invalid_json"},
      {"{\"prompt\":\"\xff\"}", 400, "", "invalid_json"},
      {"[]", 400, "", "invalid_type"},
      {"3", 400, "", "invalid_type"},
      {R"({"prompt":)" + deep + deep_close + "}", 400, "", "too_deep"},
      {"{}", 400, "prompt", "missing_required_parameter"},
      {R"({"prompt":null})", 400, "prompt", "missing_required_parameter"},
      {R"({"prompt":""})", 400, "prompt", "empty_prompt"},
      {R"({"prompt":[]})", 400, "prompt", "empty_prompt"},
      {R"({"prompt":["a",""]})", 400, "prompt", "empty_prompt"},
      {R"({"prompt":[[1],[]]})", 400, "prompt", "empty_prompt"},
      {R"({"prompt":3})", 400, "prompt", "invalid_type"},
      {R"({"prompt":{"a":1}})", 400, "prompt", "invalid_type"},
      {R"({"prompt":[1,"a"]})", 400, "prompt", "invalid_type"},
      {R"({"prompt":["a",1]})", 400, "prompt", "invalid_type"},
      {R"({"prompt":["a",[1]]})", 400, "prompt", "invalid_type"},
      {R"({"prompt":[1.5]})", 400, "prompt", "invalid_type"},
      {R"({"prompt":[-1]})", 400, "prompt", "invalid_type"},
      {R"({"prompt":[99999999999]})", 400, "prompt", "invalid_type"},
      {R"({"prompt":[123456789012345678901234567890]})", 400, "prompt", "invalid_type"},
      {completion(R"("model":"other")"), 404, "model", "model_not_found"},
      {completion(R"("model":"")"), 404, "model", "model_not_found"},
      {completion(R"("model":7)"), 400, "model", "invalid_type"},
      {completion(R"("max_tokens":0)"), 400, "max_tokens", "integer_below_min_value"},
      {completion(R"("max_tokens":-5)"), 400, "max_tokens", "integer_below_min_value"},
      {completion(R"("max_tokens":1.5)"), 400, "max_tokens", "invalid_type"},
      {completion(R"("max_tokens":"5")"), 400, "max_tokens", "invalid_type"},
      {completion(R"("max_tokens":5000000000)"), 400, "max_tokens", "integer_above_max_value"},
      {completion(R"("max_tokens":18446744073709551615)"), 400, "max_tokens", "integer_above_max_value"},
      {completion(R"("max_tokens":100000000000000000000000)"), 400, "max_tokens", "invalid_type"},
      {completion(R"("temperature":2.1)"), 400, "temperature", "decimal_above_max_value"},
      {completion(R"("temperature":-0.1)"), 400, "temperature", "decimal_below_min_value"},
      {completion(R"("temperature":NaN)"), 400, "temperature", "decimal_above_max_value"},
      {completion(R"("temperature":"hot")"), 400, "temperature", "invalid_type"},
      {completion(R"("temperature":true)"), 400, "temperature", "invalid_type"},
      {completion(R"("top_p":1.01)"), 400, "top_p", "decimal_above_max_value"},
      {completion(R"("top_p":[])"), 400, "top_p", "invalid_type"},
      {completion(R"("top_k":-2)"), 400, "top_k", "integer_below_min_value"},
      {completion(R"("seed":1.5)"), 400, "seed", "invalid_type"},
      {completion(R"("seed":"s")"), 400, "seed", "invalid_type"},
      {completion(R"("stop":5)"), 400, "stop", "invalid_type"},
      {completion(R"("stop":"")"), 400, "stop", "invalid_value"},
      {completion(R"("stop":["a",""])"), 400, "stop", "invalid_value"},
      {completion(R"("stop":["a",3])"), 400, "stop[1]", "invalid_type"},
      {completion(R"("stop":["a","b","c","d","e"])"), 400, "stop", "array_above_max_length"},
      {completion(fmt::format(R"("stop":"{}")", std::string(kMaxStopBytes + 1, 's'))), 400, "stop",
       "string_above_max_length"},
      {completion(R"("n":0)"), 400, "n", "integer_below_min_value"},
      {completion(R"("n":17)"), 400, "n", "integer_above_max_value"},
      {R"({"prompt":["1","2","3","4","5","6","7","8","9"],"n":16})", 400, "n", "invalid_value"},
      {completion(R"("stream":1)"), 400, "stream", "invalid_type"},
      {completion(R"("stream_options":{"include_usage":true})"), 400, "stream_options", "invalid_value"},
      {completion(R"("stream":true,"stream_options":[])"), 400, "stream_options", "invalid_type"},
      {completion(R"("stream":true,"stream_options":{"include_usage":1})"), 400, "stream_options.include_usage",
       "invalid_type"},
      {completion(R"("logprobs":true)"), 400, "logprobs", "invalid_type"},
      {completion(R"("logprobs":21)"), 400, "logprobs", "integer_above_max_value"},
      {completion(R"("logprobs":2,"echo":true)"), 400, "logprobs", "unsupported_parameter"},
      {completion(R"("echo":"yes")"), 400, "echo", "invalid_type"},
      {completion(R"("best_of":2)"), 400, "best_of", "unsupported_parameter"},
      {completion(R"("suffix":"end")"), 400, "suffix", "unsupported_parameter"},
      {completion(R"("frequency_penalty":0.5)"), 400, "frequency_penalty", "unsupported_parameter"},
      {completion(R"("frequency_penalty":3)"), 400, "frequency_penalty", "decimal_above_max_value"},
      {completion(R"("presence_penalty":-1)"), 400, "presence_penalty", "unsupported_parameter"},
      {completion(R"("presence_penalty":"x")"), 400, "presence_penalty", "invalid_type"},
      {completion(R"("repetition_penalty":1.1)"), 400, "repetition_penalty", "unsupported_parameter"},
      {completion(R"("min_p":0.1)"), 400, "min_p", "unsupported_parameter"},
      {completion(R"("logit_bias":{"5":1})"), 400, "logit_bias", "unsupported_parameter"},
      {completion(R"("logit_bias":[])"), 400, "logit_bias", "invalid_type"},
  };
  for (const Refusal& r : table) {
    const auto result = parse_completion_request(r.body, kModel);
    if (result)
      ADD_FAILURE() << "accepted: " << r.body;
    else
      check(result.error(), r);
  }
}

TEST(CompletionRequest, InvalidJsonSaysWhere) {
  const auto result = parse_completion_request(R"({"prompt": nope})", kModel);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("11"), std::string::npos) << result.error().message;
}

TEST(CompletionRequest, TooManyValuesAreRefusedBeforeTheyAreParsed) {
  std::string body = R"({"prompt":[0)";
  for (std::size_t i = 0; i <= kMaxRequestValues; ++i) body += ",1";
  const auto values = parse_completion_request(body + "]}", kModel);
  ASSERT_FALSE(values);
  EXPECT_EQ(values.error().code, "too_many_values");
  std::string objects = R"({"prompt":[0)";
  for (std::size_t i = 0; i <= kMaxRequestMembers; ++i) objects += ",{}";
  const auto members = parse_completion_request(objects + "]}", kModel);
  ASSERT_FALSE(members);
  EXPECT_EQ(members.error().code, "too_many_values");
}

TEST(CompletionRequest, Defaults) {
  const auto r = parse_completion_request(R"({"prompt":"hello"})", kModel);
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->prompts, (std::vector<PromptInput>{"hello"}));
  EXPECT_EQ(r->options.max_tokens, 16);
  EXPECT_EQ(r->options.temperature, 1);
  EXPECT_EQ(r->options.top_p, 1);
  EXPECT_EQ(r->options.top_k, 0);
  EXPECT_EQ(r->options.n, 1);
  EXPECT_FALSE(r->options.seed);
  EXPECT_FALSE(r->options.stream || r->options.include_usage || r->options.logprobs || r->echo);
}

TEST(CompletionRequest, EveryMember) {
  const auto r = parse_completion_request(
      R"({"model":"tiny","prompt":["a","b"],"max_tokens":7,"temperature":0,"top_p":0.5,"top_k":3,"seed":-1,"stop":["x","y"],"n":2,
          "stream":true,"stream_options":{"include_usage":true},"logprobs":5,"best_of":2,"suffix":null,"echo":false,
          "frequency_penalty":0,"presence_penalty":0.0,"logit_bias":{},"user":"me","metadata":{"a":"b"},"unknown":[1]})",
      kModel);
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->prompts, (std::vector<PromptInput>{"a", "b"}));
  EXPECT_EQ(r->options.max_tokens, 7);
  EXPECT_EQ(r->options.temperature, 0);
  EXPECT_EQ(r->options.top_p, 0.5F);
  EXPECT_EQ(r->options.top_k, 3);
  EXPECT_EQ(r->options.seed, ~std::uint64_t{0});
  EXPECT_EQ(r->options.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(r->options.n, 2);
  EXPECT_TRUE(r->options.stream && r->options.include_usage && r->options.logprobs);
  EXPECT_EQ(r->options.top_logprobs, 5);
}

TEST(CompletionRequest, PromptsOfEveryForm) {
  const auto ids = parse_completion_request(R"({"prompt":[1,2,3]})", kModel);
  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->prompts, (std::vector<PromptInput>{std::vector<std::int32_t>{1, 2, 3}}));
  const auto lists = parse_completion_request(R"({"prompt":[[1],[2,3]]})", kModel);
  ASSERT_TRUE(lists);
  EXPECT_EQ(lists->prompts, (std::vector<PromptInput>{std::vector<std::int32_t>{1}, std::vector<std::int32_t>{2, 3}}));
}

TEST(CompletionRequest, TopPOfNothingIsTheLikeliestToken) {
  const auto r = parse_completion_request(R"({"prompt":"x","top_p":0,"top_k":-1})", kModel);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->options.top_p, 1);
  EXPECT_EQ(r->options.top_k, 1);
}

TEST(ChatRequest, Refusals) {
  const std::vector<Refusal> table = {
      {"{}", 400, "messages", "missing_required_parameter"},
      {R"({"messages":[]})", 400, "messages", "empty_array"},
      {R"({"messages":"hi"})", 400, "messages", "invalid_type"},
      {R"({"messages":["hi"]})", 400, "messages[0]", "invalid_type"},
      {R"({"messages":[{"content":"x"}]})", 400, "messages[0].role", "missing_required_parameter"},
      {R"({"messages":[{"role":"robot","content":"x"}]})", 400, "messages[0].role", "invalid_value"},
      {R"({"messages":[{"role":1,"content":"x"}]})", 400, "messages[0].role", "invalid_type"},
      {message(R"({"role":"user"})"), 400, "messages[1].content", "missing_required_parameter"},
      {message(R"({"role":"user","content":null})"), 400, "messages[1].content", "missing_required_parameter"},
      {message(R"({"role":"user","content":5})"), 400, "messages[1].content", "invalid_type"},
      {message(R"({"role":"user","content":["x"]})"), 400, "messages[1].content[0]", "invalid_type"},
      {message(R"({"role":"user","content":[{"text":"x"}]})"), 400, "messages[1].content[0].type",
       "missing_required_parameter"},
      {message(R"({"role":"user","content":[{"type":"text"}]})"), 400, "messages[1].content[0].text",
       "missing_required_parameter"},
      {message(R"({"role":"user","content":[{"type":"text","text":1}]})"), 400, "messages[1].content[0].text",
       "invalid_type"},
      {message(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]})"), 400,
       "messages[1].content[0]", "unsupported_content"},
      {message(R"({"role":"user","content":[{"type":"input_audio","input_audio":{}}]})"), 400, "messages[1].content[0]",
       "unsupported_content"},
      {message(R"({"role":"user","content":[{"type":"file","file":{}}]})"), 400, "messages[1].content[0]",
       "unsupported_content"},
      {message(R"({"role":"user","content":"x","name":3})"), 400, "messages[1].name", "invalid_type"},
      {message(R"({"role":"assistant","tool_calls":{}})"), 400, "messages[1].tool_calls", "invalid_type"},
      {message(R"({"role":"assistant","tool_calls":[{}]})"), 400, "messages[1].tool_calls[0].function",
       "missing_required_parameter"},
      {message(R"({"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]})"), 400,
       "messages[1].tool_calls[0].function.name", "missing_required_parameter"},
      {message(R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]})"), 400,
       "messages[1].tool_calls[0].function.arguments", "invalid_type"},
      {message(fmt::format(R"({{"role":"assistant","tool_calls":[{{"function":{{"name":"f","arguments":"{}"}}}}]}})",
                           std::string(70, '['))),
       400, "messages[1].tool_calls[0].function.arguments", "too_deep"},
      {message(R"({"role":"assistant","function_call":{"name":"f"}})"), 400, "messages[1].function_call",
       "unsupported_parameter"},
      {message(R"({"role":"assistant","reasoning_content":1})"), 400, "messages[1].reasoning_content", "invalid_type"},
      {message(R"({"role":"tool","content":"x"})"), 400, "messages[1].tool_call_id", "missing_required_parameter"},
      {chat(R"("tools":{})"), 400, "tools", "invalid_type"},
      {chat(R"("tools":[1])"), 400, "tools[0]", "invalid_type"},
      {chat(R"("tools":[{"type":"web_search"}])"), 400, "tools[0].type", "unsupported_tool"},
      {chat(R"("tools":[{"type":"function"}])"), 400, "tools[0].function", "missing_required_parameter"},
      {chat(R"("tools":[{"type":"function","function":{}}])"), 400, "tools[0].function.name",
       "missing_required_parameter"},
      {chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"), 400,
       "tools[0].function.parameters", "invalid_type"},
      {chat(R"("tool_choice":"required")"), 400, "tool_choice", "invalid_value"},
      {chat(R"("tool_choice":"always")"), 400, "tool_choice", "invalid_value"},
      {chat(R"("tool_choice":5)"), 400, "tool_choice", "invalid_type"},
      {chat(R"("tool_choice":{"type":"function"})"), 400, "tool_choice.function.name", "missing_required_parameter"},
      {chat(R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}})"), 400,
       "tool_choice.function.name", "invalid_value"},
      {chat(R"("parallel_tool_calls":"no")"), 400, "parallel_tool_calls", "invalid_type"},
      {chat(R"("functions":[])"), 400, "functions", "unsupported_parameter"},
      {chat(R"("response_format":"json")"), 400, "response_format", "invalid_type"},
      {chat(R"("response_format":{"type":"xml"})"), 400, "response_format.type", "invalid_value"},
      {chat(R"("response_format":{"type":"json_schema"})"), 400, "response_format.json_schema",
       "missing_required_parameter"},
      {chat(R"("thinking":"on")"), 400, "thinking", "invalid_type"},
      {chat(R"("thinking":{"type":"sometimes"})"), 400, "thinking.type", "invalid_value"},
      {chat(R"("thinking_effort":"medium")"), 400, "thinking_effort", "invalid_value"},
      {chat(R"("reasoning_effort":"extreme")"), 400, "reasoning_effort", "invalid_value"},
      {chat(R"("chat_template_kwargs":{"x":1})"), 400, "chat_template_kwargs.x", "unsupported_parameter"},
      {chat(R"("logprobs":5)"), 400, "logprobs", "invalid_type"},
      {chat(R"("top_logprobs":5)"), 400, "top_logprobs", "invalid_value"},
      {chat(R"("logprobs":true,"top_logprobs":21)"), 400, "top_logprobs", "integer_above_max_value"},
      {chat(R"("modalities":["text","audio"])"), 400, "modalities", "unsupported_parameter"},
      {chat(R"("audio":{"voice":"x"})"), 400, "audio", "unsupported_parameter"},
      {chat(R"("model":"gpt-4")"), 404, "model", "model_not_found"},
  };
  for (const Refusal& r : table) {
    const auto result = parse_chat_request(r.body, kModel);
    if (result)
      ADD_FAILURE() << "accepted: " << r.body;
    else
      check(result.error(), r);
  }
}

TEST(ChatRequest, ConversationHoldsWhatTheChatFormatReads) {
  const auto r = parse_chat_request(
      R"({"messages":[{"role":"developer","content":"be brief"},
                      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
                      {"role":"assistant","content":null,"reasoning":"hm","tool_calls":[{"id":"c1","type":"function",
                       "function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]},
                      {"role":"tool","tool_call_id":"c1","content":"42"}],
          "tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],
          "tool_choice":{"type":"function","function":{"name":"g"}},"thinking_effort":"max","reasoning_effort":"low",
          "response_format":{"type":"json_object"},"add_generation_prompt":false,"max_completion_tokens":9,"max_tokens":5,
          "logprobs":true,"top_logprobs":2,"parallel_tool_calls":false})",
      kModel);
  ASSERT_TRUE(r) << r.error().message;
  const auto& c = r->conversation;
  EXPECT_EQ(c["messages"][0]["role"], "system");
  EXPECT_EQ(c["messages"][1]["content"].size(), 2);
  EXPECT_EQ(c["messages"][2]["reasoning_content"], "hm");
  EXPECT_EQ(c["messages"][2]["tool_calls"][0]["function"]["arguments"], R"({"z":1,"a":2})");
  EXPECT_EQ(c["messages"][3]["tool_call_id"], "c1");
  ASSERT_EQ(c["tools"].size(), 1) << "only the function that must be called is declared";
  EXPECT_EQ(c["tools"][0]["function"]["name"], "g");
  EXPECT_EQ(c["tool_choice"], "required");
  EXPECT_EQ(c["thinking_effort"], "max") << "the model's own switch goes before OpenAI's";
  EXPECT_EQ(c["response_format"]["type"], "json_object");
  EXPECT_FALSE(c.contains("add_generation_prompt")) << "not the caller's to say";
  EXPECT_EQ(r->options.max_tokens, 9);
  EXPECT_EQ(r->options.top_logprobs, 2);
  EXPECT_FALSE(r->parallel_tool_calls);
}

TEST(ChatRequest, Thinking) {
  const auto conversation = [](std::string_view more) {
    const auto r = parse_chat_request(chat(more), kModel);
    EXPECT_TRUE(r) << r.error().message;
    return r->conversation;
  };
  EXPECT_FALSE(conversation(R"("n":1)").contains("thinking"));
  EXPECT_EQ(conversation(R"("thinking":false)")["thinking"], false);
  EXPECT_EQ(conversation(R"("thinking":{"type":"enabled"})")["thinking"], true);
  EXPECT_EQ(conversation(R"("thinking":{"type":"disabled"})")["thinking"], false);
  EXPECT_EQ(conversation(R"("reasoning_effort":"none")")["thinking"], false);
  EXPECT_EQ(conversation(R"("chat_template_kwargs":{"thinking":false})")["thinking"], false);
  EXPECT_EQ(conversation(R"("chat_template_kwargs":{"enable_thinking":false})")["thinking"], false);
  EXPECT_EQ(conversation(R"("enable_thinking":false)")["thinking"], false);
  EXPECT_FALSE(conversation(R"("chat_template_kwargs":{})").contains("thinking"));
  EXPECT_EQ(conversation(R"("reasoning_effort":"minimal")")["thinking_effort"], "low");
  EXPECT_EQ(conversation(R"("reasoning_effort":"high")")["thinking_effort"], "high");
  EXPECT_EQ(conversation(R"("reasoning_effort":"xhigh")")["thinking_effort"], "max");
  EXPECT_FALSE(conversation(R"("reasoning_effort":"medium")").contains("thinking_effort"));
}

// Whatever is done to a valid body, the answer is a request or an error.
TEST(Requests, MutationsNeverDoHarm) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string bodies[] = {
      completion(
          R"("max_tokens":7,"temperature":0.5,"stop":["x"],"logprobs":3,"n":2,"stream":true,"stream_options":{}})"),
      chat(
          R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"thinking":{"type":"enabled"})")};
  constexpr std::string_view kBytes = "{}[]\",:\\0123456789eE+-.truefalsn \xc3\xff";
  for (int round = 0; round < 20000; ++round) {
    std::string body = bodies[round % 2];
    for (std::size_t n = 1 + random() % 4; n > 0; --n) {
      const std::size_t at = random() % body.size();
      switch (random() % 3) {
        case 0:
          body[at] = kBytes[random() % kBytes.size()];
          break;
        case 1:
          body.erase(at, 1 + random() % 5);
          break;
        default:
          body.insert(at, 1, kBytes[random() % kBytes.size()]);
          break;
      }
      if (body.empty()) body = "{";
    }
    const auto c = parse_completion_request(body, kModel);
    const auto m = parse_chat_request(body, kModel);
    ASSERT_TRUE(c || c.error().status == 400 || c.error().status == 404);
    ASSERT_TRUE(m || m.error().status == 400 || m.error().status == 404);
    ASSERT_TRUE(c || !error_body(c.error()).empty());
  }
}

}  // namespace
}  // namespace myriad
