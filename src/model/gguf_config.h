// A GGUF file's metadata as a ModelConfig.
#pragma once

#include "base/error.h"
#include "model/config.h"
#include "model/gguf.h"

namespace myriad {

// Architectures llama (dense and MoE), qwen2, qwen3, qwen3moe, deepseek2, kimi-linear and kimi-k3, as llama.cpp's
// converter writes them (docs/formats.md lists the keys that are read). Types of matrices are left at their defaults:
// the tensors say them. Errors: unsupported (architecture or feature, by name), corrupt, limit, naming file and key.
Result<ModelConfig> gguf_config(const GgufFile& file);

}  // namespace myriad
