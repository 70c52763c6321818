#include "node/node.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "base/log.h"
#include "engine/stage_runner.h"
#include "engine/work_queue.h"
#include "kernels/numa.h"
#include "model/config.h"
#include "net/peer_pool.h"
#include "node/part_loader.h"
#include "node/resources.h"
#include "part/canary.h"
#include "part/file_io.h"

namespace myriad {
namespace {

constexpr std::size_t kMaxHeldReported = 4096;
constexpr std::uint32_t kMaxSequencesPerNode = 4096;
constexpr std::uint32_t kMaxContextPositions = std::uint32_t{1} << 24;
constexpr std::size_t kMaxWaitingBytes = std::size_t{16} << 20;  // of the tensors of calls that wait for the engine
constexpr std::size_t kMaxQueuedCalls = 1024;                    // that wait for the engine
constexpr Nanos kControlTimeout = std::chrono::seconds(3);
constexpr Nanos kAbandonCheck = std::chrono::milliseconds(100);

std::uint64_t wall_nanos() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
}

// One assignment and everything that runs under it. Made by the loader, then used by the engine's thread alone.
struct Work {
  Graph graph;
  Assign assign;
  std::unique_ptr<PartExecutor> parts;
  std::unique_ptr<StageRunner> runner;
  std::map<PartId, std::uint32_t> index;  // of the parts held
};

}  // namespace

struct Node::Impl {
  NodeOptions options;
  std::function<void(Status)> on_stop;
  const Kernels* kernels = nullptr;
  std::unique_ptr<ThreadPool> pool;
  Hello self;
  Bytes process;
  std::uint64_t speed = 0;

  Reactor control, data;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<PeerPool> peers;

  // The controller; control reactor's thread.
  ConnectionPtr controller;
  Reactor::TimerPtr heartbeat_timer, reconnect_timer;
  Nanos heartbeat_every{std::chrono::milliseconds(500)};
  Nanos backoff{std::chrono::milliseconds(100)};
  int rejections = 0;            // of handshakes since the last one that succeeded
  bool registered_once = false;  // so the token is the right one
  bool ended = false;            // on_stop was called
  std::mt19937_64 jitter{std::random_device{}()};
  std::mutex server_mutex;
  PartServer server;

  // What heartbeats tell.
  std::atomic<NodeState> state{NodeState::joining};
  std::atomic<std::uint64_t> epoch{0}, calls{0}, parts_loaded{0};
  std::atomic<std::uint64_t> newest_epoch{0};  // asked for
  std::atomic<bool> stopping{false};
  std::atomic<std::size_t> waiting_bytes{0};

  // Engine's thread.
  std::unique_ptr<Work> work;
  struct Ticket {
    Responder responder;
  };
  std::map<std::uint64_t, Ticket> tickets;
  std::map<std::uint64_t, std::uint64_t> outgoing;  // the runner's call -> the peer pool's
  std::uint64_t last_ticket = 0;
  bool abandon_check_armed = false;
  Reactor::TimerPtr abandon_timer;

  WorkQueue engine,
      loader;  // last: their threads end before what they use; the loader, which waits for the engine, first

