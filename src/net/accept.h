// Private to net/*.cc: a listening socket that hands over what it accepts.
#pragma once

#include <functional>
#include <memory>

#include "base/error.h"
#include "net/connection.h"
#include "net/reactor_impl.h"

namespace myriad {

// Host "" is loopback, "*" every address of both families; a name is looked up, which may block. Errors name the
// endpoint: those of cannot_listen (net/listen_error.h).
Result<boost::asio::ip::tcp::acceptor> bind_and_listen(Core& core, const Endpoint& at);

// On the loop's thread. Waits a little when the process has no descriptors left, instead of trying again at once for
// ever.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  using OnAccept = std::function<void(boost::asio::ip::tcp::socket)>;
  static std::shared_ptr<Acceptor> start(std::shared_ptr<Core> core, boost::asio::ip::tcp::acceptor acceptor,
                                         OnAccept on_accept);
  Acceptor(std::shared_ptr<Core> core, boost::asio::ip::tcp::acceptor acceptor, OnAccept on_accept);
  void pause(bool paused);
  void close();

 private:
  void next();

  std::shared_ptr<Core> core_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer timer_;
  OnAccept on_accept_;
  bool paused_ = false;
  bool waiting_ = false;  // an accept or a back-off is under way
  bool closed_ = false;
};

}  // namespace myriad
