// `myriad quantize`: a model in fewer bytes, and what that costs.
#include <cmath>

#include "base/sha256.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/input.h"
#include "cli/model_source.h"
#include "cli/progress.h"
#include "cli/quantize_parts.h"
#include "cli/streams.h"
#include "convert/mixed.h"
#include "convert/quantize_model.h"
#include "model/json_text.h"

namespace myriad::cli {
namespace {

namespace fs = std::filesystem;

struct Row {
  std::string name, from, to, note;
  std::uint64_t before = 0, after = 0;
  const ErrorSums* errors = nullptr;  // of a tensor that changed
  bool summed_up = false;             // a kept matrix of an expert: there can be hundreds of thousands
};

class Report {
 public:
  Report(const ModelFiles& files, const std::vector<TensorPlan>& plan, const Journal& journal) {
    // The tensors that stand in the input's files: those of the other kind are other ones.
    if (files.gguf() != nullptr)
      for (const GgufTensor& t : files.gguf()->file().tensors()) before_ += t.bytes;
    else
      for (const TensorInfo& t : files.directory()->checkpoint().tensors()) before_ += t.bytes;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const InputTensor& t = files.tensors()[i];
      const auto after = planned_bytes(t, plan[i]);
      const auto errors = journal.errors().find(t.name);
      if (plan[i].type && errors != journal.errors().end()) sum_ += errors->second;
      after_ += after;
      if (plan[i].type && errors != journal.errors().end())
        rows_.push_back({t.name, t.stored_as, type_text(plan[i]), plan[i].note, t.bytes, after, &errors->second});
      else if (!t.uses.empty())
        rows_.push_back({t.name, t.stored_as, t.stored_as, plan[i].note, t.bytes, after, nullptr,
                         t.uses.front().role == OpRole::expert});
      else {
        ++others_;
        other_bytes_ += t.bytes;
      }
    }
  }

  void show_text() const {
    std::size_t width = 24;
    for (const Row& r : rows_)
      if (!r.summed_up) width = std::max(width, r.name.size());
    std::string out = fmt::format("{:<{}}  {:<6} {:<8} {:>15} {:>15} {:>10} {:>8} {:>10}\n", "tensor", width, "from",
                                  "to", "bytes before", "after", "MSE", "SQNR dB", "largest");
    std::size_t experts = 0;
    std::uint64_t expert_bytes = 0;
    bool no_smaller = true;  // rather than: not asked for
    for (const Row& r : rows_) {
      if (r.summed_up) {
        ++experts;
        expert_bytes += r.before;
        no_smaller = no_smaller && !r.note.empty();
        continue;
      }
      out += fmt::format("{:<{}}  {:<6} {:<8} {:>15} {:>15}", r.name, width, r.from, r.to, grouped(r.before),
                         grouped(r.after));
      if (r.errors != nullptr)
        out += fmt::format(" {:>10.3e} {:>8} {:>10.3e}", r.errors->mse(), decibel(r.errors->sqnr_db()),
                           r.errors->largest_error);
      if (!r.note.empty()) out += fmt::format("  {}", r.note);
      out += '\n';
      if (out.size() > (std::size_t{1} << 16)) flush(out);
    }
    if (experts != 0)
      out += fmt::format("{:<{}}  {:<6} {:<8} {:>15} {:>15}  as they are{}\n",
                         fmt::format("{} matrices of experts", grouped(experts)), width, "", "", grouped(expert_bytes),
                         grouped(expert_bytes), no_smaller ? ": they would become no smaller" : "");
    if (others_ != 0)
      out += fmt::format("{:<{}}  {:<6} {:<8} {:>15} {:>15}  as they are\n",
                         fmt::format("{} vectors and other tensors", grouped(others_)), width, "", "",
                         grouped(other_bytes_), grouped(other_bytes_));
    out += fmt::format("{:<{}}  {:<6} {:<8} {:>15} {:>15} {:>10.3e} {:>8} {:>10.3e}\n", "total", width, "", "",
                       grouped(before_), grouped(after_), sum_.mse(), decibel(sum_.sqnr_db()), sum_.largest_error);
    flush(out);
  }

