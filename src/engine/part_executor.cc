#include "engine/part_executor.h"

#include <algorithm>
#include <cstring>

namespace myriad {

PartExecutor::PartExecutor(const Graph& graph, Profile profile, Budget budget, const Kernels& kernels, ThreadPool& pool)
    : graph_(graph),
      profile_(profile),
      budget_(budget),
      runner_(graph, profile, budget.cache, kernels, pool),
      pages_(cache_pages(budget)),
      slot_pages_(state_slots(budget)) {
  for (std::size_t i = state_slots(budget); i > 0; --i) free_slots_.push_back(i - 1);
}

Status PartExecutor::add(std::uint32_t index, Part part) {
  auto entry = std::make_unique<Entry>(Entry{std::move(part), {}, {}, 0, 0, {}});
  const Operator& op = entry->part.op();
  const PartSpec& spec = entry->part.spec();
  if (has_state(op.kind)) {
    const std::uint32_t units = spec.units();
    entry->slot_bytes = (op.state_bytes(units) + 63) / 64 * 64;
    entry->page_bytes = (op.state_bytes_per_position(units, runner_.cache_of(op)) * pages_.positions + 63) / 64 * 64;
    if (attention_state_bytes(op, units, profile_, budget_) > std::uint64_t{1} << 48)
      return fail(Code::does_not_fit, "the attention state of {} sequences of {} positions in {} would take {} bytes",
                  state_slots(budget_), budget_.context, spec.name(),
                  attention_state_bytes(op, units, profile_, budget_));
    const std::string what =
        fmt::format("the attention state of {} sequences in {}", state_slots(budget_), spec.name());
    if (entry->slot_bytes != 0) {
      MYRIAD_TRY(entry->state, AlignedBuffer::allocate(entry->slot_bytes * state_slots(budget_), what));
    }
    if (entry->page_bytes != 0) {
      MYRIAD_TRY(entry->pool, AlignedBuffer::allocate(entry->page_bytes * pages_.count, what));
      if (page_users_.empty()) {  // never larger than a small part of the pool
        page_users_.assign(pages_.count, 0);
        for (std::uint64_t i = pages_.count; i > 0; --i) free_pages_.push_back(static_cast<std::uint32_t>(i - 1));
      }
    }
    entry->next.assign(state_slots(budget_), 0);
  }
  if (op.kind == OpKind::lead) {
    LeadVectors& lead = leads_[spec.op];
    for (const auto& v : entry->part.vectors()) lead.vectors[v.role].assign(v.values.begin(), v.values.end());
  }
  part_bytes_ += entry->part.bytes();
  state_bytes_ += entry->state.size() + entry->pool.size();
  parts_[index] = std::move(entry);
  return {};
}

std::optional<Part> PartExecutor::take(std::uint32_t index) {
  const auto it = parts_.find(index);
  if (it == parts_.end()) return std::nullopt;
  part_bytes_ -= it->second->part.bytes();
  state_bytes_ -= it->second->state.size() + it->second->pool.size();
  Part part = std::move(it->second->part);
  if (part.op().kind == OpKind::lead) leads_.erase(part.spec().op);
  parts_.erase(it);
  return part;
}

const Part* PartExecutor::find(std::uint32_t index) const {
  const auto it = parts_.find(index);
  return it == parts_.end() ? nullptr : &it->second->part;
}

bool PartExecutor::gives_way(const Slot& slot, bool to_copy) const {
  const Nanos idle = now_ - slot.used;
  return idle >= std::max(kReclaimIdle, kReclaimSteps * slot.gap) || (slot.copy && !to_copy && idle.count() > 0);
}

bool PartExecutor::make_room(bool for_copy) {
  auto oldest = slots_.end();
  for (auto it = slots_.begin(); it != slots_.end(); ++it)
    if (gives_way(it->second, for_copy) && (oldest == slots_.end() || it->second.used < oldest->second.used))
      oldest = it;
  if (oldest == slots_.end()) return false;
  gave_way_.push_back(oldest->first);
  if (gave_way_.size() > kRememberedReleases) gave_way_.pop_front();
  free_slot(oldest->first);
  return true;
}

// What a call names is used now, so that none of it gives way to the rest.
void PartExecutor::touch(const SequenceRows& rows) {
  for (const SequenceId id : {rows.from, rows.keep})
    if (const auto it = slots_.find(id); it != slots_.end()) it->second.used = now_;
  const auto it = slots_.find(rows.sequence);
  if (it == slots_.end()) return;
  Slot& slot = it->second;
  pace_ = slot.gap = std::max(slot.gap, std::min(now_ - slot.used, kSlowestStep));
  slot.used = now_;
  slot.copy = false;
}

std::size_t PartExecutor::waiting_before(std::uint64_t gateway) const {
  const auto running = [&](std::uint64_t of) {
    return std::ranges::count_if(slots_, [&](const auto& s) { return !s.second.copy && gateway_of(s.first) == of; });
  };
  const auto mine = running(gateway);
  return static_cast<std::size_t>(std::ranges::count_if(waiting_, [&](const auto& w) {
    return w.first != gateway && now_ - w.second < kWaitingLasts && running(w.first) < mine;
  }));
}

Result<std::size_t> PartExecutor::take_slot(SequenceId sequence, bool copy) {
  const std::uint64_t gateway = gateway_of(sequence);
  const auto room = free_slots_.size() + static_cast<std::size_t>(std::ranges::count_if(
                                             slots_, [&](const auto& s) { return gives_way(s.second, copy); }));
  const std::size_t before = waiting_before(gateway);
  if (room <= before) {
    if (!copy) {
      std::erase_if(waiting_, [&](const auto& w) { return now_ - w.second >= kWaitingLasts; });
      if (waiting_.size() < kMostWaiting || waiting_.contains(gateway)) waiting_[gateway] = now_;
    }
    if (room > 0)
      return fail(Code::busy,
                  "no room for another sequence of this gateway: {} run here, and another gateway that has fewer waits "
                  "for what is free; wait, or give the fleet a larger --sequences",
                  slots_.size());
    return fail(Code::busy,
                "no room for another sequence: {} run or are kept already; wait, or give the fleet a larger "
                "--sequences",
                slots_.size());
  }
  if (!copy) waiting_.erase(gateway);
  if (free_slots_.empty()) make_room(copy);
  const std::size_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[sequence] = {slot, now_, pace_ / 2, copy};
  return slot;
}

Result<std::size_t> PartExecutor::slot_of(const SequenceRows& rows) {
  const auto missing = [&](SequenceId id) {
    if (std::find(gave_way_.begin(), gave_way_.end(), id) != gave_way_.end())
      return fail(Code::not_found,
                  "sequence {:x} gave its room on this node to another one; the request must start again", id.value);
    return fail(Code::not_found, "sequence {:x} has no attention state here; the request must start again", id.value);
  };
  const SequenceId id = rows.sequence;
  std::size_t slot = 0;
  if (const auto it = slots_.find(id); it != slots_.end()) {
    slot = it->second.index;
  } else {
    if (std::find(released_.begin(), released_.end(), id) != released_.end())
      return fail(Code::stale, "sequence {:x} was released already", id.value);
    if (std::find(gave_way_.begin(), gave_way_.end(), id) != gave_way_.end()) return missing(id);
    if (rows.from.value != 0) {
      const auto source = slots_.find(rows.from);
      if (source == slots_.end()) return missing(rows.from);
      MYRIAD_TRY_STATUS(copy_sequence(source->second.index, rows.first_position, id, false));
      slot = slots_.at(id).index;
    } else {
      if (rows.first_position != 0) return missing(id);
      MYRIAD_TRY(slot, take_slot(id, false));
    }
  }
  // A copy for later is a convenience: where there is no room for it, or it had to give way, whoever asks for it is
  // told to start again.
  if (rows.keep.value != 0 && !slots_.contains(rows.keep))
    (void)copy_sequence(slot, rows.first_position, rows.keep, true);
  return slot;
}

Status PartExecutor::copy_sequence(std::size_t from, std::uint32_t position, SequenceId to, bool copy) {
  for (const auto& [index, entry] : parts_) {
    if (!has_state(entry->part.op().kind)) continue;
    const std::uint32_t next = entry->next[from];
    if (entry->recurrent() ? next != position : next < position)
      return fail(Code::not_found,
                  "sequence {:x} cannot begin at position {} as another one: that stands at {}; the request must start "
                  "again",
                  to.value, position, next);
  }
  MYRIAD_TRY(const std::size_t slot, take_slot(to, copy));
  for (auto& [index, entry] : parts_) {
    if (!has_state(entry->part.op().kind)) continue;
    if (entry->recurrent()) std::memcpy(entry->slot(slot), entry->slot(from), entry->slot_bytes);
    entry->next[slot] = position;
  }
  const std::uint64_t shared = std::min<std::uint64_t>(pages_.for_positions(position), slot_pages_[from].size());
  slot_pages_[slot].assign(slot_pages_[from].begin(), slot_pages_[from].begin() + static_cast<std::ptrdiff_t>(shared));
  for (const auto page : slot_pages_[slot]) ++page_users_[page];
  return {};
}

Result<std::uint32_t> PartExecutor::take_page() {
  while (free_pages_.empty())
    if (!make_room(false))
      return fail(Code::busy,
                  "no room in the caches: all {} pages of {} positions are in use; wait, or give the fleet more "
                  "--cache-positions",
                  pages_.count, pages_.positions);
  const std::uint32_t page = free_pages_.back();
  free_pages_.pop_back();
  page_users_[page] = 1;
  return page;
}

void PartExecutor::drop_page(std::uint32_t page) {
  if (--page_users_[page] == 0) free_pages_.push_back(page);
}

Status PartExecutor::own_pages(std::size_t slot, std::uint32_t first, std::uint32_t last) {
  if (page_users_.empty()) return {};  // no part here has a cache
  auto& mine = slot_pages_[slot];
  for (std::uint64_t i = first / pages_.positions; i < pages_.for_positions(last); ++i) {
    if (i < mine.size() && page_users_[mine[i]] == 1) continue;
    MYRIAD_TRY(const std::uint32_t fresh, take_page());
    if (i >= mine.size()) {
      mine.push_back(fresh);
      continue;
    }
    for (auto& [index, entry] : parts_)
      if (entry->page_bytes != 0) std::memcpy(entry->page(fresh), entry->page(mine[i]), entry->page_bytes);
    drop_page(mine[i]);
    mine[i] = fresh;
  }
  return {};
}

Result<Activation> PartExecutor::attend(Entry& entry, std::span<const Activation* const> inputs,
                                        std::span<const SequenceRows> sequences) {
  if (sequences.empty()) return fail(Code::invalid_argument, "attention without a sequence");
  std::vector<AttentionState> states(sequences.size());
  std::vector<SequenceSlice> slices(sequences.size());
  std::vector<std::size_t> slots(sequences.size());
  std::vector<std::vector<std::byte*>> pages(sequences.size());
  for (const SequenceRows& s : sequences) touch(s);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const SequenceRows& s = sequences[i];
    if (s.rows > budget_.context || s.first_position > budget_.context - s.rows)
      return fail(Code::limit,
                  "positions {} to {} of a sequence; the context budget is {}: raise --context to {} or more",
                  s.first_position, std::uint64_t{s.first_position} + s.rows, budget_.context,
                  std::uint64_t{s.first_position} + s.rows);
    MYRIAD_TRY(const std::size_t slot, slot_of(s));
    if (std::find(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(i), slot) !=
        slots.begin() + static_cast<std::ptrdiff_t>(i))
      return fail(Code::invalid_argument, "sequence {:x} stands twice in one call", s.sequence.value);
    if (s.first_position == 0) {
      if (entry.recurrent()) std::memset(entry.slot(slot), 0, entry.slot_bytes);
      entry.next[slot] = 0;
    }
    if (entry.next[slot] != s.first_position)
      return fail(Code::stale, "sequence {:x} is at position {}, the call begins at {}", s.sequence.value,
                  entry.next[slot], s.first_position);
    MYRIAD_TRY_STATUS(own_pages(slot, s.first_position, s.first_position + s.rows));
    slots[i] = slot;
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const SequenceRows& s = sequences[i];
    if (entry.page_bytes != 0)
      for (const auto page : slot_pages_[slots[i]]) pages[i].push_back(entry.page(page));
    states[i] = {entry.slot(slots[i]), pages[i], pages_.positions, s.first_position};
    slices[i] = {s.rows, &states[i]};
  }
  MYRIAD_TRY(Activation out, runner_.attend(entry.part, inputs, slices));
  for (std::size_t i = 0; i < slots.size(); ++i) entry.next[slots[i]] = states[i].position;
  return out;
}

