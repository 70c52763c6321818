#include "net/connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "net/connection_impl.h"
#include "net/socket_options.h"

namespace myriad {
namespace {

using boost::system::error_code;

constexpr std::size_t kFramesPerWrite = 16;
constexpr std::size_t kReadsPerTurn = 8;  // then the other connections have their turn
// A timer that comes so much too late means that this process itself stood still; it tells nothing about the peer.
constexpr Nanos kOwnStandstill = std::chrono::milliseconds(300);

std::uint32_t milliseconds_up(Nanos wait) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(ms, 1, UINT32_MAX));
}

}  // namespace

// ---- Responder

Responder::State::~State() {
  if (answered || abandoned) return;
  if (const auto c = connection.lock())
    c->answer(call, Failure{{Code::internal, "the question was dropped without an answer", {}, {}}});
}

void Responder::answer(Message message) const {
  if (!state_ || state_->answered.exchange(true)) return;
  if (const auto c = state_->connection.lock()) c->answer(state_->call, std::move(message));
}

bool Responder::abandoned() const {
  return !state_ || state_->abandoned || Core::now() > state_->deadline || state_->connection.expired();
}

// ---- life

ConnectionImpl::ConnectionImpl(std::shared_ptr<Core> core, boost::asio::ip::tcp::socket socket, Hello peer,
                               Handlers handlers, bool connector, std::function<void()> gone)
    : core_(std::move(core)),
      peer_(std::move(peer)),
      connector_(connector),
      next_call_(connector ? 1 : 2),
      descriptor_(socket.native_handle()),
      socket_(std::move(socket)),
      timer_(core_->context),
      handlers_(std::move(handlers)),
      gone_(std::move(gone)) {
  error_code error;
  const auto remote = socket_.remote_endpoint(error);
  if (!error) host_ = numeric_address(remote.address());
  name_ = fmt::format("{} {} at {}", role_name(peer_.role), peer_.node.value.empty() ? "(no name)" : peer_.node.value,
                      Endpoint{host_, error ? std::uint16_t{0} : remote.port()}.to_string());
}

void ConnectionImpl::start() {
  error_code error;
  socket_.native_non_blocking(true, error);
  core_->open.emplace(this, [this] { drop(); });
  received_ = Core::now();
  arm_read();
}

Error ConnectionImpl::at_peer(Error error) const {
  if (error.node.empty()) error.node = peer_.node.value;
  return error;
}

bool ConnectionImpl::is_closed() {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::closed;
}

void ConnectionImpl::close() {
  core_->run_on_loop([c = self()] {
    {
      const std::lock_guard lock(c->mutex_);
      if (c->phase_ != Phase::open) return;
      c->phase_ = Phase::closing;
      if (!c->queue_.empty()) {
        c->close_at_ = Core::now() + kCloseFlushLimit;
        c->wake_at_locked(c->close_at_);
        return;
      }
    }
    // Later, not from within the callback that may be calling.
    c->core_->post([c] { c->close_with({Code::cancelled, "the connection was closed on this side", {}, {}}); });
  });
}

void ConnectionImpl::fail_later(Error why) {
  core_->post([c = self(), why = std::move(why)]() mutable { c->close_with(std::move(why)); });
}

void ConnectionImpl::close_with(Error why) {
  std::unordered_map<std::uint64_t, Pending> pending;
  std::vector<std::shared_ptr<Responder::State>> questions;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::closed) return;
    phase_ = Phase::closed;
    pending.swap(pending_);
    deadlines_.clear();
    for (auto& [call, weak] : questions_)
      if (auto state = weak.lock()) {
        state->abandoned = true;
        questions.push_back(std::move(state));
      }
    questions_.clear();
    queue_ = {};
    queued_bytes_ = 0;
    error_code ignored;
    socket_.close(
        ignored);  // under the lock: no other thread may write to a descriptor that somebody else has got by now
  }
  questions.clear();
  timer_.cancel();
  core_->open.erase(this);
  body_.reset();
  why = at_peer(std::move(why));
  const bool ours = why.code == Code::cancelled;
  for (auto& [call, p] : pending)
    p.on_answer(std::unexpected(ours ? why : Error{Code::unavailable, why.message, why.node, why.part}));
  if (handlers_.on_close) handlers_.on_close(*this, why);
  handlers_ = {};
  if (gone_) std::exchange(gone_, nullptr)();
}

