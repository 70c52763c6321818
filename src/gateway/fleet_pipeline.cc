#include "gateway/fleet_pipeline.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <unordered_map>

#include "base/log.h"
#include "net/http_client.h"
#include "net/peer_pool.h"

namespace myriad {
namespace {

constexpr Nanos kControlTimeout = std::chrono::seconds(3);
constexpr Nanos kLongestPause = std::chrono::seconds(2);
constexpr Nanos kFetchIdle = std::chrono::seconds(5);

std::uint64_t wall_nanos() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
}

}  // namespace

struct FleetPipeline::Impl : std::enable_shared_from_this<FleetPipeline::Impl> {
  Reactor& reactor;
  const FleetPipelineOptions options;
  const Hello self;
  PeerPool peers;

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  PlanUpdate plan;
  bool joined = false, closed = false;
  std::function<void()> on_change;
  std::optional<Error> refused;                            // why the controller would not have us
  std::unordered_map<std::uint64_t, std::uint64_t> calls;  // step -> the pool's call

  // reactor's thread
  ConnectionPtr controller;
  Reactor::TimerPtr retry;
  Nanos pause{std::chrono::milliseconds(100)};
  std::mt19937_64 jitter{std::random_device{}()};

  Impl(Reactor& r, FleetPipelineOptions o)
      : reactor(r),
        options(std::move(o)),
        self{Role::gateway, options.id, wall_nanos()},
        peers(r, options.token, self) {
    plan.reason = fmt::format("the controller at {} has not been reached yet", options.controller.to_string());
  }

  void join() {
    if (closed) return;
    const std::weak_ptr<Impl> weak = weak_from_this();
    Connection::Handlers handlers;
    handlers.on_message = [weak](Connection&, Message message, Responder responder) {
      const auto me = weak.lock();
      if (!me) return;
      if (auto* update = std::get_if<PlanUpdate>(&message))
        me->on_plan(std::move(*update));
      else if (responder)
        responder.fail(
            {Code::invalid_argument, fmt::format("a gateway does not answer {}", message_name(message)), {}, {}});
    };
    handlers.on_close = [weak](Connection&, const Error& why) {
      const auto me = weak.lock();
      if (!me || me->closed) return;
      log(LogLevel::warning, "event=controller_lost reason={}", log_value(why.message));
      me->controller.reset();
      me->join_later();  // the data plane goes on with the placement that is known
    };
    connect(reactor, options.controller, options.token, self, std::move(handlers), kControlTimeout,
            [weak](Result<ConnectionPtr> made) {
              const auto me = weak.lock();
              if (!me) return;
              if (!made) {
                {
                  const std::lock_guard lock(me->mutex);
                  if (!me->joined) me->plan.reason = made.error().to_string();
                  if (made.error().code == Code::unauthenticated || made.error().code == Code::version)
                    me->refused = made.error();
                }
                me->changed.notify_all();
                return me->join_later();
              }
              me->controller = *made;
              me->pause = std::chrono::milliseconds(100);
              me->controller->notify(Watch{});
            });
  }

  void join_later() {
    if (closed) return;
    const auto spread = std::uniform_int_distribution<std::int64_t>(pause.count() / 2, pause.count())(jitter);
    pause = std::min(pause * 2, kLongestPause);
    retry = reactor.after(Nanos(spread), [weak = weak_from_this()] {
      if (const auto me = weak.lock()) me->join();
    });
  }

  void on_plan(PlanUpdate update) {
    log(LogLevel::info, "event=plan epoch={} state={} nodes={} reason={}", update.epoch.value,
        fleet_state_name(update.state), update.nodes.size(), log_value(update.reason));
    for (const auto& lost : update.lost)
      peers.drop(lost, fmt::format("the controller says that node {} is lost", lost.value));
    peers.keep_only(update.nodes);
    std::function<void()> listener;
    {
      const std::lock_guard lock(mutex);
      plan = std::move(update);
      joined = true;
      refused.reset();
      listener = on_change;
    }
    changed.notify_all();
    if (listener) listener();
  }

  // With the lock held.
  [[nodiscard]] Status usable() const {
    if (plan.state == FleetState::ready && !plan.stages.empty()) return {};
    return fail(Code::unavailable, "the fleet is {}: {}", fleet_state_name(plan.state),
                plan.reason.empty() ? "its controller gave no reason" : plan.reason);
  }

  template <class Done>
  Status wait(Nanos timeout, Done done) const {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, timeout, [&] { return done() || refused.has_value(); }))
      return fail(Code::deadline, "waited {:.1f} s for the fleet, which is still {}: {}",
                  static_cast<double>(timeout.count()) / 1e9, fleet_state_name(plan.state), plan.reason);
    if (refused && !done()) return std::unexpected(*refused);
    return {};
  }
};

FleetPipeline::FleetPipeline(Reactor& reactor, FleetPipelineOptions options)
    : impl_(std::make_shared<Impl>(reactor, std::move(options))) {
  reactor.post([impl = impl_] { impl->join(); });
}

