// Replies in the families' own syntaxes, replayed token by token and in random pieces.
#include "model/template_reply.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "model/json_text.h"
#include "model/reply_parser.h"
#include "model/template_traits.h"
#include "model/utf8_stream.h"

namespace myriad {
namespace {

struct Reply {
  std::string reasoning, content;
  std::vector<WrittenCall> calls;
  int ended = 0;
  friend bool operator==(const Reply& a, const Reply& b) { return a.shown() == b.shown(); }
  [[nodiscard]] std::string shown() const {
    std::string out = "reasoning[" + reasoning + "] content[" + content + "]";
    for (const auto& call : calls) out += " " + call.name + call.arguments + "#" + call.id;
    return out;
  }
};

void add(Reply& reply, const std::vector<ReplyEvent>& events) {
  for (const ReplyEvent& event : events) {
    EXPECT_TRUE(is_valid_utf8(event.text));
    switch (event.kind) {
      case ReplyEvent::Kind::reasoning:
        reply.reasoning += event.text;
        break;
      case ReplyEvent::Kind::content:
        reply.content += event.text;
        break;
      case ReplyEvent::Kind::tool_call:
        EXPECT_EQ(static_cast<std::size_t>(event.index), reply.calls.size());
        EXPECT_FALSE(event.id.empty());
        reply.calls.push_back({event.name, {}, event.id});
        break;
      case ReplyEvent::Kind::tool_call_arguments:
        reply.calls.at(static_cast<std::size_t>(event.index)).arguments += event.text;
        break;
      case ReplyEvent::Kind::tool_call_end:
        EXPECT_EQ(reply.calls.at(static_cast<std::size_t>(event.index)).arguments, event.text);
        EXPECT_TRUE(nlohmann::json::parse(event.text, nullptr, false).is_object()) << event.text;
        break;
      case ReplyEvent::Kind::finished:
        ++reply.ended;
        break;
    }
  }
}

// The demo model's vocabulary, whose special tokens are the marks of all syntaxes, or none of them.
const Tokenizer& tokenizer(bool marks) {
  static const auto kMake = [](bool with_marks) {
    std::ifstream file(MYRIAD_SOURCE_DIR "/models/tiny-k3/tiktoken.model");
    const std::string ranks{std::istreambuf_iterator<char>(file), {}};
    nlohmann::json names;
    int id = 4032;
    names[std::to_string(id++)]["content"] = "<|im_end|>";
    names[std::to_string(id++)]["content"] = "<|other|>";
    if (with_marks) {
      names[std::to_string(id++)]["content"] = "<think>";
      names[std::to_string(id++)]["content"] = "</think>";
      for (const CallSyntax syntax :
           {CallSyntax::hermes, CallSyntax::llama, CallSyntax::mistral, CallSyntax::deepseek, CallSyntax::kimi_k2}) {
        for (const MarkName& mark : marks_of(syntax, false)) names[std::to_string(id++)]["content"] = mark.name;
      }
      for (const char* inner : {"<｜tool▁sep｜>", "<|tool_call_argument_begin|>", "[ARGS]"}) {
        names[std::to_string(id++)]["content"] = inner;
      }
    }
    return Tokenizer::parse(ranks, nlohmann::json{{"added_tokens_decoder", names}}.dump()).value();
  };
  static const Tokenizer kWith = kMake(true), kWithout = kMake(false);
  return marks ? kWith : kWithout;
}

Reply by_tokens(const ReplyParser::Options& options, std::string_view text, bool marks) {
  ReplyParser parser(tokenizer(marks), options);
  Reply reply;
  for (const std::int32_t id : tokenizer(marks).encode_with_specials(text)) add(reply, parser.push(id));
  add(reply, parser.finish());
  EXPECT_EQ(reply.ended, 1);
  EXPECT_EQ(static_cast<std::size_t>(parser.tool_calls()), reply.calls.size());
  return reply;
}

// The same however the marks are known, and however the text is cut.
Reply parsed(CallSyntax syntax, std::string_view text, bool reasoning = false, std::vector<std::string> tools = {"f"}) {
  const ReplyParser::Options options{.format = ChatFormat::templated,
                                     .starts_with_reasoning = reasoning,
                                     .calls = syntax,
                                     .thinks = true,
                                     .tools = tools,
                                     .call_id_prefix = "call_"};
  const Reply reply = by_tokens(options, text, true);
  EXPECT_EQ(by_tokens(options, text, false), reply) << text << "\n"
                                                    << by_tokens(options, text, false).shown() << "\n"
                                                    << reply.shown();
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    TemplateReply pieces({.calls = syntax, .thinks = true, .starts_with_reasoning = reasoning, .tools = tools},
                         marks_of(syntax, true));
    Reply other;
    Utf8Stream utf8;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = std::min<std::size_t>(1 + random() % 9, text.size() - at);
      pieces.text(utf8.push(text.substr(at, size)));
      at += size;
      add(other, pieces.take());
    }
    pieces.end();
    add(other, pieces.take());
    EXPECT_EQ(other, reply) << "seed " << seed << "\n" << other.shown() << "\n" << reply.shown();
  }
  return reply;
}

