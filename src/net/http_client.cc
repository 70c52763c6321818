#include "net/http_client.h"

#include <sys/socket.h>

#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "net/dial.h"
#include "net/http_message.h"
#include "net/reactor_impl.h"

namespace myriad {
namespace {

using boost::system::error_code;

constexpr std::size_t kPieceBytes = std::size_t{64} << 10;
static_assert(kPieceBytes <= kScratchBytes);
constexpr std::size_t kPiecesPerTurn = 8;

class Fetch : public std::enable_shared_from_this<Fetch> {
 public:
  Fetch(std::shared_ptr<Core> core, Endpoint from, std::string path, std::string bearer, std::uint64_t offset,
        std::uint64_t total, std::function<Status(std::span<const std::byte>)> on_data, Nanos idle,
        std::function<void(Status)> done, bool any_size)
      : core_(std::move(core)),
        from_(std::move(from)),
        path_(std::move(path)),
        bearer_(std::move(bearer)),
        at_(offset),
        total_(total),
        any_size_(any_size),
        on_data_(std::move(on_data)),
        idle_(idle),
        done_(std::move(done)),
        socket_(core_->context),
        timer_(core_->context) {}

  void start() {
    core_->open.emplace(this, [this] {
      done_ = nullptr;
      end({});
    });
    if (!is_http_target(path_) || !is_http_value(bearer_) || path_.size() + bearer_.size() > kMaxHttpHeadBytes / 2)
      return refuse(Code::invalid_argument, "the path or the ticket holds characters that cannot travel in a request");
    if (at_ > total_) return refuse(Code::invalid_argument, fmt::format("from byte {} of {}", at_, total_));
    if (at_ == total_) return end({});
    dial(core_, from_, idle_, [self = shared_from_this()](Result<boost::asio::ip::tcp::socket> dialled) {
      if (!self->done_) return;
      if (!dialled) return self->refuse(dialled.error().code, dialled.error().message);
      self->socket_ = std::move(*dialled);
      error_code ignored;
      self->socket_.native_non_blocking(true, ignored);
      self->request();
    });
  }

 private:
  void request() {
    head_ = fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nRange: bytes={}-\r\nConnection: close\r\n", path_,
                        from_.to_string(), at_);
    if (!bearer_.empty()) head_ += fmt::format("Authorization: Bearer {}\r\n", bearer_);
    head_ += "\r\n";
    alive();
    boost::asio::async_write(socket_, boost::asio::buffer(head_),
                             [self = shared_from_this()](const error_code& error, std::size_t) {
                               if (!self->done_) return;
                               if (error) return self->refuse(Code::unavailable, error.message());
                               self->head_.clear();
                               self->wait();
                             });
  }

  void wait() {
    socket_.async_wait(boost::asio::ip::tcp::socket::wait_read, [self = shared_from_this()](const error_code& error) {
      if (!self->done_) return;
      if (error) return self->refuse(Code::unavailable, error.message());
      self->readable();
    });
  }

