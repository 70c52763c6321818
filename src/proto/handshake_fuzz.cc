// Both sides of the handshake fed with foreign bytes: the first byte of the input chooses the side.
#include <cstdlib>

#include "proto/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace myriad;
  if (size == 0) return 0;
  auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  Handshake side((data[0] & 1) != 0 ? Handshake::Side::connector : Handshake::Side::listener, "a token",
                 HandshakeNonce{});
  while (side.wanted() > 0 && bytes.size() >= side.wanted()) {
    const std::size_t n = side.wanted();
    (void)side.plausible(bytes.first(n / 2));
    (void)side.receive(bytes.first(n));
    bytes = bytes.subspan(n);
    (void)side.take_output();
  }
  // Nobody proves a token that he does not have.
  if (side.done()) std::abort();
  return 0;
}
