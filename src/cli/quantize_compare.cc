// `myriad quantize --eval`: both models on one text, window by window.
#include <algorithm>
#include <cmath>

#include "cli/progress.h"
#include "cli/quantize_parts.h"
#include "cli/session.h"
#include "convert/divergence.h"

namespace myriad::cli {
namespace {

constexpr std::uint32_t kRows = 256;  // of a step, at most

std::size_t likeliest(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

Result<Windows> eval_windows(const QuantizeOptions& options, std::size_t ids) {
  return text_windows(ids, {.size = options.window, .most = options.eval_windows}, options.eval.string());
}

Result<Comparison> compare_on_text(const QuantizeOptions& options, std::span<const std::int32_t> ids) {
  MYRIAD_TRY(ModelSource original, ModelSource::open(options.in));
  MYRIAD_TRY(ModelSource quantized, ModelSource::open(options.out));
  const std::size_t vocabulary = original.config().vocab;
  MYRIAD_TRY(const Windows windows, eval_windows(options, ids.size()));
  const std::uint32_t rows = rows_of_logits(original.config(), std::min(kRows, options.window));
  const Budget budget{.sequences = 1, .context = options.window, .step_rows = rows};
  MYRIAD_TRY(const auto first, Session::open("", options.engine, std::move(original), budget));
  MYRIAD_TRY(const auto second, Session::open("", options.engine, std::move(quantized), budget));

  Comparison c{.window = windows.size, .windows = windows.count, .tokens = windows.count * windows.size};
  std::vector<float> logits(windows.size * vocabulary);
  ProgressLine line("comparing on " + options.eval.filename().string());
  for (std::size_t w = 0; w < windows.count; ++w) {
    const auto window = ids.subspan(w * windows.size);
    const auto fed = window.first(windows.size);
    MYRIAD_TRY_STATUS(
        run_logits(*first->pipeline(), {{1 + w}, fed}, {}, rows, [&](std::size_t at, std::span<const float> row) {
          std::copy(row.begin(), row.end(), logits.begin() + static_cast<std::ptrdiff_t>(at * vocabulary));
        }));
    MYRIAD_TRY_STATUS(
        run_logits(*second->pipeline(), {{1 + w}, fed}, {}, rows, [&](std::size_t at, std::span<const float> row) {
          const auto before = std::span<const float>(logits).subspan(at * vocabulary, vocabulary);
          const auto wanted = static_cast<std::size_t>(window[at + 1]);
          const RowComparison both = compare_rows(before, row);
          c.original_loss += both.p_log_sum - static_cast<double>(before[wanted]);
          c.quantized_loss += both.q_log_sum - static_cast<double>(row[wanted]);
          c.mean_kl += both.kl;
          c.same_first_token += likeliest(before) == likeliest(row) ? 1 : 0;
        }));
    line.update(w + 1, windows.count, fmt::format("window {} of {}", w + 1, windows.count));
  }
  const auto n = static_cast<double>(c.tokens);
  for (double* v : {&c.original_loss, &c.quantized_loss, &c.mean_kl, &c.same_first_token}) *v /= n;
  if (!std::isfinite(c.original_loss + c.quantized_loss + c.mean_kl))
    return fail(Code::internal, "the losses over {} tokens are not finite numbers", c.tokens);
  return c;
}

}  // namespace myriad::cli
