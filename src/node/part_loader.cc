#include "node/part_loader.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "net/http_client.h"
#include "part/canary.h"

namespace myriad {
namespace {

// One try; the partial file keeps what came.
Status fetch_once(Reactor& reactor, const PartStore& store, const PartServer& server, const PartId& id,
                  std::uint64_t bytes) {
  MYRIAD_TRY(PartStore::Fetch fetch, store.begin(id, bytes));
  if (fetch.offset() < bytes) {
    struct Wait {
      std::mutex mutex;
      std::condition_variable done;
      bool finished = false;
      Status status;
    };
    const auto wait = std::make_shared<Wait>();
    http_get_range(
        reactor, server.endpoint, "/v1/parts/" + id.hex() + ".part", server.ticket, fetch.offset(), bytes,
        [&fetch](std::span<const std::byte> piece) { return fetch.append(piece); }, kFetchIdleLimit,
        [wait](Status status) {
          const std::lock_guard lock(wait->mutex);
          wait->status = std::move(status);
          wait->finished = true;
          wait->done.notify_one();
        });
    std::unique_lock lock(wait->mutex);
    wait->done.wait(lock, [&] { return wait->finished; });
    MYRIAD_TRY_STATUS(std::move(wait->status));
  }
  return fetch.commit();
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
      if (auto fetched = fetch_once(reactor, store, now, id, bytes); !fetched) {
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
