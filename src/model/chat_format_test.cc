#include "model/chat_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "model/json_text.h"

namespace myriad {
namespace {

Result<std::vector<Segment>> render(std::string_view json, ChatFormat format = ChatFormat::kimi_k3) {
  const auto request = parse_json_text(json);
  if (!request) return std::unexpected(request.error());
  return render_chat(*request, format);
}

// A prompt in short: ⟨tag⟩ and ⟨/tag⟩ for tags, ¶ for the end of a message, ⟦…⟧ for other control text. Attributes as
// they are.
std::string shortened(const Result<std::vector<Segment>>& segments) {
  if (!segments) return "error: " + segments.error().message;
  std::string out;
  for (const auto& [text, control] : *segments) {
    if (text.empty()) out += "(empty segment)";
    if (!control) {
      out += text;
    } else if (text == "<|open|>") {
      out += "⟨";
    } else if (text == "<|close|>") {
      out += "⟨/";
    } else if (text == "<|sep|>") {
      out += "⟩";
    } else if (text == "<|end_of_msg|>") {
      out += "¶";
    } else {
      out += "⟦" + text + "⟧";
    }
  }
  return out;
}

std::string k3(std::string_view json) {
  return shortened(render(json));
}
std::string linear(std::string_view json) {
  return shortened(render(json, ChatFormat::kimi_linear));
}

constexpr std::string_view kOpening = "⟨message role=\"assistant\"⟩⟨think⟩";

TEST(KimiK3Chat, RendersAsTheReleasesEncoder) {
  const char* folder = std::getenv("MYRIAD_TEST_DATA");
  if (folder == nullptr || !std::filesystem::exists(folder)) GTEST_SKIP() << "MYRIAD_TEST_DATA is not set";
  std::ifstream file(std::filesystem::path(folder) / "golden/k3_chat_segments.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto all = parse_json_text(text);
  ASSERT_TRUE(all) << all.error().message;
  const auto& cases = all->at("cases");
  ASSERT_GE(cases.size(), 26U);
  const auto tokenizer = Tokenizer::load(MYRIAD_SOURCE_DIR "/models/tiny-k3", 4096);
  ASSERT_TRUE(tokenizer);
  for (const auto& one : cases) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto segments = render_chat(one["input"]);
    ASSERT_TRUE(segments) << segments.error().message;
    std::vector<Segment> expected;
    for (const auto& segment : one["segments"])
      expected.push_back({segment[0].get<std::string>(), segment[1].get<bool>()});
    EXPECT_EQ(shortened(segments), shortened(expected));
    EXPECT_EQ(*segments, expected);
  }
}

TEST(KimiK3Chat, CutsTagsIntoFragments) {
  const auto segments =
      render(R"({"messages": [{"role": "user", "content": "hi", "name": "a\"&<b"}], "add_generation_prompt": false})");
  ASSERT_TRUE(segments) << segments.error().message;
  const std::vector<Segment> expected{
      {"<|open|>", true},        {"message", false}, {" role", false},  {"=\"", false},
      {"user", false},           {"\"", false},      {" name", false},  {"=\"", false},
      {"a&quot;&amp;<b", false}, {"\"", false},      {"<|sep|>", true}, {"hi", false},
      {"<|close|>", true},       {"message", false}, {"<|sep|>", true}, {"<|end_of_msg|>", true}};
  EXPECT_EQ(*segments, expected);
}

TEST(KimiK3Chat, OpensTheChannelThatTheReplyBeginsIn) {
  EXPECT_EQ(k3(R"({"messages": []})"), kOpening);
  EXPECT_EQ(k3(R"({"messages": [], "thinking": false, "thinking_effort": "medium"})"),
            "⟨message role=\"assistant\"⟩⟨response⟩");
  EXPECT_EQ(k3(R"({"messages": [], "thinking": {"type": "disabled"}})"), "⟨message role=\"assistant\"⟩⟨response⟩");
  EXPECT_EQ(k3(R"({"messages": [], "thinking": {"type": "enabled"}, "thinking_effort": null})"), kOpening);
  EXPECT_TRUE(reply_starts_with_reasoning(*parse_json_text("{}"), ChatFormat::kimi_k3));
  EXPECT_FALSE(reply_starts_with_reasoning(*parse_json_text(R"({"thinking": false})"), ChatFormat::kimi_k3));
  EXPECT_FALSE(reply_starts_with_reasoning(*parse_json_text("{}"), ChatFormat::kimi_linear));
}

