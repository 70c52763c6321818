#include <utility>

#include "net/connection.h"
#include "net/connection_impl.h"
#include "net/dial.h"
#include "net/greeting.h"

namespace myriad {

void connect(Reactor& reactor, Endpoint to, std::string token, Hello self, Connection::Handlers handlers, Nanos timeout,
             std::function<void(Result<ConnectionPtr>)> done) {
  const auto core = reactor.impl().core;
  const Nanos until = Core::now() + bounded_wait(timeout);
  const std::string name = to.to_string();
  dial(core, std::move(to), timeout,
       [=, token = std::move(token), self = std::move(self), handlers = std::move(handlers),
        done = std::move(done)](Result<boost::asio::ip::tcp::socket> dialled) mutable {
         if (!dialled) return done(std::unexpected(std::move(dialled).error()));
         const auto greeting = std::make_shared<Greeting>(
             core, std::move(*dialled), Handshake::Side::connector, std::move(token), std::move(self),
             [=, handlers = std::move(handlers), done = std::move(done)](Result<Greeting::Greeted> greeted) mutable {
               if (!greeted) return done(std::unexpected(std::move(greeted).error().within("connecting to " + name)));
               const auto connection = std::make_shared<ConnectionImpl>(
                   core, std::move(greeted->socket), std::move(greeted->peer), std::move(handlers), true, nullptr);
               connection->start();
               done(connection);
             });
         greeting->start(std::min<Nanos>(until - Core::now(), kHandshakeLimit));
       });
}

}  // namespace myriad
