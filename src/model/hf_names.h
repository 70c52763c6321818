// What the matrices and vectors of a model are called in Hugging Face checkpoints.
#pragma once

#include <string>

#include "model/config.h"

namespace myriad {

// Where families differ in more than their operators.
struct HfNaming {
  bool sparse_moe = true;          // MoE layers below `block_sparse_moe` (Kimi, Mixtral), else below `mlp`
  bool long_expert_names = false;  // gate_proj, up_proj, down_proj instead of w1, w3, w2
};

// Without ".weight"; of both halves of kv_b the name of the whole.
std::string hf_matrix_name(const ModelConfig& config, OpRef op, MatrixRole role, const HfNaming& naming);
// Whole; of res_score the stem that "_norm.weight" and "_proj.weight" follow.
std::string hf_vector_name(OpRef op, VectorRole role, const HfNaming& naming);

}  // namespace myriad
