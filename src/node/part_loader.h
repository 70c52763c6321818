// Gets assigned parts into memory: from the store or a local directory, else over HTTP from the controller into the
// store.
#pragma once

#include <functional>
#include <string>

#include "net/connection.h"
#include "part/part_store.h"

namespace myriad {

inline constexpr Nanos kFetchIdleLimit = std::chrono::seconds(10);  // without a byte
inline constexpr int kFetchTries = 6;
inline constexpr Nanos kFetchPause = std::chrono::milliseconds(100);  // after the first failure; doubles

struct PartServer {
  Endpoint endpoint;
  std::string ticket;
};

// Blocks (for the loader's thread). `server` and `stop` are asked before each try. Errors name the part: not_found,
// unavailable, corrupt, io; and what the canary found (part/canary.h).
Result<Part> load_part(Reactor& reactor, const PartStore& store, const std::function<PartServer()>& server,
                       const PartId& id, std::uint64_t bytes, const Graph& graph, const Kernels& kernels,
                       const std::function<bool()>& stop);

}  // namespace myriad
