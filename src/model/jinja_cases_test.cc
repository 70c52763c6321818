// Templates rendered as transformers renders them: tests/data/jinja_cases.json, written by tools/make_jinja_cases.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/chat_template.h"
#include "model/json_text.h"

namespace myriad {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of_file(const std::string& path) {
  std::ifstream file(std::string(MYRIAD_SOURCE_DIR "/tests/") + path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Numbers of the cases keep their value, as those of requests do.
Json json_of_file(const std::string& path) {
  return parse_json_text(text_of_file(path)).value();
}

class Question {
 public:
  Question(const Json& test, const Json& chats) {
    if (test.contains("template")) {
      text_ = test["template"].get<std::string>();
      variables_ = test["variables"];
      tokens_ = Json{{"bos_token", "<s>"}, {"eos_token", "</s>"}};
      return;
    }
    text_ = text_of_file("oracle/templates/" + test["file"].get<std::string>());
    variables_ = chats["variants"][test["variant"].get<std::size_t>()];
    variables_["messages"] = chats["conversations"][test["conversation"].get<std::string>()];
    if (test["tools"].get<bool>()) variables_["tools"] = chats["tools"];
    tokens_ = chats["special_tokens"];
  }
  [[nodiscard]] Result<std::vector<Segment>> ask(std::int64_t now) const {
    MYRIAD_TRY(const ChatTemplate made, ChatTemplate::parse(text_));
    return made.render_segments(variables_, tokens_, std::chrono::local_seconds{std::chrono::seconds(now)});
  }

 private:
  std::string text_;
  Json variables_, tokens_;
};

TEST(JinjaCases, AreRenderedAsTransformersDoes) {
  const Json data = json_of_file("data/jinja_cases.json"), chats = json_of_file("oracle/conversations.json");
  ASSERT_GT(data["cases"].size(), 500U);
  const auto now = data["now"].get<std::int64_t>();
  for (const Json& test : data["cases"]) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const auto segments = Question(test, chats).ask(now);
    if (!test.contains("expected")) {
      ASSERT_TRUE(test.contains("error"));
      EXPECT_FALSE(segments) << "Jinja says: " << test["error"];
      if (!segments) {
        EXPECT_FALSE(segments.error().message.empty());
      }
      continue;
    }
    // What is no part of the subset has to be refused by name; a wrong text is never right.
    if (!segments) {
      const Code code = segments.error().code;  // integers are of 64 bits
      EXPECT_TRUE(code == Code::unsupported || code == Code::limit) << segments.error().message;
      EXPECT_TRUE(test.contains("template")) << "the families' templates are evaluated: " << segments.error().message;
      continue;
    }
    std::string text;
    for (std::size_t i = 0; i < segments->size(); ++i) {
      text += (*segments)[i].text;
      EXPECT_FALSE((*segments)[i].text.empty());
      if (i > 0) {
        EXPECT_NE((*segments)[i].control, (*segments)[i - 1].control);
      }
    }
    EXPECT_EQ(text, test["expected"].get<std::string>());
  }
}

// The few that the subset leaves out, so that none is added unseen.
TEST(JinjaCases, OnlyTheseAreUnsupported) {
  const Json data = json_of_file("data/jinja_cases.json"), chats = json_of_file("oracle/conversations.json");
  std::map<std::string, std::string> found;
  for (const Json& test : data["cases"]) {
    if (!test.contains("expected")) continue;
    const auto segments = Question(test, chats).ask(0);
    if (!segments) found[test["name"].get<std::string>()] = segments.error().message;
  }
  const std::vector<std::string> known{"batch and slice", "escape", "joiner", "repr of numbers"};
  for (const auto& [name, message] : found) {
    EXPECT_NE(std::find(known.begin(), known.end(), name), known.end()) << name << ": " << message;
    EXPECT_NE(message.find("line 1, column"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace myriad
