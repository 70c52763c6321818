#include "convert/budget.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/bytes.h"

namespace myriad {
namespace {

constexpr std::size_t kMostPairs = std::size_t{1} << 26;  // that one round may look at

using Chosen = std::vector<std::size_t>;
using Groups = std::span<const std::vector<Choice>>;

// Indices of a group's choices that lie on the lower convex hull, by ascending bytes and so by descending effect.
std::vector<std::size_t> hull_of(const std::vector<Choice>& choices) {
  std::vector<std::size_t> order(choices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return choices[a].bytes != choices[b].bytes ? choices[a].bytes < choices[b].bytes
                                                : choices[a].effect < choices[b].effect;
  });
  const auto slope = [&](std::size_t a, std::size_t b) {
    return (choices[b].effect - choices[a].effect) / static_cast<double>(choices[b].bytes - choices[a].bytes);
  };
  std::vector<std::size_t> hull;
  for (const std::size_t i : order) {
    if (!hull.empty() &&
        (choices[i].bytes == choices[hull.back()].bytes || choices[i].effect >= choices[hull.back()].effect))
      continue;
    while (hull.size() > 1 && slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), i)) hull.pop_back();
    hull.push_back(i);
  }
  return hull;
}

std::uint64_t bytes_of(Groups groups, const Chosen& chosen) {
  std::uint64_t sum = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) sum += groups[g][chosen[g]].bytes;
  return sum;
}

struct Step {
  std::size_t group = 0, choice = 0;
  std::int64_t bytes = 0;
  double effect = 0;
};

// The best single step within `room` bytes, else the best pair; false if none helps.
bool improve(Groups groups, Chosen& chosen, std::uint64_t& room) {
  std::vector<Step> steps;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t c = 0; c < groups[g].size(); ++c) {
      if (c == chosen[g]) continue;
      const Choice &now = groups[g][chosen[g]], &then = groups[g][c];
      steps.push_back({g, c, static_cast<std::int64_t>(then.bytes) - static_cast<std::int64_t>(now.bytes),
                       then.effect - now.effect});
    }
  const auto left = static_cast<std::int64_t>(room);
  const Step *first = nullptr, *second = nullptr;
  double best = 0;
  for (const Step& s : steps)
    if (s.bytes <= left && s.effect < best) {
      best = s.effect;
      first = &s;
    }
  if (first == nullptr && steps.size() <= kMostPairs / std::max<std::size_t>(steps.size(), 1))
    for (const Step& a : steps) {
      if (a.bytes >= 0) continue;
      for (const Step& b : steps)
        if (b.group != a.group && a.bytes + b.bytes <= left && a.effect + b.effect < best) {
          best = a.effect + b.effect;
          first = &a;
          second = &b;
        }
    }
  if (first == nullptr) return false;
  for (const Step* s : {first, second})
    if (s != nullptr) {
      chosen[s->group] = s->choice;
      room = static_cast<std::uint64_t>(static_cast<std::int64_t>(room) - s->bytes);
    }
  return true;
}

}  // namespace

Result<Chosen> choose_within(Groups groups, std::uint64_t budget) {
  std::vector<std::vector<std::size_t>> hulls;
  Chosen chosen;
  struct Move {
    double slope;
    std::size_t group, place;  // to hulls[group][place]
  };
  std::vector<Move> moves;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].empty()) return fail(Code::invalid_argument, "group {} has nothing to choose from", g);
    hulls.push_back(hull_of(groups[g]));
    const auto& hull = hulls.back();
    chosen.push_back(hull.front());
    for (std::size_t p = 1; p < hull.size(); ++p) {
      const Choice &a = groups[g][hull[p - 1]], &b = groups[g][hull[p]];
      moves.push_back({(b.effect - a.effect) / static_cast<double>(b.bytes - a.bytes), g, p});
    }
  }
  const std::uint64_t least = bytes_of(groups, chosen);
  if (least > budget)
    return fail(Code::does_not_fit, "a budget of {} bytes, but the smallest choices take {}", grouped(budget),
                grouped(least));
  // Along a hull slopes rise, so ascending order takes each group's moves one after the other.
  std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.slope < b.slope; });
  std::uint64_t room = budget - least;
  std::vector<std::size_t> reached(groups.size(), 0);
  for (const Move& m : moves) {
    const std::uint64_t more = groups[m.group][hulls[m.group][m.place]].bytes - groups[m.group][chosen[m.group]].bytes;
    if (more > room || reached[m.group] + 1 != m.place) continue;
    chosen[m.group] = hulls[m.group][m.place];
    reached[m.group] = m.place;
    room -= more;
  }
  while (improve(groups, chosen, room)) {
  }
  return chosen;
}

}  // namespace myriad
