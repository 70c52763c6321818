#include "net/connection.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/bytes.h"
#include "base/log.h"
#include "net/event_test.h"
#include "net/raw_peer_test.h"

namespace myriad {
namespace {

using namespace std::chrono_literals;
using test::Mailbox;
using test::RawListener;
using test::RawPeer;
using Side = Handshake::Side;
using Clock = std::chrono::steady_clock;

constexpr auto kToken = "a fleet's token";

struct Question {
  Message message;
  Responder responder;
};

// One reactor with a listener whose questions and closings go to mailboxes.
class Connections : public ::testing::Test {
 protected:
  void SetUp() override {
    log_configure(LogLevel::off, "");  // what is refused here is refused on purpose
    reactor_.start();
  }
  void TearDown() override { reactor_.stop(); }

  Connection::Handlers to_mailboxes() {
    return {[this](Connection&, Message m, Responder r) {
              questions_.put({std::move(m), std::move(r)});
            },
            [this](Connection&, const Error& why) { closings_.put(why); }};
  }

  std::unique_ptr<Listener> listen(Listener::Options options = {}, Endpoint at = {"", 0}) {
    auto listener = Listener::open(
        reactor_, at, kToken, Hello{Role::node, {"helper"}, 7},
        [this](const Hello& peer) {
          greeted_.put(peer);
          return to_mailboxes();
        },
        options);
    EXPECT_TRUE(listener) << listener.error().message;
    return std::move(*listener);
  }

  Result<ConnectionPtr> try_connect(Endpoint to, std::string token = kToken, Nanos timeout = 5s) {
    Mailbox<Result<ConnectionPtr>> done;
    connect(reactor_, std::move(to), std::move(token), Hello{Role::node, {"lead"}, 3}, to_mailboxes(), timeout,
            [&](Result<ConnectionPtr> c) { done.put(std::move(c)); });
    auto result = done.take();
    if (!result) return fail(Code::internal, "connect never called back");
    return std::move(*result);
  }

  ConnectionPtr connected(std::uint16_t port) {
    auto c = try_connect({"127.0.0.1", port});
    EXPECT_TRUE(c) << c.error().message;
    return c ? *c : nullptr;
  }

  // A connection whose other end is a plain socket.
  std::pair<ConnectionPtr, RawPeer> connected_to_raw() {
    RawListener listener;
    Mailbox<Result<ConnectionPtr>> done;
    connect(reactor_, {"127.0.0.1", listener.port()}, kToken, Hello{Role::node, {"lead"}, 3}, to_mailboxes(), 5s,
            [&](Result<ConnectionPtr> c) { done.put(std::move(c)); });
    RawPeer peer = listener.accept();
    EXPECT_TRUE(peer.greet(Side::listener, kToken, "frozen-1"));
    auto c = done.take();
    EXPECT_TRUE(c && *c);
    return {**c, std::move(peer)};
  }

  Mailbox<Question> questions_;
  Mailbox<Error> closings_;
  Mailbox<Hello> greeted_;
  Reactor reactor_;  // last: it ends before what its callbacks use
};

// An Epoch is enough of a question to tell which one it was.
Message numbered(std::uint64_t n) {
  return HeartbeatReply{{n}};
}
std::uint64_t number_of(const Message& m) {
  return std::get<HeartbeatReply>(m).epoch.value;
}

TEST_F(Connections, GreetBothWays) {
  const auto listener = listen();
  const auto c = connected(listener->port());
  ASSERT_TRUE(c);
  EXPECT_EQ(c->peer().node.value, "helper");
  EXPECT_EQ(c->peer().incarnation, 7u);
  EXPECT_EQ(c->remote_host(), "127.0.0.1");
  const auto peer = greeted_.take();
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->node.value, "lead");
}

TEST_F(Connections, AnswersComeInAnyOrder) {
  const auto listener = listen();
  const auto c = connected(listener->port());
  Mailbox<std::uint64_t> answers;
  for (std::uint64_t i = 0; i < 10; ++i)
    c->call(numbered(i), 5s, [&answers, i](Result<Message> m) {
      ASSERT_TRUE(m) << m.error().message;
      EXPECT_EQ(number_of(*m), i + 100);
      answers.put(i);
    });
  std::vector<Question> questions;
  for (int i = 0; i < 10; ++i) questions.push_back(*questions_.take());
  for (auto q = questions.rbegin(); q != questions.rend(); ++q)
    q->responder.answer(numbered(number_of(q->message) + 100));
  for (std::uint64_t i = 10; i-- > 0;) EXPECT_EQ(answers.take(), i);
}

TEST_F(Connections, AThousandCallsInFlightFromSeveralThreads) {
  const auto listener = listen();
  const auto c = connected(listener->port());
  Mailbox<std::uint64_t> answers;
  std::vector<std::jthread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 250; ++i)
        c->call(numbered(t * 250 + i), 8s, [&answers, n = t * 250 + i](Result<Message> m) {
          answers.put(m && number_of(*m) == n + 1 ? n : ~std::uint64_t{0});
        });
    });
  std::vector<Question> questions;
  for (int i = 0; i < 1000; ++i) {
    auto q = questions_.take();
    ASSERT_TRUE(q);
    questions.push_back(std::move(*q));
  }
  std::shuffle(questions.begin(), questions.end(), std::mt19937(5));
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = static_cast<std::size_t>(t); i < questions.size(); i += 2)
        questions[i].responder.answer(numbered(number_of(questions[i].message) + 1));
    });
  std::vector<bool> seen(1000);
  for (int i = 0; i < 1000; ++i) {
    const auto n = answers.take();
    ASSERT_TRUE(n && *n < 1000);
    EXPECT_FALSE(seen[*n]);
    seen[*n] = true;
  }
}

