#include "net/http_files.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/log.h"
#include "net/accept.h"
#include "net/http_message.h"

namespace myriad {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kPieceBytes = std::size_t{256} << 10;  // of a file, then the other connections have their turn

class OpenFile {
 public:
  OpenFile() = default;
  explicit OpenFile(const std::filesystem::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int fd() const { return fd_; }
  // Of a regular file.
  [[nodiscard]] std::optional<std::uint64_t> size() const {
    struct stat s {};
    if (fd_ < 0 || ::fstat(fd_, &s) != 0 || !S_ISREG(s.st_mode)) return std::nullopt;
    return static_cast<std::uint64_t>(s.st_size);
  }

 private:
  int fd_ = -1;
};

struct Server {
  HttpFiles::Find find;
  HttpFiles::Admit admit;
  HttpFiles::Options options;
  std::size_t connections = 0;
  bool closed = false;
};

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 206:
      return "Partial Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 416:
      return "Range Not Satisfiable";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Error";
  }
}

bool says(std::string_view field, std::string_view word) {
  return field.size() == word.size() && std::equal(field.begin(), field.end(), word.begin(), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b;
         });
}

class Visitor : public std::enable_shared_from_this<Visitor> {
 public:
  Visitor(std::shared_ptr<Core> core, std::shared_ptr<Server> server, tcp::socket socket)
      : core_(std::move(core)), server_(std::move(server)), socket_(std::move(socket)), timer_(core_->context) {
    ++server_->connections;
  }
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;
  ~Visitor() { --server_->connections; }

  void start() {
    core_->open.emplace(this, [this] { end(); });
    error_code ignored;
    socket_.native_non_blocking(true, ignored);
    limit(server_->options.head_timeout);
    wait_read();
  }

 private:
  void limit(Nanos wait) {
    timer_.expires_at(Core::time_point(Core::now() + bounded_wait(wait)));
    timer_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error) self->end();
    });
  }

  void wait_read() {
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const error_code& error) {
      if (!error) self->readable();
    });
  }

  void wait_write() {
    socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](const error_code& error) {
      if (!error) self->writable();
    });
  }

  void readable() {
    if (!socket_.is_open() || server_->closed) return end();
    const std::size_t room = std::min(kMaxHttpHeadBytes + 1 - in_.size(), core_->scratch.size());
    const ssize_t n = ::recv(socket_.native_handle(), core_->scratch.data(), room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return wait_read();
    if (n <= 0) return end();
    if (in_.empty()) limit(server_->options.head_timeout);
    in_.append(reinterpret_cast<const char*>(core_->scratch.data()), static_cast<std::size_t>(n));
    next_request();
  }

  // Answers the first request that has arrived whole.
  void next_request() {
    const auto end_of_head = http_head_end(in_);
    if (!end_of_head || *end_of_head > kMaxHttpHeadBytes) {
      if (in_.size() <= kMaxHttpHeadBytes) return wait_read();
      keep_ = false;
      return respond(431, "");
    }
    const auto head = parse_http_request(std::string_view(in_).substr(0, *end_of_head));
    in_.erase(0, *end_of_head);
    in_.shrink_to_fit();
    try {
      answer(head);
    } catch (const std::exception& e) {
      // A callback's bug, or no memory: this visitor goes, the others stay.
      log(LogLevel::error, "event=request_failed what={}", log_value(e.what()));
      end();
    }
  }

  void answer(const Result<HttpRequestHead>& head) {
    keep_ = false;
    if (!head) return respond(head.error().code == Code::limit ? 431 : 400, "");
    const HttpFields& fields = head->fields;
    if (head->minor >= 1 && !fields.only("host")) return respond(400, "");
    // A request with a body would have to be read past; no reader of files sends one.
    const auto length = fields.only("content-length");
    if (fields.has("transfer-encoding") || (fields.has("content-length") && (!length || *length != "0")))
      return respond(400, "");
    const auto connection = fields.only("connection");
    keep_ =
        head->minor >= 1 ? !(connection && says(*connection, "close")) : connection && says(*connection, "keep-alive");
    without_body_ = head->method == "HEAD";
    if (head->method != "GET" && head->method != "HEAD") return respond(405, "Allow: GET, HEAD\r\n");

    constexpr std::string_view scheme = "bearer ";
    const auto authorization = fields.only("authorization");
    if (!authorization || authorization->size() <= scheme.size() ||
        !says(authorization->substr(0, scheme.size()), scheme) || !server_->admit(authorization->substr(scheme.size())))
      return respond(401, "WWW-Authenticate: Bearer\r\n");

    const std::string_view path = std::string_view(head->target).substr(0, head->target.find('?'));
    const auto name = server_->find(path);
    OpenFile file = name ? OpenFile(*name) : OpenFile();
    const auto size = file.size();
    if (!size) return respond(404, "");

    ByteRange range{0, *size - 1};
    const auto wanted = fields.only("range");
    const RangeKind kind = wanted ? parse_http_range(*wanted, *size, range) : RangeKind::whole;
    if (kind == RangeKind::unsatisfiable) return respond(416, fmt::format("Content-Range: bytes */{}\r\n", *size));
    const std::uint64_t bytes = *size == 0 ? 0 : range.last - range.first + 1;
    std::string more = "Content-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\n";
    if (kind == RangeKind::part)
      more += fmt::format("Content-Range: bytes {}-{}/{}\r\n", range.first, range.last, *size);
    if (!without_body_) {
      file_ = std::move(file);
      at_ = range.first;
      left_ = bytes;
    }
    send_head(kind == RangeKind::part ? 206 : 200, more, bytes);
  }

  // Without a file; the status says it all.
  void respond(int status, std::string_view more) { send_head(status, more, 0); }

  void send_head(int status, std::string_view more, std::uint64_t length) {
    out_ = fmt::format("HTTP/1.1 {} {}\r\n{}Content-Length: {}\r\nConnection: {}\r\n\r\n", status, reason(status), more,
                       length, keep_ ? "keep-alive" : "close");
    limit(server_->options.idle_timeout);
    writable();
  }

  void writable() {
    if (!socket_.is_open() || server_->closed) return end();
    while (!out_.empty()) {
      // More follows at once: head and first bytes share a packet.
      const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (left_ > 0 ? MSG_MORE : 0);
      const ssize_t n = ::send(socket_.native_handle(), out_.data(), out_.size(), flags);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return wait_write();
      if (n <= 0) return end();
      out_.erase(0, static_cast<std::size_t>(n));
    }
    for (std::size_t sent = 0; left_ > 0;) {
      if (sent >= kPieceBytes) return wait_write();
      auto offset = static_cast<off_t>(at_);
      const ssize_t n = ::sendfile(socket_.native_handle(), file_.fd(), &offset,
                                   static_cast<std::size_t>(std::min<std::uint64_t>(left_, kPieceBytes - sent)));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return wait_write();
      if (n <= 0) return end();  // the file has become shorter, or the disk fails: the reader sees an answer cut short
      at_ += static_cast<std::uint64_t>(n);
      left_ -= static_cast<std::uint64_t>(n);
      sent += static_cast<std::size_t>(n);
      limit(server_->options.idle_timeout);
    }
    file_ = OpenFile();
    if (!keep_) return end();
    limit(in_.empty() ? server_->options.idle_timeout : server_->options.head_timeout);
    // From the loop, so that many requests in one packet do not nest.
    core_->post([self = shared_from_this()] { self->next_request(); });
  }

  void end() {
    core_->open.erase(this);
    timer_.cancel();
    if (!socket_.is_open()) return;
    // What still lies unread would turn the close into a reset and destroy the answer on its way.
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    (void)::recv(socket_.native_handle(), core_->scratch.data(), core_->scratch.size(), MSG_DONTWAIT);
    socket_.close(ignored);
  }

  const std::shared_ptr<Core> core_;
  const std::shared_ptr<Server> server_;
  tcp::socket socket_;
  boost::asio::steady_timer timer_;
  std::string in_, out_;
  OpenFile file_;
  std::uint64_t at_ = 0, left_ = 0;
  bool keep_ = false;
  bool without_body_ = false;
};

