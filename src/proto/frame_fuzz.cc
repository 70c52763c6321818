// A whole frame from foreign bytes. The checksum is made right first: otherwise nothing would ever get past it.
#include <cstdlib>

#include "base/bytes.h"
#include "proto/crc32c.h"
#include "proto/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace myriad;
  if (size < kFrameHeaderBytes) return 0;
  std::vector<std::byte> frame(size);
  std::memcpy(frame.data(), data, size);
  store_le(frame.data(), std::uint32_t{0x3146594d});
  const std::span<const std::byte> all(frame);
  store_le(frame.data() + 12, crc32c(crc32c(0, all.first(12)), all.subspan(kFrameHeaderBytes)));
  const auto header = decode_frame_header(all.first(kFrameHeaderBytes));
  if (!header) return 0;
  const auto envelope = decode_frame(*header, all.first(kFrameHeaderBytes), all.subspan(kFrameHeaderBytes));
  // What was accepted must be something that we would send.
  if (envelope && !encode_frame(*envelope)) std::abort();
  return 0;
}