void ConnectionImpl::drop() {
  // The users' callbacks are destroyed outside the lock and never called: what they refer to may be gone.
  std::unordered_map<std::uint64_t, Pending> pending;
  {
    const std::lock_guard lock(mutex_);
    phase_ = Phase::closed;
    pending.swap(pending_);
    for (auto& [call, weak] : questions_)
      if (const auto state = weak.lock()) state->abandoned = true;
    queue_ = {};
    error_code ignored;
    socket_.close(ignored);
  }
  timer_.cancel();
  handlers_ = {};
  gone_ = nullptr;
}

// ---- asking and answering

std::uint64_t ConnectionImpl::call(Message question, Nanos timeout, OnAnswer on_answer) {
  const std::uint64_t id = next_call_.fetch_add(2);
  const auto refuse = [&](Error error) {
    core_->post([error = at_peer(std::move(error)), f = std::move(on_answer)]() mutable {
      f(std::unexpected(std::move(error)));
    });
    return id;
  };
  const std::string_view what = message_name(question);
  if (timeout <= Nanos{0})
    return refuse({Code::deadline, fmt::format("asking {} for {}: no time was left", name_, what), {}, {}});
  timeout = bounded_wait(timeout);
  auto frame = encode_frame({id, false, milliseconds_up(timeout), std::move(question)});
  if (!frame) return refuse(std::move(frame).error());

  Error error;
  {
    const std::lock_guard lock(mutex_);
    const Nanos now = Core::now();
    if (phase_ != Phase::open) {
      error = {Code::unavailable, fmt::format("asking {} for {}: the connection is closed", name_, what), {}, {}};
    } else if (pending_.size() >= kMaxCallsInFlight) {
      error = {Code::limit,
               fmt::format("asking {} for {}: {} calls are in flight already", name_, what, pending_.size()),
               {},
               {}};
    } else if (auto sent = send_locked(std::move(*frame), Room::bounded); !sent) {
      error = std::move(sent).error();
    } else {
      if (pending_.empty()) waiting_since_ = now;
      const Nanos deadline = now + timeout;
      pending_.emplace(id, Pending{std::move(on_answer), deadline});
      deadlines_.emplace(deadline, id);
      wake_at_locked(std::min(deadline, now + kPingAfter));
      return id;
    }
  }
  return refuse(std::move(error));
}

bool ConnectionImpl::take_pending_locked(std::uint64_t call, Pending& out) {
  const auto found = pending_.find(call);
  if (found == pending_.end()) return false;
  out = std::move(found->second);
  deadlines_.erase({out.deadline, call});
  pending_.erase(found);
  return true;
}

void ConnectionImpl::cancel(std::uint64_t call) {
  Pending pending;
  {
    const std::lock_guard lock(mutex_);
    if (!take_pending_locked(call, pending)) return;
    if (auto frame = encode_frame({call, false, 0, Cancel{}})) (void)send_locked(std::move(*frame), Room::always);
  }
  core_->post([error = at_peer({Code::cancelled, "the call was cancelled on this side", {}, {}}),
               f = std::move(pending.on_answer)]() mutable { f(std::unexpected(std::move(error))); });
}

void ConnectionImpl::notify(Message notice) {
  auto frame = encode_frame({0, false, 0, std::move(notice)});
  if (!frame) {
    log(LogLevel::error, "event=notice_not_sent to={} what={}", log_value(name_), log_value(frame.error().message));
    return;
  }
  // A notice that got lost would go unseen; a connection that ends does not.
  if (auto sent = send(std::move(*frame), Room::bounded); !sent && sent.error().code == Code::limit)
    fail_later(std::move(sent).error());
}

void ConnectionImpl::answer(std::uint64_t call, Message message) {
  {
    const std::lock_guard lock(mutex_);
    if (questions_.erase(call) == 0) return;  // cancelled, or the connection is gone
  }
  auto frame = encode_frame({call, true, 0, std::move(message)});
  if (!frame) frame = encode_frame({call, true, 0, Failure{std::move(frame).error()}});
  if (!frame) return;
  if (auto sent = send(std::move(*frame), Room::bounded); !sent && sent.error().code == Code::limit)
    if (auto busy = encode_frame({call, true, 0, Failure{{Code::busy, sent.error().message, {}, {}}}}))
      (void)send(std::move(*busy), Room::always);  // small, and one a question at most
}

