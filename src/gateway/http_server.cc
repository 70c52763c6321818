#include "gateway/http_server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "gateway/small_thread.h"

namespace myriad {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Timer = asio::steady_timer;

constexpr std::size_t kBodyStep = std::size_t{16} << 10;
constexpr std::size_t kReadStep = std::size_t{4} << 10;
constexpr std::size_t kMaxLingerBytes = std::size_t{64}
                                        << 20;  // of an unwanted body, read so that the client reads the refusal

std::string_view reason_of(int status) {
  const auto text = http::obsolete_reason(static_cast<http::status>(status));
  return {text.data(), text.size()};
}

bool may_have_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

// All request bodies that are in memory, also those that are being read.
struct BodyBudget {
  std::atomic<std::size_t> used{0};
};
// One body's share.
struct BodyLease {
  explicit BodyLease(std::shared_ptr<BodyBudget> b) : budget(std::move(b)) {}
  BodyLease(const BodyLease&) = delete;
  BodyLease& operator=(const BodyLease&) = delete;
  ~BodyLease() { budget->used -= held; }
  bool grow(std::size_t to) {
    if (to <= held) return true;
    const std::size_t more = to - held;
    if (budget->used.fetch_add(more) + more > kMaxBodyBytesInMemory) {
      budget->used -= more;
      return false;
    }
    held = to;
    return true;
  }
  std::shared_ptr<BodyBudget> budget;
  std::size_t held = 0;
};

class Connection;

class Server final : public HttpServer {
 public:
  Server(Options options, Handler handler) : options_(options), handler_(std::move(handler)), accept_retry_(io_) {}
  ~Server() override {
    stop();
    // Nothing runs any more: let go of the connections while the context that their timers use is still there.
    connections_.clear();
    acceptors_.clear();
  }

  Status listen(const std::string& host, std::uint16_t port);
  Status start() {
    for (auto& acceptor : acceptors_) accept(*acceptor);
    return thread_.start("http", kHttpThreadStack, [this] { io_.run(); });
  }
  std::uint16_t port() const override { return port_; }
  void post(std::function<void()> work) override { asio::post(io_, std::move(work)); }
  void stop() override {
    io_.stop();
    thread_.join();
  }

  const Options& options() const { return options_; }
  Handler& handler() { return handler_; }
  asio::io_context& io() { return io_; }
  const std::shared_ptr<BodyBudget>& bodies() const { return bodies_; }
  void forget(const Connection* c) { connections_.erase(c); }

 private:
  Status bind(const tcp::endpoint& at);
  void accept(tcp::acceptor& acceptor);
  void admit(tcp::socket socket);

  Options options_;
  Handler handler_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  std::vector<std::unique_ptr<tcp::acceptor>> acceptors_;
  Timer accept_retry_;
  std::unordered_map<const Connection*, std::shared_ptr<Connection>> connections_;
  std::shared_ptr<BodyBudget> bodies_ = std::make_shared<BodyBudget>();
  std::uint16_t port_ = 0;
  SmallThread thread_;
};

class Exchange final : public HttpExchange {
 public:
  Exchange(std::weak_ptr<Connection> connection, bool head_only)
      : connection_(std::move(connection)), head_only_(head_only) {}
  void respond(HttpResponse response) override;
  void begin_stream(std::string content_type, HttpHeaders headers, std::string idle_text) override;
  void write(std::string text) override;
  void end_stream() override;
  void on_gone(std::function<void()> gone) override { on_gone_ = std::move(gone); }
  bool gone() const override { return gone_; }

  void set_gone() {
    if (gone_ || answered_) return;
    gone_ = true;
    if (auto call = std::exchange(on_gone_, nullptr)) call();
  }

