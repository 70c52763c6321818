#include "net/dial.h"

#include <utility>

#include "net/socket_options.h"

namespace myriad {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

class Dial : public std::enable_shared_from_this<Dial> {
 public:
  Dial(std::shared_ptr<Core> core, Endpoint to, Nanos timeout, std::function<void(Result<tcp::socket>)> done)
      : core_(std::move(core)),
        to_(std::move(to)),
        until_(Core::now() + bounded_wait(timeout)),
        done_(std::move(done)),
        resolver_(core_->context),
        socket_(core_->context),
        timer_(core_->context) {}

  void start() {
    core_->open.emplace(this, [this] {
      done_ = nullptr;
      finish(fail(Code::cancelled, "this process is stopping"));
    });
    error_code error;
    const auto address = boost::asio::ip::make_address(to_.host.empty() ? "127.0.0.1" : to_.host, error);
    if (!error) {
      addresses_ = {tcp::endpoint(address, to_.port)};
      return next();
    }
    arm(until_, [](Dial& d) {
      d.finish(fail(Code::deadline, "connecting to {}: its name was not resolved in time", d.to_.to_string()));
    });
    resolver_.async_resolve(
        to_.host, std::to_string(to_.port),
        [self = shared_from_this()](const error_code& e, const tcp::resolver::results_type& found) {
          if (!self->done_) return;
          if (e)
            return self->finish(
                fail(Code::not_found,
                     "connecting to {}: the name cannot be resolved ({}); check how it is written, or give the address "
                     "itself",
                     self->to_.to_string(), e.message()));
          for (const auto& entry : found) self->addresses_.push_back(entry.endpoint());
          self->next();
        });
  }

 private:
  // What is left of the time is shared out evenly among the addresses that are left.
  void next() {
    if (at_ == addresses_.size())
      return finish(
          fail(code_, "connecting to {}: {}", to_.to_string(), cause_.empty() ? "it has no address" : cause_));
    const Nanos now = Core::now();
    const Nanos share = std::max(Nanos{0}, until_ - now) / static_cast<std::int64_t>(addresses_.size() - at_);
    error_code error;
    if (socket_.is_open()) socket_.close(error);
    const tcp::endpoint& address = addresses_[at_++];
    socket_.open(address.protocol(), error);
    if (error) {
      cause_ = error.message();
      return next();
    }
    set_socket_options(socket_.native_handle());
    const std::size_t attempt = at_;
    arm(now + share, [](Dial& d) {
      d.code_ = Code::deadline;
      d.cause_ = "no answer in time; check the address, the network and firewalls";
      d.next();
    });
    socket_.async_connect(address, [self = shared_from_this(), attempt](const error_code& e) {
      if (!self->done_ || attempt != self->at_) return;
      if (!e) return self->finish(std::move(self->socket_));
      if (e == boost::asio::error::operation_aborted) return;
      self->code_ = Code::unavailable;
      self->cause_ = e == boost::asio::error::connection_refused
                         ? "connection refused; check that the process runs and listens on this port"
                         : e.message();
      self->next();
    });
  }

  void arm(Nanos at, void (*late)(Dial&)) {
    timer_.expires_at(Core::time_point(at));
    timer_.async_wait([self = shared_from_this(), late](const error_code& error) {
      if (!error && self->done_) late(*self);
    });
  }

  void finish(Result<tcp::socket> outcome) {
    const auto alive = weak_from_this().lock();
    core_->open.erase(this);
    timer_.cancel();
    resolver_.cancel();
    if (const auto done = std::exchange(done_, nullptr)) done(std::move(outcome));
    error_code ignored;
    if (socket_.is_open()) socket_.close(ignored);
  }

  const std::shared_ptr<Core> core_;
  const Endpoint to_;
  const Nanos until_;
  std::function<void(Result<tcp::socket>)> done_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  boost::asio::steady_timer timer_;
  std::vector<tcp::endpoint> addresses_;
  std::size_t at_ = 0;
  Code code_ = Code::unavailable;
  std::string cause_;
};

}  // namespace

void dial(const std::shared_ptr<Core>& core, Endpoint to, Nanos timeout,
          std::function<void(Result<tcp::socket>)> done) {
  const auto attempt = std::make_shared<Dial>(core, std::move(to), timeout, std::move(done));
  core->post([attempt] { attempt->start(); });
}

}  // namespace myriad