TEST_F(Connections, BothSidesMayAsk) {
  Mailbox<ConnectionPtr> accepted;
  auto listener =
      Listener::open(reactor_, {"", 0}, kToken, Hello{},
                     [&](const Hello&) {
                       return Connection::Handlers{
                           [&](Connection& from, Message, Responder) { accepted.put(from.shared_from_this()); }, {}};
                     },
                     {});
  ASSERT_TRUE(listener);
  const auto c = connected((*listener)->port());
  c->notify(Watch{});
  const auto back = accepted.take();
  ASSERT_TRUE(back);
  Mailbox<Result<Message>> answer;
  (*back)->call(numbered(4), 5s, [&](Result<Message> m) { answer.put(std::move(m)); });
  const auto question = questions_.take();
  ASSERT_TRUE(question);
  question->responder.answer(numbered(5));
  const auto got = answer.take();
  ASSERT_TRUE(got && *got);
  EXPECT_EQ(number_of(**got), 5u);
}

TEST_F(Connections, LargeTensorsPassUnharmed) {
  const auto listener = listen();
  const auto c = connected(listener->port());
  Call call;
  Activation t(Form::f32, 256, 7168);  // 7 MiB
  for (std::size_t i = 0; i < t.values.size(); ++i) t.values[i] = static_cast<float>(i % 1013);
  call.tensors = {t};
  Mailbox<Result<Message>> answer;
  c->call(call, 8s, [&](Result<Message> m) { answer.put(std::move(m)); });
  auto question = questions_.take();
  ASSERT_TRUE(question);
  question->responder.answer(CallReply{std::move(std::get<Call>(question->message).tensors)});
  const auto got = answer.take();
  ASSERT_TRUE(got && *got);
  EXPECT_EQ(std::get<CallReply>(**got).tensors.at(0).values, t.values);
}

TEST_F(Connections, ACallEndsAtItsDeadlineAndThePeerKnows) {
  const auto listener = listen();
  const auto c = connected(listener->port());
  Mailbox<Result<Message>> answer;
  const auto start = Clock::now();
  c->call(numbered(1), 100ms, [&](Result<Message> m) { answer.put(std::move(m)); });
  const auto question = questions_.take();
  ASSERT_TRUE(question);
  const auto got = answer.take();
  ASSERT_TRUE(got);
  ASSERT_FALSE(*got);
  EXPECT_EQ(got->error().code, Code::deadline);
  EXPECT_EQ(got->error().node, "helper");
  EXPECT_GE(Clock::now() - start, 100ms);
  EXPECT_LT(Clock::now() - start, 1s);
  EXPECT_TRUE(test::eventually([&] { return question->responder.abandoned(); }));
  question->responder.answer(numbered(2));  // too late: dropped
  // The connection lives on.
  c->call(numbered(3), 5s, [&](Result<Message> m) { answer.put(std::move(m)); });
  questions_.take()->responder.answer(numbered(4));
  EXPECT_EQ(number_of(**answer.take()), 4u);
}

