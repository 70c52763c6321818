// `myriad run`: a prompt and its continuation on standard output as it comes, numbers on standard error.
#include <chrono>
#include <cmath>
#include <future>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/input.h"
#include "cli/session.h"
#include "cli/streams.h"
#include "engine/generator.h"
#include "model/utf8_stream.h"

namespace myriad::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

void put(std::string_view text) {
  write_out(text);
  flush_out();
}

// What the generator's thread leaves for the main thread.
struct Progress {
  Utf8Stream text;
  Clock::time_point first{}, last{};
  std::uint32_t tokens = 0;
  std::promise<Result<FinishedEvent>> ended;
};

Status run(const RunOptions& options) {
  MYRIAD_TRY(ModelSource model, ModelSource::open(options.engine.model));
  MYRIAD_TRY(const Tokenizer tokenizer, model.tokenizer());
  std::string prompt = options.prompt;
  if (!options.prompt_file.empty()) {
    MYRIAD_TRY(prompt, read_text(options.prompt_file));
  }
  GenerationRequest request;
  request.id = "run";
  request.prompt = tokenizer.encode_prompt(prompt);
  if (request.prompt.empty() && tokenizer.bos()) request.prompt.push_back(*tokenizer.bos());
  if (request.prompt.empty())
    return fail(Code::invalid_argument,
                "the prompt is empty, and this model has no token to begin a text with; give "
                "some text with -p");
  request.max_tokens = options.tokens;
  if (!std::isfinite(options.temperature) || options.temperature < 0 || !(options.top_p >= 0 && options.top_p <= 1))
    return fail(
        Code::invalid_argument,
        "--temperature {} and --top-p {}: a temperature of 0 or more and a probability from 0 to 1 are expected",
        options.temperature, options.top_p);
  request.sample.temperature = options.temperature;
  request.sample.top_p = options.top_p > 0 ? options.top_p : 1;
  request.sample.top_k = options.top_p > 0 ? options.top_k : 1;  // probability 0: the likeliest alone
  request.sample.seed = options.seed;
  if (!options.ignore_end) {
    for (const auto id : model.config().eos_tokens) request.stop_tokens.push_back(static_cast<std::int32_t>(id));
    for (const auto id : tokenizer.end_ids()) request.stop_tokens.push_back(id);
  }
  Budget budget;
  budget.sequences = 1;
  budget.drafts = options.drafts;
  budget.context = static_cast<std::uint32_t>(request.prompt.size()) + options.tokens;
  MYRIAD_TRY(const std::unique_ptr<Session> session, Session::open("run", options.engine, std::move(model), budget));
  Generator generator(session->pipeline());

  put(prompt);
  const auto progress = std::make_shared<Progress>();
  auto ended = progress->ended.get_future();
  const auto began = Clock::now();
  const std::size_t prompt_tokens = request.prompt.size();
  MYRIAD_TRY([[maybe_unused]] const std::uint64_t id,
             generator.start(std::move(request), [progress, &tokenizer](const GenerationEvent& event) {
               if (const auto* token = std::get_if<TokenEvent>(&event)) {
                 progress->last = Clock::now();
                 if (progress->tokens++ == 0) progress->first = progress->last;
                 // Control tokens are no text.
                 if (!tokenizer.is_special(token->sample.token))
                   put(progress->text.push(tokenizer.token_bytes(token->sample.token)));
               } else if (const auto* finished = std::get_if<FinishedEvent>(&event)) {
                 put(progress->text.flush());
                 progress->ended.set_value(*finished);
               } else {
                 progress->ended.set_value(std::unexpected(std::get<FailedEvent>(event).error));
               }
             }));
  const auto outcome = ended.get();
  put("\n");
  MYRIAD_TRY(const FinishedEvent finished, outcome);
  const double decoding = seconds(progress->first, progress->last);
  print_err("{} prompt tokens in {:.3f} s; {} new tokens", prompt_tokens,
            progress->tokens > 0 ? seconds(began, progress->first) : seconds(began, Clock::now()), progress->tokens);
  if (progress->tokens > 1 && decoding > 0)
    print_err(", {:.1f} tokens/s", static_cast<double>(progress->tokens - 1) / decoding);
  print_err("; ended {}\n{}",
            finished.reason == FinishReason::stop ? "by an end token" : "at the number that was asked for",
            session->account());
  return {};
}

}  // namespace

int run_command(const RunOptions& options) {
  return finish("run", run(options));
}

}  // namespace myriad::cli
