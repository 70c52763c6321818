#include "kernels/kernels.h"

#include <cstdlib>
#include <memory>

#if defined(__x86_64__) && !defined(MYRIAD_SCALAR_ONLY)
#include <cpuid.h>
#endif

#include "kernels/kernels_tables.h"

namespace myriad {
namespace {

#if defined(__x86_64__) && !defined(MYRIAD_SCALAR_ONLY)
// Half precision conversions; clang's builtin has no name for them.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

}  // namespace

const Kernels* kernels_for(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return &scalar_kernels();
#if defined(__x86_64__) && !defined(MYRIAD_SCALAR_ONLY)
    // __builtin_cpu_supports also checks that the operating system saves the registers
    case Isa::avx2:
      if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        return &avx2_kernels();
      return nullptr;
    case Isa::avx512:
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
          __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
          has_f16c())
        return &avx512_kernels();
      return nullptr;
#else
    case Isa::avx2:
    case Isa::avx512:
      return nullptr;
#endif
  }
  return nullptr;
}

void multiply_i8(const Kernels& kernels, DType t, const std::byte* weights, std::size_t k, std::size_t tile0,
                 std::size_t tile1, Int8Rows x, std::size_t tokens, float* y, std::size_t ldy) {
  const auto laid_out = std::make_unique_for_overwrite<std::byte[]>(kernels.laid_out_bytes(t, k, tokens));
  kernels.lay_out_i8(t, x, k, tokens, 0, (k + kGroup - 1) / kGroup, laid_out.get());
  kernels.matmul_i8(t, weights, k, tile0, tile1, laid_out.get(), tokens, y, ldy);
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