 private:
  friend class Connection;
  std::weak_ptr<Connection> connection_;
  std::function<void()> on_gone_;
  std::string idle_text_;
  bool head_only_ = false;
  bool chunked_ = false;
  bool streaming_ = false;
  bool answered_ = false;  // all of it was handed to the connection
  bool gone_ = false;
};

// At any time at most one read and one write are under way. Between requests, and while one is served, the read is
// `watch`: its data are the beginning of the next request, its end is the client's leaving.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Server& server, tcp::socket socket)
      : server_(server),
        socket_(std::move(socket)),
        buffer_(kMaxPipelinedBytes + kMaxHeaderBytes),
        read_timer_(server.io()),
        write_timer_(server.io()),
        idle_timer_(server.io()) {}

  void start() { next_request(); }
  [[nodiscard]] bool idle() const { return state_ == State::idle; }

  // Ends everything at once. What is being served is told so.
  void close() {
    if (state_ == State::closed) return;
    const auto self = shared_from_this();
    state_ = State::closed;
    error_code ignored;
    socket_.close(ignored);
    read_timer_.cancel();
    write_timer_.cancel();
    idle_timer_.cancel();
    server_.forget(this);
    if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->set_gone();
  }

  // --- called by the exchange that is being answered ---
  void respond(Exchange& exchange, HttpResponse response);
  void begin_stream(Exchange& exchange, const std::string& content_type, const HttpHeaders& headers);
  void write(Exchange& exchange, std::string text);
  void end_stream(Exchange& exchange);

 private:
  enum class State { idle, header, body, serving, lingering, closed };

  void next_request();
  void watch();
  void read_header();
  void got_header(error_code error);
  void read_body();
  void got_body_step(error_code error);
  void got_request();
  void open_exchange();
  void refuse(int status, std::string message);
  void send(std::string text);
  void write_some();
  void wrote_all();
  void linger();
  void linger_read();
  void arm_read(Nanos limit, int timeout_status);
  void arm_idle_text();
  std::string response_head(int status, std::string_view content_type, const HttpHeaders& headers, bool http_1_0);

  Server& server_;
  tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  Timer read_timer_, write_timer_, idle_timer_;
  State state_ = State::idle;

  std::optional<http::request_parser<http::buffer_body>> parser_;
  HttpHead head_;
  std::string body_;
  std::shared_ptr<BodyLease> lease_;
  std::string step_;  // room for kBodyStep bytes while a body is read
  std::chrono::steady_clock::time_point body_deadline_{};

  std::shared_ptr<Exchange> exchange_;
  bool http_1_0_ = false;
  bool keep_alive_ = false;
  bool watching_ = false;       // `watch` is under way
  bool resume_ = false;         // a request lies in the buffer: begin with it when `watch` has ended
  bool client_ended_ = false;   // it will send nothing more
  std::uint64_t read_arm_ = 0;  // which arming of the read timer counts

  std::string queued_, writing_;
  std::size_t written_ = 0;
  bool write_under_way_ = false;
  bool too_slow_ = false;         // the client did not take what was sent; the connection is about to close
  bool answer_complete_ = false;  // of the present exchange: when the queue is empty the next request may come
  std::size_t lingered_ = 0;
};

// -------------------------------------------------------------------------------------------------------------------
// exchange

void Exchange::respond(HttpResponse response) {
  if (const auto c = connection_.lock(); c && !gone_ && !answered_) c->respond(*this, std::move(response));
}
void Exchange::begin_stream(std::string content_type, HttpHeaders headers, std::string idle_text) {
  idle_text_ = std::move(idle_text);
  if (const auto c = connection_.lock(); c && !gone_ && !answered_) c->begin_stream(*this, content_type, headers);
}
void Exchange::write(std::string text) {
  if (const auto c = connection_.lock(); c && streaming_ && !gone_ && !answered_ && !text.empty())
    c->write(*this, std::move(text));
}
void Exchange::end_stream() {
  if (const auto c = connection_.lock(); c && streaming_ && !gone_ && !answered_) c->end_stream(*this);
}

// -------------------------------------------------------------------------------------------------------------------
// reading

