// `myriad inspect`: what a model consists of.
#include "model/inspect.h"

#include <map>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/model_source.h"
#include "cli/streams.h"
#include "model/json_text.h"

namespace myriad::cli {
namespace {

// The parts of a cut by operator.
struct Row {
  std::size_t parts = 0;
  std::uint64_t bytes = 0, largest = 0;
};

std::string_view role_name(OpRole role) {
  switch (role) {
    case OpRole::embed:
      return "embedding";
    case OpRole::attn_lead:
      return "attention, lead's vectors";
    case OpRole::attn_q_a:
      return "attention, q_a";
    case OpRole::attn_kv_a:
      return "attention, kv_a";
    case OpRole::attn:
      return "attention, heads";
    case OpRole::attn_o:
      return "attention, output";
    case OpRole::ffn_lead:
      return "FFN, lead's vectors";
    case OpRole::router:
      return "router";
    case OpRole::latent_down:
      return "latent, down";
    case OpRole::shared_up:
      return "shared experts, gate and up";
    case OpRole::shared_down:
      return "shared experts, down";
    case OpRole::expert:
      return "routed experts";
    case OpRole::latent_up:
      return "latent, up";
    case OpRole::dense_up:
      return "dense FFN, gate and up";
    case OpRole::dense_down:
      return "dense FFN, down";
    case OpRole::final_lead:
      return "final norm";
    case OpRole::head:
      return "head";
  }
  return "?";
}

void show_cut(const Manifest& manifest, bool json) {
  std::map<OpRole, Row> rows;
  Row all;
  for (const auto& part : manifest.parts) {
    for (Row* row : {&rows[part.spec.op.role], &all}) {
      ++row->parts;
      row->bytes += part.bytes;
      row->largest = std::max(row->largest, part.bytes);
    }
  }
  if (json) {
    std::string out = fmt::format("{{\"model\": {}, \"parts\": {}, \"bytes\": {}, \"largest\": {}, \"roles\": {{",
                                  json_quoted(manifest.model_name), all.parts, all.bytes, all.largest);
    bool first = true;
    for (const auto& [role, row] : rows) {
      out += fmt::format("{}{}: {{\"parts\": {}, \"bytes\": {}, \"largest\": {}}}", first ? "" : ", ",
                         json_quoted(role_name(role)), row.parts, row.bytes, row.largest);
      first = false;
    }
    print_out("{}}}}}\n", out);
    return;
  }
  print_out("{}: a cut model of {} parts\n\n{:<28} {:>9} {:>22} {:>16}\n", manifest.model_name, grouped(all.parts), "",
            "parts", "bytes", "largest part");
  for (const auto& [role, row] : rows)
    print_out("{:<28} {:>9} {:>22} {:>16}\n", role_name(role), grouped(row.parts), grouped(row.bytes),
              grouped(row.largest));
  print_out("{:<28} {:>9} {:>22} {:>16}\n", "all", grouped(all.parts), grouped(all.bytes), grouped(all.largest));
}

}  // namespace

int inspect_command(const InspectOptions& options) {
  if (is_cut_directory(options.model)) {
    const auto source = ModelSource::open(options.model);
    if (!source) return report("inspect", source.error());
    show_cut(*source->manifest(), options.json);
    return kDone;
  }
  const auto weights = open_weights(options.model);
  if (!weights) return report("inspect", weights.error());
  const Inventory inventory = (*weights)->inventory();
  const std::string text = options.json ? inventory_json(inventory) : inventory_text(inventory);
  write_out(text);
  if (const Status complete = (*weights)->verify_complete(); !complete)
    complain("inspect", "warning: this model cannot be run: " + complete.error().to_string());
  return kDone;
}

}  // namespace myriad::cli