  ~Impl() {
    stopping = true;  // nothing new reaches the loader, and what it is at is given up
    if (listener) listener->close();
    while (loader.depth() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    control.stop_and_join();  // no callback reaches the engine or the loader after this
    data.stop_and_join();
  }

  // ---- controller

  void join() {
    Connection::Handlers handlers;
    handlers.on_message = [this](Connection&, Message m, Responder r) { on_control(std::move(m), std::move(r)); };
    handlers.on_close = [this](Connection&, const Error& why) {
      log(LogLevel::warning, "event=controller_lost reason={}", log_value(why.message));
      controller.reset();
      heartbeat_timer.reset();
      join_later();
    };
    connect(control, options.controller, options.token, self, std::move(handlers), kControlTimeout,
            [this](Result<ConnectionPtr> made) {
              if (!made) return join_failed(std::move(made).error());
              rejections = 0;
              controller = *made;
              register_self();
            });
  }

  // An unreachable controller may come back; one that refuses the token or the version will do so again.
  void join_failed(Error why) {
    const bool rejected = why.code == Code::unauthenticated || why.code == Code::version;
    if (!rejected) {
      log(LogLevel::warning, "event=join_failed controller={} reason={}", options.controller.to_string(),
          log_value(why.to_string()));
      return join_later();
    }
    ++rejections;
    log(LogLevel::error, "event=join_rejected controller={} times={} gives_up={} reason={}",
        options.controller.to_string(), rejections, registered_once ? "never" : std::to_string(kRejectionLimit),
        log_value(why.to_string()));
    if (registered_once || rejections < kRejectionLimit) return join_later();
    end(fail(why.code, "joining the fleet: the controller rejected this node {} times: {}; {}", rejections,
             why.to_string(),
             why.code == Code::version
                 ? "start the node again with the controller's version of Myriad"
                 : "start the node again with a copy of the --token-file that the controller was started with"));
  }

  // This process has no reason to go on. Nothing new is tried; the owner of the node ends it.
  void end(Status why) {
    if (std::exchange(ended, true)) return;
    reconnect_timer.reset();
    on_stop(std::move(why));
  }

  void join_later() {
    if (stopping || ended) return;
    const auto spread = std::uniform_int_distribution<std::int64_t>(backoff.count() / 2, backoff.count())(jitter);
    backoff = std::min(backoff * 2, kReconnectLimit);
    reconnect_timer = control.after(Nanos(spread), [this] { join(); });
  }

  void register_self() {
    Register r;
    r.node = options.id;
    r.incarnation = self.incarnation;
    r.memory_bytes = options.memory.value;
    r.process_bytes = process.value;
    r.cores = static_cast<std::uint32_t>(pool->threads());
    r.speed = speed;
    r.isa = std::string(kernels->name);
    r.host = options.advertise;
    r.port = listener->port();
    r.held = options.store->held(kMaxHeldReported);
    controller->call(std::move(r), kControlTimeout, [this](Result<Message> answer) {
      const auto* registered = answer ? std::get_if<Registered>(&*answer) : nullptr;
      if (registered == nullptr) {
        const Error why =
            !answer ? answer.error()  // what a Failure says, too
                    : Error{Code::internal, fmt::format("it answered with {}", message_name(*answer)), {}, {}};
        log(LogLevel::error, "event=register_refused reason={}", log_value(why.to_string()));
        // What the controller itself has said, over an authenticated connection, of something that stays as it is.
        if (why.code == Code::invalid_argument || why.code == Code::stale)
          end(fail(
              why.code, "registering node {} with the controller at {}: {}{}", options.id.value,
              options.controller.to_string(), why.message,
              why.code == Code::stale
                  ? "; give every node a --store (and --name) of its own, and see that this machine's clock is right"
                  : ""));
        if (controller) controller->close();
        return;
      }
      registered_once = true;
      backoff = std::chrono::milliseconds(100);
      heartbeat_every = std::chrono::milliseconds(std::clamp<std::uint32_t>(registered->heartbeat_ms, 50, 10000));
      {
        const std::lock_guard lock(server_mutex);
        server = {{options.controller.host, registered->http_port}, registered->fetch_ticket};
      }
      log(LogLevel::info, "event=registered controller={}", options.controller.to_string());
      beat();
    });
  }

  void beat() {
    if (!controller || stopping) return;
    Heartbeat h;
    h.node = options.id;
    h.incarnation = self.incarnation;
    h.epoch = {epoch.load()};
    h.state = state;
    h.memory_used = resident_bytes().value;
    h.calls = calls;
    h.parts_loaded = parts_loaded;
    controller->call(std::move(h), kControlTimeout, [this](Result<Message> answer) {
      if (!answer || !std::holds_alternative<HeartbeatReply>(*answer)) {
        std::string reason = answer ? std::string(message_name(*answer)) : answer.error().message;
        if (answer)
          if (const auto* failure = std::get_if<Failure>(&*answer)) reason = failure->error.message;
        log(LogLevel::warning, "event=heartbeat_refused reason={}", log_value(reason));
        if (controller) controller->close();  // register anew
      }
    });
    heartbeat_timer = control.after(heartbeat_every, [this] { beat(); });
  }

  void on_control(Message message, Responder responder) {
    if (stopping) return;
    if (auto* assign = std::get_if<Assign>(&message)) {
      newest_epoch = std::max(newest_epoch.load(), assign->epoch.value);
      state = NodeState::loading;
      parts_loaded = 0;
      loader.post([this, assign = std::make_shared<Assign>(std::move(*assign)), responder] {
        load(std::move(*assign), responder);
      });
    } else if (std::holds_alternative<Shutdown>(message)) {
      log(LogLevel::info, "event=shutdown_asked");
      if (responder) responder.answer(Done{});
      end({});
    } else if (responder) {
      responder.fail({Code::invalid_argument,
                      fmt::format("a node does not answer {} on this connection", message_name(message)),
                      {},
                      {}});
    }
  }

  // ---- loading

  // Runs `what` on the engine's thread and waits for it.
  void on_engine(const std::function<void()>& what) {
    std::mutex mutex;
    std::condition_variable done;
    bool finished = false;
    engine.post([&] {
      what();
      const std::lock_guard lock(mutex);
      finished = true;
      done.notify_one();
    });
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return finished; });
  }

  void load(Assign assign, const Responder& responder) {
    const Epoch wanted = assign.epoch;
    if (wanted.value < newest_epoch)
      return responder.fail({Code::stale,
                             fmt::format("epoch {} was overtaken by {}", wanted.value, newest_epoch.load()),
                             options.id.value,
                             {}});
    auto assigned = load_work(std::move(assign));
    if (!assigned) {
      Error e = std::move(assigned).error();
      e.node = options.id.value;
      if (e.code != Code::cancelled) {
        state = NodeState::failed;
        log(LogLevel::error, "event=load_failed epoch={} reason={}", wanted.value, log_value(e.to_string()));
      }
      return responder.fail(std::move(e));
    }
    epoch = wanted.value;
    state = assigned->part_bytes == 0 ? NodeState::spare : NodeState::ready;
    log(LogLevel::info, "event=ready epoch={} part_bytes={} state_bytes={} resident={}", wanted.value,
        assigned->part_bytes, assigned->state_bytes, assigned->resident_bytes);
    responder.answer(*assigned);
  }

  Result<Assigned> load_work(Assign assign) {
    const Epoch wanted = assign.epoch;
    auto next = std::make_unique<Work>();
    MYRIAD_TRY(const ModelConfig config, parse_config(assign.config_json));
    MYRIAD_TRY(next->graph, Graph::build(config));
    if (assign.self >= assign.nodes.size())
      return fail(Code::corrupt, "the assignment of epoch {} names node {} of {}", wanted.value, assign.self,
                  assign.nodes.size());

    const Budget& b = assign.budget;
    if (b.sequences == 0 || b.sequences > kMaxSequencesPerNode || b.context == 0 || b.context > kMaxContextPositions ||
        b.step_rows == 0 || b.step_rows > kMaxRowsPerStep || b.prefixes > kMaxSequencesPerNode ||
        b.drafts > kMaxDrafts || (b.positions != 0 && b.positions < b.context))
      return fail(Code::invalid_argument,
                  "the assignment of epoch {} wants {} sequences and {} kept prefixes, contexts of {} positions, {} in "
                  "all, and steps of {} rows; at most {}, {}, {}, no less in all than in one, and {} are possible",
                  wanted.value, b.sequences, b.prefixes, b.context, b.positions, b.step_rows, kMaxSequencesPerNode,
                  kMaxSequencesPerNode, kMaxContextPositions, kMaxRowsPerStep);

    // What is asked for, before anything is read: parts and state of this node against its budget.
    const auto add = [](std::uint64_t& sum, std::uint64_t n) { sum = sum + n < sum ? ~std::uint64_t{0} : sum + n; };
    std::uint64_t part_bytes = 0, state_bytes = 0;
    std::set<PartId> needed;
    for (const auto& p : assign.parts) {
      if (p.owner != assign.self) continue;
      const Operator* op = next->graph.find(p.spec.op);
      if (op == nullptr || p.spec.begin >= p.spec.end || p.spec.end > op->extent)
        return fail(Code::corrupt, "the assignment names part {}, which the model does not have", p.spec.name());
      add(part_bytes, p.bytes);
      add(state_bytes, attention_state_bytes(*op, p.spec.units(), assign.profile, b));
      needed.insert(p.id);
    }
    std::uint64_t want = process.value;
    add(want, part_bytes);
    add(want, state_bytes);
    if (want > options.memory.value)
      return fail(Code::does_not_fit,
                  "this node's parts need {} bytes ({} parts, {} attention state, {} process), its budget is {}: {} "
                  "are missing; raise --memory or add nodes",
                  want, part_bytes, state_bytes, process.value, options.memory.value, want - options.memory.value);

    next->parts = std::make_unique<PartExecutor>(next->graph, assign.profile, assign.budget, *kernels, *pool);
    // The work so far ends. Parts that stay are moved over; the others' memory is given back before anything new is
    // read. The old graph lives until the kept parts have been parsed against the new one.
    std::map<PartId, Part> kept;
    std::unique_ptr<Work> old;
    on_engine([&] {
      end_work(fmt::format("epoch {} begins", wanted.value));
      old = std::move(work);
      if (!old) return;
      old->runner.reset();
      for (const auto& [id, index] : old->index) {
        auto part = old->parts->take(index);
        if (part && needed.contains(id)) kept.emplace(id, std::move(*part));
      }
    });
    for (const auto& p : assign.parts) {
      if (p.owner != assign.self) continue;
      if (next->index.contains(p.id)) continue;  // equal bytes under two names cannot be: the header names the part
      const auto it = kept.find(p.id);
      auto part = [&]() -> Result<Part> {
        if (it == kept.end()) {
          const auto part_server = [this] {
            const std::lock_guard lock(server_mutex);
            return server;
          };
          return load_part(control, *options.store, part_server, p.id, p.bytes, next->graph, *kernels,
                           [&] { return stopping || newest_epoch > wanted.value; });
        }
        Part same = std::move(it->second);
        kept.erase(it);
        return Part::parse(std::move(same).release(), next->graph, nullptr);
      }();
      if (!part) {
        Error e = std::move(part).error();
        if (e.part.empty()) e.part = p.spec.name();
        return std::unexpected(std::move(e));
      }
      if (part->spec() != p.spec)
        return fail(Code::corrupt, "part {} of the assignment is {} by its own header", p.spec.name(),
                    part->spec().name());
      MYRIAD_TRY_STATUS(next->parts->add(p.index, std::move(*part)));
      next->index[p.id] = p.index;
      ++parts_loaded;
    }
    next->assign = assign;
    MYRIAD_TRY(next->runner, StageRunner::create(next->graph, std::move(assign), *next->parts, *kernels));
    Assigned done{wanted, next->parts->part_bytes(), next->parts->state_bytes(), resident_bytes().value};
    peers->keep_only(next->assign.nodes);
    on_engine([&] { work = std::move(next); });
    return done;
  }

  // Engine's thread: steps of the present work fail, its calls are cancelled.
  void end_work(const std::string& why) {
    for (const auto& [ticket, t] : tickets) {
      t.responder.fail({Code::stale, fmt::format("the step was interrupted: {}", why), options.id.value, {}});
      if (work && work->runner)
        for (auto& action : work->runner->on_cancel(ticket))
          if (const auto* cancel = std::get_if<CancelQuestion>(&action)) cancel_outgoing(cancel->call);
    }
    tickets.clear();
  }

  // ---- data plane

  void on_data(Connection&, Message message, const Responder& responder) {
    if (std::holds_alternative<Call>(message) || std::holds_alternative<Step>(message)) {
      if (!responder) return;
      if (engine.depth() >= kMaxQueuedCalls)
        return responder.fail(
            {Code::busy, fmt::format("{} calls wait already", kMaxQueuedCalls), options.id.value, {}});
      const std::size_t bytes = std::visit(
          [](const auto& m) -> std::size_t {
            std::size_t sum = 0;
            if constexpr (requires { m.tensors; })
              for (const auto& t : m.tensors) sum += t.values.size() * 4 + t.q.size() + t.scales.size() * 4;
            return sum;
          },
          message);
      // One call is always taken, however large: a frame bounds it.
      if (const std::size_t before = waiting_bytes.fetch_add(bytes); before > 0 && before + bytes > kMaxWaitingBytes) {
        waiting_bytes -= bytes;
        return responder.fail(
            {Code::busy, fmt::format("calls with {} bytes wait already", before), options.id.value, {}});
      }
      ++calls;
      engine.post([this, bytes, message = std::make_shared<Message>(std::move(message)), responder] {
        waiting_bytes -= bytes;
        execute(std::move(*message), responder);
      });
    } else if (auto* release = std::get_if<Release>(&message)) {
      engine.post([this, release = std::make_shared<Release>(std::move(*release))] { forget(*release); });
    } else if (responder) {
      responder.fail({Code::invalid_argument,
                      fmt::format("a node does not answer {}", message_name(message)),
                      options.id.value,
                      {}});
    }
  }

  void execute(Message message, const Responder& responder) {
    if (responder.abandoned()) return;
    const auto refuse = [&](Error e) {
      e.node = options.id.value;
      responder.fail(std::move(e));
    };
    const Epoch asked =
        std::holds_alternative<Call>(message) ? std::get<Call>(message).epoch : std::get<Step>(message).epoch;
    if (!work) return refuse({Code::unavailable, "this node is still loading its parts", {}, {}});
    if (asked != work->assign.epoch)
      return refuse(
          {Code::stale,
           fmt::format("the call belongs to epoch {}, this node runs epoch {}", asked.value, work->assign.epoch.value),
           {},
           {}});
    work->parts->set_time(data.now());
    if (auto* call = std::get_if<Call>(&message)) {
      auto reply = work->parts->execute(*call);
      if (!reply) return refuse(std::move(reply).error());
      return responder.answer(std::move(*reply));
    }
    const std::uint64_t ticket = ++last_ticket;
    tickets[ticket] = {responder};
    perform(work->runner->on_step(ticket, std::move(std::get<Step>(message))));
    arm_abandon_check();
  }

  void perform(std::vector<Action> actions) {
    for (auto& action : actions) {
      if (auto* send = std::get_if<SendQuestion>(&action)) {
        const Epoch now = work->assign.epoch;
        outgoing[send->call] =
            peers->call(work->assign.nodes[send->node], std::move(send->message), kCallLimit,
                        [this, call = send->call, now](Result<Message> answer) {
                          engine.post([this, call, now, answer = std::make_shared<Result<Message>>(std::move(answer))] {
                            outgoing.erase(call);
                            if (!work || work->assign.epoch != now) return;
                            perform(work->runner->on_answer(call, std::move(*answer)));
                          });
                        });
      } else if (const auto* cancel = std::get_if<CancelQuestion>(&action)) {
        cancel_outgoing(cancel->call);
      } else {
        auto& done = std::get<FinishStep>(action);
        const auto it = tickets.find(done.ticket);
        if (it == tickets.end()) continue;
        if (done.reply)
          it->second.responder.answer(std::move(*done.reply));
        else
          it->second.responder.fail(std::move(done.reply).error());
        tickets.erase(it);
      }
    }
  }

  void cancel_outgoing(std::uint64_t call) {
    if (const auto it = outgoing.find(call); it != outgoing.end()) peers->cancel(it->second);
  }

  // While steps are under way: those that nobody waits for any more are stopped, and so are their calls.
  void arm_abandon_check() {
    if (abandon_check_armed || tickets.empty()) return;
    abandon_check_armed = true;
    abandon_timer = data.after(kAbandonCheck, [this] {
      engine.post([this] {
        abandon_check_armed = false;
        for (auto it = tickets.begin(); it != tickets.end();) {
          if (!it->second.responder.abandoned()) {
            ++it;
            continue;
          }
          if (work) perform(work->runner->on_cancel(it->first));
          it = tickets.erase(it);
        }
        arm_abandon_check();
      });
    });
  }

  // Attention state is given up here, by the helpers of the stages that this node leads, and down the line of leads. A
  // sequence that was released before goes no further, so a line of stages that comes back to a node ends.
  void forget(const Release& release) {
    if (!work) return;
    const auto fresh = work->parts->release(release.sequences);
    if (fresh.empty()) return;
    const Release onward{fresh};
    std::set<std::uint32_t> to(work->runner->stateful_nodes().begin(), work->runner->stateful_nodes().end());
    if (const auto lead = work->runner->next_lead()) to.insert(*lead);
    to.erase(work->assign.self);
    for (const auto node : to) peers->notify(work->assign.nodes[node], onward);
  }
};

