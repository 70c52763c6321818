// What a call costs over a bare exchange of the same bytes, on loopback, and what idle connections cost:
//   ninja -C build/release net_bench && build/release/src/net/net_bench
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <thread>

#include "net/connection.h"
#include "net/event_test.h"
#include "net/raw_peer_test.h"
#include "net/socket_options.h"

namespace myriad {
namespace {

using Clock = std::chrono::steady_clock;

struct Times {
  std::vector<double> microseconds;
  void print(const char* what) {
    std::ranges::sort(microseconds);
    const auto at = [&](double q) {
      return microseconds[static_cast<std::size_t>(q * double(microseconds.size() - 1))];
    };
    std::printf("%-42s p50 %8.1f us   p99 %8.1f us\n", what, at(0.5), at(0.99));
  }
};

template <class F>
Times measure(int rounds, F once) {
  Times t;
  for (int i = 0; i < rounds + rounds / 10; ++i) {
    const auto start = Clock::now();
    once();
    if (i >= rounds / 10)
      t.microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return t;
}

void bare(std::size_t bytes, int rounds, const char* what) {
  const test::RawListener listener;
  std::jthread echo([&] {
    const test::RawPeer peer = listener.accept();
    set_socket_options(peer.fd());
    for (;;) {
      const auto got = peer.read(bytes);
      if (got.size() < bytes) return;
      peer.write(std::span<const std::byte>(got));
    }
  });
  const test::RawPeer peer = test::RawPeer::dial(listener.port());
  set_socket_options(peer.fd());
  const std::vector<std::byte> data(bytes);
  measure(rounds, [&] {
    peer.write(std::span<const std::byte>(data));
    (void)peer.read(bytes);
  }).print(what);
}

void run() {
  using namespace std::chrono_literals;
  Reactor client, server;
  client.start();
  server.start();
  const auto listener = Listener::open(server, {"", 0}, "token", Hello{},
                                       [](const Hello&) {
                                         return Connection::Handlers{[](Connection&, Message m, Responder r) {
                                                                       if (auto* call = std::get_if<Call>(&m)) {
                                                                         r.answer(CallReply{std::move(call->tensors)});
                                                                       } else if (r) {
                                                                         r.answer(std::move(m));
                                                                       }
                                                                     },
                                                                     {}};
                                       },
                                       {});
  test::Mailbox<ConnectionPtr> connected;
  const auto dial = [&] {
    connect(client, {"127.0.0.1", (*listener)->port()}, "token", Hello{}, {}, 5s,
            [&](Result<ConnectionPtr> c) { connected.put(c ? *c : nullptr); });
    return connected.take().value_or(nullptr);
  };
  const ConnectionPtr c = dial();
  if (!c) return;
  test::Mailbox<bool> answered;
  const auto ask = [&](const Message& m) {
    c->call(m, 5s, [&](const Result<Message>& r) { answered.put(r.has_value()); });
    (void)answered.take();
  };
  // From callback to callback, as a state machine on the reactor does it: no other thread has to wake.
  const auto ping_pong = [&](const Message& m, int rounds, const char* what) {
    Times t;
    std::function<void()> next = [&] {
      const auto start = Clock::now();
      c->call(m, 5s, [&, start](const Result<Message>&) {
        t.microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
        if (static_cast<int>(t.microseconds.size()) < rounds) return next();
        answered.put(true);
      });
    };
    client.post([&] { next(); });
    (void)answered.take();
    t.print(what);
  };
  const Message small = HeartbeatReply{{1}};
  Call call;
  call.items = {{1, {0}, {}, HeadWant::nothing}};
  call.tensors = {Activation(Form::bf16, 1, 7168)};
  std::printf("frames: %zu and %zu bytes\n", encode_frame({1, false, 5000, small})->size(),
              encode_frame({1, false, 5000, call})->size());
  bare(64, 20000, "bare TCP, 64 bytes each way");
  ping_pong(small, 20000, "call, smallest message, on the reactor");
  measure(20000, [&] { ask(small); }).print("call, smallest message, another thread");
  bare(7168 * 2, 10000, "bare TCP, 7168 bf16 each way");
  ping_pong(call, 10000, "call, 7168 bf16, on the reactor");
  measure(10000, [&] { ask(call); }).print("call, 7168 bf16, another thread");
  {
    Times encode, decode;
    const auto frame = *encode_frame({1, false, 5000, call});
    const std::span<const std::byte> all(frame);
    measure(20000, [&] {
      (void)encode_frame({1, false, 5000, call});
    }).print("encode of that call (with one copy of it)");
    measure(20000, [&] {
      const auto header = decode_frame_header(all.first(kFrameHeaderBytes));
      (void)decode_frame(*header, all.first(kFrameHeaderBytes), all.subspan(kFrameHeaderBytes));
    }).print("decode of that call");
  }

  const auto resident = [] {
    std::ifstream statm("/proc/self/statm");
    long total = 0, pages = 0;
    statm >> total >> pages;
    return pages * 4096;
  };
  std::vector<ConnectionPtr> idle;
  for (int i = 0; i < 50; ++i) idle.push_back(dial());
  const long before = resident();
  for (int i = 0; i < 1000; ++i) idle.push_back(dial());
  std::printf("resident: %ld bytes a connection (both ends)\n", (resident() - before) / 1000);
  idle.resize(50);
  std::this_thread::sleep_for(3s);
  rusage a{}, b{};
  getrusage(RUSAGE_SELF, &a);
  std::this_thread::sleep_for(5s);
  getrusage(RUSAGE_SELF, &b);
  const auto us = [](const rusage& r) {
    return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000 + r.ru_utime.tv_usec + r.ru_stime.tv_usec;
  };
  std::printf("idle for 5 s with 1051 connections: %ld us of processor time, %ld context switches\n",
              static_cast<long>(us(b) - us(a)), b.ru_nvcsw - a.ru_nvcsw);
}

}  // namespace
}  // namespace myriad

int main() {
  myriad::run();
}
