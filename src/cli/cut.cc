// `myriad cut`: a checkpoint into parts that nodes can hold; or, with --dry-run, what they would be and how many nodes
// they need.
#include "cli/streams.h"
#include "part/cutter.h"

#include <algorithm>

#include "base/sha256.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/fleet_size.h"
#include "cli/model_source.h"
#include "cli/progress.h"
#include "model/json_text.h"
#include "part/part_store.h"

namespace myriad::cli {
namespace {

struct Plan {
  CutOptions options;
  Manifest manifest;  // without hashes
  std::uint64_t bytes = 0, largest = 0;
};

Plan plan_of(const ModelSource& model, const CutCommandOptions& options) {
  Plan plan;
  plan.options.target_bytes =
      options.part_bytes ? options.part_bytes->value
                         : target_part_bytes(model.graph(), options.nodes, options.node_memory.value_or(Bytes{0}));
  plan.options.random_seed = options.cut_seed;
  plan.manifest = planned_manifest(model.graph(), plan.options, options.name.empty() ? model.name() : options.name);
  for (const ManifestPart& part : plan.manifest.parts) {
    plan.bytes += part.bytes;
    plan.largest = std::max(plan.largest, part.bytes);
  }
  return plan;
}

void show_json(const Plan& plan, const CutCommandOptions& options, const FleetSize* size) {
  std::string out = fmt::format("{{\"model\": {}, \"parts\": [", json_quoted(plan.manifest.model_name));
  for (std::size_t i = 0; i < plan.manifest.parts.size(); ++i)
    out += fmt::format("{}\n{{\"name\": \"{}\", \"bytes\": {}}}", i == 0 ? "" : ",", plan.manifest.parts[i].spec.name(),
                       plan.manifest.parts[i].bytes);
  out += fmt::format("],\n\"total\": {{\"parts\": {}, \"bytes\": {}, \"largest\": {}}}", plan.manifest.parts.size(),
                     plan.bytes, plan.largest);
  if (size != nullptr)
    out += fmt::format(", \"node_memory\": {}, \"nodes\": {}, \"sequences\": {}, \"context\": {}",
                       options.node_memory->value, size->nodes, options.sequences, options.context);
  out += "}\n";
  write_out(out);
}

void show_text(const Plan& plan, const CutCommandOptions& options, const FleetSize* size) {
  std::string out;
  for (std::size_t i = 0; i < plan.manifest.parts.size(); ++i)
    out += fmt::format("{:<32} {:>14}\n", plan.manifest.parts[i].spec.name(), grouped(plan.manifest.parts[i].bytes));
  out += fmt::format("{} parts, {} bytes ({}); the largest has {} bytes ({})\n", grouped(plan.manifest.parts.size()),
                     grouped(plan.bytes), human({plan.bytes}), grouped(plan.largest), human({plan.largest}));
  if (size != nullptr)
    out += fmt::format(
        "{} nodes of {} hold it with {} sequences of {} positions at once and {} kept prompts ({} profile): {} "
        "weights, {} "
        "attention state, {} buffers, and on each node {} for the process and {:.0f} % kept free\n",
        grouped(size->nodes), human(*options.node_memory), options.sequences, options.context, kServedPrefixes,
        profile_name(options.profile), human({plan.bytes}), human({size->state_bytes}), human({size->buffer_bytes}),
        human({kProcessBytes}), 100 * kHeadroom);
  write_out(out);
}

Status dry_run(const ModelSource& model, const CutCommandOptions& options) {
  const Plan plan = plan_of(model, options);
  std::optional<FleetSize> size;
  if (options.node_memory) {
    warn_of_context("cut", options.context, model.config());
    const Budget budget{.sequences = options.sequences, .context = options.context, .prefixes = kServedPrefixes};
    MYRIAD_TRY(size, fleet_size(model.graph(), plan.manifest, *options.node_memory, options.profile, budget));
  }
  if (options.json)
    show_json(plan, options, size ? &*size : nullptr);
  else
    show_text(plan, options, size ? &*size : nullptr);
  return {};
}

// The directory is this process's alone: what two cuts write at once would be neither's. A node's --store is locked
// likewise.
Result<FileLock> lock_out(const CutCommandOptions& options) {
  std::error_code ec;
  std::filesystem::create_directories(options.out, ec);
  if (ec)
    return fail(Code::io, "cutting to {}: cannot create the directory: {}; give --out a directory that can be written",
                options.out.string(), ec.message());
  const auto path = options.out / kStoreLockName;
  auto lock = FileLock::take(path);
  if (lock || lock.error().code != Code::busy) return lock;
  if (!options.wait)
    return fail(Code::busy,
                "cutting to {}: it is in use, {}, and two processes must not write into one; wait until that one has "
                "ended, or give another --out",
                options.out.string(), lock.error().message);
  print_err("waiting for the cut in {}: {}\n", options.out.string(), lock.error().message);
  return FileLock::wait(path);
}

// A cut that is complete stays what it is: the same one may be made again, another one must go elsewhere.
Status check_out(const ModelSource& model, const Plan& plan, const CutCommandOptions& options) {
  if (!is_cut_directory(options.out)) return {};
  const std::string out = options.out.string();
  auto there = read_manifest(options.out);
  if (!there) return std::unexpected(std::move(there).error().within("--out holds a cut model already"));
  const auto refuse = [&](std::string_view how) {
    return fail(Code::invalid_argument,
                "--out {} holds the cut model '{}' already ({} parts), {}; remove it or give another directory", out,
                there->model_name, grouped(there->parts.size()), how);
  };
  if (there->model_name != plan.manifest.model_name)
    return refuse(fmt::format("and this one is '{}'", plan.manifest.model_name));
  if (there->config_json != config_to_json(model.config())) return refuse("whose configuration is another one");
  const auto same = [](const ManifestPart& a, const ManifestPart& b) { return a.spec == b.spec && a.bytes == b.bytes; };
  if (!std::ranges::equal(there->parts, plan.manifest.parts, same)) return refuse("which is cut at other places");
  // Of the same name and shape: the weights tell. Building all parts to compare them is what a cut does.
  const std::size_t last = there->parts.size() - 1;
  for (const std::size_t i : {std::size_t{0}, last / 4, last / 2, last - last / 4, last}) {
    MYRIAD_TRY(const AlignedBuffer bytes, build_part(*model.weights(), there->parts[i].spec));
    if (PartId{sha256(bytes.bytes())} != there->parts[i].id) return refuse("whose weights are other ones");
  }
  return {};
}

Status real_cut(const ModelSource& model, const CutCommandOptions& options) {
  std::error_code ec;
  if (std::filesystem::equivalent(options.out, options.model, ec))
    return fail(Code::invalid_argument, "--out {} is the model itself; give a directory of its own",
                options.out.string());
  const Plan plan = plan_of(model, options);
  MYRIAD_TRY([[maybe_unused]] const FileLock lock, lock_out(options));
  if (options.wait && is_cut_directory(options.out)) return {};
  MYRIAD_TRY_STATUS(check_out(model, plan, options));
  const auto space = std::filesystem::space(options.out.has_parent_path() ? options.out.parent_path() : ".", ec);
  if (!ec && space.available < plan.bytes)
    complain("cut", fmt::format("warning: the parts take {}, the disk of {} has {} left", human({plan.bytes}),
                                options.out.string(), human({space.available})));
  Result<Manifest> made = fail(Code::internal, "nothing was cut");
  {
    ProgressLine line("cutting " + plan.manifest.model_name);
    made = cut_model(*model.weights(), plan.options, options.out, plan.manifest.model_name, [&](const CutProgress& p) {
      line.update(p.bytes_done, p.bytes,
                  fmt::format("{} of {} parts, {} of {}", grouped(p.parts_done), grouped(p.parts),
                              human({p.bytes_done}), human({p.bytes})));
    });
  }
  MYRIAD_TRY(const Manifest manifest, std::move(made));
  if (options.json)
    print_out("{{\"model\": {}, \"out\": {}, \"total\": {{\"parts\": {}, \"bytes\": {}, \"largest\": {}}}}}\n",
              json_quoted(manifest.model_name), json_quoted(options.out.string()), manifest.parts.size(), plan.bytes,
              plan.largest);
  else
    print_out("{}: {} parts, {} bytes in {}\n", manifest.model_name, grouped(manifest.parts.size()),
              grouped(plan.bytes), options.out.string());
  return {};
}

Status cut_or_plan(const CutCommandOptions& options) {
  MYRIAD_TRY(const ModelSource model, ModelSource::open(options.model));
  if (model.weights() == nullptr)
    return fail(Code::unsupported, "{} is cut already; cut the Hugging Face directory that it was made from",
                options.model.string());
  return options.dry_run ? dry_run(model, options) : real_cut(model, options);
}

}  // namespace

int cut_command(const CutCommandOptions& options) {
  return finish("cut", cut_or_plan(options));
}

}  // namespace myriad::cli
