#include "controller/controller.h"

#include <chrono>
#include <deque>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "controller/part_routes.h"
#include "net/http_files.h"
#include "net/token_file.h"
#include "part/manifest.h"
#include "proto/frame_rows.h"

namespace myriad {
namespace {

constexpr std::size_t kAssignsAtATime = 32;  // built and queued before sockets get their turn
constexpr Nanos kAssignPause = std::chrono::milliseconds(5);
// Progress is watched by heartbeats; this only ends a call that nobody would ever answer.
constexpr Nanos kAssignLimit = std::chrono::hours(6);
constexpr Nanos kFarewell = std::chrono::seconds(1);  // for everybody to leave after Shutdown
constexpr std::size_t kTicketBytes = 24;
constexpr std::size_t kMaxDownloads =
    64;  // at once; each may hold a piece of 256 KiB, and others are asked to try again

// The wall clock in milliseconds: larger after every restart than any epoch given before, since epochs grow by a few a
// second at most.
Epoch epoch_of_start() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return {static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(wall).count())};
}

bool may_ask(Role role, const Message& message) {
  if (std::holds_alternative<Register>(message) || std::holds_alternative<Heartbeat>(message))
    return role == Role::node;
  if (std::holds_alternative<Watch>(message)) return role == Role::gateway || role == Role::tool;
  if (std::holds_alternative<StatusRequest>(message)) return role == Role::gateway || role == Role::tool;
  if (std::holds_alternative<KillRequest>(message) || std::holds_alternative<Shutdown>(message))
    return role == Role::tool;
  return false;
}

}  // namespace

