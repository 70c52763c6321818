#include "quant/formats.h"

namespace myriad {

std::string_view dtype_name(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::mxfp4:
      return "mxfp4";
  }
  return "unknown";
}

}  // namespace myriad
