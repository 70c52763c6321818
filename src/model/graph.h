// The table of operators and seams: what a model is made of, where it may be cut, and what each edge carries.
//
// `Graph` is built from a ModelConfig; everything else (cutting, memory accounts, placement, wire forms, the
// interpreter, the layer code) reads it and nothing repeats it. docs/architecture.md prints the table.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kernels/table.h"
#include "model/activation.h"
#include "model/config.h"
#include "model/roles.h"
#include "quant/formats.h"

namespace myriad {

// `exact`: f32 at every seam and f32 products; for checking against references. `fast`: the default.
enum class Profile : std::uint8_t { exact = 0, fast = 1 };
std::string_view profile_name(Profile p);
Result<Profile> parse_profile(std::string_view name);

// What the caches of attention store. Part of the definition of the result, as the profile is.
enum class KvCache : std::uint8_t { by_profile = 0, f32 = 1, bf16 = 2, f16 = 3, i8 = 4 };  // i8: in groups of 32
std::string_view kv_cache_name(KvCache k);
Result<KvCache> parse_kv_cache(std::string_view name);
// Bytes of one vector of n values: the values, and for i8 an f32 scale for each 32.
std::uint64_t cached_bytes(CacheType type, std::uint64_t n);

enum class OpKind : std::uint8_t { embed, lead, linear, gated_up, expert, kda_heads, mla_heads, head, gqa_heads };
// Whether it remembers the tokens before: a recurrent state or a cache.
constexpr bool has_state(OpKind kind) {
  return kind == OpKind::kda_heads || kind == OpKind::mla_heads || kind == OpKind::gqa_heads;
}

// Where half-layers are counted, attention of layer L is half 2L, its FFN half 2L+1.
using Half = std::uint32_t;

// An input or output edge of an operator.
struct Seam {
  std::uint32_t width = 0;                // values a row
  Form form[2] = {Form::f32, Form::f32};  // by Profile
};

struct Operator {
  OpRef ref;
  OpKind kind = OpKind::linear;
  std::uint32_t extent = 1;   // units it can be cut into: rows, heads, vocabulary rows; 1 for what is whole
  std::uint32_t granule = 1;  // cuts fall on multiples of this many units (and at the end)
  char unit = 0;              // 'r' rows, 'h' heads, 0 whole
  std::vector<Seam> inputs;   // whole vectors
  Seam output;                // the whole operator's output; a part gives output.width / extent · units values a row
  std::uint32_t output_per_unit = 1;
  // Bytes of a part of `units` units of this operator: the part file, which is also what it takes in memory
  // (part/part_file.h says how it is laid out); and the attention state of one sequence: fixed, and for each cached
  // position.
  [[nodiscard]] std::uint64_t weight_bytes(std::uint32_t units) const;
  [[nodiscard]] std::uint64_t state_bytes(std::uint32_t units) const;
  [[nodiscard]] std::uint64_t state_bytes_per_position(std::uint32_t units, CacheType type) const;

  // Terms of the account, filled by Graph: bytes(units) = fixed + Σ over matrices of matrix_bytes(dtype,
  // rows_per_unit·units + rows, k).
  struct MatrixTerm {
    MatrixRole role;
    DType dtype;
    std::uint32_t rows_per_unit, rows, k;  // dtype as the config's table says for this role
    bool separate = false;  // one matrix of rows_per_unit rows for each unit, rather than one of all units' rows
  };
  struct VectorTerm {
    VectorRole role;
    std::uint32_t per_unit, fixed;
  };
  std::vector<MatrixTerm> matrices;
  std::vector<VectorTerm> vectors;   // f32 values
  std::uint64_t state_per_unit = 0;  // bytes
  std::uint32_t cache_values_per_position =
      0;                                    // MLA: kv_lora_rank + qk_rope, held once by each part whatever its units
  std::uint32_t cache_values_per_unit = 0;  // GQA: keys and values of one head for one position
  CacheType fast_cache = CacheType::bf16;   // in `fast`; f16 beside weights that are finer than bf16
  // What its cache stores. by_profile: f32 in `exact`, fast_cache in `fast`.
  [[nodiscard]] CacheType cache_type(KvCache k, Profile profile) const;
};

class Graph {
 public:
  static Result<Graph> build(const ModelConfig& config);
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  // In execution order: embed, layers, final_lead, head.
  [[nodiscard]] const std::vector<Operator>& operators() const { return operators_; }
  [[nodiscard]] const Operator* find(OpRef ref) const;
  // How the residual stream and the banked blocks are rounded at each half's end, and travel: as the embedding gives
  // them.
  [[nodiscard]] Form residual_form(Profile profile) const;
  [[nodiscard]] Half halves() const { return 2 * static_cast<Half>(config_.layers()); }

 private:
  ModelConfig config_;
  std::vector<Operator> operators_;  // sorted by order(ref)
};

// What a product with such weights takes: f32 in `exact`; in `fast` int8 groups for quantised weights, bf16 for bf16,
// and f32 for f32 and f16, which bf16 would waste.
Form product_form(DType weights, Profile profile);

// Part files: a header of kPartHeaderBytes + kPartEntryBytes for each matrix and vector, then these in order, each at a
// multiple of 64.
inline constexpr std::size_t kPartHeaderBytes = 128;
inline constexpr std::size_t kPartEntryBytes = 32;

// A piece of an operator: units [begin, end). Its name is unique in a model: "embed[r0:1024)", "L017.attn[h32:40)",
// "L017.shared.up[r0:768)", "L017.router[r0:896)", "L017.expert.0412", "L003.attn.lead", "final.lead",
// "head[r4096:5120)".
struct PartSpec {
  OpRef op;
  std::uint32_t begin = 0;
  std::uint32_t end = 1;
  friend auto operator<=>(const PartSpec&, const PartSpec&) = default;
  [[nodiscard]] std::uint32_t units() const { return end - begin; }
  [[nodiscard]] std::string name() const;
};
Result<PartSpec> parse_part_name(std::string_view name);

// Execution order over a whole model: embed, then halves ascending with the roles in their order, then final_lead,
// head.
std::uint64_t execution_order(OpRef ref);
// The half that an operator belongs to; embed belongs to half 0, final_lead and head to the last.
Half half_of(OpRef ref, Half halves);

}  // namespace myriad