  // Without the closing brace: more may follow.
  void show_json() const {
    std::string out = "{\"tensors\": [";
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Row& r = rows_[i];
      out +=
          fmt::format("{}\n{{\"name\": {}, \"from\": {}, \"to\": {}, \"before\": {}, \"after\": {}", i == 0 ? "" : ",",
                      json_quoted(r.name), json_quoted(r.from), json_quoted(r.to), r.before, r.after);
      if (r.errors != nullptr) out += ", " + errors_json(*r.errors);
      if (!r.note.empty()) out += fmt::format(", \"note\": {}", json_quoted(r.note));
      out += '}';
      if (out.size() > (std::size_t{1} << 16)) flush(out);
    }
    out += fmt::format("],\n\"total\": {{\"before\": {}, \"after\": {}, {}}}", before_, after_, errors_json(sum_));
    flush(out);
  }

 private:
  static std::string type_text(const TensorPlan& plan) {
    return plan.one_scale ? "i8" : std::string(dtype_name(*plan.type));
  }
  static void flush(std::string& out) {
    write_out(out);
    out.clear();
  }
  std::vector<Row> rows_;
  ErrorSums sum_;
  std::uint64_t before_ = 0, after_ = 0, other_bytes_ = 0, others_ = 0;
};

// Whether OUT may be whole already, by a run that ended before it had said so.
bool is_perhaps_whole(const QuantizeOptions& options) {
  std::error_code none;
  return fs::exists(options.out, none) && fs::exists(journal_path(options.out), none);
}

Status already_there(const QuantizeOptions& options) {
  return fail(Code::invalid_argument, "{} exists already; remove it or choose another name", options.out.string());
}

Status check_out(const QuantizeOptions& options) {
  std::error_code none;
  if (options.out.filename().empty())
    return fail(Code::invalid_argument, "OUT is '{}', which names no file or directory", options.out.string());
  if (fs::equivalent(options.in, options.out, none))
    return fail(Code::invalid_argument, "{} is both IN and OUT; choose another name for OUT", options.out.string());
  if (fs::exists(options.out, none) && !is_perhaps_whole(options)) return already_there(options);
  const fs::path parent = options.out.has_parent_path() ? options.out.parent_path() : fs::path(".");
  if (!fs::is_directory(parent, none))
    return fail(Code::not_found, "writing {}: there is no directory {}", options.out.string(), parent.string());
  return {};
}

fs::path without_trailing_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

// What makes two runs the same work; the budget is no part of it, for what was measured holds for every budget.
Result<std::string> journal_key(const ModelFiles& files, const QuantizeOptions& options, std::string_view calibration) {
  MYRIAD_TRY(const std::string fingerprint, files.fingerprint());
  std::string key = fingerprint + " " + options.format;
  if (!calibration.empty())
    key += fmt::format(" {} {} {}", profile_name(options.engine.profile), options.window,
                       to_hex(sha256(std::as_bytes(std::span(calibration)))));
  return key;
}

// The texts as the model's ids. Each is read, and known to be long enough, before anything is written.
struct Texts {
  std::string calibration;
  std::vector<std::int32_t> calibration_ids;  // the first windows
  std::vector<std::int32_t> eval_ids;
};

Result<std::vector<std::int32_t>> calibration_ids(const QuantizeOptions& options, std::vector<std::int32_t> ids) {
  const std::size_t wanted = std::size_t{options.window} * options.calibrate_windows;
  if (ids.size() < wanted)
    return fail(Code::invalid_argument,
                "{} has {} tokens; calibrating takes {}: use a longer text or a smaller --window",
                options.calibrate.string(), ids.size(), wanted);
  ids.resize(wanted);
  return ids;
}

