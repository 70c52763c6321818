// The parts that this process holds, with the attention state of the sequences that run through them, and their
// execution: for calls from other nodes and for the stages that this node leads. One thread at a time.
//
// Slots and pages of the budget belong to whoever comes, and several gateways may: each keeps within the budget by
// itself, together they may want more. Where no room is left, a sequence that begins takes that of a copy which nobody
// has begun as yet (of a prompt, or from before a guess), the one used longest ago first; nobody takes a running
// sequence's unless it seems forgotten. A gateway that was refused and has fewer sequences here than another comes
// before that one when there is room again. What had to give way is not_found from then on: its gateway computes it
// again.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/thread_pool.h"
#include "model/layer.h"
#include "part/part_run.h"
#include "proto/messages.h"

namespace myriad {

inline constexpr std::size_t kRememberedReleases = 1024;  // sequences whose late calls are refused
// When no slot is free, the sequence that was used longest ago gives its slot up, if nothing came for it in this time:
// a Release can be lost with a connection, and a gateway can die. A live one is not hit: where steps are slow, it takes
// kReclaimSteps of the longest time between two of its steps so far.
inline constexpr Nanos kReclaimIdle = std::chrono::seconds(2);
inline constexpr int kReclaimSteps = 4;
inline constexpr Nanos kSlowestStep = std::chrono::seconds(10);  // that counts for this
inline constexpr Nanos kWaitingLasts = std::chrono::seconds(1);  // a gateway that was refused and has not come again
inline constexpr std::size_t kMostWaiting = 64;                  // gateways that come first

class PartExecutor {
 public:
  // All referenced objects must outlive this one.
  PartExecutor(const Graph& graph, Profile profile, Budget budget, const Kernels& kernels, ThreadPool& pool);

  // Takes a loaded part under its index in the plan, and allocates the states and cache pages of the budget for it if
  // it has any. Errors: does_not_fit.
  Status add(std::uint32_t index, Part part);
  // Gives a part back, without its state.
  std::optional<Part> take(std::uint32_t index);
  [[nodiscard]] const Part* find(std::uint32_t index) const;
  [[nodiscard]] const std::map<OpRef, LeadVectors>& leads() const { return leads_; }
  [[nodiscard]] std::uint64_t part_bytes() const { return part_bytes_; }
  [[nodiscard]] std::uint64_t state_bytes() const { return state_bytes_; }

  // Items of a round; take(i, output) once for each. Errors name the part: not_found (no such part here, or no such
  // sequence, or none that another can begin as, or one that gave way), busy (no room for another sequence or page),
  // limit (the context ends), stale (a position other than the next, or a released sequence), and those of PartRunner;
  // then some items may not have been taken.
  struct Item {
    std::uint32_t part;  // its index in the plan
    std::span<const Activation* const> inputs;
    std::span<const std::uint16_t> rows;  // of the inputs (for embed: of the tokens); empty: all
    HeadWant want;
  };
  Status run(std::span<const Item> items, std::span<const SequenceRows> sequences, std::span<const std::int32_t> tokens,
             const std::function<void(std::size_t, Activation)>& take);
  [[nodiscard]] ThreadPool& pool() const { return runner_.pool(); }
  // The present time, for reclaiming slots; before each call or step.
  void set_time(Nanos now) { now_ = now; }
  // A helper's whole call. Errors besides: limit, when it has more rows than a step or its answer would not fit a
  // frame.
  Result<CallReply> execute(const Call& call);

  // Forgets sequences; their slots are free for others. Returns those that had not been released before.
  std::vector<SequenceId> release(std::span<const SequenceId> sequences);
  [[nodiscard]] std::size_t sequences() const { return slots_.size(); }

 private:
  struct Entry {
    Part part;
    AlignedBuffer state, pool;  // state_slots(budget) times slot_bytes; pages_.count times page_bytes
    std::uint64_t slot_bytes = 0, page_bytes = 0;
    std::vector<std::uint32_t> next;  // next position by slot
    [[nodiscard]] bool recurrent() const { return slot_bytes != 0; }
    [[nodiscard]] std::byte* slot(std::size_t i) { return state.data() + i * slot_bytes; }
    [[nodiscard]] std::byte* page(std::uint32_t i) { return pool.data() + i * page_bytes; }
  };
  [[nodiscard]] std::uint64_t answer_row_bytes(const Part& part, HeadWant want) const;  // in a frame
  [[nodiscard]] Result<Activation> embed(const Entry& entry, const Item& item,
                                         std::span<const std::int32_t> tokens) const;
  Result<Activation> attend(Entry& entry, std::span<const Activation* const> inputs,
                            std::span<const SequenceRows> sequences);
  // The slot of a sequence whose rows come; takes a free one if it begins here.
  Result<std::size_t> slot_of(const SequenceRows& rows);
  // For a sequence that begins, or a copy for later.
  Result<std::size_t> take_slot(SequenceId sequence, bool copy);
  // `to` begins as the sequence in slot `from` is at `position`: the pages are shared until somebody writes to them.
  Status copy_sequence(std::size_t from, std::uint32_t position, SequenceId to, bool copy);
  // Gives a slot pages of its own for positions [first, last).
  Status own_pages(std::size_t slot, std::uint32_t first, std::uint32_t last);
  Result<std::uint32_t> take_page();
  void drop_page(std::uint32_t page);
  struct Slot {
    std::size_t index = 0;
    Nanos used{};
    Nanos gap{};        // the longest between two of its steps; at first half of another one's
    bool copy = false;  // made for later, and nobody has begun as it yet
  };
  // Whether it gives way to a copy, or to a sequence that begins.
  [[nodiscard]] bool gives_way(const Slot& slot, bool to_copy) const;
  // Forgets whoever gives way and was used longest ago; false if there is none.
  bool make_room(bool for_copy);
  void touch(const SequenceRows& rows);
  void free_slot(SequenceId sequence);
  // Gateways that wait for a slot and have fewer sequences here than `gateway`.
  [[nodiscard]] std::size_t waiting_before(std::uint64_t gateway) const;

  const Graph& graph_;
  Profile profile_;
  Budget budget_;
  PartRunner runner_;
  std::map<std::uint32_t, std::unique_ptr<Entry>> parts_;
  std::map<OpRef, LeadVectors> leads_;
  std::unordered_map<SequenceId, Slot> slots_;
  Nanos now_{}, pace_{};                    // pace_: the gap of whoever was used last
  std::map<std::uint64_t, Nanos> waiting_;  // gateways that were refused a slot, and when last
  std::vector<std::size_t> free_slots_;
  CachePages pages_;
  std::vector<std::vector<std::uint32_t>> slot_pages_;  // by slot, in order of positions
  std::vector<std::uint32_t> page_users_, free_pages_;  // empty until a part has a cache
  std::deque<SequenceId> released_, gave_way_;
  std::uint64_t part_bytes_ = 0, state_bytes_ = 0;
};

}  // namespace myriad