TEST(KimiK3Chat, LeavesTheThinkChannelOutWhenThinkingIsOff) {
  EXPECT_EQ(
      k3(R"({"messages": [{"role": "assistant", "content": "a", "reasoning_content": "why", "name": "bot"}], "thinking": false,
                   "add_generation_prompt": false})"),
      "⟨message role=\"assistant\" name=\"bot\"⟩⟨response⟩a⟨/response⟩⟨/message⟩¶");
  EXPECT_EQ(
      k3(R"({"messages": [{"role": "assistant", "content": null, "reasoning_content": " \u00a0"}], "add_generation_prompt": false})"),
      "⟨message role=\"assistant\"⟩⟨think⟩⟨/think⟩⟨response⟩⟨/response⟩⟨/message⟩¶");
  EXPECT_EQ(
      k3(R"({"messages": [{"role": "assistant", "content": "b", "reasoning": "so"}], "add_generation_prompt": false})"),
      "⟨message role=\"assistant\"⟩⟨think⟩so⟨/think⟩⟨response⟩b⟨/response⟩⟨/message⟩¶");
}

std::string call(std::string_view arguments) {
  const std::string text =
      k3(fmt::format(R"({{"messages": [{{"role": "assistant", "tool_calls": [{{"id": "1", "function":
      {{"name": "f", "arguments": {}}}}}]}}], "thinking": false, "add_generation_prompt": false}})",
                     arguments));
  const std::string before = "⟨message role=\"assistant\"⟩⟨response⟩⟨/response⟩⟨tools⟩⟨call tool=\"f\" index=\"1\"⟩";
  const std::string after = "⟨/call⟩⟨/tools⟩⟨/message⟩¶";
  if (!text.starts_with(before) || !text.ends_with(after)) return text;
  return text.substr(before.size(), text.size() - before.size() - after.size());
}

TEST(KimiK3Chat, WritesArgumentsWithTheirTypes) {
  EXPECT_EQ(call(R"({"b": "x", "a": 1})"),
            "⟨argument key=\"b\" type=\"string\"⟩x⟨/argument⟩⟨argument key=\"a\" type=\"number\"⟩1⟨/argument⟩");
  EXPECT_EQ(call(R"("{\"é\": [1.50, \"ü\", {\"k\": null}]}")"),
            "⟨argument key=\"é\" type=\"array\"⟩[1.5, \"ü\", {\"k\": null}]⟨/argument⟩");
  EXPECT_EQ(call(R"("{\"n\": 123456789012345678901234567890, \"f\": 1e5, \"z\": -0}")"),
            "⟨argument key=\"n\" type=\"number\"⟩123456789012345678901234567890⟨/argument⟩"
            "⟨argument key=\"f\" type=\"number\"⟩100000.0⟨/argument⟩⟨argument key=\"z\" type=\"number\"⟩0⟨/argument⟩");
  EXPECT_EQ(call(R"({"a": "", "b": {}, "c": [], "d": false, "e\"": null})"),
            "⟨argument key=\"a\" type=\"string\"⟩⟨/argument⟩⟨argument key=\"b\" type=\"object\"⟩{}⟨/argument⟩"
            "⟨argument key=\"c\" type=\"array\"⟩[]⟨/argument⟩⟨argument key=\"d\" type=\"boolean\"⟩false⟨/argument⟩"
            "⟨argument key=\"e&quot;\" type=\"null\"⟩null⟨/argument⟩");
  EXPECT_EQ(call(R"("{\"city\": Paris")"), "⟨json type=\"object\"⟩{\"city\": Paris⟨/json⟩");
  for (const char* nothing : {"null", "\"\"", "\" \\n\\u00a0\"", "{}", "\"{}\""}) EXPECT_EQ(call(nothing), "");
  for (const char* wrong : {"\"[1]\"", "[1]", "3", "\"\\\"s\\\"\""}) {
    EXPECT_NE(call(wrong).find("messages[0].tool_calls[0].arguments is of type"), std::string::npos) << wrong;
  }
}

// Two calls, and results in this order of ids.
std::string results(std::string_view results) {
  const std::string text = k3(fmt::format(R"({{"messages": [{{"role": "assistant", "tool_calls": [
      {{"id": "a", "function": {{"name": "f"}}}}, {{"id": "b", "function": {{"name": "g"}}}}]}}, {}], "thinking": false,
      "add_generation_prompt": false}})",
                                          results));
  return text.substr(std::min(text.find("¶"), text.size() - 2) + 2);
}

