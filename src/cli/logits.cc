// `myriad logits`: the model's answer itself, every position, for comparing with references and with other placements.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/sha256.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/input.h"
#include "cli/session.h"
#include "cli/streams.h"
#include "model/interpreter.h"

namespace myriad::cli {
namespace {

constexpr std::size_t kShown = 5;
constexpr std::uint32_t kDefaultChunk = 64;

// Takes rows in ascending order of position and writes them in the form that was asked for.
class RowWriter {
 public:
  RowWriter(const LogitsOptions& options, const std::vector<std::int32_t>& ids)
      : json_(options.json), digest_(options.digest) {
    if (!json_ || digest_) return;
    out_ = "{\"ids\": [";
    for (std::size_t i = 0; i < ids.size(); ++i) out_ += fmt::format("{}{}", i == 0 ? "" : ", ", ids[i]);
    out_ += "],\n\"logits\": [";
  }

  void row(std::size_t position, std::span<const float> logits) {
    if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }) && not_finite_ == 0)
      not_finite_ = position + 1;
    if (digest_)
      hash(logits);
    else if (json_)
      json(position, logits);
    else
      text(position, logits);
    if (out_.size() > (std::size_t{1} << 16)) flush();
  }

  Status end() {
    if (digest_)
      out_ += to_hex(sha_.finish()) + "\n";
    else if (json_)
      out_ += "]}\n";
    flush();
    if (not_finite_ != 0)
      return fail(Code::internal, "the logits of position {} are not all finite numbers", not_finite_ - 1);
    return {};
  }

 private:
  void flush() {
    write_out(out_);
    flush_out();
    out_.clear();
  }
  // SHA-256 over all logits as little-endian f32, [positions, vocabulary].
  void hash(std::span<const float> logits) {
    if constexpr (std::endian::native == std::endian::little) {
      sha_.update(std::as_bytes(logits));
    } else {
      std::vector<float> copy(logits.begin(), logits.end());
      little_in_place(std::span(copy));
      sha_.update(std::as_bytes(std::span<const float>(copy)));
    }
  }
  // Nine significant digits give every float back exactly.
  void json(std::size_t position, std::span<const float> logits) {
    out_ += position == 0 ? "\n[" : ",\n[";
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (i != 0) out_ += ',';
      if (std::isfinite(logits[i]))
        out_ += fmt::format("{:.9g}", logits[i]);
      else
        out_ += "null";
    }
    out_ += ']';
  }
  void text(std::size_t position, std::span<const float> logits) {
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::size_t shown = std::min(kShown, order.size());
    std::partial_sort(
        order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
        [&](std::size_t a, std::size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
    out_ += fmt::format("{}", position);
    for (std::size_t i = 0; i < shown; ++i) out_ += fmt::format("  {}:{:.6g}", order[i], logits[order[i]]);
    out_ += '\n';
  }

  bool json_, digest_;
  std::string out_;
  Sha256 sha_;
  std::size_t not_finite_ = 0;  // the first such position + 1
};

Status interpret(const ModelSource& model, const EngineOptions& options, const std::vector<std::int32_t>& ids,
                 RowWriter& rows) {
  if (model.weights() == nullptr)
    return fail(Code::unsupported, "--interpreter reads a GGUF file or a Hugging Face directory; {} is cut already",
                model.directory().string());
  MYRIAD_TRY(Interpreter interpreter, Interpreter::load(*model.weights(), options.profile, options.cache));
  MYRIAD_TRY(const std::vector<std::vector<float>> logits, interpreter.forward(ids));
  for (std::size_t p = 0; p < logits.size(); ++p) rows.row(p, logits[p]);
  return rows.end();
}

Status logits(const LogitsOptions& options) {
  MYRIAD_TRY(ModelSource model, ModelSource::open(options.engine.model));
  const std::string what = options.ids_file.empty() ? "--ids" : options.ids_file.string();
  std::string text = options.ids;
  if (!options.ids_file.empty()) {
    MYRIAD_TRY(text, read_text(options.ids_file));
  }
  MYRIAD_TRY(const std::vector<std::int32_t> ids, parse_ids(text, what));
  MYRIAD_TRY_STATUS(check_ids(ids, model.config().vocab, what));

  std::vector<std::vector<std::int32_t>> other_ids;
  if (!options.batch_with.empty()) {
    MYRIAD_TRY(const std::string lines, read_text(options.batch_with));
    MYRIAD_TRY(other_ids, parse_id_lines(lines, options.batch_with.string()));
    for (const auto& list : other_ids)
      MYRIAD_TRY_STATUS(check_ids(list, model.config().vocab, options.batch_with.string()));
  }
  RowWriter rows(options, ids);
  if (options.interpreter) warn_of_context("logits", ids.size(), model.config());
  if (options.interpreter) return interpret(model, options.engine, ids, rows);

  const std::uint32_t chunk = rows_of_logits(model.config(), options.chunk != 0 ? options.chunk : kDefaultChunk);
  Budget budget;
  budget.sequences = static_cast<std::uint32_t>(1 + other_ids.size());
  budget.context = static_cast<std::uint32_t>(ids.size());
  for (const auto& list : other_ids) budget.context = std::max(budget.context, static_cast<std::uint32_t>(list.size()));
  // Room for the others' rows beside the chunk.
  budget.step_rows = std::min<std::uint32_t>(kMaxRowsPerStep, other_ids.empty() ? chunk : 2 * chunk + 16);
  MYRIAD_TRY(const std::unique_ptr<Session> session, Session::open("logits", options.engine, std::move(model), budget));
  std::vector<SequenceRun> others;
  for (std::size_t i = 0; i < other_ids.size(); ++i) others.push_back({{2 + i}, other_ids[i]});
  MYRIAD_TRY_STATUS(run_logits(*session->pipeline(), {{1}, ids}, others, chunk,
                               [&](std::size_t position, std::span<const float> row) { rows.row(position, row); }));
  return rows.end();
}

}  // namespace

int logits_command(const LogitsOptions& options) {
  return finish("logits", logits(options));
}

}  // namespace myriad::cli