void Connection::arm_read(Nanos limit, int timeout_status) {
  const std::uint64_t arm = ++read_arm_;
  read_timer_.expires_after(limit);
  read_timer_.async_wait([self = shared_from_this(), arm, timeout_status](error_code error) {
    if (error || arm != self->read_arm_ || self->state_ == State::closed) return;
    if (timeout_status == 0) {
      self->close();
      return;
    }
    self->refuse(timeout_status, "The request was not complete in time; the connection is closed.");
  });
}

// Waits for a request's first byte, or takes what was sent ahead.
void Connection::next_request() {
  state_ = State::idle;
  exchange_.reset();
  answer_complete_ = false;
  if (client_ended_ && buffer_.size() == 0) {
    close();
    return;
  }
  if (buffer_.size() > 0) {
    if (watching_) {  // the read must end before another begins
      resume_ = true;
      error_code ignored;
      socket_.cancel(ignored);
      return;
    }
    read_header();
    return;
  }
  arm_read(server_.options().idle_limit, 0);
  watch();
}

void Connection::watch() {
  if (watching_ || state_ == State::closed) return;
  watching_ = true;
  // Beyond the limit what comes is thrown away, and the connection ends with the present request.
  const bool discard = buffer_.size() >= kMaxPipelinedBytes;
  if (discard) keep_alive_ = false;
  socket_.async_read_some(buffer_.prepare(std::min(kReadStep, buffer_.max_size() - buffer_.size())),
                          [self = shared_from_this(), discard](error_code error, std::size_t n) {
                            self->watching_ = false;
                            if (self->state_ == State::closed) return;
                            if (!discard) self->buffer_.commit(n);
                            if (error && error != asio::error::operation_aborted) {
                              self->client_ended_ = true;
                              if (self->state_ == State::serving && self->answer_complete_ && error == asio::error::eof)
                                return;  // let it be sent
                              self->close();
                              return;
                            }
                            if (self->state_ == State::lingering) {
                              self->linger_read();
                            } else if (self->state_ == State::serving) {
                              self->watch();
                            } else if (self->state_ == State::idle && (n > 0 || self->resume_)) {
                              self->resume_ = false;
                              self->read_header();
                            } else if (self->state_ == State::idle) {
                              self->watch();
                            }
                          });
}

void Connection::read_header() {
  state_ = State::header;
  parser_.emplace();
  parser_->header_limit(kMaxHeaderBytes);
  parser_->body_limit(server_.options().max_body_bytes);
  body_.clear();
  lease_.reset();
  head_ = {};
  http_1_0_ = false;
  keep_alive_ = false;
  arm_read(server_.options().header_limit, 408);
  http::async_read_header(socket_, buffer_, *parser_,
                          [self = shared_from_this()](error_code error, std::size_t) { self->got_header(error); });
}

void Connection::got_header(error_code error) {
  if (state_ != State::header) return;
  if (error) {
    if (error == http::error::end_of_stream || error == http::error::partial_message || error == asio::error::eof ||
        error.category() == boost::system::system_category()) {
      close();
    } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      refuse(431, fmt::format("The request's header is longer than {} bytes.", kMaxHeaderBytes));
    } else if (error == http::error::body_limit) {
      refuse(413, fmt::format("The request's body is longer than {} bytes.", server_.options().max_body_bytes));
    } else {
      refuse(400, fmt::format("This is not an HTTP/1.1 request: {}.", error.message()));
    }
    return;
  }
  const auto& message = parser_->get();
  const auto text = [](auto view) { return std::string(view.data(), view.size()); };
  head_.method = text(message.method_string());
  std::string target = text(message.target());
  // An absolute form, as a proxy sends it, is reduced to its path.
  if (const auto scheme = target.find("://"); scheme != std::string::npos && target.front() != '/') {
    const auto path = target.find('/', scheme + 3);
    target = path == std::string::npos ? "/" : target.substr(path);
  }
  const auto question = target.find('?');
  head_.path = target.substr(0, question);
  if (question != std::string::npos) head_.query = target.substr(question + 1);
  head_.authorization = text(message[http::field::authorization]);
  head_.content_type = text(message[http::field::content_type]);
  head_.origin = text(message[http::field::origin]);
  head_.requested_headers = text(message[http::field::access_control_request_headers]);
  http_1_0_ = message.version() < 11;
  keep_alive_ = parser_->keep_alive();

  if (server_.handler().refuse) {
    if (auto refusal = server_.handler().refuse(head_)) {
      if (!parser_->is_done()) keep_alive_ = false;  // the body stays unread
      open_exchange();
      exchange_->respond(std::move(*refusal));
      return;
    }
  }
  if (parser_->is_done()) {
    got_request();
    return;
  }
  body_deadline_ = std::chrono::steady_clock::now() + server_.options().body_limit;
  lease_ = std::make_shared<BodyLease>(server_.bodies());
  state_ = State::body;
  const std::string expect = text(message[http::field::expect]);
  if (!expect.empty() && !http_1_0_) {
    if (!boost::beast::iequals(expect, "100-continue")) {
      refuse(417, fmt::format("The expectation '{}' cannot be met; only 100-continue can.", expect.substr(0, 64)));
      return;
    }
    send("HTTP/1.1 100 Continue\r\n\r\n");
  }
  read_body();
}

