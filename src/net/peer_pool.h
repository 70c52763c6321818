// Connections to other nodes, made when first needed and kept: calls by address.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "net/connection.h"

namespace myriad {

inline constexpr Nanos kPeerConnectLimit = std::chrono::milliseconds(2000);

class PeerPool {
 public:
  PeerPool(Reactor& reactor, std::string token, Hello self);
  ~PeerPool();
  PeerPool(const PeerPool&) = delete;
  PeerPool& operator=(const PeerPool&) = delete;

  // Thread-safe. `on_answer` is called once, on the reactor's thread; errors carry the node's name.
  std::uint64_t call(const NodeAddress& to, Message question, Nanos timeout,
                     std::function<void(Result<Message>)> on_answer);
  void cancel(std::uint64_t call);
  void notify(const NodeAddress& to, Message notice);
  // Closes connections to nodes that are not in this list; their calls fail.
  void keep_only(std::vector<NodeAddress> nodes);
  // Closes the connection to a node that is known to be gone: its calls fail with this reason.
  void drop(const NodeId& node, std::string why);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace myriad
