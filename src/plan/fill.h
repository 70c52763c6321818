// Handing out items in a fixed order to bins of limited size, in shares that follow the bins' speed: the core of
// placement.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/account.h"

namespace myriad {

// Parts that move as one: one part, or the last half's ffn_lead with final_lead.
struct FillItem {
  std::uint32_t part = 0;
  std::uint32_t companion = UINT32_MAX;  // index of a second part, or none
  std::uint64_t bytes = 0;
  double work = 0;
  std::uint32_t group =
      0;  // 0 embed, h + 1 for half h, halves + 1 for the head: borders between bins are best between groups
  bool lead = false;
};

struct FillBin {
  std::uint64_t free = 0;
  double speed = 1;
  double load = 0;               // work that it has already
  std::uint64_t lead_extra = 0;  // what its first lead part costs beside its own bytes
  bool leads = false;            // has a lead part already

  [[nodiscard]] std::uint64_t cost(const FillItem& item) const {
    return add_saturating(item.bytes, item.lead && !leads ? lead_extra : 0);
  }
  [[nodiscard]] bool fits(const FillItem& item) const { return cost(item) <= free; }
  void take(const FillItem& item);
};

enum class FillTarget : std::uint8_t {
  work,    // shares of the work follow speed
  bytes,   // shares of the bytes follow speed: for fleets whose memory is nearly full
  memory,  // each bin to the brim
};

// Into how much each bin should be filled: max(0, min(speed · λ - load, room)), with the λ at which the sum is `total`.
// When the bins' rooms together are less than `total`, each gets its room.
std::vector<double> water_fill(std::span<const double> speeds, std::span<const double> loads,
                               std::span<const double> rooms, double total);

// How much of a bin's target may be given up, or taken in addition, to end at the border of a half-layer.
inline constexpr double kBorderTolerance = 1.0 / 3;

// Contiguous pass. `into[i]` becomes the bin of item i or kNoBin. Bins are changed as items are taken. `most` [bins]:
// bytes that a bin takes at most, though it has room for more; empty: all that fits.
inline constexpr std::uint32_t kNoBin = UINT32_MAX;
void fill_contiguously(std::span<const FillItem> items, std::span<FillBin> bins, FillTarget target,
                       std::vector<std::uint32_t>& into, double tolerance = kBorderTolerance,
                       std::span<const std::uint64_t> most = {});

// Contiguous, in runs that end at borders of half-layers (or anywhere among embedding and head), bin b with at most
// most[b] bytes: of all such runs those whose heaviest, for its bin's speed, is the lightest. False, and nothing
// changes, if there are none.
bool fill_whole_halves(std::span<const FillItem> items, std::vector<FillBin>& bins, std::span<const std::uint64_t> most,
                       std::vector<std::uint32_t>& into);

// Largest item first, each into the smallest room that takes it; only those with into[i] == kNoBin. False if one is
// left over.
bool fill_gaps(std::span<const FillItem> items, std::span<FillBin> bins, std::vector<std::uint32_t>& into);

}  // namespace myriad
