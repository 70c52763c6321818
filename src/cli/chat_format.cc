// `myriad chat-format`: a chat request (JSON) a line in; the prompt that the model gets, in segments and ids, a line
// out.
#include "model/chat_format.h"

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/input.h"
#include "cli/model_source.h"
#include "cli/streams.h"
#include "model/json_text.h"
#include "model/model_text.h"

namespace myriad::cli {
namespace {

Status format_line(const Tokenizer& tokenizer, ChatFormat format, std::string_view line) {
  MYRIAD_TRY(const nlohmann::ordered_json request, parse_json_text(line));
  MYRIAD_TRY(const std::vector<Segment> segments, render_chat(request, format));
  MYRIAD_TRY(const std::vector<std::int32_t> ids, segments_to_ids(tokenizer, segments));
  std::string out = "{\"segments\": [";
  for (std::size_t i = 0; i < segments.size(); ++i)
    out += fmt::format("{}[{}, {}]", i == 0 ? "" : ", ", json_quoted(segments[i].text), segments[i].control);
  out += "], \"ids\": [";
  for (std::size_t i = 0; i < ids.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ", ", ids[i]);
  out += "]}\n";
  write_out(out);
  return {};
}

}  // namespace

int chat_format_command(const std::filesystem::path& model) {
  const auto tokenizer = open_tokenizer(model);
  if (!tokenizer) return report("chat-format", tokenizer.error());
  const auto format = chat_format_of(*tokenizer);
  if (!format) {
    if (const auto text = load_model_text(model, 0); text && (text->chat_template || text->template_error))
      return report("chat-format", Error{Code::unsupported,
                                         "the model has a chat template of its own; this command writes Kimi's formats "
                                         "only. /v1/chat/completions of a gateway renders templates",
                                         {},
                                         {}});
    return report("chat-format", format.error());
  }
  const Status status =
      for_each_input_line([&](std::string_view line) { return format_line(*tokenizer, *format, line); });
  if (status) return kDone;
  report("chat-format", status.error());
  return kFailed;
}

}  // namespace myriad::cli
