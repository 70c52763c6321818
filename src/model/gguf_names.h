// What the matrices and vectors of a model are called in GGUF files.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace myriad {

// The frequency factors of Llama 3's rotation.
inline constexpr const char* kGgufRopeFactors = "rope_freqs.weight";

// llama.cpp's name first, then those of forks. Of an expert the tensor that holds all experts of its layer, one after
// the other. Empty for what GGUF has no name for.
std::vector<std::string> gguf_matrix_names(const ModelConfig& config, OpRef op, MatrixRole role);
// The same of a vector; of res_score the one that is norm ⊙ proj, of a_log the one that is −exp(A_log).
std::vector<std::string> gguf_vector_names(OpRef op, VectorRole role);

}  // namespace myriad
