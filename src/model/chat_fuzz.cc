// Foreign chat requests, and replies of a model that writes anything. The first byte chooses. JSON that was read and
// written must read as the same again; a prompt's fragments are never empty; a reply always ends once and its text is
// UTF-8.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "model/chat_format.h"
#include "model/json_text.h"
#include "model/reply_parser.h"
#include "model/utf8_stream.h"

namespace {

using namespace myriad;

Tokenizer small_tokenizer() {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string file;
  for (unsigned byte = 0; byte < 256; ++byte) {
    file += kDigits[byte >> 2];
    file += kDigits[(byte & 3) << 4];
    file += "== " + std::to_string(byte) + "\n";
  }
  nlohmann::json names;
  int id = 256;
  for (const char* name : {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "<|im_end|>", "<think>", "</think>",
                           "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
                           "<|tool_call_argument_begin|>", "<|tool_call_end|>"}) {
    names[std::to_string(id++)]["content"] = name;
  }
  return Tokenizer::parse(file, nlohmann::json{{"added_tokens_decoder", names}}.dump()).value();
}

void request(std::string_view text) {
  const auto value = parse_json_text(text);
  if (!value) return;
  const auto written = json_text(*value, JsonStyle::compact);
  if (!written || json_text(parse_json_text(*written).value(), JsonStyle::compact).value() != *written) std::abort();
  for (const ChatFormat format : {ChatFormat::kimi_k3, ChatFormat::kimi_linear}) {
    const auto segments = render_chat(*value, format);
    if (!segments) continue;
    for (const Segment& segment : *segments) {
      if (segment.text.empty()) std::abort();
    }
  }
}

// Bytes are tokens; those from 0xF4 on stand for the control tokens.
void reply(std::string_view bytes, ChatFormat format) {
  static const Tokenizer kTokenizer = small_tokenizer();
  ReplyParser parser(kTokenizer, {.format = format,
                                  .starts_with_reasoning = bytes.size() % 2 == 0,
                                  .calls = static_cast<CallSyntax>(bytes.size() / 2 % 6),
                                  .thinks = bytes.size() % 3 == 0,
                                  .tools = {"f"}});
  int finished = 0;
  const auto check = [&](const std::vector<ReplyEvent>& events) {
    for (const ReplyEvent& event : events) {
      if (!is_valid_utf8(event.text) || !is_valid_utf8(event.name) || !is_valid_utf8(event.id)) std::abort();
      finished += event.kind == ReplyEvent::Kind::finished;
      // A templated format's calls have a JSON object of arguments.
      if (format == ChatFormat::templated && event.kind == ReplyEvent::Kind::tool_call_end &&
          !nlohmann::json::parse(event.text, nullptr, false).is_object()) {
        std::abort();
      }
    }
  };
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    check(parser.push(byte >= 0xF4 ? 256 + byte - 0xF4 : byte));
  }
  check(parser.finish());
  if (finished != 1) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      request(rest);
      break;
    case 1:
      reply(rest, ChatFormat::kimi_k3);
      break;
    case 2:
      reply(rest, ChatFormat::templated);
      break;
    default:
      reply(rest, ChatFormat::kimi_linear);
  }
  return 0;
}