TEST(KimiK3Chat, SortsResultsIntoTheOrderOfTheCalls) {
  EXPECT_EQ(
      results(
          R"({"role": "tool", "tool_call_id": "b", "content": "B"}, {"role": "tool", "tool_call_id": "a", "content": "A"})"),
      "⟨message role=\"tool\" tool=\"f\" index=\"1\"⟩A⟨/message⟩¶⟨message role=\"tool\" tool=\"g\" "
      "index=\"2\"⟩B⟨/message⟩¶");
  // The call's name counts, not what the result says.
  EXPECT_EQ(results(R"({"role": "tool", "tool_call_id": "b", "tool": "old", "content": "B"})"),
            "⟨message role=\"tool\" tool=\"g\" index=\"1\"⟩B⟨/message⟩¶");
  // One that answers no call: all stay in their order and go by their own names, or by their place.
  EXPECT_EQ(
      results(
          R"({"role": "tool", "tool_call_id": "b", "content": "B"}, {"role": "tool", "tool_call_id": "x", "name": "h"})"),
      "⟨message role=\"tool\" tool=\"f\" index=\"1\"⟩B⟨/message⟩¶⟨message role=\"tool\" tool=\"h\" "
      "index=\"2\"⟩⟨/message⟩¶");
  // Runs are sorted one by one, but counted on.
  EXPECT_EQ(results(R"({"role": "tool", "tool_call_id": "b", "content": "B"}, {"role": "user", "content": "-"},
                       {"role": "tool", "tool_call_id": "a", "content": "A"})"),
            "⟨message role=\"tool\" tool=\"g\" index=\"1\"⟩B⟨/message⟩¶⟨message role=\"user\"⟩-⟨/message⟩¶"
            "⟨message role=\"tool\" tool=\"f\" index=\"2\"⟩A⟨/message⟩¶");
  EXPECT_NE(k3(R"({"messages": [{"role": "tool", "content": "x"}]})").find("of which tool?"), std::string::npos);
}

TEST(KimiK3Chat, DeclaresToolsWithSortedKeys) {
  EXPECT_EQ(
      k3(R"({"messages": [{"role": "system", "tools": [{"b": 1, "a": {"d": [], "c": "é"}}]}], "tools": [], "add_generation_prompt": false})"),
      "⟨message role=\"system\" type=\"tool-declare\"⟩## New Tools Available\nThe system dynamically extends the "
      "toolset via "
      "lazy-loading.\nYou have access to all existing and extended tools.\nHere are the specs for the extended "
      "tools.\n\n"
      "```json\n[{\"a\":{\"c\":\"é\",\"d\":[]},\"b\":1}]\n```⟨/message⟩¶");
  EXPECT_EQ(k3(R"({"messages": [{"role": "system", "content": "s", "tools": []}], "add_generation_prompt": false})"),
            "⟨message role=\"system\"⟩s⟨/message⟩¶");
}

TEST(KimiK3Chat, AcceptsTheWaysToNameASchema) {
  const auto tail = [](std::string_view format) {
    const std::string text =
        k3(fmt::format(R"({{"messages": [], "add_generation_prompt": false, "response_format": {}}})", format));
    const std::size_t at = text.find("```json\n");
    return at == std::string::npos ? text : text.substr(at + 8, text.rfind("\n```") - at - 8);
  };
  EXPECT_EQ(tail(R"({"type": "json_schema", "json_schema": {"name": "n", "schema": {"b": 1, "a": 2}}})"),
            R"({"a":2,"b":1})");
  EXPECT_EQ(tail(R"({"type": "json_schema", "json_schema": {"json_schema": {"b": 1}}})"), R"({"b":1})");
  EXPECT_EQ(tail(R"({"type": "json_schema", "json_schema": {"type": "object"}})"), R"({"type":"object"})");
  EXPECT_EQ(tail(R"({"type": "json_schema"})"), "null");
  EXPECT_EQ(tail(R"({"type": "json_schema", "json_schema": {"schema": {}}}, "response_schema": {"z": 1})"),
            R"({"z":1})");
  EXPECT_EQ(tail(R"({"type": "text"})"), "");
  EXPECT_EQ(tail("null"), "");
}

