// `myriad tokenize`: a JSON string a line in, a JSON list of ids a line out; with --decode the other way.
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/input.h"
#include "cli/model_source.h"
#include "cli/streams.h"
#include "model/json_text.h"
#include "model/utf8_stream.h"

namespace myriad::cli {
namespace {

void put_line(std::string line) {
  line += '\n';
  write_out(line);
}

std::string id_list(std::span<const std::int32_t> ids) {
  std::string out = "[";
  for (std::size_t i = 0; i < ids.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ", ", ids[i]);
  return out + "]";
}

Status encode_line(const Tokenizer& tokenizer, bool specials, std::string_view line) {
  MYRIAD_TRY(const std::string text, parse_json_string(line));
  put_line(id_list(specials ? tokenizer.encode_with_specials(text) : tokenizer.encode(text)));
  return {};
}

// Bytes that are no UTF-8 become U+FFFD, because JSON has no way to write them.
Status decode_line(const Tokenizer& tokenizer, std::string_view line) {
  std::vector<std::int32_t> ids;
  if (line.find_first_not_of(" \t\r[]") != std::string_view::npos) {  // an empty list is the empty string
    MYRIAD_TRY(ids, parse_ids(line, "a list of ids"));
    MYRIAD_TRY_STATUS(check_ids(ids, static_cast<std::size_t>(tokenizer.vocab_size()), "decoding"));
  }
  Utf8Stream stream;
  std::string text = stream.push(tokenizer.decode(ids));
  text += stream.flush();
  put_line(json_quoted(text));
  return {};
}

}  // namespace

int tokenize_command(const TokenizeOptions& options) {
  const auto tokenizer = open_tokenizer(options.model);
  if (!tokenizer) return report("tokenize", tokenizer.error());
  const Status status = for_each_input_line([&](std::string_view line) {
    return options.decode ? decode_line(*tokenizer, line) : encode_line(*tokenizer, options.specials, line);
  });
  if (status) return kDone;
  report("tokenize", status.error());
  return kFailed;  // the options were right, the input was not
}

}  // namespace myriad::cli
