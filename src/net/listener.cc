#include <boost/asio/ip/v6_only.hpp>
#include <list>
#include <utility>

#include "base/log.h"
#include "net/accept.h"
#include "net/connection.h"
#include "net/connection_impl.h"
#include "net/greeting.h"
#include "net/socket_options.h"

namespace myriad {
namespace {

// When all places for strangers are taken, the one who has had his for so long without proving himself loses it.
constexpr Nanos kHandshakeGrace = std::chrono::milliseconds(500);

class ListenerState : public std::enable_shared_from_this<ListenerState> {
 public:
  ListenerState(std::shared_ptr<Core> core, std::string token, Hello self,
                std::function<Connection::Handlers(const Hello& peer)> accept, Listener::Options options)
      : core_(std::move(core)),
        token_(std::move(token)),
        self_(std::move(self)),
        accept_(std::move(accept)),
        options_(options) {}

  void start(boost::asio::ip::tcp::acceptor acceptor) {
    acceptor_ =
        Acceptor::start(core_, std::move(acceptor), [weak = weak_from_this()](boost::asio::ip::tcp::socket socket) {
          if (const auto state = weak.lock()) state->accepted(std::move(socket));
        });
  }

  void close() {
    if (std::exchange(closed_, true)) return;
    if (acceptor_) acceptor_->close();
    for (const auto& greeting : std::exchange(greetings_, {}))
      greeting->give_up({Code::cancelled, "the listener was closed", {}, {}});
    // Connections that were accepted live on: they belong to whoever handles them.
    accept_ = nullptr;
  }

 private:
  void accepted(boost::asio::ip::tcp::socket socket) {
    if (closed_) return;
    if (connections_ + greetings_.size() >= options_.max_connections) {
      log(LogLevel::warning, "event=connection_refused reason=too_many connections={}", connections_);
      return;  // closes it
    }
    const auto place = greetings_.emplace(greetings_.end());
    *place = std::make_shared<Greeting>(core_, std::move(socket), Handshake::Side::listener, token_, self_,
                                        [state = shared_from_this(), place](Result<Greeting::Greeted> outcome) {
                                          state->greeted(place, std::move(outcome));
                                        });
    const auto greeting = *place;
    greeting->start(kHandshakeLimit);
    make_room();
  }

  // Accepting stops while all places for strangers are taken: the kernel's queue holds the next ones meanwhile.
  void make_room() {
    if (closed_) return;
    const bool full = greetings_.size() >= options_.max_handshakes;
    acceptor_->pause(full);
    if (!full || evicting_) return;
    evicting_ = true;
    const auto timer = std::make_shared<boost::asio::steady_timer>(core_->context);
    timer->expires_at(Core::time_point(greetings_.front()->started() + kHandshakeGrace));
    core_->open.emplace(timer.get(), [t = timer.get()] { t->cancel(); });
    timer->async_wait([state = shared_from_this(), timer](const boost::system::error_code& error) {
      state->core_->open.erase(timer.get());
      state->evicting_ = false;
      if (error || state->closed_) return;
      if (state->greetings_.size() >= state->options_.max_handshakes) {
        const auto oldest = state->greetings_.front();
        if (Core::now() - oldest->started() >= kHandshakeGrace)
          oldest->give_up({Code::busy, "too many connections wait for their handshake", {}, {}});
      }
      state->make_room();
    });
  }

  void greeted(std::list<std::shared_ptr<Greeting>>::iterator place, Result<Greeting::Greeted> outcome) {
    if (closed_) return;  // `place` is gone with the list
    const auto greeting = std::move(*place);
    greetings_.erase(place);
    if (outcome) {
      ++connections_;
      auto handlers = accept_(outcome->peer);
      std::make_shared<ConnectionImpl>(core_, std::move(outcome->socket), std::move(outcome->peer), std::move(handlers),
                                       false, [state = shared_from_this()] { --state->connections_; })
          ->start();
    } else {
      log(LogLevel::info, "event=handshake_failed reason={}", log_value(outcome.error().message));
    }
    make_room();
  }

  const std::shared_ptr<Core> core_;
  const std::string token_;
  const Hello self_;
  std::function<Connection::Handlers(const Hello& peer)> accept_;
  const Listener::Options options_;
  std::shared_ptr<Acceptor> acceptor_;
  std::list<std::shared_ptr<Greeting>> greetings_;  // the oldest first
  std::size_t connections_ = 0;
  bool evicting_ = false;
  bool closed_ = false;
};

class ListenerImpl : public Listener {
 public:
  ListenerImpl(std::shared_ptr<Core> core, std::shared_ptr<ListenerState> state, std::uint16_t port)
      : core_(std::move(core)), state_(std::move(state)), port_(port) {}
  ~ListenerImpl() override { close_now(); }
  [[nodiscard]] std::uint16_t port() const override { return port_; }
  void close() override { close_now(); }

 private:
  void close_now() {
    core_->run_on_loop([state = state_] { state->close(); });
  }

  std::shared_ptr<Core> core_;
  std::shared_ptr<ListenerState> state_;
  std::uint16_t port_;
};

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(Reactor& reactor, Endpoint at, std::string token, Hello self,
                                                 std::function<Connection::Handlers(const Hello& peer)> accept,
                                                 Options options) {
  const auto core = reactor.impl().core;
  MYRIAD_TRY(auto acceptor, bind_and_listen(*core, at));
  boost::system::error_code error;
  const std::uint16_t port = acceptor.local_endpoint(error).port();
  auto state = std::make_shared<ListenerState>(core, std::move(token), std::move(self), std::move(accept), options);
  // Shared only because a function that is posted must be copyable.
  auto socket = std::make_shared<boost::asio::ip::tcp::acceptor>(std::move(acceptor));
  core->run_on_loop([state, socket] { state->start(std::move(*socket)); });
  return std::make_unique<ListenerImpl>(core, std::move(state), port);
}

}  // namespace myriad
