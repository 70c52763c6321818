// Asking a fleet's controller as a tool: status, kill, shutdown.
#pragma once

#include <memory>
#include <string>

#include "net/connection.h"

namespace myriad::cli {

class FleetClient {
 public:
  // Blocks. Errors: unavailable, unauthenticated, version, deadline.
  static Result<std::unique_ptr<FleetClient>> connect_to(Endpoint controller, std::string token);
  ~FleetClient();
  // Fleet::status_json.
  Result<std::string> status();
  Status kill(NodeId node);
  Status shutdown();

 private:
  struct Impl;
  explicit FleetClient(std::unique_ptr<Impl> impl);
  Result<Message> ask(Message question);
  std::unique_ptr<Impl> impl_;
};

}  // namespace myriad::cli
