// What a checkpoint holds, counted from its files' headers: tensors, bytes and parameters by category (the rows of spec
// §2.1), by element type, and what one sequence's state takes (spec §4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "model/checkpoint.h"
#include "model/config.h"

namespace myriad {

enum class Category : std::uint8_t {
  kda_attention,
  mla_attention,
  gqa_attention,
  layer_norms,
  attn_res,
  router,
  latent,
  shared_experts,
  dense_ffn,  // the trunk
  routed_experts,
  embedding,
  lm_head,
  final_norms,
  vision_tower,
  projector,
  other
};
inline constexpr std::size_t kCategories = 16;
inline constexpr std::size_t kTrunkCategories = 9;
std::string_view category_name(Category category);  // "KDA attention", "latent down/up + norm", …
// `name` without the prefix `language_model.`; the kind of an attention layer comes from the config.
Category category_of(std::string_view name, const ModelConfig& config);

struct Tally {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
  std::uint64_t parameters = 0;  // a packed byte is two; scales are none
  Tally& operator+=(const Tally& o);
};
struct TypeTally {
  bool runs = true;  // whether weights of the type can be run
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;  // as stored: a byte of packed codes is one
  std::uint64_t bytes = 0;
};

// What one sequence keeps between tokens.
struct StateBytes {
  std::uint64_t kda_state = 0;            // f32, all KDA layers
  std::uint64_t conv_history = 0;         // f32, all KDA layers
  std::uint64_t mla_bytes_per_token = 0;  // of 2 bytes a value, all MLA layers
  std::uint64_t gqa_bytes_per_token = 0;  // of 2 bytes a value, all GQA layers
  [[nodiscard]] std::uint64_t fixed() const { return kda_state + conv_history; }
  [[nodiscard]] std::uint64_t at(std::uint64_t tokens) const {
    return fixed() + (mla_bytes_per_token + gqa_bytes_per_token) * tokens;
  }
};
StateBytes state_bytes(const ModelConfig& config);

struct Inventory {
  ModelConfig config;
  std::size_t shards = 0;
  std::array<Tally, kCategories> categories{};
  std::map<std::string, TypeTally> types;  // by the name of the storage type
  StateBytes state;

  [[nodiscard]] Tally trunk() const;  // the sum of the first kTrunkCategories
  [[nodiscard]] Tally total() const;
  // Text parameters that one decoded token uses: all but the embedding, of the routed experts top_k.
  [[nodiscard]] std::uint64_t active_parameters() const;
};

Inventory take_inventory(const Checkpoint& checkpoint);
// Aligned tables with grouped digits, ends with a newline.
std::string inventory_text(const Inventory& inventory);
// One JSON object, indented, ends with a newline. Keys are stable: {"architecture", "layers", "total", "trunk",
// "categories", "types", "state", …}.
std::string inventory_json(const Inventory& inventory);

}  // namespace myriad
