#include "gateway/http_connection.h"

#include <algorithm>

#include "base/log.h"

namespace myriad {

using asio::ip::tcp;
using boost::system::error_code;

namespace {

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

}  // namespace

void ConnectionExchange::respond(HttpResponse response) {
  if (const auto c = connection_.lock(); c && !gone_ && !answered_) c->respond(*this, std::move(response));
}
void ConnectionExchange::begin_stream(std::string content_type, HttpHeaders headers, std::string idle_text) {
  idle_text_ = std::move(idle_text);
  if (const auto c = connection_.lock(); c && !gone_ && !answered_) c->begin_stream(*this, content_type, headers);
}
void ConnectionExchange::write(std::string text) {
  if (const auto c = connection_.lock(); c && streaming_ && !gone_ && !answered_ && !text.empty())
    c->write(*this, std::move(text));
}
void ConnectionExchange::end_stream() {
  if (const auto c = connection_.lock(); c && streaming_ && !gone_ && !answered_) c->end_stream(*this);
}

void HttpConnection::arm_read(Nanos limit, int timeout_status) {
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
void HttpConnection::next_request() {
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
  arm_read(host_.options.idle_limit, 0);
  watch();
}

void HttpConnection::watch() {
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

void HttpConnection::read_header() {
  state_ = State::header;
  parser_.emplace();
  parser_->header_limit(kMaxHeaderBytes);
  parser_->body_limit(host_.options.max_body_bytes);
  body_.clear();
  lease_.reset();
  head_ = {};
  http_1_0_ = false;
  keep_alive_ = false;
  arm_read(host_.options.header_limit, 408);
  http::async_read_header(socket_, buffer_, *parser_,
                          [self = shared_from_this()](error_code error, std::size_t) { self->got_header(error); });
}

void HttpConnection::got_header(error_code error) {
  if (state_ != State::header) return;
  if (error) {
    if (error == http::error::end_of_stream || error == http::error::partial_message || error == asio::error::eof ||
        error.category() == boost::system::system_category()) {
      close();
    } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      refuse(431, fmt::format("The request's header is longer than {} bytes.", kMaxHeaderBytes));
    } else if (error == http::error::body_limit) {
      refuse(413, fmt::format("The request's body is longer than {} bytes.", host_.options.max_body_bytes));
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

  if (host_.handler.refuse) {
    if (auto refusal = host_.handler.refuse(head_)) {
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
  body_deadline_ = std::chrono::steady_clock::now() + host_.options.body_limit;
  lease_ = std::make_shared<BodyLease>(host_.bodies);
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

void HttpConnection::read_body() {
  if (std::chrono::steady_clock::now() > body_deadline_) {
    refuse(408, "The request's body was not complete in time; the connection is closed.");
    return;
  }
  step_.resize(kBodyStep);
  parser_->get().body().data = step_.data();
  parser_->get().body().size = step_.size();
  parser_->get().body().more = true;
  arm_read(host_.options.body_step_limit, 408);
  http::async_read(socket_, buffer_, *parser_,
                   [self = shared_from_this()](error_code error, std::size_t) { self->got_body_step(error); });
}

void HttpConnection::got_body_step(error_code error) {
  if (state_ != State::body) return;
  if (error && error != http::error::need_buffer) {
    if (error == http::error::body_limit) {
      refuse(413, fmt::format("The request's body is longer than {} bytes.", host_.options.max_body_bytes));
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

void HttpConnection::got_request() {
  std::string().swap(step_);
  open_exchange();
  HttpBody body(std::move(body_), std::move(lease_));
  body_.clear();
  // Copies, because the answer may come before this returns and lead to the next request.
  const auto exchange = exchange_;
  host_.handler.handle(std::move(head_), std::move(body), exchange);
}

void HttpConnection::open_exchange() {
  ++read_arm_;
  read_timer_.cancel();
  state_ = State::serving;
  answer_complete_ = false;
  exchange_ = std::make_shared<ConnectionExchange>(weak_from_this(), head_.method == "HEAD");
  watch();
}

// An answer of the server itself to a request that could not be read; the connection ends with it.
void HttpConnection::refuse(int status, std::string message) {
  if (state_ == State::closed || state_ == State::lingering || state_ == State::serving) return;
  ++read_arm_;
  read_timer_.cancel();
  error_code ignored;
  socket_.cancel(ignored);  // the read of the request, if it is under way
  body_.clear();
  lease_.reset();
  keep_alive_ = false;
  state_ = State::serving;
  exchange_ = std::make_shared<ConnectionExchange>(weak_from_this(), head_.method == "HEAD");
  exchange_->respond(host_.handler.error(status, std::move(message)));
}

std::string HttpConnection::response_head(int status, std::string_view content_type, const HttpHeaders& headers,
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

void HttpConnection::respond(ConnectionExchange& exchange, HttpResponse response) {
  if (&exchange != exchange_.get()) return;
  std::string out = response_head(response.status, response.content_type, response.headers, http_1_0_);
  if (may_have_body(response.status)) out += fmt::format("Content-Length: {}\r\n", response.body.size());
  out += "\r\n";
  if (!exchange.head_only_ && may_have_body(response.status)) out += response.body;
  exchange.answered_ = true;
  answer_complete_ = true;
  send(std::move(out));
}

void HttpConnection::begin_stream(ConnectionExchange& exchange, const std::string& content_type,
                                  const HttpHeaders& headers) {
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

void HttpConnection::write(ConnectionExchange& exchange, std::string text) {
  if (&exchange != exchange_.get() || too_slow_) return;
  if (queued_.size() + (writing_.size() - written_) > kMaxQueuedStreamBytes) {
    too_slow_ = true;
    // Later, because whoever writes is not ready to hear now that the client has gone.
    log(LogLevel::warning, "event=http_slow_reader queued_bytes={}", queued_.size());
    asio::post(host_.io, [self = shared_from_this()] { self->close(); });
    return;
  }
  send(exchange.chunked_ ? fmt::format("{:x}\r\n{}\r\n", text.size(), text) : std::move(text));
  if (state_ == State::serving) arm_idle_text();
}

void HttpConnection::end_stream(ConnectionExchange& exchange) {
  if (&exchange != exchange_.get() || too_slow_) return;
  idle_timer_.cancel();
  exchange.answered_ = true;
  answer_complete_ = true;
  send(exchange.chunked_ ? "0\r\n\r\n" : "");
}

void HttpConnection::arm_idle_text() {
  if (exchange_ == nullptr || exchange_->idle_text_.empty()) return;
  idle_timer_.expires_after(host_.options.idle_interval);
  idle_timer_.async_wait([self = shared_from_this(), exchange = exchange_](error_code error) {
    if (!error && self->exchange_ == exchange) exchange->write(exchange->idle_text_);
  });
}

void HttpConnection::send(std::string text) {
  if (state_ == State::closed) return;
  if (queued_.empty())
    queued_ = std::move(text);
  else
    queued_ += text;
  if (write_under_way_) return;
  write_under_way_ = true;
  // From the loop, not from within the caller: an answer that is sent in one piece with others costs one system call,
  // and no request begins inside the handler of the one before.
  asio::post(host_.io, [self = shared_from_this()] { self->write_some(); });
}

void HttpConnection::write_some() {
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
  write_timer_.expires_after(host_.options.write_limit);
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

void HttpConnection::wrote_all() {
  if (!answer_complete_ || state_ != State::serving) return;
  if (keep_alive_)
    next_request();
  else
    linger();
}

// The last answer is sent: says so to the client and waits, a little, until it has taken it. Closing at once while
// something that it sent is unread would make its system throw the answer away.
void HttpConnection::linger() {
  state_ = State::lingering;
  exchange_.reset();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  arm_read(host_.options.linger_limit, 0);
  if (client_ended_) {
    close();
    return;
  }
  if (watching_)
    socket_.cancel(ignored);
  else
    linger_read();
}

void HttpConnection::linger_read() {
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

}  // namespace myriad
