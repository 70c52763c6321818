// Foreign chat templates and what they are rendered with. The input is a template; what stands behind a line of `====`
// is the JSON of its variables. Evaluation ends within its limits, errors have words, and no byte of the variables'
// private letters (U+E000) ever counts as the template's own.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "model/chat_template.h"
#include "model/jinja_budget.h"
#include "model/json_text.h"

namespace {

using namespace myriad;
using Json = nlohmann::ordered_json;

constexpr std::string_view kBetween = "\n====\n";
constexpr std::string_view kSecret = "\xEE\x80\x80";  // U+E000

Json variables_of(std::string_view text) {
  if (auto given = parse_json_text(text); given && given->is_object()) return std::move(*given);
  const std::string secret(kSecret);
  return Json{{"messages", Json::array({Json{{"role", "system"}, {"content", secret + "s"}},
                                        Json{{"role", "user"}, {"content", "u" + secret}},
                                        Json{{"role", secret}, {"content", nullptr}}})},
              {"tools", Json::array({Json{{"name", secret}, {"parameters", Json{{"a", 1}, {"b", 2.5}}}}})},
              {"x", 3},
              {"y", Json::array({1, secret, true})}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = all.find(kBetween);
  const std::string_view source = all.substr(0, cut);
  const auto made = ChatTemplate::parse(source);
  if (!made) {
    if (made.error().message.empty()) std::abort();
    return 0;
  }
  const Json variables = variables_of(cut == std::string_view::npos ? "" : all.substr(cut + kBetween.size()));
  const auto segments = made->render_segments(variables, Json{{"bos_token", "<s>"}, {"eos_token", "</s>"}}, {});
  if (!segments) {
    if (segments.error().message.empty()) std::abort();
    return 0;
  }
  const bool secrets = source.find(kSecret) == std::string_view::npos && source.find('\\') == std::string_view::npos;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < segments->size(); ++i) {
    const Segment& segment = (*segments)[i];
    bytes += segment.text.size();
    if (segment.text.empty() || (i > 0 && segment.control == (*segments)[i - 1].control)) std::abort();
    if (secrets && segment.control && segment.text.find(kSecret) != std::string::npos) std::abort();
  }
  if (bytes > jinja::kMaxTextBytes) std::abort();
  return 0;
}
