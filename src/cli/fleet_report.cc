#include "cli/fleet_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "plan/placement.h"

namespace myriad::cli {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kEventsShown = 8;

std::uint64_t number(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number_unsigned()
             ? object[key].get<std::uint64_t>()
             : 0;
}
std::string text(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

Result<Json> parse(std::string_view status_json) {
  Json json = Json::parse(status_json, nullptr, false);
  if (!json.is_object() || !json.contains("nodes") || !json["nodes"].is_array())
    return fail(Code::corrupt, "the controller's status is not what was expected");
  std::sort(json["nodes"].begin(), json["nodes"].end(),
            [](const Json& a, const Json& b) { return natural_less(text(a, "id"), text(b, "id")); });
  return json;
}

std::string account_lines(const Json& json) {
  std::vector<NodeAccount> accounts;
  for (const Json& node : json["nodes"]) {
    if (!node.contains("account")) continue;
    const Json& a = node["account"];
    NodeAccount account;
    account.node = {text(node, "id")};
    account.parts = static_cast<std::uint32_t>(number(node, "parts"));
    account.part_bytes = number(a, "parts");
    account.state_bytes = number(a, "state");
    account.work_bytes = number(a, "buffers");
    account.process_bytes = number(a, "process");
    account.budget_bytes = number(a, "budget");
    if (json.contains("stages") && json["stages"].is_array())
      account.lead = std::any_of(json["stages"].begin(), json["stages"].end(),
                                 [&](const Json& stage) { return text(stage, "lead") == account.node.value; });
    accounts.push_back(std::move(account));
  }
  return account_table(accounts);
}

}  // namespace

Result<std::string> account_of_status(std::string_view status_json) {
  MYRIAD_TRY(const Json json, parse(status_json));
  return account_lines(json);
}

Result<std::string> status_text(std::string_view status_json) {
  MYRIAD_TRY(const Json json, parse(status_json));
  std::string out =
      fmt::format("model {} ({} profile), {} parts, epoch {}\nstate {}", text(json, "model"), text(json, "profile"),
                  grouped(number(json, "parts")), number(json, "epoch"), text(json, "state"));
  if (const std::string reason = text(json, "reason"); !reason.empty()) out += ": " + reason;
  const Json budget = json.contains("budget") ? json["budget"] : Json::object();
  out += fmt::format("\nbudget {} sequences of {} positions, {} rows a step; {} stages\n\n",
                     number(budget, "sequences"), number(budget, "context"), number(budget, "step_rows"),
                     json.contains("stages") ? json["stages"].size() : 0);
  std::size_t width = 4;
  for (const Json& node : json["nodes"]) width = std::max(width, text(node, "id").size());
  out += fmt::format("{:<{}}  {:<8} {:>22} {:>7} {:>12} {:>12} {:>10}\n", "node", width, "state", "address", "parts",
                     "used", "budget", "calls");
  for (const Json& node : json["nodes"]) {
    const Json memory = node.contains("memory") ? node["memory"] : Json::object();
    out += fmt::format("{:<{}}  {:<8} {:>22} {:>7} {:>12} {:>12} {:>10}", text(node, "id"), width, text(node, "state"),
                       fmt::format("{}:{}", text(node, "host"), number(node, "port")), number(node, "parts"),
                       human({number(memory, "used")}), human({number(memory, "budget")}), number(node, "calls"));
    if (const std::string error = text(node, "error"); !error.empty()) out += "  " + error;
    out += '\n';
  }
  out += "\nmemory account\n" + account_lines(json);
  if (json.contains("events") && json["events"].is_array() && !json["events"].empty()) {
    out += "\nlast events\n";
    const Json& events = json["events"];
    for (std::size_t i = events.size() > kEventsShown ? events.size() - kEventsShown : 0; i < events.size(); ++i)
      out += fmt::format("{:>8.1f} s ago  {}\n", static_cast<double>(number(events[i], "age_ms")) / 1000,
                         text(events[i], "text"));
  }
  return out;
}

}  // namespace myriad::cli
