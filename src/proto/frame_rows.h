// How many rows a step may have so that none of its frames is longer than kMaxFrameBytes.
#pragma once

#include <cstdint>

#include "model/graph.h"

namespace myriad {

// At least 1, at most kMaxRowsPerStep. The widest messages of a step are the stream that goes from lead to lead
// (residual and all banked blocks), and the inputs or outputs of one operator's parts that happen to sit on one helper,
// other than the head's (of which few rows are asked for; see logit_rows).
std::uint32_t frame_rows(const Graph& graph, Profile profile);
// How many rows of all logits fit a frame.
std::uint32_t logit_rows(std::uint32_t vocabulary);

}  // namespace myriad
