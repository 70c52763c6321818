#include "plan/fill.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace myriad {
namespace {

// How many bins that were too small for an earlier item are tried again for a later one.
constexpr std::size_t kLookBack = 64;

double measure(const FillItem& item, FillTarget target) {
  return target == FillTarget::work ? item.work : static_cast<double>(item.bytes);
}

// One run of items [begin, end) for one bin.
class BorderFinder {
 public:
  BorderFinder(std::span<const FillItem> items, FillTarget target, double tolerance)
      : items_(items), target_(target), tolerance_(tolerance) {}

  // Where a bin that took [begin, end) had better stop, up to the end of the group that `end` lies in. It stopped at
  // `end` because it was `full`, or because it had `wanted`. `room` is what it has left after [begin, end).
  [[nodiscard]] std::size_t best(std::size_t begin, std::size_t end, double wanted, bool full, std::uint64_t room,
                                 std::uint64_t lead_cost) const {
    if (end >= items_.size() || end == begin || items_[end].group != items_[end - 1].group) return end;
    const std::uint32_t group = items_[end].group;
    std::size_t back = end;
    double removed = 0;
    while (back > begin && items_[back - 1].group == group) removed += measure(items_[--back], target_);
    std::size_t forward = end;
    double added = 0;
    std::uint64_t bytes = 0;
    bool room_left = true;
    while (forward < items_.size() && items_[forward].group == group && room_left) {
      bytes = add_saturating(bytes, add_saturating(items_[forward].bytes, items_[forward].lead ? lead_cost : 0));
      room_left = bytes <= room;
      added += measure(items_[forward++], target_);
    }
    const double tolerance = tolerance_ * wanted;
    const bool can_go_back = back > begin && removed <= tolerance;
    const bool can_go_on = room_left && added <= tolerance;
    if (can_go_on && (!can_go_back || added <= removed)) return forward;
    if (can_go_back) return back;
    // The half is split. Its lead should at least hold some of it; another bin will want more than this one.
    std::size_t stop = end;
    while (!full && stop > begin && items_[stop - 1].lead && items_[stop - 1].group == group) --stop;
    return stop;
  }

 private:
  std::span<const FillItem> items_;
  FillTarget target_;
  double tolerance_;
};

}  // namespace

void FillBin::take(const FillItem& item) {
  free -= cost(item);
  load += item.work;
  leads |= item.lead;
}

std::vector<double> water_fill(std::span<const double> speeds, std::span<const double> loads,
                               std::span<const double> rooms, double total) {
  const std::size_t n = speeds.size();
  std::vector<double> shares(n);
  const auto at = [&](double level) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      shares[i] = std::clamp(speeds[i] * level - loads[i], 0.0, rooms[i]);
      sum += shares[i];
    }
    return sum;
  };
  if (std::accumulate(rooms.begin(), rooms.end(), 0.0) <= total) return {rooms.begin(), rooms.end()};
  double low = 0, high = 0;
  for (std::size_t i = 0; i < n; ++i) high = std::max(high, (loads[i] + rooms[i]) / speeds[i]);
  for (int step = 0; step < 100; ++step) {
    const double level = (low + high) / 2;
    (at(level) < total ? low : high) = level;
  }
  at(high);
  return shares;
}

void fill_contiguously(std::span<const FillItem> items, std::span<FillBin> bins, FillTarget target,
                       std::vector<std::uint32_t>& into, double tolerance, std::span<const std::uint64_t> most) {
  into.assign(items.size(), kNoBin);
  double left = 0, bytes = 0;
  for (const FillItem& item : items) {
    left += measure(item, target);
    bytes += static_cast<double>(item.bytes);
  }
  std::vector<double> shares(bins.size(), 0);
  double shares_left = 0;
  {
    std::vector<double> speeds, loads, rooms;
    const double density = bytes > 0 ? left / bytes : 0;  // from room in bytes to room in units of the target
    for (const FillBin& bin : bins) {
      speeds.push_back(bin.speed);
      loads.push_back(target == FillTarget::work ? bin.load : 0);
      rooms.push_back(static_cast<double>(bin.free) * density);
    }
    if (target != FillTarget::memory) shares = water_fill(speeds, loads, rooms, left);
    shares_left = std::accumulate(shares.begin(), shares.end(), 0.0);
  }
  const BorderFinder borders(items, target, tolerance);
  std::vector<std::uint32_t> waiting;  // bins passed over because the next item was too large for them
  std::uint32_t fresh = 0;
  // The first bin, in order, that has not had its turn and takes items[next]; kNoBin if there is none.
  const auto choose = [&](const FillItem& item) {
    for (std::size_t w = 0; w < std::min(waiting.size(), kLookBack); ++w) {
      if (!bins[waiting[w]].fits(item)) continue;
      const std::uint32_t bin = waiting[w];
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(w));
      return bin;
    }
    while (fresh < bins.size()) {
      if (bins[fresh].fits(item)) return fresh++;
      waiting.push_back(fresh++);
    }
    return kNoBin;
  };
  std::size_t next = 0, turns = bins.size();
  while (next < items.size()) {
    const std::uint32_t b = choose(items[next]);
    if (b == kNoBin) break;
    FillBin& bin = bins[b];
    const bool unbounded = target == FillTarget::memory || --turns == 0;
    const double wanted = unbounded ? left : shares_left > 0 ? left * shares[b] / shares_left : 0;
    shares_left -= shares[b];
    // First on paper, then for good, because the border may move.
    FillBin trial = bin;
    if (!most.empty()) trial.free = std::min(trial.free, add_saturating(most[b], bin.leads ? 0 : bin.lead_extra));
    double taken = 0;
    std::size_t end = next;
    bool full = false;
    while (end < items.size() && !full) {
      if (!unbounded && taken + measure(items[end], target) / 2 > wanted) break;
      full = !trial.fits(items[end]);
      if (full) break;
      trial.take(items[end]);
      taken += measure(items[end++], target);
    }
    if (end == next) continue;  // what this bin may take is less than one item
    if (target != FillTarget::memory && !(unbounded && full))
      end = borders.best(next, end, wanted, full, trial.free, trial.leads ? 0 : trial.lead_extra);
    for (; next < end; ++next) {
      bin.take(items[next]);
      into[next] = b;
      left -= measure(items[next], target);
    }
  }
}

