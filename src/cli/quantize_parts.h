// The pieces of `myriad quantize` (internal to it): demo, measuring on a text, and how numbers are shown.
#pragma once

#include <span>
#include <string>

#include "cli/commands.h"
#include "cli/text_windows.h"
#include "quant/error_metrics.h"

namespace myriad::cli {

// "46.19", "exact" without an error.
std::string decibel(double db);
// The members of a JSON object: values, mse, sqnr_db (null without an error), largest_error.
std::string errors_json(const ErrorSums& e);

Status quantize_demo(const QuantizeOptions& options);

// Perplexity of the original and of OUT on a text as ids, in the windows of `myriad perplexity`, and how far their
// distributions lie apart. Holds both models in memory.
struct Comparison {
  std::size_t window = 0, windows = 0, tokens = 0;
  double original_loss = 0, quantized_loss = 0;
  double mean_kl = 0;           // original ‖ quantised, nats a token
  double same_first_token = 0;  // share of positions where both find the same token likeliest
};
Result<Comparison> compare_on_text(const QuantizeOptions& options, std::span<const std::int32_t> ids);
// The windows of the text of --eval. Errors: invalid_argument (it is shorter than one).
Result<Windows> eval_windows(const QuantizeOptions& options, std::size_t ids);

}  // namespace myriad::cli