TEST_F(Connections, CancelReachesThePeer) {
  const auto listener = listen();
  const auto c = connected(listener->port());
  Mailbox<Result<Message>> answer;
  const auto id = c->call(numbered(1), 60s, [&](Result<Message> m) { answer.put(std::move(m)); });
  const auto question = questions_.take();
  ASSERT_TRUE(question);
  EXPECT_FALSE(question->responder.abandoned());
  c->cancel(id);
  c->cancel(id);  // nothing happens
  EXPECT_EQ(answer.take()->error().code, Code::cancelled);
  EXPECT_TRUE(test::eventually([&] { return question->responder.abandoned(); }));
}

TEST_F(Connections, AFailureAndAForgottenQuestionAreErrorsOfTheCaller) {
  const auto listener = listen();
  const auto c = connected(listener->port());
  Mailbox<Result<Message>> answer;
  c->call(numbered(1), 60s, [&](Result<Message> m) { answer.put(std::move(m)); });
  questions_.take()->responder.fail({Code::does_not_fit, "no room", {}, "L003.attn"});
  const auto failure = answer.take();
  ASSERT_TRUE(failure && !*failure);
  EXPECT_EQ(failure->error().code, Code::does_not_fit);
  EXPECT_EQ(failure->error().node, "helper");
  EXPECT_EQ(failure->error().part, "L003.attn");
  c->call(numbered(1), 60s, [&](Result<Message> m) { answer.put(std::move(m)); });
  { const auto dropped = questions_.take(); }
  EXPECT_EQ(answer.take()->error().code, Code::internal);
}

TEST_F(Connections, ClosingEndsCallsOnBothSides) {
  const auto listener = listen();
  const auto c = connected(listener->port());
  Mailbox<Result<Message>> answer;
  c->call(numbered(1), 60s, [&](Result<Message> m) { answer.put(std::move(m)); });
  const auto question = questions_.take();
  c->close();
  c->close();
  EXPECT_EQ(answer.take()->error().code, Code::cancelled);
  ASSERT_TRUE(closings_.take());
  ASSERT_TRUE(closings_.take());
  EXPECT_TRUE(question->responder.abandoned());
  c->call(numbered(1), 60s, [&](Result<Message> m) { answer.put(std::move(m)); });
  EXPECT_EQ(answer.take()->error().code, Code::unavailable);
}

TEST_F(Connections, HandlersMayCloseAndAskAgain) {
  auto listener = Listener::open(reactor_, {"", 0}, kToken, Hello{},
                                 [&](const Hello&) {
                                   return Connection::Handlers{[](Connection& from, Message m, Responder r) {
                                                                 if (r) r.answer(std::move(m));
                                                                 from.close();
                                                               },
                                                               {}};
                                 },
                                 {});
  ASSERT_TRUE(listener);
  const auto c = connected((*listener)->port());
  Mailbox<Code> end;
  c->call(numbered(1), 5s, [&](Result<Message> m) {
    EXPECT_TRUE(m);  // what was answered before close() arrives
    c->close();
    c->call(numbered(2), 5s, [&](Result<Message> again) { end.put(again.error().code); });
  });
  EXPECT_EQ(end.take(), Code::unavailable);
}

// A peer that computes for longer than the limit of silence is not frozen: its reactor answers Pings meanwhile.
TEST_F(Connections, AFrozenPeerIsNoticedAndOneThatComputesIsNot) {
  const auto listener = listen();
  const auto busy = connected(listener->port());
  Mailbox<Result<Message>> late_answer;
  busy->call(numbered(7), 60s, [&](Result<Message> m) { late_answer.put(std::move(m)); });
  const auto question = questions_.take();
  Mailbox<bool> later;
  const auto timer = reactor_.after(kSilenceLimit + 300ms, [&] { later.put(true); });

  auto [c, peer] = connected_to_raw();
  Mailbox<Result<Message>> answer;
  const auto start = Clock::now();
  c->call(numbered(1), 60s, [&](Result<Message> m) { answer.put(std::move(m)); });
  const auto got = answer.take();
  const auto took = Clock::now() - start;
  ASSERT_TRUE(got && !*got);
  EXPECT_EQ(got->error().code, Code::unavailable);
  EXPECT_EQ(got->error().node, "frozen-1");
  EXPECT_NE(got->error().message.find("frozen"), std::string::npos) << got->error().message;
  EXPECT_GE(took, 1900ms);
  EXPECT_LE(took, 2600ms);
  EXPECT_EQ(closings_.take()->code, Code::unavailable);
  // Exactly the question and one Ping were sent.
  EXPECT_TRUE(std::holds_alternative<HeartbeatReply>(peer.read_frame()->message));
  EXPECT_TRUE(std::holds_alternative<Ping>(peer.read_frame()->message));
  EXPECT_FALSE(peer.read_frame());

  ASSERT_TRUE(question && later.take());
  EXPECT_FALSE(question->responder.abandoned());
  question->responder.answer(numbered(8));
  const auto computed = late_answer.take();
  ASSERT_TRUE(computed && *computed) << computed->error().message;
  EXPECT_EQ(number_of(**computed), 8u);
}

