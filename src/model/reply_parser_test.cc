#include "model/reply_parser.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "model/json_text.h"

namespace myriad {
namespace {

const Tokenizer& k3_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(MYRIAD_SOURCE_DIR "/models/tiny-k3", 4096).value();
  return tokenizer;
}

const Tokenizer& linear_tokenizer() {
  static const Tokenizer tokenizer = [] {
    std::ifstream file(MYRIAD_SOURCE_DIR "/models/tiny-k3/tiktoken.model");
    const std::string ranks{std::istreambuf_iterator<char>(file), {}};
    nlohmann::json names;
    int id = 4032;
    for (const char* name : {"<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>",
                             "<think>", "</think>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
                             "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"}) {
      names[std::to_string(id++)]["content"] = name;
    }
    return Tokenizer::parse(ranks, nlohmann::json{{"added_tokens_decoder", names}}.dump()).value();
  }();
  return tokenizer;
}

// Everything that came of a reply, put together.
struct Reply {
  std::string reasoning, content;
  struct Call {
    std::string id, name, arguments, whole;
    bool ended = false;
  };
  std::vector<Call> calls;
  int finished = 0;
  bool complete = false;
};

void add(Reply& reply, const std::vector<ReplyEvent>& events) {
  for (const ReplyEvent& event : events) {
    EXPECT_TRUE(is_valid_utf8(event.text));
    EXPECT_EQ(reply.finished, 0);
    switch (event.kind) {
      case ReplyEvent::Kind::reasoning:
        reply.reasoning += event.text;
        break;
      case ReplyEvent::Kind::content:
        reply.content += event.text;
        break;
      case ReplyEvent::Kind::tool_call:
        EXPECT_EQ(static_cast<std::size_t>(event.index), reply.calls.size());
        reply.calls.push_back({event.id, event.name, {}, {}});
        break;
      case ReplyEvent::Kind::tool_call_arguments:
        reply.calls.at(static_cast<std::size_t>(event.index)).arguments += event.text;
        break;
      case ReplyEvent::Kind::tool_call_end:
        reply.calls.at(static_cast<std::size_t>(event.index)).whole = event.text;
        reply.calls.at(static_cast<std::size_t>(event.index)).ended = true;
        break;
      case ReplyEvent::Kind::finished:
        ++reply.finished;
        reply.complete = event.complete;
        break;
    }
  }
}

Reply parsed(const Tokenizer& tokenizer, const ReplyParser::Options& options, const std::vector<std::int32_t>& ids) {
  ReplyParser parser(tokenizer, options);
  Reply reply;
  for (const std::int32_t id : ids) add(reply, parser.push(id));
  add(reply, parser.finish());
  EXPECT_EQ(reply.finished, 1);
  EXPECT_TRUE(parser.finished());
  EXPECT_EQ(static_cast<std::size_t>(parser.tool_calls()), reply.calls.size());
  for (const auto& call : reply.calls) {
    EXPECT_TRUE(call.ended);
    EXPECT_EQ(call.whole, call.arguments);
  }
  return reply;
}

// A reply written with the names of control tokens, as if every other piece were text.
Reply k3(std::string_view text, bool thinking = true) {
  return parsed(k3_tokenizer(), {.starts_with_reasoning = thinking}, k3_tokenizer().encode_with_specials(text));
}
Reply linear(std::string_view text) {
  return parsed(linear_tokenizer(), {.format = ChatFormat::kimi_linear, .starts_with_reasoning = false},
                linear_tokenizer().encode_with_specials(text));
}

std::string tag(std::string_view inside) {
  return fmt::format("<|open|>{}<|sep|>", inside);
}
std::string end_tag(std::string_view name) {
  return fmt::format("<|close|>{}<|sep|>", name);
}

TEST(ReplyParser, ReadsBackWhatTheRendererWrites) {
  const auto request = parse_json_text(R"({"messages": [{"role": "assistant", "content": "It is 18C – 寒くない 😀.",
      "reasoning_content": "Tool first.\n", "tool_calls": [
        {"function": {"name": "get \"weather\" & more", "arguments": {"city": "São \"Paulo\"\n", "n": 1.5, "big": 12345678901234567890123, "deep": {"a": [1, null]},
                      "on": true, "none": null, "list": [], "empty": ""}}},
        {"function": {"name": "ping"}},
        {"function": {"name": "broken", "arguments": "{\"city\": Paris"}}]}], "add_generation_prompt": false})");
  ASSERT_TRUE(request) << request.error().message;
  const auto segments = render_chat(*request);
  ASSERT_TRUE(segments) << segments.error().message;
  auto ids = segments_to_ids(k3_tokenizer(), *segments).value();
  const auto opening =
      segments_to_ids(k3_tokenizer(), render_chat(*parse_json_text(R"({"messages": []})")).value()).value();
  ASSERT_TRUE(std::equal(opening.begin(), opening.end(), ids.begin()));
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(opening.size()));

  const Reply reply = parsed(k3_tokenizer(), {.call_id_prefix = "call_7_"}, ids);
  EXPECT_EQ(reply.reasoning, "Tool first.\n");
  EXPECT_EQ(reply.content, "It is 18C – 寒くない 😀.");
  EXPECT_TRUE(reply.complete);
  ASSERT_EQ(reply.calls.size(), 3U);
  EXPECT_EQ(reply.calls[0].id, "call_7_0");
  EXPECT_EQ(reply.calls[0].name, "get \"weather\" & more");
  EXPECT_EQ(
      reply.calls[0].arguments,
      R"({"city": "São \"Paulo\"\n", "n": 1.5, "big": 12345678901234567890123, "deep": {"a": [1, null]}, "on": true, "none": null, "list": [], "empty": ""})");
  EXPECT_EQ(reply.calls[1].name, "ping");
  EXPECT_EQ(reply.calls[1].arguments, "{}");
  EXPECT_EQ(reply.calls[2].arguments, "{\"city\": Paris");
}

