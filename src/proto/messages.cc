#include "proto/messages.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/attention.h"
#include "proto/wire.h"

namespace myriad {

CachePages cache_pages(const Budget& budget) {
  CachePages pages{};
  pages.positions = std::clamp((budget.context + 3) / 4 * 4, std::uint32_t{4}, std::uint32_t{kAttentionBlock});
  pages.count = budget.positions != 0 ? pages.for_positions(budget.positions)
                                      : state_slots(budget) * pages.for_positions(budget.context);
  return pages;
}

std::uint64_t attention_state_bytes(const Operator& op, std::uint32_t units, Profile profile, const Budget& budget) {
  const CachePages pages = cache_pages(budget);
  std::uint64_t cache = 0, fixed = 0, all = 0;
  const std::uint64_t page = op.state_bytes_per_position(units, op.cache_type(budget.cache, profile)) * pages.positions;
  if (__builtin_mul_overflow(pages.count, page, &cache) ||
      __builtin_mul_overflow(state_slots(budget), op.state_bytes(units), &fixed) ||
      __builtin_add_overflow(cache, fixed, &all))
    return ~std::uint64_t{0};
  return all;
}

namespace {

// Collects the first thing that is wrong with a message.
class Check {
 public:
  explicit Check(Code otherwise) : otherwise_(otherwise) {}

  [[nodiscard]] Status result() && { return std::move(status_); }

  void at_most(std::size_t found, std::size_t maximum, const char* what) {
    if (found > maximum) refuse(Code::limit, "{} {}, expected at most {}", found, what, maximum);
  }

  template <class E>
  void enumerator(E value, E last, const char* what) {
    if (value > last)
      refuse(otherwise_, "{} has the number {}, expected at most {}", what, static_cast<unsigned>(value),
             static_cast<unsigned>(last));
  }

  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
    if (!holds) refuse(otherwise_, format, std::forward<Args>(args)...);
  }

  void node(const NodeId& id) {
    at_most(id.value.size(), kMaxNodeIdBytes, "bytes of a node's name");
    require(std::ranges::all_of(id.value,
                                [](char c) {
                                  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                                         c == '.' || c == '_' || c == '-';
                                }),
            "a node's name has other characters than letters, digits, '.', '_' and '-'");
  }

  void addresses(const std::vector<NodeAddress>& nodes) {
    at_most(nodes.size(), kMaxNodesPerMessage, "nodes");
    for (const NodeAddress& n : nodes) {
      node(n.node);
      at_most(n.host.size(), kMaxHostBytes, "bytes of a host's name");
    }
  }

  void stages(const std::vector<StageAssignment>& stages, std::size_t nodes) {
    at_most(stages.size(), kMaxStages, "stages");
    for (const StageAssignment& s : stages)
      require(s.lead < nodes && s.first <= s.last, "a stage of halves {} to {} led by node {} of {}", s.first, s.last,
              s.lead, nodes);
  }

  // Returns how many rows there are.
  std::size_t sequences(const std::vector<SequenceRows>& sequences) {
    at_most(sequences.size(), kMaxRowsPerStep, "sequences");
    std::uint64_t rows = 0;
    for (const SequenceRows& s : sequences) {
      require(s.rows > 0 && s.first_position <= UINT32_MAX - s.rows, "a sequence with {} rows from position {}", s.rows,
              s.first_position);
      rows += s.rows;
    }
    at_most(rows, kMaxRowsPerStep, "rows");
    return rows;
  }

  void tensors(const std::vector<Activation>& tensors) {
    at_most(tensors.size(), kMaxTensorsPerFrame, "tensors");
    for (const Activation& t : tensors) {
      enumerator(t.form, Form::i8, "a tensor's form");
      at_most(t.rows, kMaxRowsPerStep, "rows of a tensor");
      at_most(t.width, kMaxTensorWidth, "values in a tensor's row");
      if (t.rows > kMaxRowsPerStep || t.width > kMaxTensorWidth) return;
      const std::size_t n = t.rows * t.width;
      const bool whole = t.form == Form::i8
                             ? t.q.size() == n && t.scales.size() == t.rows * t.groups() && t.values.empty()
                             : t.values.size() == n && t.q.empty() && t.scales.empty();
      require(whole, "a tensor of {} rows of {} holds {} values, {} bytes and {} scales", t.rows, t.width,
              t.values.size(), t.q.size(), t.scales.size());
    }
  }

