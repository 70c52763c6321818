#include "net/peer_pool.h"

#include <atomic>
#include <deque>
#include <map>
#include <unordered_map>

namespace myriad {

struct PeerPool::Impl : std::enable_shared_from_this<PeerPool::Impl> {
  struct Waiting {
    std::uint64_t id;  // 0: a notice
    Message message;
    Nanos timeout;
  };
  struct Peer {
    NodeAddress address;
    ConnectionPtr connection;
    bool connecting = false;
    std::deque<Waiting> waiting;
    std::string gone;  // why, once it was dropped on purpose
  };
  struct Call {
    std::function<void(Result<Message>)> on_answer;
    ConnectionPtr connection;  // once it is sent
    std::uint64_t number = 0;
  };

  Reactor& reactor;
  const std::string token;
  const Hello self;
  std::atomic<std::uint64_t> last_call{0};
  // all below: reactor's thread
  std::map<std::string, std::shared_ptr<Peer>> peers;
  std::unordered_map<std::uint64_t, Call> calls;
  bool closed = false;

  Impl(Reactor& r, std::string t, Hello s) : reactor(r), token(std::move(t)), self(std::move(s)) {}

  static std::string key(const NodeAddress& a) { return fmt::format("{} {} {}", a.node.value, a.host, a.port); }

  void answer(std::uint64_t id, Result<Message> result, const NodeId& node) {
    const auto it = calls.find(id);
    if (it == calls.end()) return;
    auto on_answer = std::move(it->second.on_answer);
    calls.erase(it);
    if (!result && result.error().node.empty()) result.error().node = node.value;
    on_answer(std::move(result));
  }

  void send(const NodeAddress& to, Waiting w) {
    auto& peer = peers[key(to)];
    if (!peer) {
      peer = std::make_shared<Peer>();
      peer->address = to;
    }
    if (peer->connection) return dispatch(peer, std::move(w));
    peer->waiting.push_back(std::move(w));
    if (peer->connecting) return;
    peer->connecting = true;
    Connection::Handlers handlers;
    const std::weak_ptr<Impl> weak = weak_from_this();
    const std::weak_ptr<Peer> weak_peer = peer;
    handlers.on_message = [](Connection&, Message, Responder responder) {
      responder.fail({Code::invalid_argument, "this side of the connection answers no questions", {}, {}});
    };
    handlers.on_close = [weak, weak_peer](Connection&, const Error&) {
      if (const auto p = weak_peer.lock()) p->connection.reset();
    };
    connect(reactor, {to.host, to.port}, token, self, std::move(handlers), kPeerConnectLimit,
            [weak, peer](Result<ConnectionPtr> made) {
              const auto me = weak.lock();
              if (!me) return;
              peer->connecting = false;
              auto waiting = std::exchange(peer->waiting, {});
              if (made && !me->closed && peer->gone.empty()) {
                peer->connection = *made;
                if ((*made)->peer().node != peer->address.node) {
                  const auto found = (*made)->peer().node.value;
                  peer->connection.reset();
                  (*made)->close();
                  made = fail(Code::unavailable, "at {} port {} answers node '{}', expected '{}'", peer->address.host,
                              peer->address.port, found, peer->address.node.value);
                }
              }
              for (auto& queued : waiting) {
                if (made && peer->connection)
                  me->dispatch(peer, std::move(queued));
                else if (queued.id != 0)
                  me->answer(
                      queued.id,
                      made ? fail(Code::unavailable, "{}", peer->gone.empty() ? "this process is closing" : peer->gone)
                           : Result<Message>(std::unexpected(made.error())),
                      peer->address.node);
              }
            });
  }

  void dispatch(const std::shared_ptr<Peer>& peer, Waiting w) {
    if (w.id == 0) return peer->connection->notify(std::move(w.message));
    const auto it = calls.find(w.id);
    if (it == calls.end()) return;  // cancelled meanwhile
    it->second.connection = peer->connection;
    const std::weak_ptr<Impl> weak = weak_from_this();
    const auto number =
        peer->connection->call(std::move(w.message), w.timeout, [weak, id = w.id, peer](Result<Message> result) {
          const auto me = weak.lock();
          if (!me) return;
          // The connection only knows that this side closed it, not why.
          if (!result && !peer->gone.empty() &&
              (result.error().code == Code::unavailable || result.error().code == Code::cancelled)) {
            result.error().code = Code::unavailable;
            result.error().message = peer->gone;
          }
          me->answer(id, std::move(result), peer->address.node);
        });
    if (const auto again = calls.find(w.id); again != calls.end()) again->second.number = number;
  }
};

PeerPool::PeerPool(Reactor& reactor, std::string token, Hello self)
    : impl_(std::make_shared<Impl>(reactor, std::move(token), std::move(self))) {}

PeerPool::~PeerPool() {
  impl_->reactor.post([impl = impl_] {
    impl->closed = true;
    for (auto& [key, peer] : impl->peers)
      if (peer->connection) peer->connection->close();
    impl->peers.clear();
  });
}

std::uint64_t PeerPool::call(const NodeAddress& to, Message question, Nanos timeout,
                             std::function<void(Result<Message>)> on_answer) {
  const std::uint64_t id = ++impl_->last_call;
  impl_->reactor.post([impl = impl_, id, to, question = std::make_shared<Message>(std::move(question)), timeout,
                       on_answer = std::move(on_answer)]() mutable {
    impl->calls[id] = {std::move(on_answer), nullptr, 0};
    if (impl->closed) return impl->answer(id, fail(Code::unavailable, "this process is closing"), to.node);
    impl->send(to, {id, std::move(*question), timeout});
  });
  return id;
}

void PeerPool::cancel(std::uint64_t call) {
  impl_->reactor.post([impl = impl_, call] {
    const auto it = impl->calls.find(call);
    if (it == impl->calls.end()) return;
    if (it->second.connection && it->second.number != 0) return it->second.connection->cancel(it->second.number);
    impl->answer(call, fail(Code::cancelled, "the call was cancelled before it was sent"), {});
  });
}

void PeerPool::notify(const NodeAddress& to, Message notice) {
  impl_->reactor.post([impl = impl_, to, notice = std::make_shared<Message>(std::move(notice))] {
    if (!impl->closed) impl->send(to, {0, std::move(*notice), {}});
  });
}

void PeerPool::keep_only(std::vector<NodeAddress> nodes) {
  impl_->reactor.post([impl = impl_, nodes = std::move(nodes)] {
    std::map<std::string, std::shared_ptr<Impl::Peer>> kept;
    for (const auto& node : nodes)
      if (const auto it = impl->peers.find(Impl::key(node)); it != impl->peers.end()) kept.insert(*it);
    std::swap(kept, impl->peers);
    for (auto& [key, peer] : kept) {
      if (impl->peers.contains(key)) continue;
      peer->gone = "it is not part of the fleet's placement any more";
      if (peer->connection) peer->connection->close();
    }
  });
}

void PeerPool::drop(const NodeId& node, std::string why) {
  impl_->reactor.post([impl = impl_, node, why = std::move(why)] {
    for (auto it = impl->peers.begin(); it != impl->peers.end();) {
      if (it->second->address.node != node) {
        ++it;
        continue;
      }
      it->second->gone = why;
      if (it->second->connection) it->second->connection->close();
      it = impl->peers.erase(it);
    }
  });
}

}  // namespace myriad