Result<Activation> PartExecutor::embed(const Entry& entry, const Item& item,
                                       std::span<const std::int32_t> tokens) const {
  if (item.rows.empty()) return runner_.embed(entry.part, tokens);
  std::vector<std::int32_t> chosen;
  for (const auto r : item.rows) {
    if (r >= tokens.size()) return fail(Code::invalid_argument, "row {} of {} tokens", r, tokens.size());
    chosen.push_back(tokens[r]);
  }
  return runner_.embed(entry.part, chosen);
}

Status PartExecutor::run(std::span<const Item> items, std::span<const SequenceRows> sequences,
                         std::span<const std::int32_t> tokens,
                         const std::function<void(std::size_t, Activation)>& take) {
  const auto named = [](Error e, const Entry& entry) {
    if (e.part.empty()) e.part = entry.part.spec().name();
    return std::unexpected(std::move(e));
  };
  std::vector<PartCall> together;  // parts without state
  std::vector<std::size_t> item_of;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    const auto it = parts_.find(item.part);
    if (it == parts_.end()) return fail(Code::not_found, "part {} of the plan is not held here", item.part);
    Entry& entry = *it->second;
    const OpKind kind = entry.part.op().kind;
    if (kind == OpKind::lead)
      return named(Error{Code::invalid_argument, "a lead's vectors cannot be called", {}, {}}, entry);
    if (kind == OpKind::embed || has_state(kind)) {
      auto out = kind == OpKind::embed ? embed(entry, item, tokens) : attend(entry, item.inputs, sequences);
      if (!out) return named(std::move(out).error(), entry);
      take(i, std::move(*out));
    } else {
      together.push_back({&entry.part, item.inputs, item.rows, item.want == HeadWant::candidates});
      item_of.push_back(i);
    }
  }
  return runner_.run(together, [&](std::size_t i, Activation out) { take(item_of[i], std::move(out)); });
}

