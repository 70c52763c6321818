#include "node/part_loader.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "net/http_client.h"
#include "part/canary.h"

namespace myriad {
namespace {

constexpr Nanos kStopCheck = std::chrono::milliseconds(100);

// One try; the partial file keeps what came. Ends early, as cancelled, when `stop` says so: the transfer then goes on
// by itself until it is done or idle, so what it writes to is shared with it.
Status fetch_once(Reactor& reactor, const PartStore& store, const PartServer& server, const PartId& id,
                  std::uint64_t bytes, const std::function<bool()>& stop) {
  struct Transfer {
    explicit Transfer(PartStore::Fetch f) : fetch(std::move(f)) {}
    PartStore::Fetch fetch;
    std::mutex mutex;
    std::condition_variable changed;
    bool finished = false, given_up = false;
    Status status;
  };
  MYRIAD_TRY(PartStore::Fetch begun, store.begin(id, bytes));
  const auto transfer = std::make_shared<Transfer>(std::move(begun));
  if (transfer->fetch.offset() < bytes) {
    http_get_range(
        reactor, server.endpoint, "/v1/parts/" + id.hex() + ".part", server.ticket, transfer->fetch.offset(), bytes,
        [transfer](std::span<const std::byte> piece) -> Status {
          const std::lock_guard lock(transfer->mutex);
          if (transfer->given_up) return fail(Code::cancelled, "nobody waits for this part any more");
          return transfer->fetch.append(piece);
        },
        kFetchIdleLimit,
        [transfer](Status status) {
          const std::lock_guard lock(transfer->mutex);
          transfer->status = std::move(status);
          transfer->finished = true;
          transfer->changed.notify_one();
        });
    std::unique_lock lock(transfer->mutex);
    while (!transfer->changed.wait_for(lock, kStopCheck, [&] { return transfer->finished; })) {
      if (!stop()) continue;
      transfer->given_up = true;
      return fail(Code::cancelled, "fetching part {} was given up", id.hex());
    }
    MYRIAD_TRY_STATUS(std::move(transfer->status));
  }
  return transfer->fetch.commit();
}

}  // namespace

Result<Part> load_part(Reactor& reactor, const PartStore& store, const std::function<PartServer()>& server,
                       const PartId& id, std::uint64_t bytes, const Graph& graph, const Kernels& kernels,
                       const std::function<bool()>& stop) {
  Error last{Code::internal, "", {}, {}};
  Endpoint from;
  for (int attempt = 0; attempt < kFetchTries; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kFetchPause * (1 << (attempt - 1)));
    if (stop()) return fail(Code::cancelled, "loading part {} was interrupted by a newer assignment", id.hex());
    if (!store.find(id)) {
      const PartServer now = server();
      from = now.endpoint;
      if (auto fetched = fetch_once(reactor, store, now, id, bytes, stop); !fetched) {
        last = std::move(fetched).error();
        log(LogLevel::warning, "event=fetch_failed part={} try={} reason={}", id.hex(), attempt + 1,
            log_value(last.message));
        continue;
      }
    }
    auto part = store.load(id, graph);
    if (!part) {
      last = std::move(part).error();
      log(LogLevel::warning, "event=load_failed part={} reason={}", id.hex(), log_value(last.message));
      continue;
    }
    if (auto sound = check_canary(graph, *part, kernels); !sound) return std::unexpected(std::move(sound).error());
    return part;
  }
  return std::unexpected(std::move(last).within(fmt::format("loading part {} from {}", id.hex(), from.to_string())));
}

}  // namespace myriad