Result<Texts> read_texts(const QuantizeOptions& options) {
  Texts texts;
  if (options.calibrate.empty() && options.eval.empty()) return texts;
  MYRIAD_TRY(const ModelSource model, ModelSource::open(options.in));
  MYRIAD_TRY(const Tokenizer tokenizer, model.tokenizer());
  MYRIAD_TRY_STATUS(check_window(model.config(), options.window));
  warn_of_context("quantize", options.window, model.config());  // once for both texts
  if (!options.calibrate.empty()) {
    MYRIAD_TRY(texts.calibration, read_text(options.calibrate));
    std::vector<std::int32_t> ids = tokenizer.encode(texts.calibration);
    MYRIAD_TRY_STATUS(check_ids(ids, model.config().vocab, options.calibrate.string()));
    MYRIAD_TRY(texts.calibration_ids, calibration_ids(options, std::move(ids)));
  }
  if (!options.eval.empty()) {
    MYRIAD_TRY(const std::string text, read_text(options.eval));
    texts.eval_ids = tokenizer.encode(text);
    MYRIAD_TRY_STATUS(check_ids(texts.eval_ids, model.config().vocab, options.eval.string()));
    MYRIAD_TRY([[maybe_unused]] const Windows windows, eval_windows(options, texts.eval_ids.size()));
  }
  return texts;
}

Result<std::vector<TensorPlan>> plan_mixed(const ModelFiles& files, const QuantizeOptions& options,
                                           const SizeBudget& budget, std::vector<std::int32_t> ids, Journal& journal,
                                           ThreadPool& pool) {
  ProgressLine line("measuring " + options.in.filename().string());
  return mixed_plan(
      files, budget, options.out, std::move(ids), {options.engine.profile, options.engine.threads, options.window},
      journal, pool,
      [&](const MixedProgress& p) { line.update(p.done, p.all, fmt::format("{} of {}  {}", p.done, p.all, p.what)); });
}

void show(const Comparison& c, bool json) {
  const double before = std::exp(c.original_loss), after = std::exp(c.quantized_loss);
  if (json)
    print_out(
        ",\n\"eval\": {{\"window\": {}, \"windows\": {}, \"tokens\": {}, \"original_perplexity\": {:.17g}, "
        "\"quantized_perplexity\": {:.17g}, \"mean_kl\": {:.9g}, \"same_first_token\": {:.9g}}}",
        c.window, c.windows, c.tokens, before, after, c.mean_kl, c.same_first_token);
  else
    print_out(
        "perplexity over {} tokens: {:.4f} before, {:.4f} after ({:+.3f} %); KL divergence {:.3e} nats a token; the "
        "likeliest token is the same at {:.2f} % of the positions\n",
        grouped(c.tokens), before, after, 100 * (after / before - 1), c.mean_kl, 100 * c.same_first_token);
}

