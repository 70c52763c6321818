#include "quant/formats.h"

namespace myriad {

std::string_view dtype_name(DType t) {
  static constexpr std::string_view kNames[kDTypes] = {"f32",  "bf16",   "mxfp4",  "f16",    "q8_0",   "q4_0", "q4_1",
                                                       "q5_0", "q5_1",   "q2_k",   "q3_k",   "q4_k",   "q5_k", "q6_k",
                                                       "q8_k", "iq4_nl", "iq4_xs", "i8_row", "i4_zero"};
  const auto i = static_cast<std::size_t>(t);
  return i < kDTypes ? kNames[i] : "unknown";
}

}  // namespace myriad