TEST(ReplyParser, GivesTextAsItComes) {
  ReplyParser parser(k3_tokenizer(), {});
  const auto& t = k3_tokenizer();
  const auto byte = [&](char c) { return t.encode(std::string(1, c)).at(0); };
  using Events = std::vector<ReplyEvent>;
  EXPECT_EQ(parser.push(t.encode("Hm")), (Events{{.kind = ReplyEvent::Kind::reasoning, .text = "Hm"}}));
  EXPECT_EQ(parser.push(byte('\xC3')), Events{});
  EXPECT_EQ(parser.push(byte('\xA9')), (Events{{.kind = ReplyEvent::Kind::reasoning, .text = "é"}}));
  EXPECT_EQ(parser.push(byte('\xC3')), Events{});
  // The character breaks off where the channel ends.
  EXPECT_EQ(parser.push(*t.special_id("<|close|>")),
            (Events{{.kind = ReplyEvent::Kind::reasoning, .text = "\xEF\xBF\xBD"}}));
  EXPECT_EQ(parser.push(t.encode_with_specials("think<|sep|>\n<|open|>response<|sep|>Hi")),
            (Events{{.kind = ReplyEvent::Kind::content, .text = "Hi"}}));
  EXPECT_EQ(parser.push(*t.special_id("<|end_of_msg|>")),
            (Events{{.kind = ReplyEvent::Kind::finished, .complete = true}}));
  EXPECT_EQ(parser.push(t.encode("more")), Events{});
  EXPECT_EQ(parser.finish(), Events{});
}

TEST(ReplyParser, BeginsInTheChannelThatThePromptOpened) {
  EXPECT_EQ(k3("a", true).reasoning, "a");
  EXPECT_EQ(k3("a", false).content, "a");
  EXPECT_FALSE(k3("a").complete);
}

TEST(ReplyParser, StreamsTheArgumentsOfACall) {
  ReplyParser parser(k3_tokenizer(), {.starts_with_reasoning = false});
  const auto push = [&](std::string_view text) { return parser.push(k3_tokenizer().encode_with_specials(text)); };
  using Kind = ReplyEvent::Kind;
  using Events = std::vector<ReplyEvent>;
  EXPECT_EQ(push(end_tag("response") + tag("tools")), Events{});
  EXPECT_EQ(push(tag(R"(call tool="f" index="1")")), (Events{{.kind = Kind::tool_call, .id = "call_0", .name = "f"}}));
  EXPECT_EQ(push(tag(R"(argument key="a" type="number")") + "1"), Events{});
  EXPECT_EQ(push(end_tag("argument")), (Events{{.kind = Kind::tool_call_arguments, .text = "{\"a\": 1"}}));
  EXPECT_EQ(push(tag(R"(argument key="b" type="string")") + "x" + end_tag("argument")),
            (Events{{.kind = Kind::tool_call_arguments, .text = ", \"b\": \"x\""}}));
  EXPECT_EQ(push(end_tag("call")), (Events{{.kind = Kind::tool_call_arguments, .text = "}"},
                                           {.kind = Kind::tool_call_end, .text = "{\"a\": 1, \"b\": \"x\"}"}}));
}

