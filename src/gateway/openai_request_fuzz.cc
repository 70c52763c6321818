// Bodies of both endpoints, and what is rendered from them.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gateway/openai_request.h"
#include "model/chat_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto completion = myriad::parse_completion_request(body, "m");
  if (completion && completion->prompts.empty()) std::abort();
  if (!completion && myriad::error_body(completion.error()).empty()) std::abort();
  if (const auto chat = myriad::parse_chat_request(body, "m")) {
    for (const auto format : {myriad::ChatFormat::kimi_k3, myriad::ChatFormat::kimi_linear}) {
      if (const auto segments = myriad::render_chat(chat->conversation, format)) {
        for (const auto& s : *segments) {
          if (s.text.empty()) std::abort();
        }
      }
    }
  }
  return 0;
}
