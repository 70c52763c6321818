// What a hop costs: a call with its answer over loopback, beside a bare exchange of the same bytes.
#pragma once

#include <cstddef>

#include "base/error.h"
#include "model/activation.h"

namespace myriad {

struct HopTimes {
  double bare_us = 0, call_us = 0;  // medians, there and back
  std::size_t frame_bytes = 0;      // each way
};

// A call that carries one row of `values` in `form` and is answered with the same, from callback to callback on the
// reactor, as a lead makes it; and as many bytes over a plain socket with the same options, whose two ends wait as the
// reactor does (epoll, then recv). In turns, `rounds` of each. Errors: unavailable when the sockets cannot be had.
Result<HopTimes> measure_hop(Form form, std::size_t values, std::size_t rounds);

}  // namespace myriad