TEST(ReplyParser, MakesAStringOfWhatIsNotOfItsType) {
  const std::string begin = end_tag("think") + tag("tools") + tag(R"(call tool="f" index="1")");
  const auto argument = [&](std::string_view type, std::string_view value) {
    const Reply reply =
        k3(begin + tag(fmt::format(R"(argument key="k"{})", type)) + std::string(value) + end_tag("argument"));
    return reply.calls.at(0).arguments;
  };
  EXPECT_EQ(argument(R"( type="number")", " 42 "), R"({"k": 42})");
  EXPECT_EQ(argument(R"( type="number")", "4 2"), R"({"k": "4 2"})");
  EXPECT_EQ(argument(R"( type="number")", "NaN"), R"({"k": "NaN"})");
  EXPECT_EQ(argument(R"( type="boolean")", "1"), R"({"k": "1"})");
  EXPECT_EQ(argument(R"( type="object")", "{\"a\": [}"), R"({"k": "{\"a\": [}"})");
  EXPECT_EQ(argument(R"( type="strange")", "1"), R"({"k": "1"})");
  EXPECT_EQ(argument("", "1"), R"({"k": "1"})");
}

TEST(ReplyParser, ClosesWhatBreaksOff) {
  const std::string begin = end_tag("think") + tag("tools") + tag(R"(call tool="f" index="1")");
  EXPECT_EQ(k3(begin).calls.at(0).arguments, "{}");
  EXPECT_EQ(k3(begin + tag(R"(argument key="a" type="string")") + "unfin").calls.at(0).arguments, R"({"a": "unfin"})");
  EXPECT_EQ(k3(begin + tag(R"(argument key="a" type="array")") + "[1, ").calls.at(0).arguments, R"({"a": "[1, "})");
  EXPECT_EQ(k3(begin + tag(R"(json type="object")") + "{\"a\"").calls.at(0).arguments, "{\"a\"");
  // Tags that open without the one before being closed.
  const Reply reply = k3("why" + tag("response") + "so" + tag("tools") + tag(R"(call tool="f" index="1")") +
                         tag(R"(argument key="a" type="number")") + "1" + tag(R"(argument key="b" type="number")") +
                         "2" + tag(R"(call tool="g" index="2")") + end_tag("message") + "<|end_of_msg|>");
  EXPECT_EQ(reply.reasoning, "why");
  EXPECT_EQ(reply.content, "so");
  ASSERT_EQ(reply.calls.size(), 2U);
  EXPECT_EQ(reply.calls[0].arguments, R"({"a": 1, "b": 2})");
  EXPECT_EQ(reply.calls[1].name, "g");
  EXPECT_TRUE(reply.complete);
  // The beginning of a tag at the limit of tokens is no text.
  EXPECT_EQ(k3("a<|close|>", false).content, "a");
  EXPECT_EQ(k3("a<|close|>resp", false).content, "a");
  EXPECT_EQ(k3("a<|open|>call tool=\"f", false).content, "a");
}

TEST(ReplyParser, LosesNoText) {
  EXPECT_EQ(k3("a<|open|>b<|sep|>c", false).content, "a<|open|>b<|sep|>c");
  EXPECT_EQ(k3("a<|sep|>b", false).content, "a<|sep|>b");
  EXPECT_EQ(k3("a<|open|>not a tag at all<|open|>think<|sep|>b", false).content, "a<|open|>not a tag at all");
  EXPECT_EQ(k3("a<|close|>think<|sep|>b", false).content, "a<|close|>think<|sep|>b");
  EXPECT_EQ(k3("a<|open|>call<|sep|>b", false).content, "a<|open|>call<|sep|>b");  // a call of nothing
  EXPECT_EQ(k3("a<|open|>no tag", false).content, "a<|open|>no tag");
  EXPECT_EQ(k3(end_tag("think") + "\n stray \n" + tag("response") + "b").content, "\n strayb");
  EXPECT_EQ(k3(end_tag("think") + "\n\n" + tag("response") + "b").content, "b");
  const std::string endless(10'000, 'x');
  EXPECT_EQ(k3("<|open|>" + endless, false).content, "<|open|>" + endless);
  // Structure inside an argument that means nothing there is part of its value.
  EXPECT_EQ(k3(tag("tools") + tag(R"(call tool="f" index="1")") + tag(R"(argument key="a" type="string")") +
               "<|open|>b<|sep|>" + end_tag("argument"))
                .calls.at(0)
                .arguments,
            R"({"a": "<|open|>b<|sep|>"})");
  EXPECT_EQ(k3("[EOT]<|reserved_token_4046|>", false).content, "[EOT]<|reserved_token_4046|>");
}

TEST(ReplyParser, TakesAnyTokensWithoutHarm) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const std::vector<std::string> pieces{"<|open|>",
                                        "<|close|>",
                                        "<|sep|>",
                                        "think",
                                        "response",
                                        "tools",
                                        "call tool=\"f\"",
                                        "argument key=\"k\"",
                                        " type=\"number\"",
                                        "json",
                                        "message",
                                        "1",
                                        "{",
                                        "\xC3",
                                        "é",
                                        " ",
                                        "\""};
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::int32_t> ids;
    for (unsigned n = rng() % 30; n > 0; --n) {
      const auto more = k3_tokenizer().encode_with_specials(pieces[rng() % pieces.size()]);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    if (rng() % 4 == 0) ids.push_back(static_cast<std::int32_t>(rng()));
    const bool reasoning = rng() % 2 == 0;
    const Reply reply = parsed(k3_tokenizer(), {.starts_with_reasoning = reasoning}, ids);
    // All at once comes to the same as one by one.
    ReplyParser parser(k3_tokenizer(), {.starts_with_reasoning = reasoning});
    Reply at_once;
    add(at_once, parser.push(ids));
    add(at_once, parser.finish());
    EXPECT_EQ(at_once.reasoning, reply.reasoning);
    EXPECT_EQ(at_once.content, reply.content);
    ASSERT_EQ(at_once.calls.size(), reply.calls.size());
    for (std::size_t i = 0; i < reply.calls.size(); ++i)
      EXPECT_EQ(at_once.calls[i].arguments, reply.calls[i].arguments);
  }
}

TEST(ReplyParser, ReadsKimiLinear) {
  EXPECT_EQ(linear("Hello <|open|> 😀<|im_end|>").content, "Hello <|open|> 😀");
  EXPECT_TRUE(linear("x<|im_end|>y").complete);
  EXPECT_EQ(linear("x<|im_end|>y").content, "x");
  EXPECT_FALSE(linear("x").complete);
  const Reply thought = linear("<think>a</think>b<|im_end|>");
  EXPECT_EQ(thought.reasoning, "a");
  EXPECT_EQ(thought.content, "b");
}

TEST(ReplyParser, ReadsKimiLinearsToolCalls) {
  const Reply reply = linear(
      "Let me "
      "see.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\":"
      " \"Rome\"}"
      "<|tool_call_end|><|tool_call_begin|>functions.b:1<|tool_call_argument_begin|><|tool_call_end|><|tool_calls_"
      "section_end|><|im_end|>");
  EXPECT_EQ(reply.content, "Let me see.");
  ASSERT_EQ(reply.calls.size(), 2U);
  EXPECT_EQ(reply.calls[0].id, "functions.get_weather:0");
  EXPECT_EQ(reply.calls[0].name, "get_weather");
  EXPECT_EQ(reply.calls[0].arguments, "{\"city\": \"Rome\"}");
  EXPECT_EQ(reply.calls[1].name, "b");
  EXPECT_EQ(reply.calls[1].arguments, "{}");
  EXPECT_EQ(linear("<|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_argument_begin|>{\"a\"")
                .calls.at(0)
                .arguments,
            "{\"a\"");
  EXPECT_EQ(linear("<|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_end|>").calls.at(0).name, "f");
  EXPECT_EQ(linear("<|tool_calls_section_begin|><|tool_call_begin|>lost").content, "lost");
}

}  // namespace
}  // namespace myriad