FleetPipeline::~FleetPipeline() {
  impl_->reactor.post([impl = impl_] {
    impl->closed = true;
    impl->retry.reset();
    if (impl->controller) impl->controller->close();
  });
}

void FleetPipeline::submit(Step step, std::function<void(Result<StepReply>)> on_reply) {
  NodeAddress lead;
  std::string stage;
  {
    const std::lock_guard lock(impl_->mutex);
    if (auto usable = impl_->usable(); !usable) {
      impl_->reactor.post(
          [on_reply = std::move(on_reply), error = std::move(usable).error()] { on_reply(std::unexpected(error)); });
      return;
    }
    const auto& first = impl_->plan.stages.front();
    lead = impl_->plan.nodes[first.lead];
    stage = PartSpec{{0, OpRole::attn_lead, 0}, 0, 1}.name();
    step.epoch = impl_->plan.epoch;
    step.next_stage = 0;
  }
  const std::uint64_t number = step.step;
  const std::weak_ptr<Impl> weak = impl_;
  const std::lock_guard guard(impl_->mutex);  // before the answer can look for its entry; the pool only posts
  const auto call = impl_->peers.call(
      lead, std::move(step), kStepLimit,
      [weak, number, lead, stage, on_reply = std::move(on_reply)](Result<Message> answer) {
        if (const auto me = weak.lock()) {
          const std::lock_guard lock(me->mutex);
          me->calls.erase(number);
        }
        if (!answer) {
          Error e = std::move(answer).error();
          if (e.part.empty() && e.node == lead.node.value) e.part = stage;
          return on_reply(std::unexpected(std::move(e)));
        }
        if (auto* reply = std::get_if<StepReply>(&*answer)) return on_reply(std::move(*reply));
        if (auto* failure = std::get_if<Failure>(&*answer)) return on_reply(std::unexpected(std::move(failure->error)));
        on_reply(fail(Code::corrupt, "node {} answered a step with {}", lead.node.value, message_name(*answer)));
      });
  impl_->calls[number] = call;
}

void FleetPipeline::cancel(std::uint64_t step) {
  std::uint64_t call = 0;
  {
    const std::lock_guard lock(impl_->mutex);
    if (const auto it = impl_->calls.find(step); it != impl_->calls.end()) call = it->second;
  }
  if (call != 0) impl_->peers.cancel(call);
}

void FleetPipeline::release(std::vector<SequenceId> sequences) {
  NodeAddress lead;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->plan.stages.empty()) return;
    lead = impl_->plan.nodes[impl_->plan.stages.front().lead];
    if (std::find(impl_->plan.lost.begin(), impl_->plan.lost.end(), lead.node) != impl_->plan.lost.end()) return;
  }
  impl_->peers.notify(lead, Release{std::move(sequences)});
}

Result<PipelineInfo> FleetPipeline::info() const {
  const std::lock_guard lock(impl_->mutex);
  MYRIAD_TRY_STATUS(impl_->usable());
  const PlanUpdate& p = impl_->plan;
  return PipelineInfo{p.model_name, p.vocabulary, static_cast<std::uint32_t>(p.stages.size()), p.profile, p.budget,
                      p.epoch,      p.own_context};
}

void FleetPipeline::on_change(std::function<void()> changed) {
  const std::lock_guard lock(impl_->mutex);
  impl_->on_change = std::move(changed);
}

PlanUpdate FleetPipeline::plan() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->plan;
}

Status FleetPipeline::wait_ready(Nanos timeout) const {
  return impl_->wait(timeout, [&] { return impl_->usable().has_value(); });
}
Status FleetPipeline::wait_joined(Nanos timeout) const {
  return impl_->wait(timeout, [&] { return impl_->joined; });
}

Result<std::string> FleetPipeline::fetch_file(const std::string& name, std::size_t limit, Nanos timeout) const {
  Endpoint server = impl_->options.controller;
  std::string ticket;
  {
    const std::lock_guard lock(impl_->mutex);
    if (!impl_->joined) return fail(Code::unavailable, "fetching {}: {}", name, impl_->plan.reason);
    server.port = impl_->plan.http_port;
    ticket = impl_->plan.fetch_ticket;
  }
  struct Wait {
    std::mutex mutex;
    std::condition_variable done;
    bool finished = false;
    Status status;
    std::string text;
  };
  const auto wait = std::make_shared<Wait>();
  http_get(
      impl_->reactor, server, "/v1/files/" + name, ticket, limit,
      [wait](std::span<const std::byte> piece) -> Status {
        wait->text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return {};
      },
      kFetchIdle,
      [wait](Status status) {
        const std::lock_guard lock(wait->mutex);
        wait->status = std::move(status);
        wait->finished = true;
        wait->done.notify_one();
      });
  std::unique_lock lock(wait->mutex);
  if (!wait->done.wait_for(lock, timeout, [&] { return wait->finished; }))
    return fail(Code::deadline, "fetching {} from {}: no answer in time", name, server.to_string());
  MYRIAD_TRY_STATUS(std::move(wait->status));
  return std::move(wait->text);
}

}  // namespace myriad