class HttpFilesImpl : public HttpFiles {
 public:
  HttpFilesImpl(std::shared_ptr<Core> core, std::shared_ptr<Server> server, tcp::acceptor acceptor)
      : core_(std::move(core)), server_(std::move(server)) {
    error_code error;
    port_ = acceptor.local_endpoint(error).port();
    const auto socket = std::make_shared<tcp::acceptor>(std::move(acceptor));
    core_->run_on_loop([c = core_, s = server_, socket, holder = acceptor_] {
      *holder = Acceptor::start(c, std::move(*socket), [c, s](tcp::socket visitor) {
        if (s->closed || s->connections >= s->options.max_connections) return;
        std::make_shared<Visitor>(c, s, std::move(visitor))->start();
      });
    });
  }
  HttpFilesImpl(const HttpFilesImpl&) = delete;
  HttpFilesImpl& operator=(const HttpFilesImpl&) = delete;
  ~HttpFilesImpl() override { close_now(); }
  [[nodiscard]] std::uint16_t port() const override { return port_; }
  void close() override { close_now(); }

 private:
  void close_now() {
    core_->run_on_loop([s = server_, holder = acceptor_] {
      s->closed = true;
      if (*holder) (*holder)->close();
      s->find = nullptr;
      s->admit = nullptr;
    });
  }

  const std::shared_ptr<Core> core_;
  const std::shared_ptr<Server> server_;
  const std::shared_ptr<std::shared_ptr<Acceptor>> acceptor_ =
      std::make_shared<std::shared_ptr<Acceptor>>();  // loop only
  std::uint16_t port_ = 0;
};

}  // namespace

Result<std::unique_ptr<HttpFiles>> HttpFiles::open(Reactor& reactor, Endpoint at, Find find, Admit admit,
                                                   Options options) {
  const auto core = reactor.impl().core;
  MYRIAD_TRY(auto acceptor, bind_and_listen(*core, at));
  auto server = std::make_shared<Server>(Server{std::move(find), std::move(admit), options});
  return std::make_unique<HttpFilesImpl>(core, std::move(server), std::move(acceptor));
}

}  // namespace myriad
