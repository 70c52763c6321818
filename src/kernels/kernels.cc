#include "kernels/kernels.h"

#include <cstdlib>

namespace myriad {

const Kernels* kernels_for(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return &scalar_kernels();
    case Isa::avx2:
    case Isa::avx512:
      return nullptr;
  }
  return nullptr;
}

Result<const Kernels*> choose_kernels() {
  const char* wish = std::getenv("MYRIAD_ISA");
  if (wish == nullptr || *wish == '\0') {
    for (const Isa isa : {Isa::avx512, Isa::avx2})
      if (const Kernels* kernels = kernels_for(isa)) return kernels;
    return &scalar_kernels();
  }
  const std::string_view name = wish;
  const Kernels* kernels = nullptr;
  if (name == "scalar") {
    kernels = kernels_for(Isa::scalar);
  } else if (name == "avx2") {
    kernels = kernels_for(Isa::avx2);
  } else if (name == "avx512") {
    kernels = kernels_for(Isa::avx512);
  } else {
    return fail(Code::invalid_argument,
                "choosing an instruction set: MYRIAD_ISA is \"{}\", expected scalar, avx2 or avx512; unset it to use "
                "the best that this CPU has",
                name.substr(0, 64));
  }
  if (kernels == nullptr)
    return fail(Code::unsupported,
                "choosing an instruction set: MYRIAD_ISA is \"{}\", which this CPU does not have; unset it to use the "
                "best that it has",
                name);
  return kernels;
}

}  // namespace myriad