// ---- writing

Status ConnectionImpl::send(std::vector<std::byte> frame, Room room) {
  const std::lock_guard lock(mutex_);
  return send_locked(std::move(frame), room);
}

Status ConnectionImpl::send_locked(std::vector<std::byte> frame, Room room) {
  if (phase_ != Phase::open) return fail(Code::unavailable, "{}: the connection is closed", name_);
  if (room == Room::bounded && queued_bytes_ + frame.size() > kMaxQueuedBytes)
    return fail(Code::limit, "{} does not read: {} bytes wait to be sent to it, at most {} may", name_, queued_bytes_,
                kMaxQueuedBytes);
  queued_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  if (!blocked_) flush_locked();
  return {};
}

void ConnectionImpl::flush_locked() {
  while (!queue_.empty()) {
    std::array<iovec, kFramesPerWrite> parts;
    std::size_t n = 0;
    for (auto frame = queue_.begin(); frame != queue_.end() && n < parts.size(); ++frame, ++n) {
      const std::size_t skip = n == 0 ? sent_of_first_ : 0;
      parts[n] = {frame->data() + skip, frame->size() - skip};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = n;
    const ssize_t sent = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!blocked_) write_progress_ = Core::now();
        blocked_ = true;
        wake_at_locked(write_progress_ + kWriteStallLimit);
        core_->run_on_loop([c = self()] { c->arm_write(); });
        return;
      }
      fail_later({Code::unavailable, fmt::format("{}: writing failed: {}", name_, std::strerror(errno)), {}, {}});
      queue_ = {};
      queued_bytes_ = 0;
      sent_of_first_ = 0;
      return;
    }
    if (blocked_) write_progress_ = Core::now();
    auto left = static_cast<std::size_t>(sent);
    queued_bytes_ -= left;
    while (left > 0 && left >= queue_.front().size() - sent_of_first_) {
      left -= queue_.front().size() - sent_of_first_;
      sent_of_first_ = 0;
      queue_.pop_front();
    }
    sent_of_first_ += left;
  }
  blocked_ = false;
}

void ConnectionImpl::arm_write() {
  socket_.async_wait(boost::asio::ip::tcp::socket::wait_write, [c = self()](const error_code& error) {
    if (!error) c->on_writable();
  });
}

void ConnectionImpl::on_writable() {
  bool flushed = false;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::closed) return;
    flush_locked();
    flushed = phase_ == Phase::closing && queue_.empty();
  }
  if (flushed) close_with({Code::cancelled, "the connection was closed on this side", {}, {}});
}

// ---- time

void ConnectionImpl::wake_at_locked(Nanos at) {
  if (at >= wake_at_) return;
  wake_at_ = at;
  // Never at once: the lock is held.
  core_->post([c = self()] { c->arm_timer(); });
}

void ConnectionImpl::arm_timer() {
  Nanos at;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::closed || wake_at_ == Nanos::max()) return;
    at = wake_at_;
  }
  timer_.expires_at(Core::time_point(at));
  timer_.async_wait([c = self()](const error_code& error) {
    if (!error) c->on_timer();
  });
}

