// The subcommands of `myriad`, one .cc each, and their options. main.cc fills the options from the command line; each
// function does the work, writes results to standard output and everything else to standard error, and returns the
// process's exit code (cli/exit_code.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "model/graph.h"
#include "proto/messages.h"

namespace myriad::cli {

// Where a model runs: all of it in this process, or in a private fleet of node processes on this machine.
struct EngineOptions {
  std::filesystem::path model;
  Profile profile = Profile::fast;
  std::uint32_t threads = 0;  // of each process; 0: its share of the usable cores
  std::uint32_t context = 0;  // positions of one sequence; 0: as many as the command needs
  std::uint32_t nodes = 0;    // 0: in this process
  Bytes node_memory{std::uint64_t{256} << 20};
  std::uint64_t cut_seed = 0;  // not 0: parts are cut at random granules
  KvCache cache = KvCache::by_profile;
};

// Prompts' states that a served fleet keeps unless it is told otherwise: one for what conversations have in common, one
// for the conversation itself.
inline constexpr std::uint32_t kServedPrefixes = 2;

struct RunOptions {
  EngineOptions engine;
  std::string prompt;
  std::filesystem::path prompt_file;  // instead
  std::uint32_t tokens = 64;
  float temperature = 0;
  float top_p = 1;
  std::uint32_t top_k = 0;
  std::uint64_t seed = 0;
  std::uint32_t drafts = 0;
  bool ignore_end = false;  // goes on after an end-of-sequence token
};
int run_command(const RunOptions& options);

struct LogitsOptions {
  EngineOptions engine;
  std::string ids;
  std::filesystem::path ids_file;    // instead
  std::uint32_t chunk = 0;           // rows of a step; 0: the engine's choice
  std::filesystem::path batch_with;  // id lists that run in the same steps
  bool json = false, digest = false;
  bool interpreter = false;  // the plain scalar definition instead of the engine
};
int logits_command(const LogitsOptions& options);

struct PerplexityOptions {
  EngineOptions engine;
  std::filesystem::path file;
  std::uint32_t window = 256;
  std::uint32_t windows = 0;  // 0: all full ones
  bool llama_cpp = false;     // score the second half of each window only, as llama.cpp's tool does
};
int perplexity_command(const PerplexityOptions& options);

struct InspectOptions {
  std::filesystem::path model;
  bool json = false;
};
int inspect_command(const InspectOptions& options);

struct TokenizeOptions {
  std::filesystem::path model;
  bool decode = false;
  bool specials = false;  // names of special tokens in the text are those tokens
};
int tokenize_command(const TokenizeOptions& options);

int chat_format_command(const std::filesystem::path& model);

struct CutCommandOptions {
  std::filesystem::path model, out;
  std::optional<Bytes> node_memory, part_bytes;
  std::uint32_t nodes = 0;  // that the cut is made for; 0: unknown
  std::string name;         // empty: the directory's
  Profile profile = Profile::fast;
  std::uint32_t context = 4096, sequences = 4;  // for the estimate of nodes
  bool dry_run = false, json = false;
  std::uint64_t cut_seed = 0;  // not 0: at random granules
  bool wait = false;           // for another process that cuts into `out`; its cut is taken for this one
};
int cut_command(const CutCommandOptions& options);

struct QuantizeOptions {
  EngineOptions engine;  // that measures: profile and threads
  std::filesystem::path in, out;
  std::string format;
  std::string budget;               // of format mixed
  std::filesystem::path calibrate;  // likewise
  std::uint32_t calibrate_windows = 4;
  std::filesystem::path eval;      // a text to compare on, if not empty
  std::uint32_t eval_windows = 0;  // 0: all full ones
  std::uint32_t window = 256;      // of both
  bool demo = false, json = false;
};
int quantize_command(const QuantizeOptions& options);

// ---- how fast this machine is
struct BenchReadOptions {
  std::uint32_t threads = 0;  // 0: the usable cores
  Bytes bytes{std::uint64_t{1} << 30};
  double seconds = 1;
  bool json = false;
};
int bench_read_command(const BenchReadOptions& options);
// Both feed ids that are given beforehand, so that no model can fall into repeating itself: id i = (17 + 7919·i) mod
// vocabulary.
struct BenchModelOptions {
  EngineOptions engine;
  std::uint32_t prompt = 16;    // ids fed before, or (prefill) at once
  std::uint32_t tokens = 48;    // decode: timed steps of every sequence
  std::uint32_t sequences = 1;  // decode: that go on together
  bool json = false;
};
int bench_decode_command(const BenchModelOptions& options);
int bench_prefill_command(const BenchModelOptions& options);
int bench_batch_command(const BenchModelOptions& options);

struct BenchHopOptions {
  std::uint32_t values = 7168;
  std::uint32_t rounds = 20000;
  bool json = false;
};
int bench_hop_command(const BenchHopOptions& options);

struct BenchKernelsOptions {
  std::uint32_t threads = 0;  // 0: the usable cores
  std::uint32_t columns = 2048;
  Bytes bytes{std::uint64_t{512} << 20};
  std::string type;  // empty: all that `myriad quantize` writes, and bf16 and f32
  bool json = false;
};
int bench_kernels_command(const BenchKernelsOptions& options);

// ---- the processes of a fleet. ready_fd: cli/service.h.
struct ControllerCommandOptions {
  std::filesystem::path cut_directory;
  std::string listen = "127.0.0.1";
  std::string http_port = "7201";
  std::filesystem::path token_file;
  std::uint32_t nodes = 0;  // plan when so many are there; 0: when no more have come for a while
  Profile profile = Profile::fast;
  Budget budget{.prefixes = kServedPrefixes};
  std::optional<Bytes> cache_memory;  // instead of budget.positions
  int ready_fd = -1;
};
int controller_command(const ControllerCommandOptions& options);

struct NodeCommandOptions {
  std::string join;
  std::filesystem::path token_file;
  Bytes memory{std::uint64_t{256} << 20};
  std::filesystem::path store;
  std::vector<std::filesystem::path> parts;
  std::string name, advertise;
  std::string listen = "127.0.0.1:0";
  std::uint32_t threads = 0;
  int ready_fd = -1;
};
int node_command(const NodeCommandOptions& options);

struct GatewayCommandOptions {
  std::string join;
  std::filesystem::path token_file, api_key_file;
  std::string http = "127.0.0.1:8080";
  std::vector<std::string> cors_origins;
  int ready_fd = -1;
};
int gateway_command(const GatewayCommandOptions& options);

// ---- a fleet on this machine
struct FleetUpOptions {
  EngineOptions engine;
  std::string fleet = "default";
  std::string name;  // of the model in the API; empty: its directory's
  Budget budget{.prefixes = kServedPrefixes};
  std::optional<Bytes> cache_memory;  // instead of budget.positions
  std::string http = "127.0.0.1:8080";
  std::filesystem::path api_key_file;
  bool local_parts = false;
};
int fleet_up_command(const FleetUpOptions& options);

struct NamedFleetOptions {
  std::string fleet = "default";
  std::string node;  // for kill
  bool json = false;
};
int fleet_status_command(const NamedFleetOptions& options);
int fleet_kill_command(const NamedFleetOptions& options);
int fleet_down_command(const NamedFleetOptions& options);

}  // namespace myriad::cli
