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

ApiResult<PreparedRequest> prepare(const ModelText& text, std::string_view body) {
  ModelInfo model;
  model.name = "m";
  model.context = 1000;
  model.vocabulary = text.tokenizer.vocab_size();
  return prepare_request(body, {.text = text,
                                .model = model,
                                .chat_format = text.chat_template ? std::optional(ChatFormat::templated) : std::nullopt,
                                .longest_token = longest_token_of(text.tokenizer),
                                .chat = true,
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

TEST(TemplatedChat, ATemplateThatCannotBeUsedSaysWhy) {
  const auto prepared = prepare(text_with("{% frobnicate %}"), R"({"messages": [{"role": "user", "content": "a"}]})");
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().status, 400);
  EXPECT_NE(prepared.error().message.find("frobnicate"), std::string::npos) << prepared.error().message;
  EXPECT_NE(prepared.error().message.find("/v1/completions"), std::string::npos);
}

}  // namespace
}  // namespace myriad
