#include "net/hop_bench.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "net/connection.h"
#include "net/socket_options.h"

namespace myriad {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kTurns = 10;  // of each kind, one after the other
constexpr Nanos kCallLimit = std::chrono::seconds(5);

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// While it lives, this thread and those that it starts run on one core: with two ends that the system moves about, a
// hop takes a quarter of the time when both happen to share a core, and that is no hop between machines.
class OnCore {
 public:
  // The first core that this process may use, or the second.
  explicit OnCore(bool second) {
    if (::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    std::size_t skip = second && CPU_COUNT(&before_) > 1 ? 1 : 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &before_) && skip-- == 0) {
        CPU_SET(cpu, &one);
        break;
      }
    moved_ = ::sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~OnCore() {
    if (moved_) ::sched_setaffinity(0, sizeof before_, &before_);
  }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;

 private:
  cpu_set_t before_{};
  bool moved_ = false;
};

// One end of a plain connection.
class BareEnd {
 public:
  explicit BareEnd(Descriptor socket) : socket_(std::move(socket)), poll_(::epoll_create1(EPOLL_CLOEXEC)) {
    set_socket_options(socket_.get());
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
    ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, socket_.get(), &event);
  }
  bool write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return true;
  }
  // false when the other end is gone.
  bool read(std::span<std::byte> into) {
    while (!into.empty()) {
      const ssize_t n = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
      if (n == 0) return false;
      if (n > 0) {
        into = into.subspan(static_cast<std::size_t>(n));
        continue;
      }
      if (errno != EAGAIN && errno != EINTR) return false;
      epoll_event event{};
      if (::epoll_wait(poll_.get(), &event, 1, 5000) == 0) return false;
    }
    return true;
  }
  void shut() { ::shutdown(socket_.get(), SHUT_RDWR); }

 private:
  Descriptor socket_, poll_;
};

Result<std::pair<Descriptor, Descriptor>> loopback_pair() {
  const auto failed = [] {
    return fail(Code::unavailable, "opening a pair of sockets on loopback: {}", std::strerror(errno));
  };
  Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      dialled(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  if (listener.get() < 0 || dialled.get() < 0 || ::bind(listener.get(), address, size) != 0 ||
      ::listen(listener.get(), 1) != 0 || ::getsockname(listener.get(), address, &size) != 0 ||
      ::connect(dialled.get(), address, size) != 0)
    return failed();
  Descriptor accepted(::accept(listener.get(), nullptr, nullptr));
  if (accepted.get() < 0) return failed();
  return std::pair(std::move(dialled), std::move(accepted));
}

// Calls, on two reactors of this process.
class Calls {
 public:
  Status open() {
    {
      const OnCore here(false);
      client_.start();
    }
    {
      const OnCore there(true);
      server_.start();
    }
    const auto echo = [](const Hello&) {
      return Connection::Handlers{[](Connection&, Message m, Responder r) {
                                    if (auto* call = std::get_if<Call>(&m))
                                      r.answer(CallReply{std::move(call->tensors)});
                                  },
                                  {}};
    };
    MYRIAD_TRY(listener_, Listener::open(server_, {"", 0}, "a hop", Hello{}, echo, {}));
    std::promise<Result<ConnectionPtr>> dialled;
    connect(client_, {"127.0.0.1", listener_->port()}, "a hop", Hello{}, {}, kCallLimit,
            [&](Result<ConnectionPtr> c) { dialled.set_value(std::move(c)); });
    MYRIAD_TRY(connection_, dialled.get_future().get());
    return {};
  }
  // Sends `row` there and back `rounds` times; what came back goes out again.
  Status run(Activation row, std::size_t rounds, std::vector<double>& times) {
    std::promise<Status> done;
    Clock::time_point start;
    std::size_t left = rounds;
    std::function<void(Activation)> next = [&](Activation x) {
      Call call;
      call.items = {{1, {0}, {}, HeadWant::nothing}};
      call.tensors.push_back(std::move(x));
      start = Clock::now();
      connection_->call(std::move(call), kCallLimit, [&](Result<Message> answer) {
        times.push_back(microseconds_since(start));
        if (!answer) return done.set_value(std::unexpected(std::move(answer).error()));
        if (--left == 0) return done.set_value({});
        next(std::move(std::get<CallReply>(*answer).tensors.front()));
      });
    };
    client_.post([&] { next(std::move(row)); });
    return done.get_future().get();
  }

 private:
  Reactor client_, server_;
  std::unique_ptr<Listener> listener_;
  ConnectionPtr connection_;
};

double median(std::vector<double>& v) {
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

}  // namespace

Result<HopTimes> measure_hop(Form form, std::size_t values, std::size_t rounds) {
  Activation row;
  row.form = form;
  row.rows = 1;
  row.width = values;
  if (form == Form::i8) {
    row.q.assign(values, 1);
    row.scales.assign(row.groups(), 1.0F);
  } else {
    row.values.assign(values, 1.0F);
  }
  Call call;
  call.items = {{1, {0}, {}, HeadWant::nothing}};
  call.tensors = {row};
  MYRIAD_TRY(const std::vector<std::byte> frame, encode_frame({1, false, 5000, call}));

  MYRIAD_TRY(auto sockets, loopback_pair());
  BareEnd near(std::move(sockets.first)), far(std::move(sockets.second));
  const std::jthread echo([&] {
    const OnCore there(true);
    std::vector<std::byte> bytes(frame.size());
    while (far.read(bytes) && far.write(bytes)) {
    }
  });
  const std::unique_ptr<BareEnd, void (*)(BareEnd*)> at_end(&near, [](BareEnd* end) { end->shut(); });
  Calls calls;
  MYRIAD_TRY_STATUS(calls.open());

  HopTimes out;
  out.frame_bytes = frame.size();
  std::vector<double> bare_times, call_times, unused;
  MYRIAD_TRY_STATUS(calls.run(row, std::max<std::size_t>(1, rounds / kTurns), unused));  // a warm-up
  std::vector<std::byte> back(frame.size());
  const OnCore here(false);
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    const std::size_t now = std::max<std::size_t>(1, rounds / kTurns);
    for (std::size_t i = 0; i < now; ++i) {
      const auto start = Clock::now();
      if (!near.write(frame) || !near.read(back))
        return fail(Code::unavailable, "a plain socket on loopback broke off: {}", std::strerror(errno));
      bare_times.push_back(microseconds_since(start));
    }
    MYRIAD_TRY_STATUS(calls.run(row, now, call_times));
  }
  out.bare_us = median(bare_times);
  out.call_us = median(call_times);
  return out;
}

}  // namespace myriad
