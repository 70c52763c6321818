// One connection of the HTTP server and the answers on it. Internal to http_server.cc and http_connection.cc, which
// alone see Beast.
#pragma once

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "gateway/http_server.h"

namespace myriad {

namespace asio = boost::asio;
namespace http = boost::beast::http;

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

class HttpConnection;

// What the connections of a server share.
struct HttpHost {
  HttpServer::Options options;
  HttpServer::Handler handler;
  asio::io_context io{1};
  std::shared_ptr<BodyBudget> bodies = std::make_shared<BodyBudget>();
  std::unordered_map<const HttpConnection*, std::shared_ptr<HttpConnection>> connections{};  // those that are open
};

class ConnectionExchange final : public HttpExchange {
 public:
  ConnectionExchange(std::weak_ptr<HttpConnection> connection, bool head_only)
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
  friend class HttpConnection;
  std::weak_ptr<HttpConnection> connection_;
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
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpHost& host, asio::ip::tcp::socket socket)
      : host_(host),
        socket_(std::move(socket)),
        buffer_(kMaxPipelinedBytes + kMaxHeaderBytes),
        read_timer_(host.io),
        write_timer_(host.io),
        idle_timer_(host.io) {}

  void start() { next_request(); }
  [[nodiscard]] bool idle() const { return state_ == State::idle; }

  // Ends everything at once. What is being served is told so.
  void close() {
    if (state_ == State::closed) return;
    const auto self = shared_from_this();
    state_ = State::closed;
    boost::system::error_code ignored;
    socket_.close(ignored);
    read_timer_.cancel();
    write_timer_.cancel();
    idle_timer_.cancel();
    host_.connections.erase(this);
    if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->set_gone();
  }

  // --- called by the exchange that is being answered ---
  void respond(ConnectionExchange& exchange, HttpResponse response);
  void begin_stream(ConnectionExchange& exchange, const std::string& content_type, const HttpHeaders& headers);
  void write(ConnectionExchange& exchange, std::string text);
  void end_stream(ConnectionExchange& exchange);

 private:
  enum class State { idle, header, body, serving, lingering, closed };

  void next_request();
  void watch();
  void read_header();
  void got_header(boost::system::error_code error);
  void read_body();
  void got_body_step(boost::system::error_code error);
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

  HttpHost& host_;
  asio::ip::tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  asio::steady_timer read_timer_, write_timer_, idle_timer_;
  State state_ = State::idle;

  std::optional<http::request_parser<http::buffer_body>> parser_;
  HttpHead head_;
  std::string body_;
  std::shared_ptr<BodyLease> lease_;
  std::string step_;  // room for kBodyStep bytes while a body is read
  std::chrono::steady_clock::time_point body_deadline_{};

  std::shared_ptr<ConnectionExchange> exchange_;
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

}  // namespace myriad
