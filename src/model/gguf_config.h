// A GGUF file's metadata as a ModelConfig.
#pragma once

#include <string_view>

#include "base/error.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/rope.h"

namespace myriad {

// The ε of the q_a and kv_a norms where it is not attention.layer_norm_rms_epsilon, which llama.cpp takes for them. It
// does not know this key (Kimi: 1e-6 beside 1e-5, a difference of 3e-5 of the logits).
inline constexpr std::string_view kGgufLoraEpsilon = "myriad.lora_norm_epsilon";
// Likewise of KDA's norm of queries and keys.
inline constexpr std::string_view kGgufL2Epsilon = "myriad.l2_norm_epsilon";

// Architectures llama (dense and MoE), qwen2, qwen3, qwen3moe, deepseek2, kimi-linear and kimi-k3, as llama.cpp's
// converter writes them (docs/formats.md lists the keys that are read). Types of matrices are left at their defaults:
// the tensors say them. Errors: unsupported (architecture or feature, by name), corrupt, limit, naming file and key.
Result<ModelConfig> gguf_config(const GgufFile& file);
// How its rotation comes about, `dims` channels of a head: without the divisors of a tensor, which are the file's.
Result<RopeSettings> gguf_rope_settings(const GgufFile& file, std::size_t dims, std::size_t max_positions);

}  // namespace myriad
