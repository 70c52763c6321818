// A node alone, for machines on which the whole `myriad` command is not built: libc, libstdc++ and header-only
// libraries.
//
//   myriad-node --join HOST:PORT --token-file F --store DIR [--memory 256MiB] [--name ID] [--threads N] [--listen
//   HOST:PORT]
//               [--advertise HOST] [--parts DIR]
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "base/log.h"
#include "net/address_option.h"
#include "net/ports.h"
#include "net/token_file.h"
#include "node/node.h"

namespace {

using namespace myriad;

constexpr const char* kUsage =
    "usage: myriad-node --join HOST:PORT --token-file FILE --store DIR [--memory 256MiB] [--name ID]\n"
    "                   [--threads N] [--listen HOST:PORT] [--advertise HOST] [--parts DIR]\n";

// SIGINT, SIGTERM and the controller's word end the process.
Status run(const std::map<std::string, std::string>& given) {
  const auto get = [&](const char* name, const char* otherwise) {
    const auto it = given.find(name);
    return it == given.end() ? std::string(otherwise) : it->second;
  };
  for (const char* name : {"join", "token-file", "store"})
    if (!given.contains(name)) return fail(Code::invalid_argument, "--{} is missing\n{}", name, kUsage);
  NodeOptions options;
  MYRIAD_TRY(options.controller, parse_join_option("--join", get("join", ""), kControllerPort));
  MYRIAD_TRY(options.token, read_token_file(get("token-file", "")));
  MYRIAD_TRY(options.memory, parse_bytes(get("memory", "256MiB")));
  MYRIAD_TRY(options.listen, parse_listen_option("--listen", get("listen", "127.0.0.1:0"), 0));
  std::vector<std::filesystem::path> local;
  if (given.contains("parts")) local.emplace_back(get("parts", ""));
  MYRIAD_TRY(PartStore store, PartStore::open(get("store", ""), std::move(local)));
  options.store = std::make_unique<PartStore>(std::move(store));
  MYRIAD_TRY(options.advertise, parse_host_option("--advertise", get("advertise", "")));
  options.threads = static_cast<std::size_t>(std::strtoul(get("threads", "0").c_str(), nullptr, 10));
  if (given.contains("name")) {
    options.id = {get("name", "")};
  } else {
    MYRIAD_TRY(options.id, persistent_node_id(*options.store));
  }

  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);  // before any thread exists, so that all inherit it
  log_configure(log_level_from_environment(LogLevel::warning), "node=" + options.id.value);
  std::mutex mutex;
  Status ended;
  MYRIAD_TRY(const auto node, Node::start(std::move(options), [&](Status why) {
               {
                 const std::lock_guard lock(mutex);
                 ended = std::move(why);
               }
               ::kill(::getpid(), SIGTERM);
             }));
  std::printf("node listens on port %u\n", node->port());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  const std::lock_guard lock(mutex);
  return ended;
}

}  // namespace

int main(int argc, char** argv) {
  myriad::bound_allocator();
  std::map<std::string, std::string> given;
  for (int i = 1; i < argc; i += 2) {
    if (std::strncmp(argv[i], "--", 2) != 0 || i + 1 == argc) {
      std::fputs(kUsage, stderr);
      return 2;
    }
    given[argv[i] + 2] = argv[i + 1];
  }
  if (const auto done = run(given); !done) {
    std::fprintf(stderr, "myriad-node: %s\n", done.error().to_string().c_str());
    return 1;
  }
  return 0;
}
