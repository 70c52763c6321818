#include "kernels/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ranges>
#include <string>

#if defined(MYRIAD_SCALAR_ONLY)
#elif defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) || defined(__powerpc64__)
#include <sys/auxv.h>
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

// "scalar, avx2": all names, or those of the sets that are there.
std::string isa_names(bool only_present) {
  std::string names;
  for (const Isa isa : kAllIsas) {
    if (only_present && kernels_for(isa) == nullptr) continue;
    if (!names.empty()) names += ", ";
    names += isa_name(isa);
  }
  return names;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::neon:
      return "neon";
    case Isa::neondot:
      return "neondot";
    case Isa::altivec:
      return "altivec";
  }
  return "";
}

// Measured by decoding a model of 1.1 B in Q4_0. Where the first cache alone can have enough lines under way (Zen 5), one
// request is a tenth faster than two; where it cannot (Sapphire Rapids), the second cache must be asked long before.
const PrefetchDistances kPrefetch = [] {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx512vnni")) return PrefetchDistances{0, 6144};
#endif
  return PrefetchDistances{16384, 4096};
}();

const Kernels* kernels_for(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return &scalar_kernels();
#if defined(MYRIAD_SCALAR_ONLY)
#elif defined(__x86_64__)
    // __builtin_cpu_supports also checks that the operating system saves the registers
    case Isa::avx2:
      if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) return &avx2_kernels();
      return nullptr;
    case Isa::avx512:
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
          __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
          has_f16c())
        return &avx512_kernels();
      return nullptr;
#elif defined(__aarch64__)
    case Isa::neon:
      return (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0 ? &neon_kernels() : nullptr;
    case Isa::neondot:
      return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0 ? &neondot_kernels() : nullptr;
#elif defined(__powerpc64__)
    case Isa::altivec:
      return (getauxval(AT_HWCAP) & PPC_FEATURE_HAS_ALTIVEC) != 0 ? &altivec_kernels() : nullptr;
#endif
    default:
      return nullptr;
  }
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
    for (const Isa isa : kAllIsas | std::views::reverse)
      if (const Kernels* kernels = kernels_for(isa)) return kernels;
    return &scalar_kernels();
  }
  const std::string_view name = wish;
  const auto* isa = std::ranges::find(kAllIsas, name, isa_name);
  if (isa == std::end(kAllIsas))
    return fail(
        Code::invalid_argument,
        "choosing an instruction set: MYRIAD_ISA is \"{}\", expected one of {}; this CPU has {}; unset it to use "
        "the best of them",
        name.substr(0, 64), isa_names(false), isa_names(true));
  const Kernels* kernels = kernels_for(*isa);
  if (kernels == nullptr)
    return fail(
        Code::unsupported,
        "choosing an instruction set: MYRIAD_ISA is \"{}\", which this CPU does not have; it has {}; unset it to "
        "use the best of them",
        name, isa_names(true));
  return kernels;
}

}  // namespace myriad
