#include "gateway/http_server.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "base/log.h"
#include "gateway/http_connection.h"
#include "gateway/small_thread.h"
#include "net/connection.h"
#include "net/listen_error.h"

namespace myriad {

using asio::ip::tcp;
using boost::system::error_code;

namespace {

class Server final : public HttpServer {
 public:
  Server(Options options, Handler handler) : host_{options, std::move(handler)} {}
  ~Server() override {
    stop();
    // Nothing runs any more: let go of the connections while the context that their timers use is still there.
    host_.connections.clear();
    acceptors_.clear();
  }

  Status listen(const std::string& host, std::uint16_t port);
  Status start() {
    for (auto& acceptor : acceptors_) accept(*acceptor);
    return thread_.start("http", kHttpThreadStack, [this] { run(); });
  }
  std::uint16_t port() const override { return port_; }
  void post(std::function<void()> work) override { asio::post(host_.io, std::move(work)); }
  void stop() override {
    host_.io.stop();
    thread_.join();
  }

 private:
  void run() {
    while (true) {
      try {
        host_.io.run();
        return;
      } catch (const std::bad_alloc&) {
        // Whoever's turn it was gets no answer: its connection ends when its timer does. The others are served on.
        log(LogLevel::error, "event=http_out_of_memory");
      }
    }
  }
  Status bind(const tcp::endpoint& at);
  void accept(tcp::acceptor& acceptor);
  void admit(tcp::socket socket);

  HttpHost host_;
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(host_.io);
  std::vector<std::unique_ptr<tcp::acceptor>> acceptors_;
  asio::steady_timer accept_retry_{host_.io};
  std::uint16_t port_ = 0;
  SmallThread thread_;
};

Status Server::bind(const tcp::endpoint& at) {
  auto acceptor = std::make_unique<tcp::acceptor>(host_.io);
  error_code error;
  acceptor->open(at.protocol(), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && at.protocol() == tcp::v6()) acceptor->set_option(asio::ip::v6_only(true), error);
  if (!error) acceptor->bind(at, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error) return cannot_listen(Endpoint{at.address().to_string(), at.port()}.to_string(), error);
  if (port_ == 0) port_ = acceptor->local_endpoint().port();
  acceptors_.push_back(std::move(acceptor));
  return {};
}

// Whether this machine has a family of addresses at all.
bool has_family(asio::io_context& io, const tcp& family) {
  error_code error;
  tcp::acceptor probe(io);
  probe.open(family, error);
  if (!error) {
    const bool v6 = family == tcp::v6();
    const asio::ip::address loopback =
        v6 ? asio::ip::address(asio::ip::address_v6::loopback()) : asio::ip::address(asio::ip::address_v4::loopback());
    probe.bind({loopback, 0}, error);
  }
  return !error;
}

Status Server::listen(const std::string& host, std::uint16_t port) {
  std::vector<asio::ip::address> addresses;
  error_code error;
  if (host.empty()) {
    addresses = {asio::ip::address_v4::loopback(), asio::ip::address_v6::loopback()};
  } else if (host == "*") {
    addresses = {asio::ip::address_v4::any(), asio::ip::address_v6::any()};
  } else if (const auto literal = asio::ip::make_address(host, error); !error) {
    addresses = {literal};
  } else {
    tcp::resolver resolver(host_.io);
    const auto found = resolver.resolve(host, "", tcp::resolver::passive, error);
    if (error) return cannot_listen(Endpoint{host, port}.to_string(), error);
    for (const auto& entry : found) {
      if (std::find(addresses.begin(), addresses.end(), entry.endpoint().address()) == addresses.end()) {
        addresses.push_back(entry.endpoint().address());
      }
    }
  }
  if (addresses.size() > 1) {  // a machine without IPv6 (or IPv4) serves the other family
    std::erase_if(addresses,
                  [this](const auto& a) { return !has_family(host_.io, a.is_v6() ? tcp::v6() : tcp::v4()); });
  }
  if (addresses.empty())
    return cannot_listen(Endpoint{host, port}.to_string(), asio::error::make_error_code(asio::error::host_not_found));
  // A free port of one family may be taken in the other: then another is tried.
  constexpr int kAttempts = 16;
  for (int attempt = 1;; ++attempt) {
    acceptors_.clear();
    port_ = port;
    Status bound;
    for (const auto& address : addresses) {
      if (bound) bound = bind({address, port_});
    }
    if (bound || port != 0 || attempt == kAttempts) return bound;
  }
}

void Server::accept(tcp::acceptor& acceptor) {
  acceptor.async_accept([this, &acceptor](error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) {
      admit(std::move(socket));
      accept(acceptor);
      return;
    }
    // Out of file descriptors, most likely: trying again at once would spin.
    log(LogLevel::warning, "event=http_accept_failed reason={}", log_value(error.message()));
    accept_retry_.expires_after(std::chrono::milliseconds(100));
    accept_retry_.async_wait([this, &acceptor](error_code e) {
      if (!e) accept(acceptor);
    });
  });
}

void Server::admit(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(host_.options.socket_send_buffer)), ignored);
  socket.non_blocking(true, ignored);
  if (host_.connections.size() >= host_.options.max_connections) {
    const auto idle = std::find_if(host_.connections.begin(), host_.connections.end(),
                                   [](const auto& c) { return c.second->idle(); });
    if (idle != host_.connections.end()) {
      const auto victim = idle->second;
      victim->close();
    } else {
      const HttpResponse full = host_.handler.error(
          503, fmt::format("All {} connections are in use; try again later.", host_.options.max_connections));
      const std::string text = fmt::format(
          "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
          full.content_type, full.body.size(), full.body);
      socket.write_some(asio::buffer(text), ignored);  // fits into an empty send buffer
      socket.shutdown(tcp::socket::shutdown_send, ignored);
      return;
    }
  }
  auto connection = std::make_shared<HttpConnection>(host_, std::move(socket));
  host_.connections.emplace(connection.get(), connection);
  connection->start();
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::open(const std::string& host, std::uint16_t port, Options options,
                                                     Handler handler) {
  auto server = std::make_unique<Server>(options, std::move(handler));
  MYRIAD_TRY_STATUS(server->listen(host, port));
  MYRIAD_TRY_STATUS(server->start());
  return server;
}

}  // namespace myriad