Status quantize(QuantizeOptions options) {
  options.in = without_trailing_slash(options.in);
  options.out = without_trailing_slash(options.out);
  options.format = lower_case(options.format);
  MYRIAD_TRY_STATUS(check_out(options));
  const bool mixed = options.format == "mixed", keep = options.format == "keep";
  const QuantFormat* format = find_quant_format(options.format);
  if (format == nullptr && !mixed && !keep) {
    std::string names;
    for (const QuantFormat& f : quant_formats()) names += fmt::format("{}, ", f.name);
    return fail(Code::invalid_argument, "--format {}: expected {}keep or mixed", options.format, names);
  }
  if (mixed && (options.budget.empty() || options.calibrate.empty()))
    return fail(Code::invalid_argument,
                "--format mixed needs --budget (bytes or bits a weight) and --calibrate (a text)");
  if (!mixed && (!options.budget.empty() || !options.calibrate.empty()))
    return fail(Code::invalid_argument, "--budget and --calibrate belong to --format mixed, not to {}", options.format);
  if (options.calibrate == "-" && options.eval == "-")
    return fail(Code::invalid_argument,
                "--calibrate - and --eval -: standard input can be read once; give one of them a file");
  if (std::error_code none; !options.eval.empty() && options.eval != "-" && !fs::exists(options.eval, none))
    return fail(Code::not_found, "--eval {}: there is no such file", options.eval.string());
  if (is_cut_directory(options.in))
    return fail(Code::unsupported, "{} is a cut model; quantise the one that it was made from, and cut the result",
                options.in.string());
  MYRIAD_TRY_STATUS(check_is_model(options.in));
  auto opened = ModelFiles::open(options.in, is_gguf_name(options.out) ? FileKind::gguf : FileKind::directory);
  if (!opened) {
    if (opened.error().code == Code::limit) opened.error().code = Code::unsupported;  // the file is at fault
    return std::unexpected(std::move(opened).error());
  }
  const ModelFiles files = std::move(*opened);
  SizeBudget budget;
  if (mixed) {
    auto parsed = parse_size_budget(options.budget);
    if (!parsed) return std::unexpected(std::move(parsed).error().within("--budget"));
    budget = *parsed;
    const std::vector<TensorPlan> as_it_is(files.tensors().size());
    MYRIAD_TRY_STATUS(QuantizedOutput::create(files, as_it_is, options.out));
    MYRIAD_TRY_STATUS(check_size_budget(files, budget, options.out));
  }
  MYRIAD_TRY(const Texts texts, read_texts(options));
  std::vector<TensorPlan> plan;
  if (keep) plan.resize(files.tensors().size());
  if (format != nullptr) plan = uniform_plan(files, *format);
  if (!mixed) MYRIAD_TRY_STATUS(QuantizedOutput::create(files, plan, options.out));  // before anything is left behind
  MYRIAD_TRY(const std::string key, journal_key(files, options, texts.calibration));
  if (is_perhaps_whole(options) && !Journal::exists(options.out, key)) return already_there(options);
  MYRIAD_TRY(Journal journal, Journal::open(options.out, key));
  std::error_code none;
  const bool whole = fs::exists(options.out, none);  // nobody else writes it now
  if (whole && !journal.continued()) {               // made since we looked
    MYRIAD_TRY_STATUS(journal.remove());
    return already_there(options);
  }
  if (!journal.continued()) MYRIAD_TRY_STATUS(remove_partial(options.out));
  if (journal.continued())
    write_err(whole ? fmt::format("{} is whole already\n", options.out.string())
                    : fmt::format("going on with {}, which an earlier run began\n", options.out.string()));
  {
    ThreadPool pool(options.engine.threads == 0 ? usable_cores() : options.engine.threads);
    if (mixed) {
      MYRIAD_TRY(plan, plan_mixed(files, options, budget, texts.calibration_ids, journal, pool));
    }
    if (!whole) {
      MYRIAD_TRY(const std::unique_ptr<QuantizedOutput> out, QuantizedOutput::create(files, plan, options.out));
      ProgressLine line("quantising " + options.in.filename().string());
      MYRIAD_TRY_STATUS(quantize_model(files, plan, *out, journal, pool, [&](const QuantizeProgress& p) {
        line.update(p.bytes_done, p.bytes,
                    fmt::format("{} of {}{}", human({p.bytes_done}), human({p.bytes}),
                                p.tensor == nullptr ? std::string() : "  " + p.tensor->name));
      }));
    }
  }
  const Report report(files, plan, journal);
  if (options.eval.empty()) MYRIAD_TRY_STATUS(journal.remove());
  if (options.json)
    report.show_json();
  else
    report.show_text();
  if (!options.eval.empty()) {
    flush_out();
    MYRIAD_TRY(const Comparison compared, compare_on_text(options, texts.eval_ids));
    show(compared, options.json);
    MYRIAD_TRY_STATUS(journal.remove());  // not before: an interrupted run goes on from here
  }
  if (options.json) print_out("}}\n");
  return {};
}

}  // namespace

std::string decibel(double db) {
  return std::isfinite(db) ? fmt::format("{:.2f}", db) : "exact";
}

std::string errors_json(const ErrorSums& e) {
  // in JSON there is no infinity
  const std::string sqnr = std::isfinite(e.sqnr_db()) ? fmt::format("{:.9g}", e.sqnr_db()) : "null";
  return fmt::format("\"values\": {}, \"mse\": {:.9g}, \"sqnr_db\": {}, \"largest_error\": {:.9g}", e.values, e.mse(),
                     sqnr, e.largest_error);
}

int quantize_command(const QuantizeOptions& options) {
  return finish("quantize", options.demo ? quantize_demo(options) : quantize(options));
}

}  // namespace myriad::cli
