// The fleet as JSON, for `myriad fleet status` and for whoever watches from outside.
#include <nlohmann/json.hpp>

#include "control/fleet.h"

namespace myriad {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostPartNames = 4096;  // named one by one in models that have no more parts than this

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
    case LogLevel::off:
      break;
  }
  return "off";
}

std::int64_t milliseconds(Nanos n) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(n).count();
}

}  // namespace

std::string Fleet::status_json(Nanos now) const {
  Json status;
  status["model"] = manifest_.model_name;
  status["profile"] = profile_name(options_.profile);
  status["state"] = fleet_state_name(state());
  status["reason"] = reason();
  status["epoch"] = epoch_.value;
  status["budget"] = {{"sequences", options_.budget.sequences},
                      {"context", options_.budget.context},
                      {"step_rows", options_.budget.step_rows},
                      {"cache_positions", cache_pages(options_.budget).count * cache_pages(options_.budget).positions},
                      {"prefixes", options_.budget.prefixes},
                      {"draft_tokens", options_.budget.drafts},
                      {"cache_type", kv_cache_name(options_.budget.cache)}};
  status["model_bytes"] = {{"parts", costs_.part_bytes()},
                           {"state", costs_.state_bytes()},
                           {"lead_buffers", costs_.lead_work()},
                           {"helper_buffers", costs_.helper_work()}};
  status["parts"] = manifest_.parts.size();
  if (options_.expect) status["expected_nodes"] = *options_.expect;

  std::unordered_map<std::string_view, std::size_t> place;
  if (plan_)
    for (std::size_t n = 0; n < plan_->placement.nodes.size(); ++n) place.emplace(plan_->placement.nodes[n].value, n);
  const std::vector<NodeAccount> accounts = account();
  Json nodes = Json::array();
  for (const auto& [id, m] : members_) {
    Json node;
    node["id"] = id.value;
    node["state"] = node_state_name(m.state);
    node["host"] = m.host;
    node["port"] = m.offer.port;
    node["incarnation"] = m.incarnation;
    node["memory"] = {{"budget", m.offer.memory_bytes},
                      {"used", m.memory_used},
                      {"process", m.offer.process_bytes},
                      {"after_load", m.resident_after_load}};
    node["cores"] = m.offer.cores;
    node["speed"] = m.offer.speed;
    node["isa"] = m.offer.isa;
    node["calls"] = m.calls;
    node["parts"] = m.parts;
    node["parts_loaded"] = m.parts_loaded;
    node["last_heard_ms"] = milliseconds(now - m.last_heard);
    node["epoch"] = m.reported_epoch.value;
    if (m.failures > 0) node["failures"] = m.failures;
    if (m.resting) node["rests_ms"] = std::max<std::int64_t>(0, milliseconds(m.rest_until - now));
    if (!m.last_error.empty()) node["error"] = m.last_error;
    if (const auto at = place.find(id.value); at != place.end()) {
      const NodeAccount& a = accounts[at->second];
      node["account"] = {{"parts", a.part_bytes},      {"state", a.state_bytes}, {"buffers", a.work_bytes},
                         {"process", a.process_bytes}, {"total", a.total()},     {"budget", a.budget_bytes}};
      if (manifest_.parts.size() <= kMostPartNames) {
        Json names = Json::array();
        for (const std::uint32_t p : plan_->parts_of[at->second]) names.push_back(costs_.part_name(p));
        node["part_names"] = std::move(names);
      }
    }
    nodes.push_back(std::move(node));
  }
  status["nodes"] = std::move(nodes);

  Json stages = Json::array();
  if (plan_)
    for (const StageAssignment& stage : plan_->placement.stages)
      stages.push_back(
          {{"lead", plan_->placement.nodes[stage.lead].value}, {"first_half", stage.first}, {"last_half", stage.last}});
  status["stages"] = std::move(stages);
  if (plan_) {
    status["estimate"] = {{"compute_ms", pace_.compute_seconds * 1e3},
                          {"hops", pace_.hops},
                          {"rounds", pace_.rounds},
                          {"token_ms", pace_.seconds() * 1e3}};
    if (!remark_.empty()) status["remark"] = remark_;
  }
  status["watchers"] = watchers_.size();

  Json events = Json::array();
  for (const EventLog::Event& event : events_.events())
    events.push_back(
        {{"age_ms", milliseconds(now - event.at)}, {"level", level_name(event.level)}, {"text", event.text}});
  status["events"] = std::move(events);
  status["events_ever"] = events_.total();

  // Error texts come from other machines: whatever is not UTF-8 in them is replaced, never thrown at.
  const auto dump = [&] { return status.dump(-1, ' ', false, Json::error_handler_t::replace); };
  std::string text = dump();
  for (const char* large : {"events", "nodes", "stages"}) {
    if (text.size() <= kMaxStatusBytes) break;
    status[large] = Json::array();
    status["left_out"].push_back(large);
    text = dump();
  }
  return text;
}

}  // namespace myriad