  void readable() {
    for (std::size_t i = 0; i < kPiecesPerTurn; ++i) {
      const ssize_t n = ::recv(socket_.native_handle(), core_->scratch.data(), kPieceBytes, MSG_DONTWAIT);
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) break;
        return refuse(Code::unavailable, fmt::format("after byte {} of {}: {}", at_, total_, std::strerror(errno)));
      }
      if (n == 0)
        return refuse(Code::unavailable,
                      fmt::format("the server closed the connection after byte {} of {}", at_, total_));
      alive();
      take(std::span<const std::byte>(core_->scratch).first(static_cast<std::size_t>(n)));
      if (!done_) return;
    }
    wait();
  }

  void take(std::span<const std::byte> bytes) {
    if (!answered_) {
      const std::size_t before = head_.size();
      head_.append(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kMaxHttpHeadBytes + 1 - before));
      const auto end_of_head = http_head_end(head_);
      if (!end_of_head) {
        if (head_.size() > kMaxHttpHeadBytes)
          refuse(Code::limit, fmt::format("the head of the answer is longer than {} bytes", kMaxHttpHeadBytes));
        return;
      }
      const auto head = parse_http_response(std::string_view(head_).substr(0, *end_of_head));
      if (!head) return refuse(head.error().code, head.error().message);
      bytes = bytes.subspan(*end_of_head - before);
      head_.clear();
      answered_ = true;
      if (auto good = check(*head); !good) return refuse(good.error().code, good.error().message);
    }
    if (skip_ > 0) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(skip_, bytes.size()));
      skip_ -= n;
      bytes = bytes.subspan(n);
    }
    if (bytes.empty()) return;
    if (bytes.size() > total_ - at_)
      return refuse(Code::corrupt, fmt::format("the server sends more than the {} bytes that it announced", total_));
    const auto self = shared_from_this();
    if (auto taken = on_data_(bytes); !taken) return end(std::move(taken));
    at_ += bytes.size();
    if (at_ == total_) end({});
  }

  Status check(const HttpResponseHead& head) {
    const auto length_field = head.fields.only("content-length");
    const auto length = length_field ? parse_http_number(*length_field) : std::nullopt;
    switch (head.status) {
      case 200:
      case 206:
        break;
      case 401:
      case 403:
        return fail(Code::unauthenticated, "the server refuses the ticket (status {})", head.status);
      case 404:
        return fail(Code::not_found, "the server has no such file");
      case 416:
        return fail(Code::corrupt, "the server's file ends before byte {}, expected {} bytes", at_, total_);
      case 429:
      case 503:
        return fail(Code::busy, "the server is busy (status {}); try again later", head.status);
      default:
        return fail(Code::unavailable, "the server answered with status {}, expected 206", head.status);
    }
    if (head.fields.has("transfer-encoding") || head.fields.has("content-encoding"))
      return fail(Code::unsupported, "the server encodes the file, expected its plain bytes");
    if (!length) return fail(Code::corrupt, "the answer has no length");
    if (any_size_) {
      if (*length > total_) return fail(Code::limit, "the file has {} bytes, at most {} are taken", *length, total_);
      total_ = *length;
    }
    if (head.status == 200) {
      // The range was ignored: what we have already passes by once more.
      if (*length != total_) return fail(Code::corrupt, "the file has {} bytes, expected {}", *length, total_);
      skip_ = at_;
      return {};
    }
    const auto field = head.fields.only("content-range");
    const auto range = field ? parse_content_range(*field) : std::nullopt;
    if (!range) return fail(Code::corrupt, "the answer does not say which range it holds");
    if (range->total != total_) return fail(Code::corrupt, "the file has {} bytes, expected {}", range->total, total_);
    if (range->first != at_ || range->last != total_ - 1 || *length != total_ - at_)
      return fail(Code::corrupt, "the answer holds bytes {} to {} ({} of them), expected {} to {}", range->first,
                  range->last, *length, at_, total_ - 1);
    return {};
  }

  void alive() {
    timer_.expires_at(Core::time_point(Core::now() + bounded_wait(idle_)));
    timer_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error && self->done_)
        self->refuse(Code::deadline,
                     fmt::format("nothing came for {} ms after byte {} of {}",
                                 std::chrono::duration_cast<std::chrono::milliseconds>(self->idle_).count(), self->at_,
                                 self->total_));
    });
  }

  void refuse(Code code, const std::string& why) {
    end(fail(code, "fetching http://{}{}: {}", from_.to_string(), path_.substr(0, 200), why));
  }

  void end(Status status) {
    const auto alive_until_the_end = weak_from_this().lock();
    core_->open.erase(this);
    timer_.cancel();
    error_code ignored;
    if (socket_.is_open()) socket_.close(ignored);
    on_data_ = nullptr;
    if (const auto done = std::exchange(done_, nullptr)) done(std::move(status));
  }

  const std::shared_ptr<Core> core_;
  const Endpoint from_;
  const std::string path_, bearer_;
  std::uint64_t at_;
  std::uint64_t total_;  // with any_size_: the most that is taken, until the answer says how much there is
  const bool any_size_;
  std::uint64_t skip_ = 0;
  std::function<Status(std::span<const std::byte>)> on_data_;
  const Nanos idle_;
  std::function<void(Status)> done_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  std::string head_;
  bool answered_ = false;
};

}  // namespace

void http_get_range(Reactor& reactor, Endpoint from, std::string path, std::string bearer, std::uint64_t offset,
                    std::uint64_t expected_total, std::function<Status(std::span<const std::byte>)> on_data,
                    Nanos idle_timeout, std::function<void(Status)> done) {
  const auto core = reactor.impl().core;
  const auto fetch = std::make_shared<Fetch>(core, std::move(from), std::move(path), std::move(bearer), offset,
                                             expected_total, std::move(on_data), idle_timeout, std::move(done), false);
  core->post([fetch] { fetch->start(); });
}

void http_get(Reactor& reactor, Endpoint from, std::string path, std::string bearer, std::uint64_t limit,
              std::function<Status(std::span<const std::byte>)> on_data, Nanos idle_timeout,
              std::function<void(Status)> done) {
  const auto core = reactor.impl().core;
  const auto fetch = std::make_shared<Fetch>(core, std::move(from), std::move(path), std::move(bearer), 0, limit,
                                             std::move(on_data), idle_timeout, std::move(done), true);
  core->post([fetch] { fetch->start(); });
}

}  // namespace myriad