namespace {

// Runs of whole halves, none heavier than speed · level; false if the bins end before the items do.
bool fill_to_level(std::span<const FillItem> items, std::span<FillBin> bins, std::span<const std::uint64_t> most,
                   double level, std::vector<std::uint32_t>& into) {
  const std::uint32_t head = items.back().group;
  std::size_t next = 0;
  for (std::uint32_t b = 0; b < bins.size() && next < items.size(); ++b) {
    FillBin& bin = bins[b];
    std::uint64_t bytes = 0;
    while (next < items.size()) {
      const std::uint32_t group = items[next].group;
      std::size_t end = next + 1;
      while (group != 0 && group != head && end < items.size() && items[end].group == group) ++end;
      FillBin trial = bin;
      std::uint64_t sum = bytes;
      bool fits = true;
      for (std::size_t i = next; i < end && fits; ++i) {
        fits = trial.fits(items[i]);
        if (!fits) break;
        trial.take(items[i]);
        sum += items[i].bytes;
      }
      if (!fits || sum > most[b] || trial.load > bin.speed * level) break;
      for (; next < end; ++next) into[next] = b;
      bin = trial;
      bytes = sum;
    }
  }
  return next == items.size();
}

}  // namespace

bool fill_whole_halves(std::span<const FillItem> items, std::vector<FillBin>& bins, std::span<const std::uint64_t> most,
                       std::vector<std::uint32_t>& into) {
  if (items.empty()) return false;
  double low = 0, high = 0;
  for (const FillItem& item : items) high += item.work;
  for (const FillBin& bin : bins) high = std::max(high, bin.load + high);
  double slowest = 1;
  for (const FillBin& bin : bins) slowest = std::min(slowest, bin.speed);
  high /= slowest;
  std::vector<FillBin> best;
  std::vector<std::uint32_t> where(items.size(), kNoBin);
  constexpr int kSteps = 50;
  for (int step = 0; step < kSteps; ++step) {
    const double level = step == 0 ? high : (low + high) / 2;
    std::vector<FillBin> trial = bins;
    if (fill_to_level(items, trial, most, level, where)) {
      best = std::move(trial);
      into = where;
      high = level;
    } else if (step == 0) {
      return false;
    } else {
      low = level;
    }
  }
  bins = std::move(best);
  return true;
}

bool fill_gaps(std::span<const FillItem> items, std::span<FillBin> bins, std::vector<std::uint32_t>& into) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (into[i] == kNoBin) order.push_back(i);
  if (order.empty()) return true;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return items[a].bytes > items[b].bytes; });
  std::set<std::pair<std::uint64_t, std::uint32_t>> gaps, lead_gaps;  // of all bins; of those that lead already
  for (std::uint32_t b = 0; b < bins.size(); ++b) {
    gaps.emplace(bins[b].free, b);
    if (bins[b].leads) lead_gaps.emplace(bins[b].free, b);
  }
  bool all = true;
  for (const std::size_t i : order) {
    const FillItem& item = items[i];
    auto chosen = gaps.end();
    if (item.lead) {
      if (const auto gap = lead_gaps.lower_bound({item.bytes, 0}); gap != lead_gaps.end()) chosen = gaps.find(*gap);
    }
    if (chosen == gaps.end()) {
      chosen = gaps.lower_bound({item.bytes, 0});
      while (chosen != gaps.end() && !bins[chosen->second].fits(item)) ++chosen;
    }
    if (chosen == gaps.end()) {
      all = false;
      continue;
    }
    const std::uint32_t b = chosen->second;
    lead_gaps.erase(*chosen);
    gaps.erase(chosen);
    bins[b].take(item);
    into[i] = b;
    gaps.emplace(bins[b].free, b);
    if (bins[b].leads) lead_gaps.emplace(bins[b].free, b);
  }
  return all;
}

}  // namespace myriad