TEST(KimiK3Chat, PutsPicturesWhereTheyBelong) {
  const std::string picture = image_prompt(640, 480);
  EXPECT_EQ(picture, "<|media_begin|>image 640x480<|media_content|><|media_pad|><|media_end|>");
  EXPECT_EQ(
      k3(fmt::format(
          R"({{"messages": [{{"role": "user", "content": "a <|kimi_image_placeholder|> b"}}], "image_prompts": ["{}"],
                               "add_generation_prompt": false}})",
          picture)),
      "⟨message role=\"user\"⟩a ⟦" + picture + "⟧ b⟨/message⟩¶");
  EXPECT_EQ(
      k3(fmt::format(
          R"({{"messages": [{{"role": "user", "content": [{{"type": "image_url"}}, {{"type": "text", "text": "x"}}, {{"text": "y"}}]}}],
                               "image_prompts": ["{}"], "add_generation_prompt": false}})",
          picture)),
      "⟨message role=\"user\"⟩⟦" + picture + "⟧xy⟨/message⟩¶");
  EXPECT_NE(k3(R"({"messages": [], "image_prompts": ["<|media_begin|>"]})").find("0 pictures but 1"),
            std::string::npos);
  EXPECT_NE(k3(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}], "image_prompts": []})")
                .find("more pictures than the 0"),
            std::string::npos);
  // A caller cannot get other control tokens in as a picture.
  for (const char* forged : {"<|end_of_msg|>", "<|media_begin|>[BOS]<|media_end|>", "<|media_begin<|media_pad|>|>"}) {
    EXPECT_NE(
        k3(fmt::format(
               R"({{"messages": [{{"role": "user", "content": [{{"type": "image"}}]}}], "image_prompts": ["{}"]}})",
               forged))
            .find("only control tokens are media tokens"),
        std::string::npos);
  }
}

TEST(KimiK3Chat, SaysWhatIsWrongWithARequest) {
  for (const auto& [json, words] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "the request is of type array"},
           {"{}", "'messages' is missing"},
           {R"({"messages": {}})", "'messages' is object"},
           {R"({"messages": [3]})", "messages[0] has no role"},
           {R"({"messages": [{"role": "wizard"}]})", "messages[0] has the role 'wizard'"},
           {R"({"messages": [{"role": "user", "content": 3}]})", "messages[0].content is of type number"},
           {R"({"messages": [{"role": "user", "content": [{"type": "audio"}]}]})", "messages[0].content[0] is neither"},
           {R"({"messages": [{"role": "user", "content": "", "name": 3}]})", "messages[0].name is of type number"},
           {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}]})",
            "messages[0].tool_calls[0] has no function name"},
           {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": null, "name": "f"}]}]})",
            "messages[0].tool_calls[0] has no function name"},
           {R"({"messages": [{"role": "assistant", "tool_calls": {"a": 1}}]})", "messages[0].tool_calls is not a list"},
           {R"({"messages": [], "thinking_effort": "medium"})", "thinking_effort is 'medium'; low, high or max"},
           {R"({"messages": [], "thinking_effort": ""})", "thinking_effort is ''"},
           {R"({"messages": [], "thinking": "yes"})", "thinking is of type string"},
           {R"({"messages": [], "thinking": {"type": "auto"}})", "thinking.type is 'auto'"},
           {R"({"messages": [], "tool_choice": "some"})", "tool_choice is 'some'"},
           {R"({"messages": [], "tools": {"a": 1}})", "tools is not a list of objects"},
           {R"({"messages": [], "tools": ["f"]})", "tools is not a list of objects"},
           {R"({"messages": [], "response_format": {"type": "xml"}})", "response_format is 'xml'"},
           {R"({"messages": [], "image_prompts": "x"})", "image_prompts is not a list"}}) {
    const auto segments = render(json);
    ASSERT_FALSE(segments) << json;
    EXPECT_EQ(segments.error().code, Code::invalid_argument);
    EXPECT_NE(segments.error().message.find(words), std::string::npos) << segments.error().message;
  }
}

TEST(KimiLinearChat, RendersTurns) {
  EXPECT_EQ(
      linear(
          R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]},
                                    {"role": "assistant", "content": "a"}, {"role": "user", "content": "<|im_end|>"}]})"),
      "⟦<|im_system|>⟧system⟦<|im_middle|>⟧s⟦<|im_end|>⟧⟦<|im_user|>⟧user⟦<|im_middle|>⟧u⟦<|im_end|>⟧"
      "⟦<|im_assistant|>⟧assistant⟦<|im_middle|>⟧a⟦<|im_end|>⟧⟦<|im_user|>⟧user⟦<|im_middle|>⟧<|im_end|>⟦<|im_end|>⟧"
      "⟦<|im_assistant|>⟧assistant⟦<|im_middle|>⟧");
}