TEST_F(Connections, APeerThatDoesNotReadIsLimitedAndClosed) {
  auto [c, peer] = connected_to_raw();
  const StatusReply large{std::string(kMaxStatusBytes, 'x')};
  Mailbox<Code> answers;
  const auto start = Clock::now();
  const int calls = 20;  // 80 MiB, of which the kernel takes a few
  for (int i = 0; i < calls; ++i) c->call(large, 60s, [&](Result<Message> m) { answers.put(m.error().code); });
  const auto took = Clock::now() - start;
  int limited = 0;
  for (int i = 0; i < calls; ++i) {
    const auto code = answers.take();
    ASSERT_TRUE(code == Code::limit || code == Code::unavailable);
    limited += code == Code::limit ? 1 : 0;
  }
  EXPECT_LT(limited, calls / 2);
  EXPECT_EQ(closings_.take()->code, Code::unavailable);
  if (took > 1s) GTEST_SKIP() << "this machine was too busy to fill the queue before the peer was given up";
  EXPECT_GT(limited, 0);
}

TEST_F(Connections, AnOverloadedConnectionRefusesFurtherCalls) {
  auto [c, peer] = connected_to_raw();
  Mailbox<Code> answers;
  for (std::size_t i = 0; i <= kMaxCallsInFlight; ++i)
    c->call(numbered(i), 60s, [&](Result<Message> m) { answers.put(m.error().code); });
  EXPECT_EQ(answers.take(), Code::limit);
  c->close();
  for (std::size_t i = 0; i < kMaxCallsInFlight; ++i) ASSERT_EQ(answers.take(), Code::cancelled);
}

TEST_F(Connections, BadFramesCloseWithTheReason) {
  {
    auto [c, peer] = connected_to_raw();
    peer.write("this is no frame");
    const auto why = closings_.take();
    ASSERT_TRUE(why);
    EXPECT_EQ(why->code, Code::corrupt);
    EXPECT_NE(why->message.find("frozen-1"), std::string::npos) << why->message;
  }
  {
    auto [c, peer] = connected_to_raw();
    auto frame = *encode_frame({0, false, 0, Watch{}});
    store_le(frame.data() + 8, std::uint32_t{0x7fffffff});
    peer.write(std::span<const std::byte>(frame).first(kFrameHeaderBytes));
    EXPECT_EQ(closings_.take()->code, Code::limit);
  }
  {
    auto [c, peer] = connected_to_raw();
    auto frame = *encode_frame({0, false, 0, Watch{}});
    frame.back() ^= std::byte{1};
    peer.write(std::span<const std::byte>(frame));
    EXPECT_EQ(closings_.take()->code, Code::corrupt);
  }
  {
    auto [c, peer] = connected_to_raw();
    peer.write(std::span<const std::byte>(*encode_frame({1, false, 0, Watch{}})));  // a number of the connecting side
    EXPECT_EQ(closings_.take()->code, Code::corrupt);
  }
  {
    auto [c, peer] = connected_to_raw();
    Mailbox<Result<Message>> answer;
    c->call(numbered(1), 60s, [&](Result<Message> m) { answer.put(std::move(m)); });
    EXPECT_TRUE(peer.read_frame());
    const auto frame = *encode_frame({1, true, 0, StatusReply{std::string(1000, 'x')}});
    peer.write(std::span<const std::byte>(frame).first(500));
    peer.close();
    const auto got = answer.take();
    ASSERT_TRUE(got && !*got);
    EXPECT_EQ(got->error().code, Code::unavailable);
    EXPECT_NE(got->error().message.find("middle of a frame"), std::string::npos) << got->error().message;
  }
}

