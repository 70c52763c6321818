// `myriad perplexity`: how well the model predicts a text, in windows that each begin with fresh state.
#include <chrono>
#include <cmath>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/input.h"
#include "cli/session.h"
#include "cli/streams.h"
#include "cli/text_windows.h"

namespace myriad::cli {
namespace {

constexpr std::uint32_t kRows = 256;  // of a step, at most

Result<Windows> windows_of(std::size_t ids, const PerplexityOptions& options) {
  return text_windows(ids, {.size = options.window, .most = options.windows, .second_halves = options.llama_cpp},
                      options.file.string());
}

Status perplexity(const PerplexityOptions& options) {
  MYRIAD_TRY(ModelSource model, ModelSource::open(options.engine.model));
  MYRIAD_TRY(const Tokenizer tokenizer, model.tokenizer());
  MYRIAD_TRY(const std::string text, read_text(options.file));
  // llama.cpp begins the text with BOS where the model's texts do, and puts it in the first place of each window.
  const std::vector<std::int32_t> ids = options.llama_cpp ? tokenizer.encode_prompt(text) : tokenizer.encode(text);
  MYRIAD_TRY_STATUS(check_ids(ids, model.config().vocab, options.file.string()));
  MYRIAD_TRY(const Windows windows, windows_of(ids.size(), options));
  const std::uint32_t rows = rows_of_logits(model.config(), std::min(kRows, options.window));
  const Budget budget{.sequences = 1, .context = options.window, .step_rows = rows};
  MYRIAD_TRY(const std::unique_ptr<Session> session,
             Session::open("perplexity", options.engine, std::move(model), budget));

  double loss = 0;
  std::size_t fed = 0;
  std::vector<std::int32_t> fed_ids;
  const auto began = std::chrono::steady_clock::now();
  for (std::size_t w = 0; w < windows.count; ++w) {
    const auto window = std::span(ids).subspan(w * windows.size);
    fed_ids.assign(window.begin(), window.begin() + static_cast<std::ptrdiff_t>(windows.size));
    if (options.llama_cpp && tokenizer.add_bos()) fed_ids.front() = *tokenizer.bos();
    MYRIAD_TRY_STATUS(run_logits(
        *session->pipeline(), {{1 + w}, fed_ids}, {}, rows, [&](std::size_t position, std::span<const float> row) {
          if (position >= windows.first_scored && position < windows.first_scored + windows.scored)
            loss += loss_of(row, window[position + 1]);
        }));
    fed += windows.size;
  }
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const std::size_t predicted = windows.count * windows.scored;
  const double mean = loss / static_cast<double>(predicted);
  if (!std::isfinite(mean))
    return fail(Code::internal, "the mean loss over {} tokens is not a finite number", predicted);
  print_out(
      "{{\"method\": \"{}\", \"profile\": \"{}\", \"window\": {}, \"windows\": {}, \"tokens\": {}, \"loss\": {:.17g}, "
      "\"perplexity\": {:.17g}, \"tokens_per_second\": {:.1f}}}\n",
      options.llama_cpp ? "llama.cpp" : "myriad", profile_name(options.engine.profile), windows.size, windows.count,
      predicted, mean, std::exp(mean), static_cast<double>(fed) / elapsed);
  return {};
}

}  // namespace

int perplexity_command(const PerplexityOptions& options) {
  if (options.llama_cpp && options.window < 4)
    return report("perplexity",
                  Error{Code::invalid_argument, "--method llama.cpp needs a --window of at least 4", {}, {}});
  return finish("perplexity", perplexity(options));
}

}  // namespace myriad::cli
