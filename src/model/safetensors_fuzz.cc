// A file's first bytes: the header length, then the header, then as much data as is left; what is accepted must be
// consistent.
#include <algorithm>
#include <cstdlib>

#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace myriad;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  // A header alone, with more data behind it than a small input could hold …
  (void)parse_safetensors_header(bytes, std::uint64_t{1} << 40, "fuzz");
  // … and as a file.
  const auto length = safetensors_header_length(bytes.first(std::min<std::size_t>(size, 8)), size, "fuzz");
  if (!length) return 0;
  const std::uint64_t data_bytes = size - 8 - *length;
  const auto entries = parse_safetensors_header(bytes.subspan(8, *length), data_bytes, "fuzz");
  if (!entries) {
    if (entries.error().message.empty()) std::abort();
    return 0;
  }
  std::uint64_t sum = 0;
  for (const TensorEntry& e : *entries) {
    if (e.begin > e.end || e.end > data_bytes || e.name.empty()) std::abort();
    sum += e.end - e.begin;
  }
  if (sum > data_bytes) std::abort();  // they would overlap
  return 0;
}