class Controller::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Reactor& reactor, ControllerOptions options, Fleet fleet)
      : reactor_(reactor), options_(std::move(options)), fleet_(std::move(fleet)) {}

  Connection::Handlers accept(const Hello& hello) {
    const PeerId id{++last_peer_};
    return {[weak = weak_from_this(), id, role = hello.role](Connection& connection, Message message,
                                                             const Responder& responder) {
              if (const auto self = weak.lock()) self->received(id, role, connection, std::move(message), responder);
            },
            [weak = weak_from_this(), id](Connection&, const Error& why) {
              if (const auto self = weak.lock()) self->ended(id, why);
            }};
  }

  // From any thread.
  void leave() {
    if (reactor_.on_loop_thread()) {
      close();
    } else {
      reactor_.post([self = shared_from_this()] { self->close(); });
    }
  }

  void close() {
    closed_ = true;
    timer_.reset();
    assign_timer_.reset();
    farewell_.reset();
    assigns_.clear();
    if (listener) listener->close();
    if (files) files->close();
    const auto peers = std::exchange(peers_, {});
    for (const auto& [id, peer] : peers) peer.connection->close();
  }

  std::unique_ptr<Listener> listener;
  std::unique_ptr<HttpFiles> files;

 private:
  struct Peer {
    ConnectionPtr connection;
    std::uint64_t assign_call = 0;  // the last Assign, 0 if it was answered
  };

  void received(PeerId id, Role role, Connection& connection, Message message, const Responder& responder) {
    if (closed_) return;
    peers_.try_emplace(id.value, Peer{connection.shared_from_this()});
    const Nanos now = reactor_.now();
    if (!may_ask(role, message)) {
      responder.fail({Code::invalid_argument,
                      fmt::format("a {} was sent to the controller by a {}, which it takes from nobody of that role",
                                  message_name(message), role_name(role)),
                      {},
                      {}});
      return;
    }
    if (const auto* m = std::get_if<Register>(&message)) {
      handle(fleet_.registered(id, *m, connection.remote_host(), now), responder);
    } else if (const auto* beat = std::get_if<Heartbeat>(&message)) {
      handle(fleet_.heartbeat(id, *beat, now), responder);
    } else if (std::holds_alternative<Watch>(message)) {
      handle(fleet_.watch(id, now), responder);
    } else if (std::holds_alternative<StatusRequest>(message)) {
      handle(fleet_.status(id, now), responder);
    } else if (const auto* kill = std::get_if<KillRequest>(&message)) {
      handle(fleet_.kill(id, *kill, now), responder);
    } else {
      handle(fleet_.shutdown(id, now), responder);
    }
  }

  void ended(PeerId id, const Error& why) {
    if (closed_) return;
    log(LogLevel::debug, "event=peer_left peer={} why={}", id.value, log_value(why.message));
    peers_.erase(id.value);
    handle(fleet_.closed(id, reactor_.now()), {});
    if (stopping_ && peers_.empty()) stop();
  }

  // Closing a connection may report its end at once, which is another event with actions of its own: they wait for
  // their turn.
  void handle(FleetActions actions, const Responder& responder) {
    for (FleetAction& action : actions) pending_.emplace_back(std::move(action), responder);
    if (std::exchange(handling_, true)) return;
    while (!pending_.empty()) {
      auto [action, asked_by] = std::move(pending_.front());
      pending_.pop_front();
      std::visit([&](auto& a) { perform(a, asked_by); }, action);
    }
    handling_ = false;
    arm();
  }

  void perform(SendAction& action, const Responder&) {
    if (const auto peer = peers_.find(action.to.value); peer != peers_.end())
      peer->second.connection->notify(std::move(action.message));
  }
  void perform(AnswerAction& action, const Responder& responder) {
    if (responder) {
      responder.answer(std::move(action.message));
    } else if (const auto peer = peers_.find(action.to.value);
               peer != peers_.end() && std::holds_alternative<PlanUpdate>(action.message)) {
      peer->second.connection->notify(std::move(action.message));  // Watch may come as a notice
    }
  }
  void perform(AssignAction& action, const Responder&) {
    assigns_.push_back(std::move(action));
    if (!assign_timer_) send_assigns();
  }
  void perform(CloseAction& action, const Responder&) {
    if (const auto peer = peers_.find(action.peer.value); peer != peers_.end()) {
      const ConnectionPtr connection = peer->second.connection;
      connection->close();  // what was queued for it, the reason too, goes out first
    }
  }
  void perform(LogAction& action, const Responder&) {
    log(action.level, "event=fleet text={}", log_value(action.text));
  }
  void perform(StopAction&, const Responder&) {
    stopping_ = true;
    if (listener) listener->close();
    farewell_ = reactor_.after(kFarewell, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->stop();
    });
  }

  void stop() {
    if (std::exchange(stopped_, true)) return;
    close();
    if (options_.on_stop) options_.on_stop();
  }

  // Assignments of a large fleet would fill the memory if all of them were built at once.
  void send_assigns() {
    for (std::size_t i = 0; i < kAssignsAtATime && !assigns_.empty(); ++i) {
      const AssignAction action = std::move(assigns_.front());
      assigns_.pop_front();
      const auto peer = peers_.find(action.to.value);
      if (peer == peers_.end() || action.epoch != fleet_.epoch()) continue;  // gone, or superseded
      auto assign = fleet_.assignment(action.node);
      if (!assign) continue;
      // A node that still loads for an older epoch need not answer for that.
      if (peer->second.assign_call != 0) peer->second.connection->cancel(peer->second.assign_call);
      peer->second.assign_call = peer->second.connection->call(
          std::move(*assign), kAssignLimit,
          [weak = weak_from_this(), to = action.to, epoch = action.epoch](Result<Message> answer) {
            if (const auto self = weak.lock()) self->answered(to, epoch, std::move(answer));
          });
    }
    assign_timer_.reset();
    if (assigns_.empty()) return;
    assign_timer_ = reactor_.after(kAssignPause, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->send_assigns();
    });
  }

  void answered(PeerId from, Epoch epoch, Result<Message> answer) {
    if (closed_) return;
    const Nanos now = reactor_.now();
    if (epoch == fleet_.epoch())
      if (const auto peer = peers_.find(from.value); peer != peers_.end()) peer->second.assign_call = 0;
    if (!answer) {
      handle(fleet_.assign_failed(from, epoch, answer.error(), now), {});
    } else if (const auto* assigned = std::get_if<Assigned>(&*answer)) {
      handle(fleet_.assigned(from, *assigned, now), {});
    } else if (const auto* failure = std::get_if<Failure>(&*answer)) {
      handle(fleet_.assign_failed(from, epoch, failure->error, now), {});
    } else {
      const Error odd{Code::corrupt, fmt::format("it answered an Assign with {}", message_name(*answer)), {}, {}};
      handle(fleet_.assign_failed(from, epoch, odd, now), {});
    }
  }

  // One timer, for when the fleet wants to be looked at; none when nobody is here.
  void arm() {
    if (closed_) return;
    const Nanos due = fleet_.next_tick();
    if (due == Nanos::max() || (timer_ && armed_for_ <= due)) return;
    armed_for_ = due;
    timer_ = reactor_.after(std::max(due - reactor_.now(), Nanos::zero()), [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self || self->closed_) return;
      self->timer_.reset();
      const Nanos now = self->reactor_.now();
      if (now >= self->fleet_.next_tick()) {
        self->handle(self->fleet_.tick(now), {});
      } else {
        self->arm();
      }
    });
  }

  Reactor& reactor_;
  ControllerOptions options_;
  Fleet fleet_;
  std::unordered_map<std::uint64_t, Peer> peers_;
  std::uint64_t last_peer_ = 0;
  std::deque<std::pair<FleetAction, Responder>> pending_;
  std::deque<AssignAction> assigns_;
  Reactor::TimerPtr timer_, assign_timer_, farewell_;
  Nanos armed_for_{};
  bool handling_ = false, closed_ = false, stopping_ = false, stopped_ = false;
};