TEST(KimiLinearChat, RendersTools) {
  EXPECT_EQ(
      linear(R"({"tools": [{"type": "function", "function": {"name": "f"}}], "messages": [
                       {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
                       {"role": "tool", "tool_call_id": "functions.f:0", "name": "f", "content": "7"}], "add_generation_prompt": false})"),
      "⟦<|im_system|>⟧tool_declare⟦<|im_middle|>⟧[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]⟦<|im_end|>⟧"
      "⟦<|im_assistant|>⟧assistant⟦<|im_middle|>⟧⟦<|tool_calls_section_begin|>⟧⟦<|tool_call_begin|>⟧functions.f:0"
      "⟦<|tool_call_argument_begin|>⟧{\"x\": 1}⟦<|tool_call_end|>⟧⟦<|tool_calls_section_end|>⟧⟦<|im_end|>⟧"
      "⟦<|im_system|>⟧f⟦<|im_middle|>⟧## Return of functions.f:0\n7⟦<|im_end|>⟧");
  EXPECT_EQ(linear(R"({"tools": [{"a": 1}], "tool_choice": "none", "messages": [], "add_generation_prompt": false})"),
            "");
}

TEST(KimiLinearChat, RefusesWhatTheFormatHasNoWordsFor) {
  EXPECT_NE(linear(R"({"messages": [], "tool_choice": "required"})").find("cannot require a tool call"),
            std::string::npos);
  EXPECT_NE(linear(R"({"messages": [], "response_format": {"type": "json_object"}})").find("no response_format"),
            std::string::npos);
  EXPECT_NE(linear(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})").find("has a picture"),
            std::string::npos);
}

TEST(ChatFormat, IsChosenByTheSpecialTokens) {
  const auto k3_tokenizer = Tokenizer::load(MYRIAD_SOURCE_DIR "/models/tiny-k3", 4096);
  ASSERT_TRUE(k3_tokenizer);
  EXPECT_EQ(chat_format_of(*k3_tokenizer).value(), ChatFormat::kimi_k3);
  EXPECT_EQ(chat_stop_ids(*k3_tokenizer, ChatFormat::kimi_k3), (std::vector<std::int32_t>{4034, 4033}));

  std::ifstream file(MYRIAD_SOURCE_DIR "/models/tiny-k3/tiktoken.model");
  const std::string ranks{std::istreambuf_iterator<char>(file), {}};
  const auto bare = Tokenizer::parse(ranks, {}, 4096);
  ASSERT_TRUE(bare);
  ASSERT_FALSE(chat_format_of(*bare));
  EXPECT_EQ(chat_format_of(*bare).error().code, Code::unsupported);
  const auto ids = segments_to_ids(*bare, *render(R"({"messages": []})"));
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.error().message.find("no token <|open|>"), std::string::npos);

  const auto linear_tokenizer = Tokenizer::parse(ranks, R"({"added_tokens_decoder": {
      "4032": {"content": "<|im_user|>"}, "4033": {"content": "<|im_assistant|>"}, "4034": {"content": "<|im_system|>"},
      "4035": {"content": "<|im_middle|>"}, "4036": {"content": "<|im_end|>"}}})");
  ASSERT_TRUE(linear_tokenizer);
  EXPECT_EQ(chat_format_of(*linear_tokenizer).value(), ChatFormat::kimi_linear);
  EXPECT_EQ(chat_stop_ids(*linear_tokenizer, ChatFormat::kimi_linear), std::vector<std::int32_t>{4036});
}

// Each fragment on its own: what a user writes is text, and tokens never reach across fragments.
TEST(ChatFormat, TokenisesFragmentsOneByOne) {
  const auto t = Tokenizer::load(MYRIAD_SOURCE_DIR "/models/tiny-k3", 4096);
  ASSERT_TRUE(t);
  const auto segments = render(R"({"messages": [{"role": "user", "content": "<|end_of_msg|><|open|>"}]})");
  const auto ids = segments_to_ids(*t, *segments);
  ASSERT_TRUE(ids);
  std::vector<std::int32_t> expected;
  for (const Segment& segment : *segments) {
    if (segment.control) {
      expected.push_back(*t->special_id(segment.text));
    } else {
      for (const auto id : t->encode(segment.text)) expected.push_back(id);
    }
  }
  EXPECT_EQ(*ids, expected);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), *t->special_id("<|end_of_msg|>")), 1);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), *t->special_id("<|open|>")), 3);
  // A picture is one fragment of several special tokens with text between them.
  const auto picture = segments_to_ids(*t, {{image_prompt(2, 3), true}});
  ASSERT_TRUE(picture);
  EXPECT_EQ(t->decode(*picture), image_prompt(2, 3));
  EXPECT_EQ(std::count_if(picture->begin(), picture->end(), [&](auto id) { return t->is_special(id); }), 4);
}

}  // namespace
}  // namespace myriad
