// The command line of `myriad`: options and help. The work is in one file a subcommand (cli/commands.h). This is the
// only file that includes CLI11, which takes long to compile.
#include <CLI/CLI.hpp>

#include <exception>
#include <functional>
#include <new>
#include <system_error>

#include "base/allocator.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/input.h"
#include "cli/streams.h"

namespace myriad::cli {
namespace {

constexpr const char* kExitCodes =
    "exit codes: 0 done; 1 the work failed; 2 an option or argument that makes no sense; 3 a model or file that is "
    "missing, damaged or unsupported;\n            4 a fleet that is not there, not ready or out of reach; 5 more "
    "memory is needed than was given.";

// Option values that are parsed by the project's own functions.
CLI::Option* add_bytes(CLI::App& app, const std::string& name, const std::string& help,
                       const std::function<void(Bytes)>& set) {
  return app
      .add_option_function<std::string>(
          name,
          [set, name](const std::string& text) {
            const auto bytes = parse_bytes(text);
            if (!bytes) throw CLI::ValidationError(name, bytes.error().message);
            set(*bytes);
          },
          help)
      ->type_name("BYTES");
}
CLI::Option* add_profile(CLI::App& app, Profile& profile) {
  return app
      .add_option_function<std::string>(
          "--profile",
          [&profile](const std::string& text) {
            const auto parsed = parse_profile(lower_case(text));
            if (!parsed) throw CLI::ValidationError("--profile", parsed.error().message);
            profile = *parsed;
          },
          "numerics: fast (default) or exact (f32 everywhere, for comparing with references)")
      ->type_name("fast|exact");
}
CLI::Option* add_model(CLI::App& app, std::filesystem::path& model) {
  return app
      .add_option("MODEL", model, "a GGUF file, a directory in the Hugging Face layout, or one that `myriad cut` made")
      ->required();
}
void add_cache_type(CLI::App& app, KvCache& cache) {
  app.add_option_function<std::string>(
         "--cache-type",
         [&cache](const std::string& name) {
           auto parsed = parse_kv_cache(lower_case(name));
           if (!parsed) throw CLI::ValidationError("--cache-type", parsed.error().message);
           cache = *parsed;
         },
         "what the caches of attention store: f32, bf16, f16, i8 (a quarter of f32; changes the tokens a little); "
         "auto: bf16 (f16 where the weights are f16 or f32), in the exact profile f32")
      ->default_str("auto");
}
void add_drafts(CLI::App& app, std::uint32_t& drafts) {
  app.add_option("--draft-tokens", drafts,
                 "tokens that are guessed from what the text repeats and checked in one step, up to 16; the text stays "
                 "the same; 0: none")
      ->check(CLI::Range(0U, kMaxDrafts))
      ->capture_default_str();
}
void add_engine(CLI::App& app, EngineOptions& engine) {
  add_model(app, engine.model);
  add_profile(app, engine.profile);
  app.add_option("--threads", engine.threads, "of each process; default: its share of the usable cores")
      ->check(CLI::Range(0U, 1024U));
  app.add_option("--context", engine.context, "positions of one sequence; default: what the command needs");
  add_cache_type(app, engine.cache);
  app.add_option("--nodes", engine.nodes, "run on a private fleet of so many node processes; 0: in this process")
      ->check(CLI::Range(0U, 4096U));
  auto* memory = add_bytes(app, "--node-memory", "of each node of the private fleet; default 256MiB",
                           [&engine](Bytes b) { engine.node_memory = b; });
  app.parse_complete_callback([memory, &engine] {
    if (memory->count() != 0 && engine.nodes == 0)
      throw CLI::ValidationError("--node-memory", "it is of the nodes of a private fleet; say how many with --nodes");
  });
}
// What a fleet is asked to keep room for.
void add_budget(CLI::App& app, Budget& budget, std::optional<Bytes>& cache_memory) {
  app.add_option("--context", budget.context, "positions of one sequence, prompt and answer together")
      ->capture_default_str();
  app.add_option("--sequences", budget.sequences, "that run at once")->capture_default_str();
  app.add_option("--step-rows", budget.step_rows, "rows of one step: more make prompts faster and buffers larger")
      ->capture_default_str();
  auto* positions =
      app.add_option("--cache-positions", budget.positions,
                     "positions in the caches of all sequences together; 0: every sequence can be as long as any")
          ->capture_default_str();
  add_bytes(app, "--cache-memory", "the same as bytes of the caches of all nodes together, at least one --context",
            [&cache_memory](Bytes b) { cache_memory = b; })
      ->excludes(positions);
  app.add_option("--prefixes", budget.prefixes,
                 "states of prompts that are kept, for requests that begin alike; 0: every prompt is computed")
      ->capture_default_str();
  add_drafts(app, budget.drafts);
  add_cache_type(app, budget.cache);
}
void add_ready_fd(CLI::App& app, int& fd) {
  app.add_option("--ready-fd", fd, "for whoever starts this process: a line of JSON is written there")->group("");
}

using Selected = std::function<int()>;

// Each of these adds one subcommand; `selected` is set when it is the one that was called. Options live as long as the
// lambda that uses them.
template <class Options>
CLI::App* add_command(CLI::App& app, Selected& selected, const std::string& name, const std::string& help,
                      std::shared_ptr<Options> options, int (*run)(const Options&)) {
  CLI::App* command = app.add_subcommand(name, help);
  command->footer(kExitCodes);
  command->callback([&selected, options, run] { selected = [options, run] { return run(*options); }; });
  return command;
}

void add_run(CLI::App& app, Selected& selected) {
  auto o = std::make_shared<RunOptions>();
  auto* c =
      add_command(app, selected, "run", "generate text: prompt and continuation on standard output", o, run_command);
  add_engine(*c, o->engine);
  auto* text = c->add_option("-p,--prompt", o->prompt, "the text to continue")->type_name("TEXT");
  auto* file = c->add_option("-f,--prompt-file", o->prompt_file, "read it from a file; - is standard input");
  text->excludes(file);
  c->add_option("-n,--tokens", o->tokens, "how many new tokens at most")
      ->capture_default_str()
      ->check(CLI::Range(1U, 1U << 24));
  add_drafts(*c, o->drafts);
  c->add_option("--temperature", o->temperature, "0 takes the likeliest token each time")
      ->capture_default_str()
      ->check(CLI::Range(0.0F, 100.0F));
  c->add_option("--top-p", o->top_p, "draw among the likeliest tokens of this probability")
      ->capture_default_str()
      ->check(CLI::Range(0.0F, 1.0F));
  c->add_option("--top-k", o->top_k, "draw among so many likeliest tokens; 0: no limit")->capture_default_str();
  c->add_option("--seed", o->seed, "of the draws; the same seed gives the same text everywhere")->capture_default_str();
  c->add_flag("--ignore-end", o->ignore_end, "go on after an end-of-sequence token");
}

void add_logits(CLI::App& app, Selected& selected) {
  auto o = std::make_shared<LogitsOptions>();
  auto* c = add_command(app, selected, "logits", "the logits of every position of a list of ids", o, logits_command);
  add_engine(*c, o->engine);
  auto* ids = c->add_option("--ids", o->ids, "1,2,3")->type_name("LIST");
  auto* file = c->add_option("--ids-file", o->ids_file, "read them from a file; - is standard input");
  ids->excludes(file);
  auto* chunk = c->add_option("--prefill-chunk", o->chunk, "positions of one step")->check(CLI::Range(1U, 1024U));
  auto* batch =
      c->add_option("--batch-with", o->batch_with, "a file of other id lists, one a line, that run in the same steps");
  auto* seed = c->add_option("--cut-seed", o->engine.cut_seed, "cut the model at random places, drawn from this seed");
  auto* json = c->add_flag("--json", o->json, "{\"ids\": [...], \"logits\": [[...], ...]}, nine significant digits");
  auto* digest =
      c->add_flag("--digest", o->digest, "SHA-256 over the logits as little-endian f32, [positions, vocabulary]");
  c->add_flag("--interpreter", o->interpreter, "by the plain scalar definition of the model instead of the engine");
  const std::vector<const CLI::Option*> of_the_engine = {
      c->get_option("--nodes"), c->get_option("--threads"), c->get_option("--context"), chunk, batch, seed};
  c->callback([=, &selected] {
    if (ids->count() + file->count() == 0) throw CLI::RequiredError("--ids or --ids-file");
    if (json->count() != 0 && digest->count() != 0)
      throw CLI::ValidationError("--digest", "it is printed instead of the logits; leave out --json");
    for (const CLI::Option* option : of_the_engine)
      if (o->interpreter && option->count() != 0)
        throw CLI::ValidationError("--interpreter",
                                   "it runs the whole list by itself in this process; leave out " + option->get_name());
    selected = [o] { return logits_command(*o); };
  });
}

void add_perplexity(CLI::App& app, Selected& selected) {
  auto o = std::make_shared<PerplexityOptions>();
  auto* c = add_command(app, selected, "perplexity", "how well the model predicts a text", o, perplexity_command);
  add_engine(*c, o->engine);
  c->add_option("-f,--file", o->file, "the text; - is standard input")->required();
  c->add_option("--window", o->window, "tokens of one window; each begins with fresh state")
      ->capture_default_str()
      ->check(CLI::Range(2U, 1U << 22));
  c->add_option("--windows", o->windows, "only the first so many; default: all full ones");
  c->add_option_function<std::string>(
       "--method", [o](const std::string& method) { o->llama_cpp = method == "llama.cpp"; },
       "myriad (default): every prediction counts; llama.cpp: those of each window's second half")
      ->check(CLI::IsMember({"myriad", "llama.cpp"}));
}

void add_inspect(CLI::App& app, Selected& selected) {
  auto o = std::make_shared<InspectOptions>();
  auto* c = add_command(app, selected, "inspect", "what a model consists of: tensors, bytes, parameters, state", o,
                        inspect_command);
  add_model(*c, o->model);
  c->add_flag("--json", o->json, "as JSON");
}

void add_tokenize(CLI::App& app, Selected& selected) {
  auto o = std::make_shared<TokenizeOptions>();
  auto* c = add_command(app, selected, "tokenize", "a JSON string a line in, a JSON list of ids a line out", o,
                        tokenize_command);
  c->add_option("MODEL", o->model, "a GGUF file, a model directory, or a tiktoken file alone")->required();
  auto* decode = c->add_flag("--decode", o->decode, "the other way: lists of ids in, strings out");
  c->add_flag("--specials", o->specials, "names of special tokens in the text stand for those tokens")
      ->excludes(decode);
}

void add_chat_format(CLI::App& app, Selected& selected) {
  auto model = std::make_shared<std::filesystem::path>();
  auto* c =
      add_command(app, selected, "chat-format", "a chat request (JSON) a line in; its prompt as segments and ids out",
                  model, chat_format_command);
  c->add_option("MODEL", *model, "a GGUF file or a model directory")->required();
}

void add_cut(CLI::App& app, Selected& selected) {
  auto o = std::make_shared<CutCommandOptions>();
  auto* c = add_command(app, selected, "cut", "cut a model into parts that small nodes can hold", o, cut_command);
  add_model(*c, o->model);
  auto* out = c->add_option("--out", o->out, "where to; a cut that was interrupted goes on")->type_name("DIR");
  add_bytes(*c, "--node-memory", "of one node, such as 256MiB: parts become small enough for it",
            [o](Bytes b) { o->node_memory = b; });
  add_bytes(*c, "--part-bytes", "how large a part may be, where the operator allows; default 16MiB",
            [o](Bytes b) { o->part_bytes = b; });
  c->add_option("--nodes", o->nodes, "how many nodes there will be: parts become small enough for even shares");
  c->add_option("--name", o->name, "of the model in the API; default: its directory's");
  auto* dry = c->add_flag("--dry-run", o->dry_run, "list the parts and how many nodes they need; reads no weights");
  add_profile(*c, o->profile);
  auto* context =
      c->add_option("--context", o->context, "with --dry-run: positions of one sequence")->capture_default_str();
  auto* sequences =
      c->add_option("--sequences", o->sequences, "with --dry-run: sequences at once")->capture_default_str();
  c->add_flag("--json", o->json, "as JSON");
  c->add_option("--cut-seed", o->cut_seed, "at random places, drawn from this seed")->group("");
  c->add_flag("--wait", o->wait, "for another process that makes the same cut")->group("");
  c->callback([=, &selected] {
    if (out->count() == 0 && dry->count() == 0) throw CLI::RequiredError("--out (or --dry-run)");
    for (const CLI::Option* option : {context, sequences})
      if (option->count() != 0 && (dry->count() == 0 || !o->node_memory))
        throw CLI::ValidationError(
            option->get_name(),
            "it is for counting nodes, with --dry-run and --node-memory; a cut is the same for all");
    selected = [o] { return cut_command(*o); };
  });
}

void add_quantize(CLI::App& app, Selected& selected) {
  auto o = std::make_shared<QuantizeOptions>();
  auto* c = add_command(app, selected, "quantize", "write a model in fewer bytes and say what that costs", o,
                        quantize_command);
  auto* in = c->add_option("IN", o->in, "a directory in the Hugging Face layout, or a GGUF file");
  auto* out = c->add_option("OUT", o->out,
                            "a directory or, with a name that ends in .gguf, a GGUF file. An interrupted run goes on");
  auto* format =
      c->add_option("--format", o->format,
                    "what matrices become: int8-tensor, int8-channel, int8-group, int4-group, int4-zero, "
                    "q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0, iq4_nl, mxfp4, i4_zero, keep: what they "
                    "are, or mixed: chosen for each by what it costs");
  c->add_option("--budget", o->budget, "mixed: how large OUT may be, as bytes (3GiB) or bits a weight (4.5bpw)");
  c->add_option("--calibrate", o->calibrate, "mixed: a text; what a type costs is measured on its beginning")
      ->type_name("FILE");
  auto* calibrate_windows = c->add_option("--calibrate-windows", o->calibrate_windows, "mixed: how many windows of it")
                                ->capture_default_str()
                                ->check(CLI::Range(1U, 4096U));
  c->add_option("--eval", o->eval,
                "a text: perplexity before and after, and KL divergence; holds both models in memory")
      ->type_name("FILE");
  auto* eval_windows =
      c->add_option("--eval-windows", o->eval_windows, "only the first so many windows; default: all full ones");
  c->add_option("--window", o->window, "tokens of one window of these texts; each begins with fresh state")
      ->capture_default_str()
      ->check(CLI::Range(2U, 1U << 16));
  add_profile(*c, o->engine.profile);
  c->add_option("--threads", o->engine.threads, "default: the usable cores")->check(CLI::Range(0U, 1024U));
  c->add_flag("--json", o->json, "the report as JSON");
  c->add_flag("--demo", o->demo, "instead: what INT8 and INT4 cost a 4096 × 4096 matrix of normal numbers");
  c->callback([=, &selected] {
    if (!o->demo && (in->count() == 0 || out->count() == 0 || format->count() == 0))
      throw CLI::RequiredError("IN, OUT and --format (or --demo)");
    if (o->demo && in->count() + out->count() + format->count() != 0)
      throw CLI::ValidationError("--demo", "it takes no model");
    if (eval_windows->count() != 0 && o->eval.empty())
      throw CLI::ValidationError("--eval-windows", "it is of the text of --eval, which is not given");
    if (calibrate_windows->count() != 0 && o->calibrate.empty())
      throw CLI::ValidationError("--calibrate-windows", "it is of the text of --calibrate, which is not given");
    selected = [o] { return quantize_command(*o); };
  });
}

void add_controller(CLI::App& app, Selected& selected) {
  auto o = std::make_shared<ControllerCommandOptions>();
  auto* c = add_command(app, selected, "controller", "keep track of a fleet's nodes and hand out a model's parts", o,
                        controller_command);
  c->add_option("CUT", o->cut_directory, "a directory that `myriad cut` made")->required();
  c->add_option("--listen", o->listen,
                "HOST[:PORT] for nodes, gateways and tools; port 7200 by default, 0: a free one; "
                "* as host: every address")
      ->capture_default_str();
  c->add_option("--http-port", o->http_port, "that parts are fetched from; 0: a free one")
      ->capture_default_str()
      ->type_name("PORT");
  c->add_option("--token-file", o->token_file, "the fleet's secret; `openssl rand -hex 32 > FILE` makes one")
      ->required();
  c->add_option("--nodes", o->nodes, "place the model when so many nodes are there; default: when no more come");
  add_profile(*c, o->profile);
  add_budget(*c, o->budget, o->cache_memory);
  add_ready_fd(*c, o->ready_fd);
}

void add_node(CLI::App& app, Selected& selected) {
  auto o = std::make_shared<NodeCommandOptions>();
  auto* c = add_command(app, selected, "node", "be a node of a fleet", o, node_command);
  c->add_option("--join", o->join, "HOST[:PORT] of the controller")->required();
  c->add_option("--token-file", o->token_file, "the fleet's secret")->required();
  add_bytes(*c, "--memory", "that this whole process may take; default 256MiB", [o](Bytes b) { o->memory = b; });
  c->add_option("--store", o->store, "where parts are kept for the next start")->required()->type_name("DIR");
  c->add_option("--parts", o->parts, "a directory with parts that are read instead of fetched; may be given often")
      ->type_name("DIR");
  c->add_option("--name", o->name, "unique in the fleet; default: one that is kept in the store");
  c->add_option("--listen", o->listen, "HOST[:PORT] for other nodes and gateways; * as host: every address")
      ->capture_default_str();
  c->add_option("--advertise", o->advertise, "host that others reach this node at; default: what the controller sees");
  c->add_option("--threads", o->threads, "default: the usable cores")->check(CLI::Range(0U, 1024U));
  add_ready_fd(*c, o->ready_fd);
}

void add_gateway(CLI::App& app, Selected& selected) {
  auto o = std::make_shared<GatewayCommandOptions>();
  auto* c = add_command(app, selected, "gateway", "serve the OpenAI-compatible API for a fleet", o, gateway_command);
  c->add_option("--join", o->join, "HOST[:PORT] of the controller")->required();
  c->add_option("--token-file", o->token_file, "the fleet's secret")->required();
  c->add_option("--http", o->http, "HOST[:PORT] to serve on; * as host: every address")->capture_default_str();
  c->add_option("--api-key-file", o->api_key_file, "what clients must present as `Authorization: Bearer …`");
  c->add_option("--cors-origin", o->cors_origins, "a web page that may use the API; may be given often");
  add_ready_fd(*c, o->ready_fd);
}

void add_bench_model(CLI::App& bench, Selected& selected, const char* name, const char* what, std::uint32_t prompt,
                     int (*command)(const BenchModelOptions&)) {
  auto o = std::make_shared<BenchModelOptions>();
  o->prompt = prompt;
  auto* c = add_command(bench, selected, name, what, o, command);
  add_engine(*c, o->engine);
  c->add_option("--prompt", o->prompt, "tokens of the prompt")->check(CLI::Range(1U, 1024U))->capture_default_str();
  if (command != bench_prefill_command) {
    c->add_option("--tokens", o->tokens, "steps that are timed")
        ->check(CLI::Range(1U, 1U << 20))
        ->capture_default_str();
    c->add_option("--sequences", o->sequences,
                  command == bench_batch_command ? "the most that decode together" : "that decode together")
        ->check(CLI::Range(1U, 64U))
        ->capture_default_str();
  }
  c->add_flag("--json", o->json, "as JSON");
}

void add_bench(CLI::App& app, Selected& selected) {
  CLI::App* bench = app.add_subcommand("bench", "how fast this machine is");
  bench->require_subcommand(1);
  bench->footer(kExitCodes);
  {
    auto o = std::make_shared<BenchReadOptions>();
    auto* c = add_command(*bench, selected, "read", "read memory and do nothing else: what decoding is measured by", o,
                          bench_read_command);
    c->add_option("--threads", o->threads, "default: the usable cores")->check(CLI::Range(0U, 1024U));
    add_bytes(*c, "--bytes", "read again and again; more than the caches hold; default 1GiB",
              [o](Bytes b) { o->bytes = b; });
    c->add_option("--seconds", o->seconds, "how long")->capture_default_str();
    c->add_flag("--json", o->json, "as JSON");
  }
  add_bench_model(*bench, selected, "decode", "one token after the other", 16, bench_decode_command);
  add_bench_model(*bench, selected, "prefill", "a whole prompt at once", 512, bench_prefill_command);
  add_bench_model(*bench, selected, "batch", "1, 2, 4 … sequences that decode together", 16, bench_batch_command);
  {
    auto o = std::make_shared<BenchHopOptions>();
    auto* c = add_command(*bench, selected, "hop", "a call and its answer over loopback, beside a plain socket", o,
                          bench_hop_command);
    c->add_option("--values", o->values, "of the activation, each way")
        ->check(CLI::Range(1U, 1U << 20))
        ->capture_default_str();
    c->add_option("--rounds", o->rounds, "of each")->check(CLI::Range(10U, 1U << 20))->capture_default_str();
    c->add_flag("--json", o->json, "as JSON");
  }
  {
    auto o = std::make_shared<BenchKernelsOptions>();
    auto* c = add_command(*bench, selected, "kernels", "products with weights of every type, beside a plain reader", o,
                          bench_kernels_command);
    c->add_option("--threads", o->threads, "default: the usable cores")->check(CLI::Range(0U, 1024U));
    c->add_option("--columns", o->columns, "of the matrix; a multiple of 256")
        ->check(CLI::Range(256U, 1U << 16))
        ->capture_default_str();
    add_bytes(*c, "--bytes", "of weights; more than the caches hold; default 512MiB", [o](Bytes b) { o->bytes = b; });
    c->add_option("--type", o->type, "only this one, such as q4_0, or experts; default: all");
    c->add_flag("--json", o->json, "as JSON, one object a line");
  }
}

CLI::Option* add_fleet_name(CLI::App& app, std::string& fleet) {
  return app.add_option("--fleet", fleet, "its name on this machine")->capture_default_str();
}

void add_fleet(CLI::App& app, Selected& selected) {
  CLI::App* fleet = app.add_subcommand("fleet", "a fleet of processes on this machine: up, status, kill, down");
  fleet->require_subcommand(1);
  fleet->footer(kExitCodes);
  {
    auto o = std::make_shared<FleetUpOptions>();
    o->engine.nodes = 16;
    auto* c = add_command(*fleet, selected, "up", "start one; returns when it is ready", o, fleet_up_command);
    add_model(*c, o->engine.model);
    c->add_option("--nodes", o->engine.nodes, "how many")->capture_default_str()->check(CLI::Range(1U, 4096U));
    add_bytes(*c, "--node-memory", "of each node, enforced by the system; default 256MiB",
              [o](Bytes b) { o->engine.node_memory = b; });
    c->add_option("--http", o->http, "HOST[:PORT] of the API; port 0: a free one")->capture_default_str();
    c->add_option("--api-key-file", o->api_key_file, "what clients must present as `Authorization: Bearer …`");
    add_profile(*c, o->engine.profile);
    add_budget(*c, o->budget, o->cache_memory);
    c->add_option("--threads", o->engine.threads, "of each node; default: its share of the usable cores");
    c->add_option("--name", o->name, "of the model in the API; default: its directory's");
    c->add_flag("--local-parts", o->local_parts, "nodes read the cut model on this disk instead of fetching it");
    add_fleet_name(*c, o->fleet);
  }
  {
    auto o = std::make_shared<NamedFleetOptions>();
    auto* c =
        add_command(*fleet, selected, "status", "who is there, who holds what, what happened", o, fleet_status_command);
    c->add_flag("--json", o->json, "as JSON");
    add_fleet_name(*c, o->fleet);
  }
  {
    auto o = std::make_shared<NamedFleetOptions>();
    auto* c =
        add_command(*fleet, selected, "kill", "end one process at once, as a power cut would", o, fleet_kill_command);
    c->add_option("NODE", o->node, "its name in `myriad fleet status`; also controller or gateway")->required();
    add_fleet_name(*c, o->fleet);
  }
  {
    auto o = std::make_shared<NamedFleetOptions>();
    auto* c = add_command(*fleet, selected, "down", "end all its processes", o, fleet_down_command);
    add_fleet_name(*c, o->fleet);
  }
}

// "fleet up"
std::string called_name(const CLI::App& app) {
  std::string name;
  for (auto called = app.get_subcommands(); !called.empty(); called = called.front()->get_subcommands())
    name += (name.empty() ? "" : " ") + called.front()->get_name();
  return name;
}

// Names a command that there is none of, which CLI11 would call a missing one.
int check_command_names(const CLI::App& app, int argc, char** argv) {
  const CLI::App* level = &app;
  std::string path;
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    const auto commands = level->get_subcommands([](const CLI::App*) { return true; });
    if (commands.empty()) break;
    std::string names;
    const CLI::App* found = nullptr;
    for (const CLI::App* c : commands) {
      names += (names.empty() ? "" : ", ") + c->get_name();
      if (c->get_name() == argv[i]) found = c;
    }
    if (found == nullptr) {
      print_err("myriad{}: there is no command '{}'; there are {}\nTry `myriad{} --help`.\n", path,
                path.empty() ? std::string(argv[i]) : path.substr(1) + " " + argv[i], names, path);
      return kUsage;
    }
    path += " " + found->get_name();
    level = found;
  }
  return kDone;
}

int run_command_line(int argc, char** argv) {
  CLI::App app("Myriad runs one language model over many small machines.", "myriad");
  app.footer(kExitCodes);
  app.set_version_flag("--version", "myriad " MYRIAD_VERSION);
  app.require_subcommand(1);
  Selected selected;
  add_run(app, selected);
  add_logits(app, selected);
  add_perplexity(app, selected);
  add_inspect(app, selected);
  add_tokenize(app, selected);
  add_chat_format(app, selected);
  add_cut(app, selected);
  add_quantize(app, selected);
  add_bench(app, selected);
  add_fleet(app, selected);
  add_controller(app, selected);
  add_node(app, selected);
  add_gateway(app, selected);
  if (const int code = check_command_names(app, argc, argv); code != kDone) return code;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // help, version
    const std::string name = called_name(app);
    print_err("myriad{}{}: {}\nTry `myriad{}{} --help`.\n", name.empty() ? "" : " ", name, e.what(),
              name.empty() ? "" : " ", name);
    return kUsage;
  }
  const std::string name = called_name(app);
  try {
    return selected();
  } catch (const std::bad_alloc&) {
    complain(name, "out of memory; give the process more, or use less context or smaller steps");
    return kMemory;
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again && e.code() != std::errc::not_enough_memory) {
      complain(name, fmt::format("internal error: {}", e.what()));
      return kFailed;
    }
    complain(name, fmt::format("the system has no room for another thread ({}); raise the limits of memory (ulimit -v) "
                               "and of processes (ulimit -u), or those of the control group",
                               e.code().message()));
    return kMemory;
  } catch (const std::exception& e) {
    complain(name, fmt::format("internal error: {}", e.what()));
    return kFailed;
  }
}

}  // namespace
}  // namespace myriad::cli

int main(int argc, char** argv) {
  myriad::cli::open_standard_descriptors();
  myriad::bound_allocator();
  myriad::log_configure(myriad::log_level_from_environment(myriad::LogLevel::warning), "");
  return myriad::cli::end_streams(myriad::cli::run_command_line(argc, argv));
}
