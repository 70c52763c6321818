// `myriad bench`: how fast this machine is. One subcommand a thing that is measured; --json prints one object that
// bench/compare reads.
#include <chrono>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/session.h"
#include "cli/streams.h"
#include "kernels/read_bandwidth.h"
#include "kernels/thread_pool.h"
#include "net/hop_bench.h"

namespace myriad::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kWarmUpSteps = 2;
constexpr std::uint32_t kWarmUpRows = 32;

// Bytes of weights that one row reads: everything but the embedding, of the experts those that are chosen.
double bytes_of_a_token(const Graph& graph) {
  const MoeConfig& moe = graph.config().moe;
  double bytes = 0;
  for (const Operator& op : graph.operators()) {
    if (op.kind == OpKind::embed) continue;
    const double share =
        op.kind == OpKind::expert ? static_cast<double>(moe.top_k) / static_cast<double>(moe.experts) : 1;
    bytes += share * static_cast<double>(op.weight_bytes(op.extent));
  }
  return bytes;
}

class Bench {
 public:
  explicit Bench(const Session& session) : pipeline_(session.pipeline()), vocabulary_(session.model().config().vocab) {}

  // Positions [at, at + rows) of each of the first `sequences` sequences, as one step; the last row of each is sampled.
  Status step(std::uint32_t sequences, std::uint32_t at, std::uint32_t rows) {
    Step step;
    step.step = ++number_;
    for (std::uint32_t s = 0; s < sequences; ++s) {
      step.sequences.push_back({SequenceId{first_ + s}, at, rows});
      for (std::uint32_t i = 0; i < rows; ++i)
        step.tokens.push_back(static_cast<std::int32_t>((17 + 7919 * std::uint64_t{at + i + s}) % vocabulary_));
      step.wanted.push_back({static_cast<std::uint16_t>(step.tokens.size() - 1), HeadWant::candidates, {}});
    }
    const auto reply = run_step(*pipeline_, std::move(step));
    if (!reply) return std::unexpected(reply.error());
    return {};
  }
  // Forgets the sequences; the next step begins new ones.
  void restart(std::uint32_t sequences) {
    std::vector<SequenceId> all;
    for (std::uint32_t s = 0; s < sequences; ++s) all.push_back({first_ + s});
    pipeline_->release(std::move(all));
    first_ += sequences;
  }

 private:
  std::shared_ptr<Pipeline> pipeline_;
  std::uint64_t vocabulary_, number_ = 0, first_ = 1;
};

void print_rate(const BenchModelOptions& o, const Session& session, std::string_view what, double tokens,
                double seconds, double reads) {
  const double bytes = bytes_of_a_token(session.model().graph());
  const double rate = tokens / seconds;
  if (o.json) {
    print_out(
        "{{\"tokens_per_second\": {:.3f}, \"bytes_per_token\": {:.0f}, \"gigabytes_per_second\": {:.3f}, \"seconds\": "
        "{:.4f}, \"tokens\": {:.0f}, \"sequences\": {}, \"nodes\": {}}}\n",
        rate, bytes, bytes * reads / seconds / 1e9, seconds, tokens, o.sequences, o.engine.nodes);
  } else {
    // Of a prompt weights are read once for many rows: their bytes a second say nothing.
    const std::string streamed =
        what == "decode" ? fmt::format("; {:.2f} GB/s of weights", bytes * reads / seconds / 1e9) : std::string();
    print_out("{}: {:.2f} tokens/s ({:.0f} tokens in {:.2f} s{})\n", what, rate, tokens, seconds, streamed);
  }
}

Result<std::unique_ptr<Session>> open_session(std::string_view command, const BenchModelOptions& o,
                                              std::uint32_t context, std::uint32_t rows) {
  MYRIAD_TRY(ModelSource model, ModelSource::open(o.engine.model));
  return Session::open(command, o.engine, std::move(model),
                       {.sequences = o.sequences, .context = context, .step_rows = rows});
}