void Connection::read_body() {
  if (std::chrono::steady_clock::now() > body_deadline_) {
    refuse(408, "The request's body was not complete in time; the connection is closed.");
    return;
  }
  step_.resize(kBodyStep);
  parser_->get().body().data = step_.data();
  parser_->get().body().size = step_.size();
  parser_->get().body().more = true;
  arm_read(server_.options().body_step_limit, 408);
  http::async_read(socket_, buffer_, *parser_,
                   [self = shared_from_this()](error_code error, std::size_t) { self->got_body_step(error); });
}

void Connection::got_body_step(error_code error) {
  if (state_ != State::body) return;
  if (error && error != http::error::need_buffer) {
    if (error == http::error::body_limit) {
      refuse(413, fmt::format("The request's body is longer than {} bytes.", server_.options().max_body_bytes));
    } else if (error == http::error::partial_message || error == http::error::end_of_stream ||
               error == asio::error::eof || error.category() == boost::system::system_category()) {
      close();
    } else {
      refuse(400, fmt::format("The request's body is malformed: {}.", error.message()));
    }
    return;
  }
  const std::size_t n = step_.size() - parser_->get().body().size;
  if (body_.size() + n > body_.capacity()) body_.reserve(std::max(body_.size() + n, body_.capacity() * 2));
  body_.append(step_.data(), n);
  if (!lease_->grow(body_.capacity())) {
    refuse(503, "Other requests' bodies fill the memory that there is for them; try again later.");
    return;
  }
  if (parser_->is_done())
    got_request();
  else
    read_body();
}

void Connection::got_request() {
  std::string().swap(step_);
  open_exchange();
  HttpBody body(std::move(body_), std::move(lease_));
  body_.clear();
  // Copies, because the answer may come before this returns and lead to the next request.
  const auto exchange = exchange_;
  server_.handler().handle(std::move(head_), std::move(body), exchange);
}

void Connection::open_exchange() {
  ++read_arm_;
  read_timer_.cancel();
  state_ = State::serving;
  answer_complete_ = false;
  exchange_ = std::make_shared<Exchange>(weak_from_this(), head_.method == "HEAD");
  watch();
}

// An answer of the server itself to a request that could not be read; the connection ends with it.
void Connection::refuse(int status, std::string message) {
  if (state_ == State::closed || state_ == State::lingering || state_ == State::serving) return;
  ++read_arm_;
  read_timer_.cancel();
  error_code ignored;
  socket_.cancel(ignored);  // the read of the request, if it is under way
  body_.clear();
  lease_.reset();
  keep_alive_ = false;
  state_ = State::serving;
  exchange_ = std::make_shared<Exchange>(weak_from_this(), head_.method == "HEAD");
  exchange_->respond(server_.handler().error(status, std::move(message)));
}

