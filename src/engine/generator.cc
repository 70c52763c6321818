#include "engine/generator.h"

#include <condition_variable>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>

#include "engine/work_queue.h"

namespace myriad {
namespace {

Nanos now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

std::uint64_t random_high_bits() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << kSequenceCounterBits;
}

constexpr Nanos kResumeAfter = std::chrono::milliseconds(300);

BatcherLimits limits_of(const PipelineInfo& info, std::uint32_t queue) {
  return {info.budget.sequences,
          info.budget.context,
          info.budget.step_rows,
          std::max<std::uint32_t>(info.stages, 1),
          queue,
          cache_pages(info.budget),
          info.budget.prefixes,
          info.budget.drafts};
}

}  // namespace

struct Generator::Impl : std::enable_shared_from_this<Generator::Impl> {
  const std::shared_ptr<Pipeline> pipeline;
  const Options options;
  mutable std::mutex mutex;
  std::condition_variable idle;
  Batcher batcher;
  std::unordered_map<std::uint64_t, OnEvent> listeners;
  std::set<std::uint64_t> submitted;  // steps under way
  bool stopping = false;

  std::uint64_t probe = 0;  // generation of the probe that runs
  Epoch probed{};           // epoch of the last success
  Epoch placement{};        // the last that was seen
  Nanos success_at{};
  std::optional<Error> probe_error;
  mutable ModelInfo known;         // last
  std::optional<Nanos> resume_at;  // when generations that met another placement go on, if none has come until then
  std::condition_variable wake_timer;
  std::thread timer;

  // Events, in order, on a thread of their own. Gone (and its thread joined) before this object can be.
  std::mutex queue_mutex;
  std::unique_ptr<WorkQueue> deliveries = std::make_unique<WorkQueue>();

  void post(std::function<void()> work) {
    const std::lock_guard lock(queue_mutex);
    if (deliveries) deliveries->post(std::move(work));
  }

  Impl(std::shared_ptr<Pipeline> p, Options o)
      : pipeline(std::move(p)), options(o), batcher(BatcherLimits{}, random_high_bits()) {}

  // With the lock held: hands events to their listeners' thread, gives up state, and sends what can run.
  void pump() {
    for (auto& [id, event] : batcher.take_events()) {
      const bool last = !std::holds_alternative<TokenEvent>(event);
      const auto it = listeners.find(id);
      if (it == listeners.end()) continue;
      post([listener = it->second, event = std::move(event)] { listener(event); });
      if (last) listeners.erase(it);
    }
    if (auto released = batcher.take_released(); !released.empty()) pipeline->release(std::move(released));
    if (stopping) return;
    if (const auto info = pipeline->info()) {
      if (info->epoch != placement) batcher.forget_prefixes();
      placement = info->epoch;
      batcher.set_limits(limits_of(*info, options.queue));
    }
    batcher.set_time(now());
    while (auto step = batcher.next_step()) {
      if (auto released = batcher.take_released(); !released.empty()) pipeline->release(std::move(released));
      const std::uint64_t number = step->step;
      submitted.insert(number);
      pipeline->submit(std::move(*step), [self = shared_from_this(), number](Result<StepReply> reply) {
        // on the pipeline's thread; the work is done on ours, so that a pipeline that answers inside submit() cannot
        // meet our lock
        self->post([self, number, reply = std::make_shared<Result<StepReply>>(std::move(reply))] {
          const std::lock_guard lock(self->mutex);
          self->submitted.erase(number);
          if (reply->has_value()) {
            self->success_at = now();
            if (const auto info = self->pipeline->info()) self->probed = info->epoch;
            self->probe_error.reset();
          } else if (const auto info = self->pipeline->info();
                     reply->error().code == Code::busy && info && info->epoch == self->probed) {
            self->success_at = now();  // nodes that are full of other gateways' sequences are well
          }
          self->batcher.set_time(now());
          self->batcher.on_reply(number, std::move(*reply));
          if (self->batcher.holds() && !self->resume_at) {
            self->resume_at = now() + kResumeAfter;
            self->wake_timer.notify_all();
          }
          self->pump();
          self->idle.notify_all();
        });
      });
    }
    if (batcher.wakes_at()) wake_timer.notify_all();
  }

  void resume() {
    resume_at.reset();
    batcher.resume();
    pump();
  }

  void start_probe() {
    GenerationRequest request;
    request.id = "probe";
    request.prompt = {0};
    request.max_tokens = 1;
    const auto id = batcher.admit(std::move(request));
    if (!id) return;
    probe = *id;
    listeners[*id] = [self = weak_from_this(), me = *id](const GenerationEvent& event) {
      const auto owner = self.lock();
      if (!owner || std::holds_alternative<TokenEvent>(event)) return;
      const std::lock_guard lock(owner->mutex);
      if (owner->probe == me) owner->probe = 0;
      if (const auto* failed = std::get_if<FailedEvent>(&event)) {
        owner->probe_error = failed->error;
        owner->probed = {};
      }
    };
    pump();
  }
};