std::string shown(CallSyntax syntax, std::string_view text, bool reasoning = false) {
  return parsed(syntax, text, reasoning).shown();
}

TEST(TemplateReply, Hermes) {
  EXPECT_EQ(
      shown(CallSyntax::hermes,
            "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Köln\", \"n\": 1.50}}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"),
      "reasoning[] content[I look.] f{\"city\": \"Köln\", \"n\": 1.5}#call_0 g{}#call_1");
  EXPECT_EQ(shown(CallSyntax::hermes, "<tool_call>{\"name\": \"f\"}</tool_call>"), "reasoning[] content[] f{}#call_0");
  EXPECT_EQ(
      shown(CallSyntax::hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call> Done."),
      "reasoning[] content[Done.] f{\"a\": 1}#call_0");
  // The last mark may be missing: the model has stopped behind the call.
  EXPECT_EQ(shown(CallSyntax::hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1]}}\n"),
            "reasoning[] content[] f{\"a\": [1]}#call_0");
  EXPECT_EQ(shown(CallSyntax::hermes, "<tool_call>{\"name\": \"f\"}<tool_call>{\"name\": \"g\"}</tool_call>"),
            "reasoning[] content[] f{}#call_0 g{}#call_1");
}

TEST(TemplateReply, NumbersAndOrderOfArgumentsStay) {
  EXPECT_EQ(
      shown(CallSyntax::hermes,
            "<tool_call>{\"arguments\": {\"z\": 123456789012345678901234567890, \"a\": \"</b> \\\" ü\"}, \"name\": "
            "\"f\"}</tool_call>"),
      "reasoning[] content[] f{\"z\": 123456789012345678901234567890, \"a\": \"</b> \\\" ü\"}#call_0");
}

TEST(TemplateReply, ReasoningIsApartAndWhiteSpaceAtMarksIsNobodys) {
  EXPECT_EQ(shown(CallSyntax::hermes, "<think>\nHm, a < b.\n\nSo.\n</think>\n\nFour.\n"),
            "reasoning[Hm, a < b.\n\nSo.] content[Four.\n]");
  EXPECT_EQ(shown(CallSyntax::hermes, "\nHm.\n</think>\n\nFour.", true), "reasoning[Hm.] content[Four.]");
  EXPECT_EQ(shown(CallSyntax::none, "Hm.</think>Four.", true), "reasoning[Hm.] content[Four.]");
  EXPECT_EQ(shown(CallSyntax::none, "never ends", true), "reasoning[never ends] content[]");
  EXPECT_EQ(shown(CallSyntax::hermes, "<think>Use <tool_call> then.</think><tool_call>{\"name\": \"f\"}</tool_call>"),
            "reasoning[Use <tool_call> then.] content[] f{}#call_0");
  EXPECT_EQ(shown(CallSyntax::none, "  plain\n text </think> \n"), "reasoning[] content[  plain\n text </think> \n]");
}

