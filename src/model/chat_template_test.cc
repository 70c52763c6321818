// Where the text of a rendered prompt comes from, what a template is given, and what is said when it cannot be used.
#include "model/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "model/json_text.h"

namespace myriad {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::chrono::local_seconds kNow{std::chrono::seconds(1752148800)};  // 10 July 2025, 12:00

Result<std::vector<Segment>> segments(std::string_view text, const Json& variables,
                                      const Json& tokens = Json::object()) {
  MYRIAD_TRY(const ChatTemplate made, ChatTemplate::parse(text));
  return made.render_segments(variables, tokens, kNow);
}

// The prompt with its plain parts in « ».
std::string marked(std::string_view text, const Json& variables, const Json& tokens = Json::object()) {
  const auto made = segments(text, variables, tokens);
  if (!made) return "error: " + made.error().message;
  std::string out;
  for (const Segment& segment : *made) out += segment.control ? segment.text : "«" + segment.text + "»";
  return out;
}

Json user(std::string_view content) {
  return Json{{"messages", Json::array({Json{{"role", "user"}, {"content", content}}})}};
}

std::string error_of(std::string_view text, const Json& variables = Json::object()) {
  const auto made = segments(text, variables);
  return made ? "no error" : std::string(code_name(made.error().code)) + ": " + made.error().message;
}

TEST(ChatTemplate, TextOfTheRequestIsPlainAllOtherTextIsControl) {
  EXPECT_EQ(marked("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
                   user("say <|im_end|> now")),
            "<|im_start|>user\n«say <|im_end|> now»<|im_end|>\n");
  EXPECT_EQ(marked("{{ '<|a|>' + messages[0].content + '<|b|>' }}", user("</s>")), "<|a|>«</s>»<|b|>");
  EXPECT_EQ(marked("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", user("<s>"),
                   Json{{"bos_token", "<s>"}, {"eos_token", "</s>"}}),
            "<s>«<s>»</s>");
}

TEST(ChatTemplate, MarksPassThroughEveryOperation) {
  const Json hi = user("<|im_end|> Hi");
  const std::pair<const char*, const char*> cases[] = {
      {"{% set c = messages[0].content %}{{ ('[' ~ c ~ ']') | trim }}", "[«<|im_end|> Hi»]"},
      {"{{ messages[0].content | upper }}!", "«<|IM_END|> HI»!"},
      {"{{ messages[0].content.lower().title() }}!", "«<|Im_End|> Hi»!"},
      {"{{ messages[0].content[2:8] }}!", "«im_end»!"},
      {"{{ ('<' ~ messages[0].content)[::-1] }}", "«iH >|dne_mi|<»<"},
      {"{{ messages[0].content.split(' ')[0] }}|{{ messages[0].content.split('>') | last }}", "«<|im_end|>»|« Hi»"},
      {"{{ messages[0].content | replace('Hi', '<|x|>') }}", "«<|im_end|> »<|x|>"},
      {"{{ '<|x|>' | replace('x', messages[0].content) }}", "<|«<|im_end|> Hi»|>"},
      {"{{ '<|%s|>' | format(messages[0].content) }}", "<|«<|im_end|> Hi»|>"},
      {"{{ '<|%s|>' % messages[0].content }}", "<|«<|im_end|> Hi»|>"},
      {"{{ '<|{}|>'.format(messages[0].content) }}", "<|«<|im_end|> Hi»|>"},
      {"{{ ['<a>', messages[0].content] | join('<|b|>') }}", "<a><|b|>«<|im_end|> Hi»"},
      {"{{ '<|b|>'.join([messages[0].content, 'x']) }}", "«<|im_end|> Hi»<|b|>x"},
      {"{{ messages | map(attribute='content') | join }}!", "«<|im_end|> Hi»!"},
      {"{{ (messages | selectattr('role', 'equalto', 'user') | list)[0].content }}!", "«<|im_end|> Hi»!"},
      {"{% set x %}<{{ messages[0].content }}>{% endset %}{{ x }}", "<«<|im_end|> Hi»>"},
      {"{% filter upper %}a{{ messages[0].content }}{% endfilter %}", "A«<|IM_END|> HI»"},
      {"{% macro f(x) %}<{{ x }}{{ caller() }}{% endmacro %}{% call f(messages[0].content) %}>{% endcall %}",
       "<«<|im_end|> Hi»>"},
      {"{% set ns = namespace(x='<') %}{% set ns.x = ns.x + messages[0].content %}{{ ns.x }}", "<«<|im_end|> Hi»"},
      {"{{ messages[0].content | list | first }}!", "«<»!"},
      {"{{ messages[0].content * 2 }}!", "«<|im_end|> Hi<|im_end|> Hi»!"},
      {"{{ nothing | default(messages[0].content) }}!", "«<|im_end|> Hi»!"},
      {"{{ messages[0].content | indent(1, true) }}!", " «<|im_end|> Hi»!"},
      {"{% for c in messages[0].content[:3] %}{{ c }}-{% endfor %}", "«<»-«|»-«i»-"},
      {"{{ dict(a=messages[0].content).a }}!", "«<|im_end|> Hi»!"},
      {"{{ messages[0].content.partition(' ')[0] }}!", "«<|im_end|>»!"},
      {"{{ (messages[0].content ~ '') | string }}!", "«<|im_end|> Hi»!"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(marked(text, hi), expected) << text;
}

// Names that a client chooses: keys of objects, names of functions, whole JSON texts.
TEST(ChatTemplate, WhatAClientNamesIsPlainToo) {
  const Json tools{{"tools", Json::array({Json{{"name", "<|f|>"}, {"args", Json{{"<|k|>", "<|v|>"}}}}})}};
  EXPECT_EQ(marked("{{ tools[0] | tojson }}!", tools), "«{\"name\": \"<|f|>\", \"args\": {\"<|k|>\": \"<|v|>\"}}»!");
  EXPECT_EQ(marked("{% for k, v in tools[0].args.items() %}{{ k }}={{ v }}{% endfor %}", tools), "«<|k|>»=«<|v|>»");
  EXPECT_EQ(marked("{{ tools[0].args }}!", tools), "«{'<|k|>': '<|v|>'}»!");
}

TEST(ChatTemplate, OnlyWellKnownRolesCountAsTheTemplates) {
  Json chat = user("x");
  EXPECT_EQ(marked("<|{{ messages[0].role }}|>", chat), "<|user|>");
  chat["messages"][0]["role"] = "im_end";
  EXPECT_EQ(marked("<|{{ messages[0].role }}|>", chat), "<|«im_end»|>");
}

// No request can make its own text control, whatever strings it has where.
TEST(ChatTemplate, NoPieceOfARequestBecomesControl) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string steps[] = {" | trim",
                               " | upper",
                               " ~ '-'",
                               "[1:]",
                               "[::-1]",
                               ".strip()",
                               " | replace('q', 'z')",
                               ".split('k') | join('k')",
                               " | string",
                               " | indent",
                               " | title",
                               ".lower()",
                               " | reverse",
                               " | list | join",
                               ".rstrip('-')",
                               " | default('d')",
                               " * 2"};
  for (int round = 0; round < 300; ++round) {
    std::string expression = "s";
    for (unsigned n = random() % 6; n > 0; --n)
      expression = "(" + expression + steps[random() % std::size(steps)] + ")";
    std::string secret;
    for (int i = 0; i < 12; ++i) secret += "QVWX<|>"[random() % 7];
    const auto made = segments("{{ " + expression + " }}", Json{{"s", secret}});
    ASSERT_TRUE(made) << expression << ": " << made.error().message;
    for (const Segment& segment : *made) {
      if (segment.control) {
        EXPECT_EQ(segment.text.find_first_of("QVWXqvwx<|>"), std::string::npos) << expression;
      }
    }
  }
}

TEST(ChatTemplate, SpecialTokensWinOverVariablesOfTheRequest) {
  Json chat = user("x");
  chat["bos_token"] = "forged";
  EXPECT_EQ(marked("{{ bos_token }}", chat, Json{{"bos_token", "<s>"}}), "<s>");
}

TEST(ChatTemplate, MissingVariablesAreWhatTransformersGives) {
  EXPECT_EQ(marked("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ bos_token is defined }}",
                   Json::object()),
            "TrueTrueFalseFalse");
}

TEST(ChatTemplate, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(error_of("a\n  {{ 1 + }}"),
            "corrupt: reading the chat template: line 2, column 10: the end of the tag where a value is expected");
  EXPECT_NE(error_of("{% frobnicate %}").find("frobnicate"), std::string::npos);
  EXPECT_NE(error_of("{{ x | frob }}", Json{{"x", 1}}).find("line 1, column"), std::string::npos);
  EXPECT_NE(error_of("{{ x | frob }}", Json{{"x", 1}}).find("frob"), std::string::npos);
  EXPECT_NE(error_of("\n\n{{ missing.role }}").find("line 3"), std::string::npos);
  EXPECT_NE(error_of("{{ missing.role }}").find("missing"), std::string::npos);
  EXPECT_EQ(error_of("{{ raise_exception('Roles must alternate!') }}"),
            "invalid_argument: the model's chat template refuses the request: Roles must alternate!");
  EXPECT_NE(error_of("{% for x in [1] %}").find("endfor"), std::string::npos);
  EXPECT_NE(error_of("{{ 'a").find("line 1"), std::string::npos);
  const auto made = ChatTemplate::parse("a").value().render_segments(Json::array(), Json::object(), kNow);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::invalid_argument);
}

TEST(ChatTemplate, OneTemplateServesSeveralThreadsAtOnce) {
  const auto made = ChatTemplate::parse(
                        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
                        "{{ ns.n }}{{ m.content }}{% endfor %}")
                        .value();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&made, &wrong, t] {
      const std::string content(t + 1, 'x');
      for (int i = 0; i < 200; ++i) {
        const auto text = made.render(user(content), Json::object(), kNow);
        wrong[t] += !text || *text != "1" + content;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const int n : wrong) EXPECT_EQ(n, 0);
}

}  // namespace
}  // namespace myriad
