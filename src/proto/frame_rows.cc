#include "proto/frame_rows.h"

#include <algorithm>
#include <map>

#include "model/layer.h"
#include "proto/messages.h"

namespace myriad {
namespace {

constexpr std::uint64_t kMessageRoom = std::uint64_t{64} << 10;  // the FlatBuffers part: sequences, items, row lists

std::uint32_t rows_of(std::uint64_t bytes_a_row) {
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      (kMaxFrameBytes - kMessageRoom) / std::max<std::uint64_t>(bytes_a_row, 1), 1, kMaxRowsPerStep));
}

std::uint64_t wire_bytes(const Seam& seam, Profile profile) {
  const Form form = seam.form[static_cast<int>(profile)];
  return form == Form::f32    ? 4ull * seam.width
         : form == Form::bf16 ? 2ull * seam.width
                              : seam.width + 4ull * ((seam.width + 31) / 32);
}

}  // namespace

std::uint32_t frame_rows(const Graph& graph, Profile profile) {
  const auto& config = graph.config();
  const std::uint64_t value = profile == Profile::exact ? 4 : 2;
  std::uint64_t widest = value * config.hidden * (1 + banked_blocks(config, graph.halves()));
  // A round's calls to one helper share a frame: all inputs of a half-layer's operators that are not experts, or a
  // row's chosen experts.
  std::map<Half, std::pair<std::uint64_t, std::uint64_t>> by_half;  // inputs, outputs
  for (const auto& op : graph.operators()) {
    if (op.kind == OpKind::head || op.kind == OpKind::embed || op.kind == OpKind::lead) continue;
    auto& [in, out] = by_half[half_of(op.ref, graph.halves())];
    if (op.kind == OpKind::expert && op.ref.index >= config.moe.top_k) continue;  // a row goes to top_k of them
    for (const auto& seam : op.inputs)
      in += op.kind == OpKind::expert && op.ref.index > 0 ? 0 : wire_bytes(seam, profile);
    out += wire_bytes(op.output, profile);
  }
  for (const auto& [half, bytes] : by_half) widest = std::max({widest, bytes.first, bytes.second});
  return rows_of(widest);
}

std::uint32_t logit_rows(std::uint32_t vocabulary) {
  return rows_of(4ull * vocabulary);
}

}  // namespace myriad
