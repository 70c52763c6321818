// The controller process: joins the fleet's state machine to sockets, files and a clock. It serves the parts of a cut
// directory, but never holds one in memory; data-plane traffic does not pass through it and goes on without it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "control/fleet.h"
#include "net/connection.h"
#include "net/ports.h"
#include "net/reactor.h"

namespace myriad {

struct ControllerOptions {
  Endpoint listen{"127.0.0.1", kControllerPort};  // for nodes, gateways and tools; port 0: a free one
  std::uint16_t http_port = kPartServerPort;      // of the part server, on the same host; 0: a free one
  std::string token;                              // shared by the fleet
  std::filesystem::path cut_directory;            // what `myriad cut` wrote
  // Profile, budget, nodes expected, headroom and times. Filled in here: http_port, fetch_ticket, and before_first from
  // the wall clock, so that a restarted controller's epochs are larger than those it gave before.
  FleetOptions fleet;
  std::size_t max_connections = 4096;
  std::function<void()> on_stop;  // on the reactor's thread, once: the fleet was told to go down and has been told so
};

class Controller {
 public:
  // Everything runs on the reactor's thread; this may be called from any, before or after the reactor was started.
  // Errors: as read_manifest, Fleet::create and Listener::open; they name the directory or the address.
  static Result<std::unique_ptr<Controller>> start(Reactor& reactor, ControllerOptions options);
  ~Controller();  // closes all connections, without telling anybody to stop; the reactor must outlive it
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::uint16_t http_port() const;

 private:
  class Impl;
  explicit Controller(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace myriad