Generator::Generator(std::shared_ptr<Pipeline> pipeline, Options options)
    : impl_(std::make_shared<Impl>(std::move(pipeline), options)) {
  // A new placement is probed at once, so that readiness need not wait for somebody to ask.
  const auto probe = [weak = std::weak_ptr(impl_)] {
    const auto impl = weak.lock();
    if (!impl) return;
    impl->post([weak] {
      const auto self = weak.lock();
      if (!self) return;
      const std::lock_guard lock(self->mutex);
      const auto info = self->pipeline->info();
      if (info && self->resume_at) self->resume();
      if (info && info->epoch != self->probed && self->probe == 0 && !self->stopping) self->start_probe();
    });
  };
  impl_->pipeline->on_change(probe);
  probe();
  impl_->timer = std::thread([self = impl_.get(), every = options.probe_every] {
    std::unique_lock lock(self->mutex);
    for (Nanos probe_at = now() + every; !self->stopping;) {
      std::optional<Nanos> next = self->resume_at;
      if (const auto wakes = self->batcher.wakes_at()) next = std::min(next.value_or(*wakes), *wakes);
      if (every.count() != 0) next = std::min(next.value_or(probe_at), probe_at);
      if (next)
        self->wake_timer.wait_for(lock, *next - now());
      else
        self->wake_timer.wait(lock);
      if (self->stopping) return;
      if (self->resume_at && now() >= *self->resume_at) self->resume();
      if (const auto wakes = self->batcher.wakes_at(); wakes && now() >= *wakes) self->pump();
      if (every.count() == 0 || now() < probe_at) continue;
      probe_at = now() + every;
      if (self->probe == 0 && now() - self->success_at >= every && self->pipeline->info()) self->start_probe();
    }
  });
}

Generator::~Generator() {
  impl_->pipeline->on_change({});
  {
    std::unique_lock lock(impl_->mutex);
    impl_->stopping = true;
    const auto under_way = impl_->submitted;
    lock.unlock();
    for (const auto step : under_way) impl_->pipeline->cancel(step);
    lock.lock();
    impl_->idle.wait(lock, [&] { return impl_->submitted.empty(); });
  }
  impl_->wake_timer.notify_all();
  impl_->timer.join();
  std::unique_ptr<WorkQueue> last;
  {
    const std::lock_guard lock(impl_->queue_mutex);
    last = std::move(impl_->deliveries);
  }
}

Result<std::uint64_t> Generator::start(GenerationRequest request, OnEvent on_event) {
  const auto info = impl_->pipeline->info();
  if (!info) return std::unexpected(info.error());
  for (const auto t : request.prompt)
    if (t < 0 || static_cast<std::uint32_t>(t) >= info->vocabulary)
      return fail(Code::invalid_argument, "token {} in the prompt: the vocabulary has {} tokens, 0 to {}", t,
                  info->vocabulary, info->vocabulary - 1);
  const std::lock_guard lock(impl_->mutex);
  impl_->batcher.set_limits(limits_of(*info, impl_->options.queue));
  MYRIAD_TRY(const std::uint64_t id, impl_->batcher.admit(std::move(request)));
  impl_->listeners[id] = std::move(on_event);
  impl_->pump();
  return id;
}

void Generator::cancel(std::uint64_t generation) {
  std::optional<std::uint64_t> step;
  {
    const std::lock_guard lock(impl_->mutex);
    step = impl_->batcher.cancel(generation);
    impl_->pump();
  }
  if (step) impl_->pipeline->cancel(*step);
}

ModelInfo Generator::info() const {
  const auto info = impl_->pipeline->info();
  const std::lock_guard lock(impl_->mutex);
  if (info)
    impl_->known = {info->model_name,
                    info->budget.context,
                    info->budget.sequences,
                    impl_->options.queue,
                    static_cast<std::int32_t>(info->vocabulary),
                    info->own_context};
  return impl_->known;
}

Status Generator::ready() const {
  const auto info = impl_->pipeline->info();
  if (!info) return std::unexpected(info.error());
  const std::lock_guard lock(impl_->mutex);
  if (impl_->probe_error)
    return std::unexpected(Error(*impl_->probe_error).within("a probe token did not pass every stage"));
  if (impl_->probed != info->epoch)
    return fail(Code::unavailable, "a probe token is on its way through every stage of the present placement");
  const Nanos age = now() - impl_->success_at;
  if (impl_->options.probe_every.count() != 0 && age > 3 * impl_->options.probe_every)
    return fail(Code::unavailable, "no token has passed every stage for {:.0f} s",
                static_cast<double>(age.count()) / 1e9);
  return {};
}

}  // namespace myriad