Controller::Controller(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Controller::~Controller() {
  impl_->leave();
}

std::uint16_t Controller::port() const {
  return impl_->listener->port();
}
std::uint16_t Controller::http_port() const {
  return impl_->files->port();
}

Result<std::unique_ptr<Controller>> Controller::start(Reactor& reactor, ControllerOptions options) {
  MYRIAD_TRY(Manifest manifest, read_manifest(options.cut_directory));
  MYRIAD_TRY(const ModelConfig config, parse_config(manifest.config_json));
  MYRIAD_TRY(const Graph graph, Graph::build(config));
  MYRIAD_TRY_STATUS(check_window(config, options.fleet.budget.context));
  options.fleet.budget.step_rows = std::min(options.fleet.budget.step_rows, frame_rows(graph, options.fleet.profile));
  if (options.token.size() < kMinTokenBytes)
    return fail(Code::invalid_argument, "starting the controller: the fleet token has {} bytes, expected at least {}",
                options.token.size(), kMinTokenBytes);
  MYRIAD_TRY(options.fleet.fetch_ticket, random_hex(kTicketBytes));
  options.fleet.before_first = epoch_of_start();
  auto routes = std::make_shared<const PartRoutes>(options.cut_directory, manifest);
  auto files = HttpFiles::open(
      reactor, {options.listen.host, options.http_port}, [routes](std::string_view path) { return routes->find(path); },
      [ticket = options.fleet.fetch_ticket](std::string_view shown) {
        return equal_constant_time(std::as_bytes(std::span(shown)), std::as_bytes(std::span(ticket)));
      },
      {.max_connections = kMaxDownloads});
  if (!files) return std::unexpected(std::move(files).error().within("offering parts by HTTP (--http-port)"));
  options.fleet.http_port = (*files)->port();
  MYRIAD_TRY(Fleet fleet, Fleet::create(graph, std::move(manifest), options.fleet, reactor.now()));
  const Endpoint at = options.listen;
  const std::string token = options.token;
  const Listener::Options limits{.max_connections = options.max_connections};
  auto impl = std::make_shared<Impl>(reactor, std::move(options), std::move(fleet));
  impl->files = std::move(*files);
  auto listener = Listener::open(
      reactor, at, token, Hello{Role::controller, {"controller"}, 1},
      [weak = std::weak_ptr(impl)](const Hello& hello) {
        const auto self = weak.lock();
        return self ? self->accept(hello) : Connection::Handlers{};
      },
      limits);
  if (!listener) return std::unexpected(std::move(listener).error().within("waiting for nodes (--listen)"));
  impl->listener = std::move(*listener);
  return std::unique_ptr<Controller>(new Controller(std::move(impl)));
}

}  // namespace myriad