Status bench_decode(std::string_view command, const BenchModelOptions& o) {
  const std::uint32_t steps = kWarmUpSteps + o.tokens;
  MYRIAD_TRY(const auto session, open_session(command, o, o.prompt + steps, std::max(o.prompt, o.sequences)));
  Bench bench(*session);
  for (std::uint32_t at = 0; at < o.prompt;) {
    const std::uint32_t rows =
        std::max<std::uint32_t>(1, std::min(o.prompt - at, std::max(o.prompt, o.sequences) / o.sequences));
    MYRIAD_TRY_STATUS(bench.step(o.sequences, at, rows));
    at += rows;
  }
  Clock::time_point begin;
  for (std::uint32_t i = 0; i < steps; ++i) {
    if (i == kWarmUpSteps) begin = Clock::now();
    MYRIAD_TRY_STATUS(bench.step(o.sequences, o.prompt + i, 1));
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  print_rate(o, *session, "decode", double{1} * o.tokens * o.sequences, seconds, o.tokens);
  return {};
}

Status bench_prefill(const BenchModelOptions& o) {
  MYRIAD_TRY(const auto session, open_session("bench prefill", o, o.prompt, o.prompt));
  Bench bench(*session);
  MYRIAD_TRY_STATUS(bench.step(1, 0, std::min(o.prompt, kWarmUpRows)));
  bench.restart(1);
  const auto begin = Clock::now();
  MYRIAD_TRY_STATUS(bench.step(1, 0, o.prompt));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  print_rate(o, *session, "prefill", o.prompt, seconds, 1);
  return {};
}

}  // namespace

int bench_decode_command(const BenchModelOptions& options) {
  const Status status = bench_decode("bench decode", options);
  return status ? kDone : report("bench decode", status.error());
}

int bench_prefill_command(const BenchModelOptions& options) {
  const Status status = bench_prefill(options);
  return status ? kDone : report("bench prefill", status.error());
}

int bench_batch_command(const BenchModelOptions& options) {
  BenchModelOptions o = options;
  if (o.sequences == 1) o.sequences = 16;
  const std::uint32_t most = o.sequences;
  for (std::uint32_t n = 1;; n = std::min(2 * n, most)) {
    o.sequences = n;
    if (!o.json) print_out("{:>3} sequences, ", n);
    if (const Status status = bench_decode(n == 1 ? "bench batch" : "", o); !status)
      return report("bench batch", status.error());
    if (n == most) return kDone;
  }
}

int bench_hop_command(const BenchHopOptions& options) {
  for (const Form form : {Form::i8, Form::bf16}) {
    const auto times = measure_hop(form, options.values, options.rounds);
    if (!times) return report("bench hop", times.error());
    const std::string_view name = form == Form::i8 ? "int8" : "bf16";
    if (options.json)
      print_out(
          "{{\"form\": \"{}\", \"values\": {}, \"frame_bytes\": {}, \"bare_us\": {:.2f}, \"call_us\": {:.2f}, "
          "\"ratio\": {:.3f}}}\n",
          name, options.values, times->frame_bytes, times->bare_us, times->call_us, times->call_us / times->bare_us);
    else
      print_out(
          "{} values as {} there and back, {} bytes each way: a call {:.1f} us, a plain socket {:.1f} us, {:.2f} x\n",
          options.values, name, times->frame_bytes, times->call_us, times->bare_us, times->call_us / times->bare_us);
  }
  return kDone;
}

int bench_read_command(const BenchReadOptions& options) {
  const std::size_t threads = options.threads == 0 ? usable_cores() : options.threads;
  const auto rate = read_bandwidth(threads, options.bytes.value, options.seconds);
  if (!rate) return report("bench read", rate.error());
  if (options.json) {
    print_out("{{\"threads\": {}, \"bytes\": {}, \"gigabytes_per_second\": {:.3f}}}\n", threads, options.bytes.value,
              *rate);
  } else {
    print_out("{:.2f} GB/s read by {} thread{}\n", *rate, threads, threads == 1 ? "" : "s");
  }
  return kDone;
}

}  // namespace myriad::cli