TEST(TemplateReply, Llama) {
  EXPECT_EQ(shown(CallSyntax::llama, "{\"name\": \"f\", \"parameters\": {\"q\": \"a}b{\"}}"),
            "reasoning[] content[] f{\"q\": \"a}b{\"}#call_0");
  EXPECT_EQ(shown(CallSyntax::llama, "<|python_tag|>{\"type\": \"function\", \"name\": \"g\", \"parameters\": {}}"),
            "reasoning[] content[] g{}#call_0");
  EXPECT_EQ(
      shown(CallSyntax::llama, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {\"a\": 1}}"),
      "reasoning[] content[] f{}#call_0 f{\"a\": 1}#call_1");
  EXPECT_EQ(shown(CallSyntax::llama, "<|python_tag|>brave_search.call(query=\"a \\\"{b}\\\", c\", n=3)"),
            "reasoning[] content[] brave_search{\"query\": \"a \\\"{b}\\\", c\", \"n\": 3}#call_0");
  EXPECT_EQ(shown(CallSyntax::llama, "{\"name\": \"f\", \"parameters\": {}} and more"),
            "reasoning[] content[and more] f{}#call_0");
}

TEST(TemplateReply, AnAnswerInJsonIsNoCall) {
  for (const char* text :
       {"{\"answer\": 4}", "{\"name\": \"Ada\", \"parameters\": {}}", "{\"name\": \"f\", \"parameters\": 3}", "{}", "{",
        "{\"na", "[1, 2] {\"name\": \"f\", \"parameters\": {}}", " {not JSON}",
        "The call is {\"name\": \"f\", \"parameters\": {}}", "{\"name\": \"f\", \"parameters\": {\"a\": 1"}) {
    EXPECT_EQ(shown(CallSyntax::llama, text), std::string("reasoning[] content[") + text + "]");
  }
  // Without tools there are no calls.
  EXPECT_EQ(parsed(CallSyntax::llama, "{\"name\": \"f\", \"parameters\": {}}", false, {}).shown(),
            "reasoning[] content[{\"name\": \"f\", \"parameters\": {}}]");
}

TEST(TemplateReply, AnAnswerInJsonDoesNotWaitForItsEnd) {
  TemplateReply reply({.calls = CallSyntax::llama, .tools = {"f"}}, marks_of(CallSyntax::llama, false));
  reply.text("{\"answ");
  reply.text("er\": [1,");
  const auto events = reply.take();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].text, "{\"answer\": [1,");
}

TEST(TemplateReply, Mistral) {
  const Reply two = parsed(CallSyntax::mistral,
                           "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [\"]\"]}, \"id\": \"abcdefghi\"}, "
                           "{\"name\": \"g\", \"arguments\": {}}]");
  ASSERT_EQ(two.calls.size(), 2U);
  EXPECT_EQ(two.calls[0].arguments, "{\"a\": [\"]\"]}");
  EXPECT_EQ(two.calls[0].id, "abcdefghi");
  // An id that the model has not given is of the form that its template takes back.
  EXPECT_EQ(two.calls[1].id.size(), 9U);
  EXPECT_EQ(two.calls[1].id.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
            std::string::npos);
  const Reply late = parsed(CallSyntax::mistral, "Yes.[TOOL_CALLS]f[ARGS]{\"a\": {\"b\": 1}}[TOOL_CALLS]g[ARGS]{}");
  ASSERT_EQ(late.calls.size(), 2U);
  EXPECT_EQ(late.content, "Yes.");
  EXPECT_EQ(late.calls[0].name + late.calls[0].arguments, "f{\"a\": {\"b\": 1}}");
  EXPECT_EQ(late.calls[1].name + late.calls[1].arguments, "g{}");
  EXPECT_NE(late.calls[0].id, late.calls[1].id);
}

