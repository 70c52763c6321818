#include "plan/advice.h"

#include <algorithm>
#include <optional>

#include "plan/search.h"

namespace myriad {
namespace {

// Trials take longer than a person should wait beyond this many parts times nodes.
constexpr std::uint64_t kTrialLimit = 2'000'000;
constexpr std::uint64_t kMegabyte = 1 << 20;
constexpr std::uint32_t kSmallestContext = 256;

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return add_saturating(value, to - 1) / to * to;
}

class Adviser {
 public:
  Adviser(const CostSheet& costs, std::span<const NodeOffer> offers)
      : costs_(costs), offers_(offers.begin(), offers.end()) {
    trials_ = multiply_saturating(costs.parts().size(), offers.size()) <= kTrialLimit;
    for (const PartCost& cost : costs.parts()) largest_ = std::max(largest_, cost.bytes());
  }

  // "add 3 nodes of 256.0 MiB", or nothing if that is no help.
  [[nodiscard]] std::optional<std::string> more_nodes() const {
    std::vector<NodeOffer> by_memory = offers_;
    std::nth_element(by_memory.begin(), by_memory.begin() + static_cast<std::ptrdiff_t>(by_memory.size() / 2),
                     by_memory.end(),
                     [](const NodeOffer& a, const NodeOffer& b) { return a.memory_bytes < b.memory_bytes; });
    const NodeOffer middle = by_memory[by_memory.size() / 2];
    const std::uint64_t room = (Bytes{middle.usable()} - Bytes{costs_.helper_work()}).value;
    if (room == 0) return {};
    const std::uint64_t missing = shortfall(costs_, offers_).missing();
    std::uint64_t count = std::max<std::uint64_t>(1, (missing + room - 1) / room);
    if (!trials_)
      return room < largest_ ? std::nullopt : std::optional(sentence(round_up(count + count / 20, 1), middle));
    for (int trial = 0; trial < 12 && count <= 100'000; ++trial, count += 1 + count / 8) {
      std::vector<NodeOffer> more = offers_;
      for (std::uint64_t i = 0; i < count; ++i) {
        more.push_back(middle);
        more.back().id.value = fmt::format("\x7f{}", i);  // after every real name
        more.back().held.clear();
      }
      if (fits(costs_, more)) return sentence(count, middle);
    }
    return {};
  }

  // "raise --node-memory to 310.0 MiB": nodes with less are raised to it.
  [[nodiscard]] std::optional<std::string> more_memory() const {
    const auto raised = [&](std::uint64_t memory) {
      std::vector<NodeOffer> nodes = offers_;
      for (NodeOffer& node : nodes) {
        if (node.memory_bytes >= memory) continue;
        const double headroom = node.memory_bytes == 0
                                    ? 0
                                    : static_cast<double>(node.headroom_bytes) / static_cast<double>(node.memory_bytes);
        node.memory_bytes = memory;
        node.headroom_bytes = static_cast<std::uint64_t>(headroom * static_cast<double>(memory));
      }
      return nodes;
    };
    const auto enough = [&](std::uint64_t memory) {
      const std::vector<NodeOffer> nodes = raised(memory);
      if (trials_) return fits(costs_, nodes);
      std::uint64_t largest_room = 0;
      for (const NodeOffer& node : nodes)
        largest_room = std::max(largest_room, (Bytes{node.usable()} - Bytes{costs_.lead_work()}).value);
      return shortfall(costs_, nodes).missing() == 0 && largest_room >= largest_;
    };
    std::uint64_t low = 0, high = kMegabyte;
    while (high < (std::uint64_t{1} << 50) && !enough(high)) {
      low = high;
      high *= 2;
    }
    if (high >= (std::uint64_t{1} << 50)) return {};
    while (high - low > std::max<std::uint64_t>(kMegabyte, high / 64)) {
      const std::uint64_t middle = low + (high - low) / 2;
      (enough(middle) ? high : low) = middle;
    }
    high = round_up(high, kMegabyte);
    return fmt::format("raise --node-memory to {}MiB", high / kMegabyte);
  }