  void operator()(const Hello& m) {
    enumerator(m.role, Role::tool, "role");
    node(m.node);
  }
  void operator()(const Register& m) {
    node(m.node);
    at_most(m.isa.size(), kMaxNameBytes, "bytes of the instruction set's name");
    at_most(m.host.size(), kMaxHostBytes, "bytes of a host's name");
    at_most(m.held.size(), kMaxHeldParts, "held parts");
  }
  void operator()(const Registered& m) { at_most(m.fetch_ticket.size(), kMaxNameBytes, "bytes of a ticket"); }
  void operator()(const Heartbeat& m) {
    node(m.node);
    enumerator(m.state, NodeState::lost, "node state");
  }
  void operator()(const Assign& m) {
    at_most(m.config_json.size(), kMaxWireConfigBytes, "bytes of config");
    enumerator(m.profile, Profile::fast, "profile");
    addresses(m.nodes);
    require(m.self < m.nodes.size(), "the receiver is node {} of {}", m.self, m.nodes.size());
    at_most(m.parts.size(), kMaxPartsPerAssign, "parts");
    for (const PartAssignment& p : m.parts) {
      enumerator(p.spec.op.role, OpRole::head, "a part's role");
      require(p.owner < m.nodes.size() && p.spec.begin < p.spec.end,
              "part {} of units {} to {} is owned by node {} of {}", p.index, p.spec.begin, p.spec.end, p.owner,
              m.nodes.size());
    }
    stages(m.stages, m.nodes.size());
  }
  void operator()(const PlanUpdate& m) {
    enumerator(m.state, FleetState::degraded, "fleet state");
    at_most(m.reason.size(), kMaxTextBytes, "bytes of a reason");
    at_most(m.model_name.size(), kMaxNameBytes, "bytes of a model's name");
    enumerator(m.profile, Profile::fast, "profile");
    addresses(m.nodes);
    stages(m.stages, m.nodes.size());
    at_most(m.lost.size(), kMaxNodesPerMessage, "lost nodes");
    for (const NodeId& id : m.lost) node(id);
    at_most(m.fetch_ticket.size(), kMaxNameBytes, "bytes of a ticket");
  }
  void operator()(const StatusReply& m) { at_most(m.json.size(), kMaxStatusBytes, "bytes of status"); }
  void operator()(const KillRequest& m) { node(m.node); }
  void operator()(const Call& m) {
    const std::size_t stateful = sequences(m.sequences);
    at_most(m.tokens.size(), kMaxRowsPerStep, "tokens");
    tensors(m.tensors);
    at_most(m.items.size(), kMaxItemsPerCall, "items");
    for (const CallItem& i : m.items) {
      at_most(i.inputs.size(), kMaxInputsPerItem, "inputs of an item");
      at_most(i.rows.size(), kMaxRowsPerStep, "rows of an item");
      enumerator(i.want, HeadWant::logits, "what is wanted of a head part");
      // An embed part has tokens for inputs.
      std::size_t rows = i.inputs.empty() ? std::max(m.tokens.size(), stateful) : kMaxRowsPerStep;
      for (const std::uint16_t input : i.inputs) {
        require(input < m.tensors.size(), "part {} takes tensor {} of {}", i.part, input, m.tensors.size());
        if (input < m.tensors.size()) rows = std::min(rows, m.tensors[input].rows);
      }
      for (const std::uint16_t row : i.rows) require(row < rows, "part {} takes row {} of {}", i.part, row, rows);
    }
  }
  void operator()(const CallReply& m) { tensors(m.tensors); }
  void operator()(const Step& m) {
    const std::size_t rows = sequences(m.sequences);
    require(m.tokens.empty() || m.tokens.size() == rows, "{} tokens for {} rows", m.tokens.size(), rows);
    at_most(m.wanted.size(), kMaxRowsPerStep, "wanted rows");
    for (const SampledRow& w : m.wanted) {
      require(w.row < rows, "row {} of {} is wanted", w.row, rows);
      enumerator(w.want, HeadWant::logits, "what is wanted of a row");
      const SampleSpec& s = w.sample;
      require(std::isfinite(s.temperature) && s.temperature >= 0, "temperature {}, expected 0 or more", s.temperature);
      require(s.top_p > 0 && s.top_p <= 1, "top_p {}, expected more than 0 and at most 1", s.top_p);
      at_most(s.top_logprobs, kMaxTopLogprobs, "likeliest tokens");
    }
    tensors(m.tensors);
    for (const Activation& t : m.tensors) require(t.rows == rows, "a tensor of {} rows for {} rows", t.rows, rows);
    at_most(m.next_stage, kMaxStages, "as the number of a stage");
  }
  void operator()(const StepReply& m) {
    at_most(m.samples.size(), kMaxRowsPerStep, "samples");
    for (const Sample& s : m.samples) at_most(s.top.size(), kMaxTopLogprobs, "likeliest tokens");
    tensors(m.tensors);
  }
  void operator()(const Release& m) { at_most(m.sequences.size(), kMaxReleasedSequences, "sequences"); }
  void operator()(const Failure& m) { enumerator(m.error.code, Code::stale, "error code"); }
  // Numbers that may have any value, or nothing at all.
  void operator()(const HeartbeatReply&) {}
  void operator()(const Assigned&) {}
  void operator()(const Watch&) {}
  void operator()(const StatusRequest&) {}
  void operator()(const Shutdown&) {}
  void operator()(const Done&) {}
  void operator()(const Cancel&) {}
  void operator()(const Ping&) {}
  void operator()(const Pong&) {}