TEST(TemplateReply, DeepSeek) {
  EXPECT_EQ(
      shown(
          CallSyntax::deepseek,
          "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": \"`\"}\n```"
          "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>"
          "<｜tool▁calls▁end｜>"),
      "reasoning[] content[Let me see.] f{\"a\": \"`\"}#call_0 g{}#call_1");
  EXPECT_EQ(shown(CallSyntax::deepseek,
                  "Hm.</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
                  "<｜tool▁calls▁end｜>",
                  true),
            "reasoning[Hm.] content[] f{\"a\": 1}#call_0");
}

TEST(TemplateReply, KimiK2) {
  EXPECT_EQ(shown(CallSyntax::kimi_k2,
                  "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}"
                  "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
                  "<|tool_calls_section_end|>"),
            "reasoning[] content[] f{\"a\": 1}#functions.f:0 g{}#functions.g:1");
}

TEST(TemplateReply, WhatIsNoCallIsText) {
  const std::pair<CallSyntax, const char*> cases[] = {
      {CallSyntax::hermes, "A <tool_call>{\"name\": \"f\", \"arguments\": {oops}}</tool_call> B"},
      {CallSyntax::hermes, "<tool_call>{\"arguments\": {}}</tool_call>"},
      {CallSyntax::hermes, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
      {CallSyntax::hermes, "<tool_call></tool_call>"},
      {CallSyntax::hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": NaN}}</tool_call>"},
      {CallSyntax::hermes, "<tool_call>{\"name\": \"f\", \"argum"},
      {CallSyntax::hermes, "</tool_call> alone"},
      {CallSyntax::hermes, "<tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>\n</tool_call>"},
      {CallSyntax::llama, "<|python_tag|>print('{}')"},
      {CallSyntax::llama, "<|python_tag|>{\"name\": 3}"},
      {CallSyntax::llama, "<|python_tag|>f.call(a=)"},
      {CallSyntax::mistral, "[TOOL_CALLS] [{\"name\": \"f\"}, 3] and so on"},
      {CallSyntax::mistral, "[TOOL_CALLS] nothing"},
      {CallSyntax::mistral, "[TOOL_CALLS] [{\"name\": \"f\""},
      {CallSyntax::deepseek, "<｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜>"},
      {CallSyntax::deepseek, "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": }<｜tool▁call▁end｜> x"},
      {CallSyntax::kimi_k2, "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\"<|tool_call_end|>"},
      {CallSyntax::kimi_k2, "<|tool_call_begin|>functions.f:0"},
      {CallSyntax::hermes, "< <t <tool <tool_cal"},
  };
  for (const auto& [syntax, text] : cases)
    EXPECT_EQ(shown(syntax, text), std::string("reasoning[] content[") + text + "]");
}

TEST(TemplateReply, ASpelledMarkIsTextWhereTheVocabularyHasItAsAToken) {
  const ReplyParser::Options options{
      .format = ChatFormat::templated, .starts_with_reasoning = false, .calls = CallSyntax::hermes, .thinks = true};
  ReplyParser parser(tokenizer(true), options);
  Reply reply;
  add(reply, parser.push(tokenizer(true).encode("<tool_call>{\"name\": \"f\"}</tool_call>")));
  add(reply, parser.finish());
  EXPECT_EQ(reply.shown(), "reasoning[] content[<tool_call>{\"name\": \"f\"}</tool_call>]");
}

TEST(TemplateReply, SpecialTokensAreNoText) {
  const ReplyParser::Options options{.format = ChatFormat::templated, .starts_with_reasoning = false};
  EXPECT_EQ(by_tokens(options, "a<|other|>b", true).shown(), "reasoning[] content[ab]");
}

// Whatever a model writes: text comes out whole, or calls that are well-formed do.
TEST(TemplateReply, RandomReplies) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string pieces[] = {"{",
                                "}",
                                "\"name\"",
                                ": ",
                                "\"f\"",
                                ", ",
                                "\"arguments\"",
                                "[",
                                "]",
                                "a",
                                " ",
                                "\n",
                                "\\",
                                "\"",
                                "<",
                                "ü",
                                "function",
                                "```json",
                                ";",
                                "{\"name\": \"f\", \"arguments\": {}}"};
  for (int round = 0; round < 3000; ++round) {
    const auto syntax = static_cast<CallSyntax>(random() % 6);
    const auto marks = marks_of(syntax, true);
    std::string text;
    for (unsigned n = random() % 25; n > 0; --n) {
      text +=
          random() % 3 == 0 ? std::string(marks[random() % marks.size()].name) : pieces[random() % std::size(pieces)];
    }
    TemplateReply reply({.calls = syntax, .thinks = true, .starts_with_reasoning = random() % 4 == 0, .tools = {"f"}},
                        marks);
    Reply all;
    Utf8Stream utf8;
    for (const char c : text) reply.text(utf8.push({&c, 1}));
    reply.end();
    add(all, reply.take());
    const std::string out = all.shown();
    if (all.calls.empty()) {
      // Every letter of the reply but those of marks is there.
      const auto count = [](std::string_view where, char c) { return std::count(where.begin(), where.end(), c); };
      for (const char c : {'{', '}', '"', '\\', ':'}) EXPECT_EQ(count(out, c), count(text, c)) << text << "\n" << out;
    }
  }
}