std::uint64_t PartExecutor::answer_row_bytes(const Part& part, HeadWant want) const {
  const Operator& op = part.op();
  const std::uint32_t units = part.spec().units();
  if (op.kind == OpKind::head && want == HeadWant::candidates)
    return std::uint64_t{(units + kVocabularyBlock - 1) / kVocabularyBlock} * kPackedCandidates * sizeof(float);
  const std::uint64_t values = op.kind == OpKind::embed ? op.output.width : std::uint64_t{units} * op.output_per_unit;
  const bool halved = op.kind != OpKind::head && op.output.form[static_cast<int>(profile_)] == Form::bf16;
  return values * (halved ? 2 : 4);
}

Result<CallReply> PartExecutor::execute(const Call& call) {
  CallReply reply;
  const auto too_many = [&](std::size_t rows) {
    return fail(Code::limit, "a call of {} rows; a step of this fleet has at most {}", rows, budget_.step_rows);
  };
  if (call.tokens.size() > budget_.step_rows) return too_many(call.tokens.size());
  for (const auto& t : call.tensors)
    if (t.rows > budget_.step_rows) return too_many(t.rows);
  std::vector<std::vector<const Activation*>> inputs(call.items.size());
  std::vector<Item> items;
  std::uint64_t answer_bytes = 0;
  for (const auto& item : call.items) {
    auto& in = inputs[items.size()];
    for (const auto i : item.inputs) {
      if (i >= call.tensors.size())
        return fail(Code::invalid_argument, "an item names tensor {} of {}", i, call.tensors.size());
      in.push_back(&call.tensors[i]);
    }
    if (const Part* part = find(item.part)) {
      const std::size_t rows = !item.rows.empty() ? item.rows.size() : !in.empty() ? in[0]->rows : call.tokens.size();
      answer_bytes += rows * answer_row_bytes(*part, item.want);
    }
    if (answer_bytes > kMaxFrameBytes)
      return fail(Code::limit, "the answer to a call of {} items has more than {} bytes", call.items.size(),
                  kMaxFrameBytes);
    items.push_back({item.part, in, item.rows, item.want});
  }
  reply.tensors.resize(items.size());
  MYRIAD_TRY_STATUS(run(items, call.sequences, call.tokens,
                        [&](std::size_t i, Activation out) { reply.tensors[i] = std::move(out); }));
  return reply;
}

void PartExecutor::free_slot(SequenceId sequence) {
  const auto it = slots_.find(sequence);
  if (it == slots_.end()) return;
  auto& pages = slot_pages_[it->second.index];
  for (const auto page : pages) drop_page(page);
  pages.clear();
  free_slots_.push_back(it->second.index);
  slots_.erase(it);
}

std::vector<SequenceId> PartExecutor::release(std::span<const SequenceId> sequences) {
  std::vector<SequenceId> fresh;
  for (const auto id : sequences) {
    if (std::find(released_.begin(), released_.end(), id) != released_.end()) continue;
    fresh.push_back(id);
    free_slot(id);
    released_.push_back(id);
    if (released_.size() > kRememberedReleases) released_.pop_front();
  }
  return fresh;
}

}  // namespace myriad
