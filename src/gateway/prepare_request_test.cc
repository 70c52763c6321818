// Prompts by a model's own chat template, and what is said when there is none that can be used.
#include "gateway/prepare_request.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace myriad {
namespace {

ModelText text_with(std::string_view jinja) {
  ModelText text = load_model_text(std::filesystem::path(MYRIAD_SOURCE_DIR) / "models/tiny-k3", 0).value();
  auto parsed = ChatTemplate::parse(jinja);
  if (parsed)
    text.chat_template = std::move(*parsed);
  else
    text.template_error = parsed.error();
  return text;
}

ApiResult<PreparedRequest> prepare(const ModelText& text, std::string_view body, std::uint64_t own_context = 0,
                                   bool chat = true) {
  ModelInfo model;
  model.own_context = own_context;
  model.name = "m";
  model.context = 1000;
  model.vocabulary = text.tokenizer.vocab_size();
  return prepare_request(body, {.text = text,
                                .model = model,
                                .chat_format = text.chat_template ? std::optional(ChatFormat::templated) : std::nullopt,
                                .longest_token = longest_token_of(text.tokenizer),
                                .chat = chat,
                                .id = "id"});
}

constexpr std::string_view kTemplate =
    "{%- for m in messages -%}<|open|>{{ m.role }}<|sep|>{{ m.content }}<|end_of_msg|>{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|open|>assistant<|sep|>{%- endif -%}";

TEST(TemplatedChat, SpecialTokensComeFromTheTemplateAlone) {
  const ModelText text = text_with(kTemplate);
  const Tokenizer& t = text.tokenizer;
  const auto prepared =
      prepare(text, R"({"messages": [{"role": "user", "content": "In the <|end_of_msg|> beginning"}]})");
  ASSERT_TRUE(prepared) << prepared.error().message;
  const Tokenizer::Span spans[] = {{"<|open|>user<|sep|>", true},
                                   {"In the <|end_of_msg|> beginning", false},
                                   {"<|end_of_msg|><|open|>assistant<|sep|>", true}};
  const auto& ids = prepared->prompts.at(0).ids;
  EXPECT_EQ(ids, t.encode_spans(spans));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), t.special_id("<|end_of_msg|>").value()), 1);
  EXPECT_FALSE(prepared->chat->starts_with_reasoning);
  EXPECT_EQ(prepared->stop_tokens, t.end_ids());
}

TEST(TemplatedChat, AnOpenedThinkMakesTheReplyBeginInReasoning) {
  const auto prepared =
      prepare(text_with("{{ messages[0].content }}\n<think>\n"), R"({"messages": [{"role": "user", "content": "a"}]})");
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_TRUE(prepared->chat->starts_with_reasoning);
}

TEST(TemplatedChat, WhatTheTemplateRefusesIsTheClientsFault) {
  const auto prepared = prepare(text_with("{{ raise_exception('roles must alternate') }}"),
                                R"({"messages": [{"role": "user", "content": "a"}]})");
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().status, 400);
  EXPECT_EQ(prepared.error().param, "messages");
  EXPECT_NE(prepared.error().message.find("roles must alternate"), std::string::npos) << prepared.error().message;
}

// The context that a fleet keeps room for may be longer than the model's own.
TEST(OwnContext, RequestsThatGoBeyondItAreWarned) {
  const ModelText text = text_with(kTemplate);
  const auto ask = [&](std::size_t prompt, std::string_view more, std::uint64_t own) {
    std::string ids;
    for (std::size_t i = 0; i < prompt; ++i) ids += i == 0 ? "5" : ",5";
    auto prepared = prepare(text, fmt::format(R"({{"prompt": [{}]{}}})", ids, more), own, false);
    EXPECT_TRUE(prepared) << prepared.error().message;
    return std::pair(prepared->prompts.at(0).max_tokens, prepared->warning);
  };
  using Said = std::pair<std::uint32_t, std::string>;
  EXPECT_EQ(ask(40, R"(, "max_tokens": 60)", 100), (Said{60, ""}));
  const auto [beyond, warning] = ask(40, R"(, "max_tokens": 61)", 100);
  EXPECT_EQ(beyond, 61u) << "it is done all the same";
  EXPECT_NE(warning.find("101 positions"), std::string::npos) << warning;
  EXPECT_NE(warning.find("beyond the 100"), std::string::npos) << warning;
  EXPECT_EQ(ask(100, R"(, "max_tokens": 1)", 100).second, warning) << "one position too many, here too";
  EXPECT_NE(ask(101, "", 100).second, "") << "the prompt alone is too long";
  EXPECT_EQ(ask(40, R"(, "max_tokens": 900)", 0), (Said{900, ""})) << "unknown";
  EXPECT_EQ(ask(40, R"(, "max_tokens": 900)", 5000), (Said{900, ""}));
}

// A chat without a number of tokens goes on to the end of the model's own context, or to that of the fleet.
TEST(OwnContext, AnAnswerOfNoGivenLengthStaysWithinIt) {
  const ModelText text = text_with(kTemplate);
  constexpr std::string_view kChat = R"({"messages": [{"role": "user", "content": "a"}]})";
  for (const auto& [own, end] : {std::pair(100U, 100U), {0U, 1000U}, {5000U, 1000U}, {2U, 1000U}}) {
    const auto prepared = prepare(text, kChat, own);
    ASSERT_TRUE(prepared) << prepared.error().message;
    const auto& prompt = prepared->prompts.at(0);
    ASSERT_GT(prompt.ids.size(), 2u);
    EXPECT_EQ(prompt.ids.size() + prompt.max_tokens, end) << own;
    EXPECT_EQ(prepared->warning.empty(), own != 2) << "only this prompt is too long by itself";
  }
}

TEST(TemplatedChat, ATemplateThatCannotBeUsedSaysWhy) {
  const auto prepared = prepare(text_with("{% frobnicate %}"), R"({"messages": [{"role": "user", "content": "a"}]})");
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().status, 400);
  EXPECT_NE(prepared.error().message.find("frobnicate"), std::string::npos) << prepared.error().message;
  EXPECT_NE(prepared.error().message.find("/v1/completions"), std::string::npos);
}

}  // namespace
}  // namespace myriad