void ConnectionImpl::on_timer() {
  std::vector<OnAnswer> late;
  bool ping = false;
  Error dead;
  const Nanos now = Core::now();
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::closed) return;
    if (wake_at_ != Nanos::max() && now - wake_at_ > kOwnStandstill) {
      waiting_since_ = now;
      if (ping_at_ != Nanos{0}) ping_at_ = now;
      if (blocked_) write_progress_ = now;
    }
    wake_at_ = Nanos::max();
    Nanos next = close_at_;
    if (now >= close_at_) dead = {Code::cancelled, "the connection was closed on this side", {}, {}};

    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      Pending pending;
      if (!take_pending_locked(deadlines_.begin()->second, pending)) break;
      late.push_back(std::move(pending.on_answer));
    }
    if (!deadlines_.empty()) {
      next = std::min(next, deadlines_.begin()->first);
      // Bytes that leave after they had to wait are a sign of life too: the peer's machine takes them.
      const Nanos life = std::max({received_, waiting_since_, write_progress_});
      ping = ping_at_ == Nanos{0} && now - life >= kPingAfter;
      if (ping) ping_at_ = now;
      if (ping_at_ == Nanos{0}) next = std::min(next, life + kPingAfter);
    }
    // Also when the calls that wondered have run out of time meanwhile.
    if (ping_at_ != Nanos{0}) {
      const Nanos gone_at = std::max(ping_at_, write_progress_) + (kSilenceLimit - kPingAfter);
      if (now >= gone_at)
        dead = {
            Code::unavailable,
            fmt::format("{} is frozen: it was asked for a sign of life and nothing was heard for {} ms", name_,
                        std::chrono::duration_cast<std::chrono::milliseconds>(now - std::max(received_, waiting_since_))
                            .count()),
            {},
            {}};
      next = std::min(next, gone_at);
    }
    if (blocked_) {
      if (now - write_progress_ >= kWriteStallLimit)
        dead = {Code::unavailable,
                fmt::format("{} reads nothing: {} bytes have waited for {} ms", name_, queued_bytes_,
                            std::chrono::duration_cast<std::chrono::milliseconds>(now - write_progress_).count()),
                {},
                {}};
      next = std::min(next, write_progress_ + kWriteStallLimit);
    }
    if (ping && dead.message.empty()) {
      if (auto frame = encode_frame({0, false, 0, Ping{}})) (void)send_locked(std::move(*frame), Room::always);
    }
    wake_at_ = std::min(wake_at_, next);
  }
  for (const auto& on_answer : late)
    on_answer(std::unexpected(at_peer({Code::deadline, fmt::format("{} did not answer in time", name_), {}, {}})));
  if (!dead.message.empty()) return close_with(std::move(dead));
  arm_timer();
}

// ---- reading

void ConnectionImpl::arm_read() {
  socket_.async_wait(boost::asio::ip::tcp::socket::wait_read, [c = self()](const error_code& error) {
    if (error) return;
    try {
      c->on_readable();
    } catch (const std::exception& e) {
      // A bug in a handler, or no memory for what arrived: this connection cannot go on, the others can.
      c->close_with({Code::internal, fmt::format("{}: handling what it sent failed: {}", c->name_, e.what()), {}, {}});
    }
  });
}

void ConnectionImpl::on_readable() {
  if (is_closed()) return;
  for (std::size_t turn = 0; turn < kReadsPerTurn; ++turn) {
    // The rest of a long frame goes straight to its place.
    const std::size_t body_bytes = std::size_t{header_.message_bytes} + header_.payload_bytes;
    const bool direct = body_ != nullptr && body_bytes - body_have_ >= core_->scratch.size();
    std::byte* into = direct ? body_.get() + body_have_ : core_->scratch.data();
    const std::size_t room = direct ? body_bytes - body_have_ : core_->scratch.size();
    const ssize_t n = ::recv(socket_.native_handle(), into, room, MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      return close_with(
          {Code::unavailable, fmt::format("{}: the connection broke: {}", name_, std::strerror(errno)), {}, {}});
    }
    if (n == 0) {
      const bool inside = header_have_ > 0;
      return close_with({Code::unavailable,
                         fmt::format("{} closed the connection{}", name_, inside ? " in the middle of a frame" : ""),
                         {},
                         {}});
    }
    {
      const std::lock_guard lock(mutex_);
      received_ = Core::now();
      ping_at_ = Nanos{0};
    }
    const auto got = static_cast<std::size_t>(n);
    if (direct) {
      body_have_ += got;
      if (body_have_ == body_bytes && !consume({})) return;
    } else if (!consume(std::span<const std::byte>(core_->scratch).first(got))) {
      return;
    }
    if (got < room) break;  // probably all there is; the wait below finds out
  }
  arm_read();
}

bool ConnectionImpl::consume(std::span<const std::byte> bytes) {
  for (;;) {
    if (header_have_ < kFrameHeaderBytes) {
      if (bytes.empty()) return true;
      const std::size_t n = std::min(bytes.size(), kFrameHeaderBytes - header_have_);
      std::memcpy(header_bytes_.data() + header_have_, bytes.data(), n);
      header_have_ += n;
      bytes = bytes.subspan(n);
      if (header_have_ < kFrameHeaderBytes) return true;
      const auto header = decode_frame_header(header_bytes_);
      if (!header) {
        close_with(Error(header.error()).within(name_));
        return false;
      }
      header_ = *header;
    }
    const std::size_t body_bytes = std::size_t{header_.message_bytes} + header_.payload_bytes;
    if (body_ == nullptr && bytes.size() >= body_bytes) {
      const auto body = bytes.first(body_bytes);
      bytes = bytes.subspan(body_bytes);
      header_have_ = 0;
      if (!deliver(header_, body)) return false;
      continue;
    }
    // Not touched before bytes arrive for it: a peer that announces much and sends little costs little.
    if (body_ == nullptr) {
      body_ = std::make_unique_for_overwrite<std::byte[]>(body_bytes);
      body_have_ = 0;
    }
    const std::size_t n = std::min(bytes.size(), body_bytes - body_have_);
    if (n > 0) std::memcpy(body_.get() + body_have_, bytes.data(), n);
    body_have_ += n;
    bytes = bytes.subspan(n);
    if (body_have_ < body_bytes) return true;
    const auto body = std::exchange(body_, nullptr);
    header_have_ = 0;
    if (!deliver(header_, {body.get(), body_bytes})) return false;
  }
}

