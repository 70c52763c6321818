// Heads of requests and answers, and ranges, from foreign bytes.
#include <cstdlib>

#include "net/http_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace myriad;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)http_head_end(text);
  (void)parse_http_response(text);
  if (const auto request = parse_http_request(text)) {
    if (!is_http_target(request->target)) std::abort();
    ByteRange range;
    if (const auto value = request->fields.only("range"))
      if (parse_http_range(*value, 1000, range) == RangeKind::part && (range.first > range.last || range.last >= 1000))
        std::abort();
  }
  if (const auto range = parse_content_range(text))
    if (range->first > range->last || range->last >= range->total) std::abort();
  return 0;
}