TemplateTraits traits(std::string_view text) {
  return traits_of(ChatTemplate::parse(text).value());
}

TemplateTraits traits_of_file(const std::string& name) {
  std::ifstream file(MYRIAD_SOURCE_DIR "/tests/oracle/templates/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  return traits(std::string{std::istreambuf_iterator<char>(file), {}});
}

TEST(TemplateTraits, OfTheFamilies) {
  EXPECT_EQ(traits_of_file("llama2.jinja").calls, CallSyntax::none);
  EXPECT_EQ(traits_of_file("llama3_tools.jinja").calls, CallSyntax::llama);
  EXPECT_EQ(traits_of_file("mistral_tools.jinja").calls, CallSyntax::mistral);
  EXPECT_EQ(traits_of_file("qwen2_5_hermes.jinja").calls, CallSyntax::hermes);
  EXPECT_EQ(traits_of_file("qwen3_thinking.jinja").calls, CallSyntax::hermes);
  EXPECT_EQ(traits_of_file("deepseek_v3.jinja").calls, CallSyntax::deepseek);
  EXPECT_EQ(traits_of_file("kimi_k2.jinja").calls, CallSyntax::kimi_k2);
  EXPECT_FALSE(traits_of_file("qwen2_5_hermes.jinja").thinks);
  EXPECT_TRUE(traits_of_file("qwen3_thinking.jinja").thinks);
  for (const char* name : {"llama3_tools.jinja", "mistral_tools.jinja", "qwen2_5_hermes.jinja", "qwen3_thinking.jinja",
                           "deepseek_v3.jinja", "kimi_k2.jinja"}) {
    EXPECT_FALSE(traits_of_file(name).arguments_as_text) << name;
  }
}

// The two ways to write arguments into a prompt, and the two contents of a message that only calls.
TEST(TemplateTraits, FormOfEarlierCalls) {
  const std::string loop = "{% for m in messages if m.tool_calls %}", end = "{% endfor %}";
  const std::string call = "{{ m.tool_calls[0].function.name }}";
  EXPECT_FALSE(traits(loop + call + "{{ m.tool_calls[0].function.arguments | tojson }}" + end).arguments_as_text);
  EXPECT_TRUE(traits(loop + call + "{{ '' + m.tool_calls[0].function.arguments }}" + end).arguments_as_text);
  EXPECT_TRUE(traits(loop + call + "{{ m.tool_calls[0].function.arguments }}" + end).arguments_as_text);
  EXPECT_FALSE(
      traits(loop + call + "{{ m.content + (m.tool_calls[0].function.arguments | tojson) }}" + end).null_content);
  EXPECT_TRUE(traits(loop + "{% if m.content is none %}" + call +
                     "{{ m.tool_calls[0].function.arguments | tojson }}{% endif %}" + end)
                  .null_content);
}

}  // namespace
}  // namespace myriad
