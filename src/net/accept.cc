#include "net/accept.h"

#include <boost/asio/ip/v6_only.hpp>
#include <utility>

#include "base/log.h"
#include "net/listen_error.h"
#include "net/socket_options.h"

namespace myriad {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr int kBacklog = 4096;  // the kernel's own limit is usually this
constexpr Nanos kShortageWait = std::chrono::milliseconds(100);

error_code try_listen(tcp::acceptor& acceptor, const tcp::endpoint& at, bool both_families) {
  error_code error;
  if (acceptor.is_open()) acceptor.close(error);
  acceptor.open(at.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && at.address().is_v6()) acceptor.set_option(boost::asio::ip::v6_only(!both_families), error);
  if (!error) acceptor.bind(at, error);
  // Accepted sockets inherit these.
  if (!error) set_socket_options(acceptor.native_handle());
  if (!error) acceptor.listen(kBacklog, error);
  return error;
}

}  // namespace

Result<tcp::acceptor> bind_and_listen(Core& core, const Endpoint& at) {
  tcp::acceptor acceptor(core.context);
  error_code error;
  if (at.host == "*") {
    error = try_listen(acceptor, {boost::asio::ip::address_v6::any(), at.port}, true);
    if (error == boost::asio::error::address_family_not_supported || error.value() == EADDRNOTAVAIL ||
        error.value() == EINVAL)
      error = try_listen(acceptor, {boost::asio::ip::address_v4::any(), at.port}, false);
  } else if (at.host.empty()) {
    error = try_listen(acceptor, {boost::asio::ip::address_v4::loopback(), at.port}, false);
  } else if (const auto address = boost::asio::ip::make_address(at.host, error); !error) {
    error = try_listen(acceptor, {address, at.port}, false);
  } else {
    error.clear();
    tcp::resolver resolver(core.context);
    const auto found = resolver.resolve(at.host, std::to_string(at.port), tcp::resolver::passive, error);
    if (!error && found.empty()) error = boost::asio::error::host_not_found;
    if (error) return cannot_listen(at.to_string(), error);
    error = try_listen(acceptor, found.begin()->endpoint(), false);
  }
  if (error) return cannot_listen(at.to_string(), error);
  return acceptor;
}

Acceptor::Acceptor(std::shared_ptr<Core> core, tcp::acceptor acceptor, OnAccept on_accept)
    : core_(std::move(core)),
      acceptor_(std::move(acceptor)),
      timer_(core_->context),
      on_accept_(std::move(on_accept)) {}

std::shared_ptr<Acceptor> Acceptor::start(std::shared_ptr<Core> core, tcp::acceptor acceptor, OnAccept on_accept) {
  auto a = std::make_shared<Acceptor>(std::move(core), std::move(acceptor), std::move(on_accept));
  a->core_->open.emplace(a.get(), [raw = a.get()] { raw->close(); });
  a->next();
  return a;
}

void Acceptor::pause(bool paused) {
  paused_ = paused;
  if (!paused) next();
}

void Acceptor::close() {
  if (std::exchange(closed_, true)) return;
  const auto alive = shared_from_this();
  core_->open.erase(this);
  error_code ignored;
  acceptor_.close(ignored);
  timer_.cancel();
  on_accept_ = nullptr;
}

void Acceptor::next() {
  if (paused_ || closed_ || waiting_) return;
  waiting_ = true;
  acceptor_.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
    self->waiting_ = false;
    if (self->closed_) return;
    if (!error) {
      const auto on_accept = self->on_accept_;
      on_accept(std::move(socket));
      return self->next();
    }
    if (!is_resource_shortage(error)) return self->next();  // that one has gone away by itself
    log(LogLevel::warning, "event=accept_failed reason={} retry_ms=100", log_value(error.message()));
    self->waiting_ = true;
    self->timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(kShortageWait));
    self->timer_.async_wait([self](const error_code&) {
      self->waiting_ = false;
      self->next();
    });
  });
}

}  // namespace myriad