TEST_F(Connections, FramesMayArriveInAnyPieces) {
  auto [c, peer] = connected_to_raw();
  std::vector<std::byte> stream;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const auto frame =
        *encode_frame({0, false, 0, i % 3 == 0 ? Message{StatusReply{std::string(i * 9000, 'y')}} : numbered(i)});
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  std::mt19937 random(3);
  for (std::span<const std::byte> left(stream); !left.empty();) {
    const std::size_t n = std::min<std::size_t>(left.size(), 1 + random() % (random() % 2 == 0 ? 20 : 70000));
    peer.write(left.first(n));
    left = left.subspan(n);
  }
  for (std::uint64_t i = 0; i < 20; ++i) {
    const auto notice = questions_.take();
    ASSERT_TRUE(notice);
    EXPECT_FALSE(notice->responder);
    if (i % 3 == 0) {
      EXPECT_EQ(std::get<StatusReply>(notice->message).json.size(), i * 9000);
    } else {
      EXPECT_EQ(number_of(notice->message), i);
    }
  }
}

TEST_F(Connections, WrongTokenAndOtherVersionAreNamedOnBothSides) {
  const auto listener = listen();
  const auto wrong = try_connect({"127.0.0.1", listener->port()}, "another token");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::unauthenticated);
  EXPECT_NE(wrong.error().message.find(fmt::format("127.0.0.1:{}", listener->port())), std::string::npos);
  EXPECT_NE(wrong.error().message.find("the tokens differ"), std::string::npos) << wrong.error().message;

  const RawPeer newer = RawPeer::dial(listener->port());
  const Status refused = newer.handshake(Side::connector, kToken, {7, 9});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(
                fmt::format("this side speaks 7..9, the peer {}..{}", kOldestProtocolVersion, kProtocolVersion)),
            std::string::npos);
  EXPECT_TRUE(newer.closed_by_peer());

  RawListener raw;
  Mailbox<Error> done;
  connect(reactor_, {"127.0.0.1", raw.port()}, kToken, Hello{}, {}, 5s,
          [&](Result<ConnectionPtr> c) { done.put(c.error()); });
  const RawPeer peer = raw.accept();
  EXPECT_FALSE(peer.handshake(Side::listener, kToken, {7, 9}));
  const auto why = done.take();
  ASSERT_TRUE(why);
  EXPECT_EQ(why->code, Code::version);
  EXPECT_NE(why->message.find(
                fmt::format("this side speaks {}..{}, the peer 7..9", kOldestProtocolVersion, kProtocolVersion)),
            std::string::npos)
      << why->message;
}

TEST_F(Connections, StrangersAreTurnedAway) {
  const auto listener = listen();
  const RawPeer http = RawPeer::dial(listener->port());
  http.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(http.closed_by_peer());
  const RawPeer half = RawPeer::dial(listener->port());
  half.write("MYH1");
  // A half-open handshake takes nobody else's place.
  ASSERT_TRUE(connected(listener->port()));
  // Not a Hello, from somebody who knows the token.
  const RawPeer rude = RawPeer::dial(listener->port());
  ASSERT_TRUE(rude.handshake(Side::connector, kToken));
  rude.write({0, false, 0, Shutdown{}});
  EXPECT_TRUE(rude.closed_by_peer());
  const RawPeer large = RawPeer::dial(listener->port());
  ASSERT_TRUE(large.handshake(Side::connector, kToken));
  large.write({0, false, 0, StatusReply{std::string(100000, 'x')}});
  EXPECT_TRUE(large.closed_by_peer());
}

TEST_F(Connections, SilentStrangersLoseTheirPlaces) {
  const auto listener = listen({.max_connections = 100, .max_handshakes = 4});
  std::vector<RawPeer> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(RawPeer::dial(listener->port()));
  const auto start = Clock::now();
  ASSERT_TRUE(connected(listener->port()));
  EXPECT_LT(Clock::now() - start, 2s);
  EXPECT_TRUE(silent.front().closed_by_peer());
}

TEST_F(Connections, TooManyConnectionsAreClosedAtOnce) {
  const auto listener = listen({.max_connections = 2, .max_handshakes = 4});
  const auto a = connected(listener->port());
  const auto b = connected(listener->port());
  ASSERT_TRUE(greeted_.take() && greeted_.take());  // both are counted
  EXPECT_TRUE(RawPeer::dial(listener->port()).closed_by_peer());
  a->close();
  ASSERT_TRUE(closings_.take() && closings_.take());
  EXPECT_TRUE(connected(listener->port()));
}