 private:
  template <class... Args>
  void refuse(Code code, fmt::format_string<Args...> format, Args&&... args) {
    if (status_) status_ = fail(code, format, std::forward<Args>(args)...);
  }

  Code otherwise_;
  Status status_;
};

}  // namespace

std::string_view role_name(Role r) {
  switch (r) {
    case Role::node:
      return "node";
    case Role::gateway:
      return "gateway";
    case Role::controller:
      return "controller";
    case Role::tool:
      return "tool";
  }
  return "process";
}

std::string_view node_state_name(NodeState s) {
  constexpr std::array<std::string_view, 6> names = {"joining", "loading", "ready", "spare", "failed", "lost"};
  const auto i = static_cast<std::size_t>(s);
  return i < names.size() ? names[i] : "unknown";
}

std::string_view fleet_state_name(FleetState s) {
  constexpr std::array<std::string_view, 4> names = {"waiting", "loading", "ready", "degraded"};
  const auto i = static_cast<std::size_t>(s);
  return i < names.size() ? names[i] : "unknown";
}

std::string_view message_name(const Message& m) {
  constexpr std::array<std::string_view, std::variant_size_v<Message>> names = {
      "Hello",      "Register",      "Registered",  "Heartbeat",   "HeartbeatReply", "Assign", "Assigned", "Watch",
      "PlanUpdate", "StatusRequest", "StatusReply", "KillRequest", "Shutdown",       "Done",   "Call",     "CallReply",
      "Step",       "StepReply",     "Release",     "Failure",     "Cancel",         "Ping",   "Pong"};
  return m.index() < names.size() ? names[m.index()] : "nothing";
}

Status check_message(const Message& message, Code otherwise) {
  Check check(otherwise);
  std::visit(check, message);
  return std::move(check).result();
}

std::vector<Activation>* tensors_of(Message& message) {
  return std::visit(
      [](auto& m) -> std::vector<Activation>* {
        if constexpr (requires { m.tensors; }) {
          return &m.tensors;
        } else {
          return nullptr;
        }
      },
      message);
}

const std::vector<Activation>* tensors_of(const Message& message) {
  return tensors_of(const_cast<Message&>(message));
}

}  // namespace myriad
