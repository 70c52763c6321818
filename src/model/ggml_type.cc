#include "model/ggml_type.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace myriad {
namespace {

constexpr GgmlType code(std::uint32_t number) {
  return static_cast<GgmlType>(number);
}

// Codes from 41 on mean different things in different forks: they are known by name only.
constexpr std::array<GgmlTypeInfo, 43> kTypes = {{{GgmlType::f32, "F32", 1, 4, true},
                                                  {GgmlType::f16, "F16", 1, 2, true},
                                                  {GgmlType::q4_0, "Q4_0", 32, 18, true},
                                                  {GgmlType::q4_1, "Q4_1", 32, 20, true},
                                                  {code(4), "Q4_2", 0, 0, false},
                                                  {code(5), "Q4_3", 0, 0, false},
                                                  {GgmlType::q5_0, "Q5_0", 32, 22, true},
                                                  {GgmlType::q5_1, "Q5_1", 32, 24, true},
                                                  {GgmlType::q8_0, "Q8_0", 32, 34, true},
                                                  {GgmlType::q8_1, "Q8_1", 32, 36, true},
                                                  {GgmlType::q2_k, "Q2_K", 256, 84, true},
                                                  {GgmlType::q3_k, "Q3_K", 256, 110, true},
                                                  {GgmlType::q4_k, "Q4_K", 256, 144, true},
                                                  {GgmlType::q5_k, "Q5_K", 256, 176, true},
                                                  {GgmlType::q6_k, "Q6_K", 256, 210, true},
                                                  {GgmlType::q8_k, "Q8_K", 256, 292, true},
                                                  {GgmlType::iq2_xxs, "IQ2_XXS", 256, 66, false},
                                                  {GgmlType::iq2_xs, "IQ2_XS", 256, 74, false},
                                                  {GgmlType::iq3_xxs, "IQ3_XXS", 256, 98, false},
                                                  {GgmlType::iq1_s, "IQ1_S", 256, 50, false},
                                                  {GgmlType::iq4_nl, "IQ4_NL", 32, 18, true},
                                                  {GgmlType::iq3_s, "IQ3_S", 256, 110, false},
                                                  {GgmlType::iq2_s, "IQ2_S", 256, 82, false},
                                                  {GgmlType::iq4_xs, "IQ4_XS", 256, 136, true},
                                                  {GgmlType::i8, "I8", 1, 1, true},
                                                  {GgmlType::i16, "I16", 1, 2, true},
                                                  {GgmlType::i32, "I32", 1, 4, true},
                                                  {GgmlType::i64, "I64", 1, 8, true},
                                                  {GgmlType::f64, "F64", 1, 8, true},
                                                  {GgmlType::iq1_m, "IQ1_M", 256, 56, false},
                                                  {GgmlType::bf16, "BF16", 1, 2, true},
                                                  {code(31), "Q4_0_4_4", 0, 0, false},
                                                  {code(32), "Q4_0_4_8", 0, 0, false},
                                                  {code(33), "Q4_0_8_8", 0, 0, false},
                                                  {GgmlType::tq1_0, "TQ1_0", 256, 54, false},
                                                  {GgmlType::tq2_0, "TQ2_0", 256, 66, false},
                                                  {code(36), "IQ4_NL_4_4", 0, 0, false},
                                                  {code(37), "IQ4_NL_4_8", 0, 0, false},
                                                  {code(38), "IQ4_NL_8_8", 0, 0, false},
                                                  {GgmlType::mxfp4, "MXFP4", 32, 17, true},
                                                  {GgmlType::nvfp4, "NVFP4", 64, 36, false},
                                                  {code(41), "Q1_0", 0, 0, false},
                                                  {code(42), "Q2_0", 0, 0, false}}};

constexpr bool numbered_by_position() {
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (kTypes[i].type != code(static_cast<std::uint32_t>(i))) return false;
  return true;
}
static_assert(numbered_by_position());

char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

}  // namespace

std::span<const GgmlTypeInfo> ggml_types() {
  return kTypes;
}

const GgmlTypeInfo* ggml_type_info(GgmlType type) {
  const auto number = static_cast<std::uint32_t>(type);
  return number < kTypes.size() ? &kTypes[number] : nullptr;
}

std::optional<GgmlType> ggml_type_named(std::string_view name) {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const GgmlTypeInfo& t) {
    return std::equal(t.name.begin(), t.name.end(), name.begin(), name.end(),
                      [](char a, char b) { return a == upper(b); });
  });
  if (found == kTypes.end()) return std::nullopt;
  return found->type;
}

bool ggml_type_readable(GgmlType type) {
  const GgmlTypeInfo* const info = ggml_type_info(type);
  return info != nullptr && info->readable;
}

std::string ggml_type_text(GgmlType type) {
  const GgmlTypeInfo* const info = ggml_type_info(type);
  if (info == nullptr) return fmt::format("type {}", static_cast<std::uint32_t>(type));
  return std::string(info->name);
}

std::optional<std::uint64_t> ggml_tensor_bytes(GgmlType type, std::span<const std::uint64_t> dims) {
  constexpr std::uint64_t kMostValues = std::uint64_t{1} << 56;
  const GgmlTypeInfo* const info = ggml_type_info(type);
  if (info == nullptr || info->block_values == 0) return std::nullopt;
  if ((dims.empty() ? 1 : dims[0]) % info->block_values != 0) return std::nullopt;
  std::uint64_t values = 1;
  for (const std::uint64_t d : dims) {
    if (d == 0) return 0;
    if (d > kMostValues / values) return std::nullopt;
    values *= d;
  }
  return values / info->block_values * info->block_bytes;
}

}  // namespace myriad