// -------------------------------------------------------------------------------------------------------------------
// writing

std::string Connection::response_head(int status, std::string_view content_type, const HttpHeaders& headers,
                                      bool http_1_0) {
  // The answer to a 1.0 client is 1.1's in form; such a client ignores what it does not know.
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", status, reason_of(status));
  if (may_have_body(status)) out += fmt::format("Content-Type: {}\r\n", content_type);
  for (const auto& [name, value] : headers) out += fmt::format("{}: {}\r\n", name, value);
  if (!keep_alive_)
    out += "Connection: close\r\n";
  else if (http_1_0)
    out += "Connection: keep-alive\r\n";
  return out;
}

void Connection::respond(Exchange& exchange, HttpResponse response) {
  if (&exchange != exchange_.get()) return;
  std::string out = response_head(response.status, response.content_type, response.headers, http_1_0_);
  if (may_have_body(response.status)) out += fmt::format("Content-Length: {}\r\n", response.body.size());
  out += "\r\n";
  if (!exchange.head_only_ && may_have_body(response.status)) out += response.body;
  exchange.answered_ = true;
  answer_complete_ = true;
  send(std::move(out));
}

void Connection::begin_stream(Exchange& exchange, const std::string& content_type, const HttpHeaders& headers) {
  if (&exchange != exchange_.get()) return;
  exchange.streaming_ = true;
  exchange.chunked_ = !http_1_0_;
  if (http_1_0_) keep_alive_ = false;  // the connection's end is the stream's
  std::string out = response_head(200, content_type, headers, http_1_0_);
  if (exchange.chunked_) out += "Transfer-Encoding: chunked\r\n";
  out += "\r\n";
  send(std::move(out));
  arm_idle_text();
}

void Connection::write(Exchange& exchange, std::string text) {
  if (&exchange != exchange_.get() || too_slow_) return;
  if (queued_.size() + (writing_.size() - written_) > kMaxQueuedStreamBytes) {
    too_slow_ = true;
    // Later, because whoever writes is not ready to hear now that the client has gone.
    log(LogLevel::warning, "event=http_slow_reader queued_bytes={}", queued_.size());
    asio::post(server_.io(), [self = shared_from_this()] { self->close(); });
    return;
  }
  send(exchange.chunked_ ? fmt::format("{:x}\r\n{}\r\n", text.size(), text) : std::move(text));
  if (state_ == State::serving) arm_idle_text();
}

void Connection::end_stream(Exchange& exchange) {
  if (&exchange != exchange_.get() || too_slow_) return;
  idle_timer_.cancel();
  exchange.answered_ = true;
  answer_complete_ = true;
  send(exchange.chunked_ ? "0\r\n\r\n" : "");
}

void Connection::arm_idle_text() {
  if (exchange_ == nullptr || exchange_->idle_text_.empty()) return;
  idle_timer_.expires_after(server_.options().idle_interval);
  idle_timer_.async_wait([self = shared_from_this(), exchange = exchange_](error_code error) {
    if (!error && self->exchange_ == exchange) exchange->write(exchange->idle_text_);
  });
}

void Connection::send(std::string text) {
  if (state_ == State::closed) return;
  if (queued_.empty())
    queued_ = std::move(text);
  else
    queued_ += text;
  if (write_under_way_) return;
  write_under_way_ = true;
  // From the loop, not from within the caller: an answer that is sent in one piece with others costs one system call,
  // and no request begins inside the handler of the one before.
  asio::post(server_.io(), [self = shared_from_this()] { self->write_some(); });
}

