// Renders chat templates for the oracles beside this file. Every line of the input is a JSON object with `template`,
// `variables` and, if wanted, `special_tokens` and `now` (seconds since 1970 by the clock on the wall); every line of
// the output one with `text` and `segments`, or with `error` and its `code`.
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "model/chat_template.h"
#include "model/json_text.h"

namespace {

using namespace myriad;
using Json = nlohmann::ordered_json;

Json failure(const Error& error) {
  return {{"error", error.message}, {"code", std::string(code_name(error.code))}};
}

Json answer(const Json& question) {
  static std::map<std::string, Result<ChatTemplate>> parsed;
  const std::string text = question.at("template").get<std::string>();
  auto known = parsed.find(text);
  if (known == parsed.end()) known = parsed.emplace(text, ChatTemplate::parse(text)).first;
  if (!known->second) return failure(known->second.error());
  const std::chrono::local_seconds now{std::chrono::seconds(question.value("now", 0))};
  const auto segments =
      known->second->render_segments(question.at("variables"), question.value("special_tokens", Json::object()), now);
  if (!segments) return failure(segments.error());
  Json out{{"text", ""}, {"segments", Json::array()}};
  std::string whole;
  for (const Segment& segment : *segments) {
    whole += segment.text;
    out["segments"].push_back({segment.text, segment.control});
  }
  out["text"] = whole;
  return out;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto question = parse_json_text(line);
    if (!question) {
      std::cout << failure(question.error()).dump() << '\n';
      continue;
    }
    std::cout << answer(*question).dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  }
}
