// Whatever parse_config accepts stays within the bounds that every later computation relies on.
#include <cstdlib>

#include "model/inspect.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace myriad;
  const auto config = parse_config({reinterpret_cast<const char*>(data), size});
  if (!config) {
    if (config.error().message.empty()) std::abort();
    return 0;
  }
  const ModelConfig& c = *config;
  const bool sane = c.hidden >= 1 && c.hidden <= kMaxHidden && c.vocab >= 1 && c.vocab <= kMaxVocab &&
                    c.layers() >= 1 && c.layers() <= kMaxLayers && c.dense_layers <= c.layers() &&
                    c.moe.top_k <= c.moe.experts && c.kda.width() <= kMaxHidden && c.mla.value_width() <= kMaxHidden &&
                    c.rms_norm_eps > 0;
  if (!sane) std::abort();
  if (state_bytes(c).at(c.max_positions) < state_bytes(c).fixed()) std::abort();  // overflow
  return 0;
}