  [[nodiscard]] std::optional<std::string> less_context() const {
    if (costs_.state_bytes() == 0) return {};
    const auto enough = [&](std::uint32_t context) {
      Budget budget = costs_.budget();
      budget.context = context;
      return fits_or_seems_to(costs_.with_budget(budget));
    };
    std::uint32_t low = kSmallestContext, high = costs_.budget().context / kSmallestContext * kSmallestContext;
    if (high <= low || !enough(low)) return {};
    while (high - low > kSmallestContext) {  // enough(low), perhaps not enough(high)
      const std::uint32_t middle = (low + (high - low) / 2) / kSmallestContext * kSmallestContext;
      (enough(middle) ? low : high) = middle;
    }
    return fmt::format("lower --context to {}", low);
  }

  [[nodiscard]] std::optional<std::string> fewer_sequences() const {
    if (costs_.state_bytes() == 0) return {};
    std::uint32_t low = 0, high = costs_.budget().sequences;
    while (high - low > 1) {
      const std::uint32_t middle = low + (high - low) / 2;
      Budget budget = costs_.budget();
      budget.sequences = middle;
      (fits_or_seems_to(costs_.with_budget(budget)) ? low : high) = middle;
    }
    if (low == 0) return {};
    return fmt::format("lower --sequences to {}", low);
  }

 private:
  static std::string sentence(std::uint64_t count, const NodeOffer& like) {
    return fmt::format("add {} node{} of {}", count, count == 1 ? "" : "s", human({like.memory_bytes}));
  }
  static bool fits(const CostSheet& costs, std::span<const NodeOffer> nodes) {
    std::vector<std::uint32_t> owner;
    return search_placement(costs, nodes, owner);
  }
  [[nodiscard]] bool fits_or_seems_to(const CostSheet& costs) const {
    return trials_ ? fits(costs, offers_) : shortfall(costs, offers_).missing() == 0;
  }

  const CostSheet& costs_;
  std::vector<NodeOffer> offers_;
  bool trials_ = false;
  std::uint64_t largest_ = 0;
};

}  // namespace

Shortfall shortfall(const CostSheet& costs, std::span<const NodeOffer> offers) {
  Shortfall s;
  s.parts = costs.part_bytes();
  s.state = costs.state_bytes();
  s.buffers = costs.lead_work();
  if (offers.size() > 1)
    s.buffers = add_saturating(s.buffers, multiply_saturating(offers.size() - 1, costs.helper_work()));
  for (const NodeOffer& offer : offers) s.offered = add_saturating(s.offered, offer.usable());
  return s;
}

Error does_not_fit(const CostSheet& costs, std::span<const NodeOffer> offers) {
  const Shortfall s = shortfall(costs, offers);
  const Budget& budget = costs.budget();
  std::string text = fmt::format(
      "the model does not fit: it wants {} (parts {}, attention state {} for {} sequence{} of {} positions, buffers "
      "{}); {} node{} offer{} {}",
      human({s.wanted()}), human({s.parts}), human({s.state}), budget.sequences, budget.sequences == 1 ? "" : "s",
      budget.context, human({s.buffers}), offers.size(), offers.size() == 1 ? "" : "s", offers.size() == 1 ? "s" : "",
      human({s.offered}));
  if (s.missing() > 0) text += fmt::format(", {} are missing", human({s.missing()}));
  std::uint64_t room = 0;
  for (const NodeOffer& offer : offers)
    room = std::max(room, (Bytes{offer.usable()} - Bytes{costs.helper_work()}).value);
  std::size_t largest = 0;
  for (std::size_t p = 0; p < costs.parts().size(); ++p)
    if (costs.parts()[p].bytes() > costs.parts()[largest].bytes()) largest = p;
  std::string part;
  if (!costs.parts().empty() && costs.parts()[largest].bytes() > room) {
    const PartCost& cost = costs.parts()[largest];
    part = costs.part_name(largest);
    text += fmt::format(", {} the part {} alone takes {} (of which state {}) and no node has more than {} for parts",
                        s.missing() > 0 ? "and" : "but", part, human({cost.bytes()}), human({cost.state_bytes}),
                        human({room}));
    if (cost.part_bytes > room) text += "; cut the model into smaller parts";
  } else if (s.missing() == 0) {
    text += ", but the parts cannot be divided among the nodes so that each keeps to its memory";
  }
  const Adviser adviser(costs, offers);
  std::string advice;
  for (const auto& suggestion :
       {adviser.more_nodes(), adviser.more_memory(), adviser.less_context(), adviser.fewer_sequences()})
    if (suggestion) advice += (advice.empty() ? "; " : ", or ") + *suggestion;
  return Error{Code::does_not_fit, text + advice, {}, part};
}

}  // namespace myriad
