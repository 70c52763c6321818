// Strong types for what would otherwise be bare integers and strings in interfaces.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <string>

#include "base/sha256.h"

namespace myriad {

// A moment or a duration on a monotonic clock; state machines are handed one, they never read a clock.
using Nanos = std::chrono::nanoseconds;

// The name of a node, unique in its fleet and kept over restarts (1 to 64 of [A-Za-z0-9._-]).
struct NodeId {
  std::string value;
  friend auto operator<=>(const NodeId&, const NodeId&) = default;
};

// A part's name in the content-addressed store: SHA-256 over its canonical bytes.
struct PartId {
  Sha256Digest digest{};
  friend auto operator<=>(const PartId&, const PartId&) = default;
  [[nodiscard]] std::string hex() const { return to_hex(digest); }
};

// One sequence of tokens with its attention state, chosen by the gateway: random high bits, a counter below.
struct SequenceId {
  std::uint64_t value = 0;
  friend auto operator<=>(SequenceId, SequenceId) = default;
};
inline constexpr int kSequenceCounterBits = 32;
// Which gateway chose it (since its start).
constexpr std::uint64_t gateway_of(SequenceId id) {
  return id.value >> kSequenceCounterBits;
}

// Grows with each new placement; whatever carries an older one is refused.
struct Epoch {
  std::uint64_t value = 0;
  friend auto operator<=>(Epoch, Epoch) = default;
};

}  // namespace myriad

template <>
struct std::hash<myriad::NodeId> {
  std::size_t operator()(const myriad::NodeId& id) const noexcept { return std::hash<std::string>{}(id.value); }
};
template <>
struct std::hash<myriad::SequenceId> {
  std::size_t operator()(myriad::SequenceId id) const noexcept { return std::hash<std::uint64_t>{}(id.value); }
};
template <>
struct std::hash<myriad::PartId> {
  std::size_t operator()(const myriad::PartId& id) const noexcept {
    std::size_t h;
    static_assert(sizeof h <= sizeof id.digest);
    __builtin_memcpy(&h, id.digest.data(), sizeof h);
    return h;
  }
};