void Connection::write_some() {
  if (state_ == State::closed) return;
  if (written_ == writing_.size()) {
    std::string().swap(writing_);  // a long answer's memory is given back
    writing_.swap(queued_);
    written_ = 0;
    if (writing_.empty()) {
      write_under_way_ = false;
      wrote_all();
      return;
    }
  }
  write_timer_.expires_after(server_.options().write_limit);
  write_timer_.async_wait([self = shared_from_this()](error_code error) {
    if (error || !self->write_under_way_ || self->state_ == State::closed) return;
    if (self->write_timer_.expiry() > std::chrono::steady_clock::now()) return;  // armed anew in the meantime
    log(LogLevel::warning, "event=http_slow_reader reason=write_limit");
    self->close();
  });
  socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                           [self = shared_from_this()](error_code error, std::size_t n) {
                             if (self->state_ == State::closed) return;
                             self->write_timer_.cancel();
                             // Ending a read cancels a write too; it is begun again.
                             if (error && error != asio::error::operation_aborted) {
                               self->close();
                               return;
                             }
                             self->written_ += n;
                             self->write_some();
                           });
}

void Connection::wrote_all() {
  if (!answer_complete_ || state_ != State::serving) return;
  if (keep_alive_)
    next_request();
  else
    linger();
}

// The last answer is sent: says so to the client and waits, a little, until it has taken it. Closing at once while
// something that it sent is unread would make its system throw the answer away.
void Connection::linger() {
  state_ = State::lingering;
  exchange_.reset();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  arm_read(server_.options().linger_limit, 0);
  if (client_ended_) {
    close();
    return;
  }
  if (watching_)
    socket_.cancel(ignored);
  else
    linger_read();
}

void Connection::linger_read() {
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(kReadStep * 4), [self = shared_from_this()](error_code error, std::size_t n) {
    if (self->state_ != State::lingering) return;
    self->lingered_ += n;
    if ((error && error != asio::error::operation_aborted) || self->lingered_ > kMaxLingerBytes)
      self->close();
    else
      self->linger_read();
  });
}

// -------------------------------------------------------------------------------------------------------------------
// server

Status Server::bind(const tcp::endpoint& at) {
  auto acceptor = std::make_unique<tcp::acceptor>(io_);
  error_code error;
  acceptor->open(at.protocol(), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && at.protocol() == tcp::v6()) acceptor->set_option(asio::ip::v6_only(true), error);
  if (!error) acceptor->bind(at, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return fail(Code::io,
                "listening for HTTP on {} port {}: {}; choose another address or port, or end what listens there",
                at.address().to_string(), at.port(), error.message());
  }
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
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(host, "", tcp::resolver::passive, error);
    if (error)
      return fail(Code::invalid_argument, "listening for HTTP: '{}' is no address of this machine: {}", host,
                  error.message());
    for (const auto& entry : found) {
      if (std::find(addresses.begin(), addresses.end(), entry.endpoint().address()) == addresses.end()) {
        addresses.push_back(entry.endpoint().address());
      }
    }
  }
  if (addresses.size() > 1) {  // a machine without IPv6 (or IPv4) serves the other family
    std::erase_if(addresses, [this](const auto& a) { return !has_family(io_, a.is_v6() ? tcp::v6() : tcp::v4()); });
  }
  if (addresses.empty()) return fail(Code::io, "listening for HTTP on '{}': this machine has no such address", host);
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
  socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(options_.socket_send_buffer)), ignored);
  socket.non_blocking(true, ignored);
  if (connections_.size() >= options_.max_connections) {
    const auto idle =
        std::find_if(connections_.begin(), connections_.end(), [](const auto& c) { return c.second->idle(); });
    if (idle != connections_.end()) {
      const auto victim = idle->second;
      victim->close();
    } else {
      const HttpResponse full =
          handler_.error(503, fmt::format("All {} connections are in use; try again later.", options_.max_connections));
      const std::string text = fmt::format(
          "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
          full.content_type, full.body.size(), full.body);
      socket.write_some(asio::buffer(text), ignored);  // fits into an empty send buffer
      socket.shutdown(tcp::socket::shutdown_send, ignored);
      return;
    }
  }
  auto connection = std::make_shared<Connection>(*this, std::move(socket));
  connections_.emplace(connection.get(), connection);
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
