// The node process: joins a controller, holds the parts that it is assigned, executes calls on them, leads stages.
//
// Threads: one reactor for the controller (registration and heartbeats, so that nothing can delay a lease), one reactor
// for the data plane, one engine thread (calls, steps), one loader, and the pool's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "net/connection.h"
#include "part/part_store.h"

namespace myriad {

struct NodeOptions {
  Endpoint controller;
  std::string token;
  NodeId id;
  Bytes memory{std::uint64_t{256} << 20};  // budget of the whole process
  std::unique_ptr<PartStore> store;        // parts are kept here for the next start; never null
  Endpoint listen{"", 0};                  // data port; host "" loopback, "*" every address
  std::string advertise;                   // host that others reach it at; empty: what the controller sees
  std::size_t threads = 0;                 // 0: usable cores
};

// Longest time between two tries to reach the controller; tries are spread at random so that a fleet does not come back
// as one.
inline constexpr Nanos kReconnectLimit = std::chrono::seconds(5);
// A node that was never registered gives up after so many handshakes in which it was rejected (tokens differ, no common
// version), whatever failed otherwise between them. Such a verdict is not authenticated, since whoever gives it holds
// another token or none; so a node that was registered once, and therefore holds the right token, never ends by it: a
// stranger on the way can keep nodes from joining, which he could anyway, but not end those that run.
inline constexpr int kRejectionLimit = 5;
// A lead waits so long for a helper that is alive (a frozen one is found out much earlier, see connection.h).
inline constexpr Nanos kCallLimit = std::chrono::seconds(60);

class Node {
 public:
  // `on_stop` is called once, from a thread of the node, when this process is to end: with success because the
  // controller asks for it; or because it will not have this node, and trying again would not help (an unreachable
  // controller is tried for ever). Errors of that: unauthenticated, version (see kRejectionLimit), invalid_argument,
  // stale (another process has taken this node's name).
  static Result<std::unique_ptr<Node>> start(NodeOptions options, std::function<void(Status why)> on_stop);
  ~Node();
  [[nodiscard]] std::uint16_t port() const;

 private:
  struct Impl;
  explicit Node(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The id kept in the store's directory (file node-id), made at the first start: "node-" and 8 hexadecimal digits.
Result<NodeId> persistent_node_id(const PartStore& store);

}  // namespace myriad