bool ConnectionImpl::deliver(const FrameHeader& header, std::span<const std::byte> body) {
  auto envelope = decode_frame(header, header_bytes_, body);
  if (!envelope) {
    close_with(std::move(envelope).error().within(name_));
    return false;
  }
  return dispatch(std::move(*envelope)) && !is_closed();
}

bool ConnectionImpl::dispatch(Envelope envelope) {
  if (envelope.answer) {
    Pending pending;
    {
      const std::lock_guard lock(mutex_);
      if (!take_pending_locked(envelope.call, pending)) return true;  // too late, or cancelled
    }
    if (auto* failure = std::get_if<Failure>(&envelope.message)) {
      pending.on_answer(std::unexpected(at_peer(std::move(failure->error))));
    } else {
      pending.on_answer(std::move(envelope.message));
    }
    return true;
  }
  if (std::holds_alternative<Ping>(envelope.message)) {
    // Bounded: somebody who asks for signs of life without reading them is not waiting for any.
    if (auto frame = encode_frame({0, false, 0, Pong{}}))
      if (auto sent = send(std::move(*frame), Room::bounded); !sent) {
        close_with(std::move(sent).error());
        return false;
      }
    return true;
  }
  if (std::holds_alternative<Pong>(envelope.message)) return true;
  if (std::holds_alternative<Hello>(envelope.message)) {
    close_with({Code::corrupt, fmt::format("{} greeted twice", name_), {}, {}});
    return false;
  }
  if (std::holds_alternative<Cancel>(envelope.message)) {
    std::shared_ptr<Responder::State> state;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    if (const auto found = questions_.find(envelope.call); found != questions_.end()) {
      state = found->second.lock();
      if (state) state->abandoned = true;
      questions_.erase(found);
    }
    return true;
  }
  if (envelope.call != 0) {
    question(std::move(envelope));
  } else if (handlers_.on_message) {
    handlers_.on_message(*this, std::move(envelope.message), Responder{});
  }
  return true;
}

void ConnectionImpl::question(Envelope envelope) {
  const std::uint64_t call = envelope.call;
  if ((call % 2 == 1) == connector_)
    return close_with({Code::corrupt, fmt::format("{} numbered a call {}, which is ours to use", name_, call), {}, {}});
  const Nanos deadline =
      envelope.deadline_ms == 0 ? Nanos::max() : Core::now() + std::chrono::milliseconds(envelope.deadline_ms);
  const auto state = std::make_shared<Responder::State>(std::weak_ptr<ConnectionImpl>(self()), call, deadline);
  bool twice = false;
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::open) {
      state->answered = true;
      return;
    }
    full = questions_.size() >= kMaxCallsInFlight;
    if (!full) twice = !questions_.emplace(call, state).second;
  }
  if (twice) {
    state->answered = true;
    return close_with({Code::corrupt, fmt::format("{} used the number {} for two calls at once", name_, call), {}, {}});
  }
  if (full) {
    state->answered = true;
    auto busy =
        encode_frame({call, true, 0,
                      Failure{{Code::busy,
                               fmt::format("{} calls of this connection are being served already", kMaxCallsInFlight),
                               {},
                               {}}}});
    if (busy)
      if (auto sent = send(std::move(*busy), Room::bounded); !sent) close_with(std::move(sent).error());
    return;
  }
  if (!handlers_.on_message)
    return Responder(state).fail({Code::unsupported, "this process answers no questions", {}, {}});
  handlers_.on_message(*this, std::move(envelope.message), Responder(state));
}

}  // namespace myriad