Result<std::unique_ptr<Node>> Node::start(NodeOptions options, std::function<void(Status)> on_stop) {
  const std::size_t threads = options.threads != 0 ? options.threads : usable_cores();
  MYRIAD_TRY_STATUS(place_process(threads));  // the threads of Impl are started where this one is
  auto impl = std::make_unique<Impl>();
  MYRIAD_TRY(impl->kernels, choose_kernels());
  impl->pool = std::make_unique<ThreadPool>(threads);
  impl->self = {Role::node, options.id, wall_nanos()};
  impl->speed = measure_speed(*impl->kernels, *impl->pool, options.memory);
  impl->options = std::move(options);
  impl->on_stop = std::move(on_stop);
  Impl* self = impl.get();
  impl->peers = std::make_unique<PeerPool>(impl->data, impl->options.token, impl->self);
  MYRIAD_TRY(impl->listener, Listener::open(impl->data, impl->options.listen, impl->options.token, impl->self,
                                            [self](const Hello&) {
                                              Connection::Handlers handlers;
                                              handlers.on_message = [self](Connection& c, Message m, Responder r) {
                                                self->on_data(c, std::move(m), r);
                                              };
                                              return handlers;
                                            },
                                            {}));
  impl->data.start();
  impl->control.start();
  impl->process = resident_bytes();
  impl->control.post([self] { self->join(); });
  return std::unique_ptr<Node>(new Node(std::move(impl)));
}

Node::Node(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Node::~Node() = default;
std::uint16_t Node::port() const {
  return impl_->listener->port();
}

Result<NodeId> persistent_node_id(const PartStore& store) {
  const auto path = store.directory() / "node-id";
  if (auto text = read_small_file(path, kMaxNodeIdBytes + 1)) {
    while (!text->empty() && text->back() == '\n') text->pop_back();
    if (!text->empty()) return NodeId{*text};
  }
  std::random_device device;
  const std::string id = fmt::format("node-{:08x}", device());
  MYRIAD_TRY_STATUS(write_file_atomically(path, std::as_bytes(std::span(id))));
  return NodeId{id};
}

}  // namespace myriad
