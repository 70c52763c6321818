// Private to net/*.cc. Two kinds of threads meet here: any thread may call, cancel, notify, answer and close, and
// writes to the socket itself when nothing is waiting to be written (one hop less than handing the frame to the loop);
// everything else happens on the loop's thread. What both touch is guarded by `mutex_`, which is never held while a
// callback runs.
#pragma once

#include <array>
#include <deque>
#include <mutex>
#include <set>
#include <unordered_map>

#include "net/connection.h"
#include "net/reactor_impl.h"

namespace myriad {

// A peer that reads nothing for so long, while bytes for it wait, is gone.
inline constexpr Nanos kWriteStallLimit = kSilenceLimit;
// What is still queued when close() is called gets so long to leave.
inline constexpr Nanos kCloseFlushLimit = std::chrono::seconds(1);

class ConnectionImpl;

struct Responder::State {
  State(std::weak_ptr<ConnectionImpl> c, std::uint64_t n, Nanos until)
      : connection(std::move(c)), call(n), deadline(until) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();  // a question that everybody has forgotten is answered with a Failure, so that its caller need not wait

  std::weak_ptr<ConnectionImpl> connection;
  std::uint64_t call;
  Nanos deadline;  // Nanos::max(): none
  std::atomic<bool> answered{false};
  std::atomic<bool> abandoned{false};
};

class ConnectionImpl : public Connection {
 public:
  // `gone` runs on the loop's thread after on_close.
  ConnectionImpl(std::shared_ptr<Core> core, boost::asio::ip::tcp::socket socket, Hello peer, Handlers handlers,
                 bool connector, std::function<void()> gone);
  ~ConnectionImpl() override = default;
  void start();  // on the loop's thread, once

  std::uint64_t call(Message question, Nanos timeout, std::function<void(Result<Message>)> on_answer) override;
  void cancel(std::uint64_t call) override;
  void notify(Message notice) override;
  void close() override;
  [[nodiscard]] const Hello& peer() const override { return peer_; }
  [[nodiscard]] std::string remote_host() const override { return host_; }

  void answer(std::uint64_t call, Message message);

 private:
  using OnAnswer = std::function<void(Result<Message>)>;
  enum class Phase { open, closing, closed };
  struct Pending {
    OnAnswer on_answer;
    Nanos deadline{0};
  };

  std::shared_ptr<ConnectionImpl> self() { return std::static_pointer_cast<ConnectionImpl>(shared_from_this()); }

  // Writing; any thread.
  enum class Room { bounded, always };
  Status send(std::vector<std::byte> frame, Room room);
  Status send_locked(std::vector<std::byte> frame, Room room);
  void flush_locked();
  void fail_later(Error why);
  // Makes the loop look at this connection at `at` at the latest.
  void wake_at_locked(Nanos at);
  bool take_pending_locked(std::uint64_t call, Pending& out);

  // The loop's thread only.
  void arm_read();
  void arm_write();
  void arm_timer();
  void on_readable();
  void on_writable();
  void on_timer();
  bool consume(std::span<const std::byte> bytes);  // false once the connection is closed
  bool deliver(const FrameHeader& header, std::span<const std::byte> body);
  bool dispatch(Envelope envelope);
  void question(Envelope envelope);
  void close_with(Error why);
  void drop();  // when the reactor ends: no callbacks
  [[nodiscard]] bool is_closed();
  [[nodiscard]] Error at_peer(Error error) const;

  const std::shared_ptr<Core> core_;
  const Hello peer_;
  const bool connector_;
  std::string host_;
  std::string name_;  // "node n3 at 10.0.0.5:7070"
  std::atomic<std::uint64_t> next_call_;

  std::mutex mutex_;
  Phase phase_ = Phase::open;
  int descriptor_;
  std::deque<std::vector<std::byte>> queue_;
  std::size_t sent_of_first_ = 0;
  std::size_t queued_bytes_ = 0;
  bool blocked_ = false;  // the socket takes no more for now; the loop waits until it does
  Nanos write_progress_{0};
  std::unordered_map<std::uint64_t, Pending> pending_;
  std::set<std::pair<Nanos, std::uint64_t>> deadlines_;
  Nanos waiting_since_{0};  // when pending_ was last empty
  std::unordered_map<std::uint64_t, std::weak_ptr<Responder::State>> questions_;
  Nanos received_{0};
  Nanos ping_at_{0};  // of a Ping since which nothing has come
  Nanos wake_at_ = Nanos::max();
  Nanos close_at_ = Nanos::max();

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  Handlers handlers_;
  std::function<void()> gone_;
  std::array<std::byte, kFrameHeaderBytes> header_bytes_{};
  std::size_t header_have_ = 0;
  FrameHeader header_;
  std::unique_ptr<std::byte[]> body_;  // of a frame that has arrived in part
  std::size_t body_have_ = 0;
};

}  // namespace myriad