TEST_F(Connections, EveryAddressOfBothFamilies) {
  const auto listener = listen({}, {"*", 0});
  EXPECT_TRUE(connected(listener->port()));
  const auto named = try_connect({"localhost", listener->port()});
  EXPECT_TRUE(named) << named.error().message;
  const int six = ::socket(AF_INET6, SOCK_STREAM, 0);
  if (six < 0) GTEST_SKIP() << "no IPv6 here";
  ::close(six);
  const auto c = try_connect({"::1", listener->port()});
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ((*c)->remote_host(), "::1");
}

TEST_F(Connections, ErrorsNameTheEndpointAndTheCause) {
  std::uint16_t port = 0;
  {
    const RawListener gone;
    port = gone.port();
  }
  const auto refused = try_connect({"127.0.0.1", port});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unavailable);
  EXPECT_NE(refused.error().message.find(fmt::format("connecting to 127.0.0.1:{}: connection refused", port)),
            std::string::npos)
      << refused.error().message;
  const auto unknown = try_connect({"no-such-host.invalid", 1});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("no-such-host.invalid:1"), std::string::npos);
  // Somebody who accepts and says nothing.
  const RawListener silent;
  const auto late = try_connect({"127.0.0.1", silent.port()}, kToken, 200ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::deadline);
  const auto listener = listen();
  const auto twice = Listener::open(reactor_, {"127.0.0.1", listener->port()}, kToken, Hello{}, {}, {});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Code::busy);
  EXPECT_NE(twice.error().message.find("in use"), std::string::npos);
}

TEST_F(Connections, AClosedListenerAcceptsNoMoreAndKeepsWhatItHas) {
  const auto listener = listen();
  const auto c = connected(listener->port());
  const auto port = listener->port();
  listener->close();
  EXPECT_TRUE(test::eventually([&] { return !try_connect({"127.0.0.1", port}); }));
  Mailbox<Result<Message>> answer;
  c->call(numbered(1), 5s, [&](Result<Message> m) { answer.put(std::move(m)); });
  questions_.take()->responder.answer(numbered(2));
  EXPECT_TRUE(*answer.take());
}

TEST(ReactorLife, EndsWithEverythingUnderWay) {
  ConnectionPtr kept;
  Reactor::TimerPtr timer;
  Responder responder;
  {
    Mailbox<ConnectionPtr> done;
    Mailbox<Responder> asked;
    Reactor reactor;
    reactor.start();
    auto listener = Listener::open(
        reactor, {"", 0}, kToken, Hello{},
        [&](const Hello&) {
          return Connection::Handlers{[&](Connection&, Message, Responder r) { asked.put(std::move(r)); }, {}};
        },
        {});
    ASSERT_TRUE(listener);
    connect(reactor, {"", (*listener)->port()}, kToken, Hello{}, {}, 5s,
            [&](Result<ConnectionPtr> c) { done.put(c.value()); });
    kept = *done.take();
    kept->call(Watch{}, 60s, [](Result<Message>) { ADD_FAILURE() << "called after the reactor's end"; });
    responder = *asked.take();
    timer = reactor.after(60s, [] { ADD_FAILURE(); });
    const RawPeer half = RawPeer::dial((*listener)->port());
    half.write("MY");
  }
  EXPECT_TRUE(responder.abandoned());
  responder.answer(Done{});
  kept->notify(Watch{});
  kept->close();
}

TEST(ReactorTimers, RunInOrderAndCanBeCancelled) {
  log_configure(LogLevel::off, "");
  Mailbox<int> ran;
  Reactor reactor;
  reactor.start();
  const auto late = reactor.after(40ms, [&] { ran.put(2); });
  const auto soon = reactor.after(10ms, [&] { ran.put(1); });
  auto never = reactor.after(20ms, [&] { ran.put(3); });
  never.reset();
  EXPECT_EQ(ran.take(), 1);
  EXPECT_EQ(ran.take(), 2);
  reactor.post([&] { ran.put(reactor.on_loop_thread() ? 4 : 5); });
  EXPECT_EQ(ran.take(), 4);
  EXPECT_FALSE(reactor.on_loop_thread());
  reactor.post([] { throw std::runtime_error("a bug"); });
  reactor.post([&] { ran.put(6); });
  EXPECT_EQ(ran.take(), 6);
}

}  // namespace
}  // namespace myriad
