// A Hugging Face directory's model in the tensors that llama.cpp has: all experts of a layer in one, the halves of kv_b
// apart and the keys' transposed, queries and keys of `llama` in pairs, what is small in F32.
#pragma once

#include <vector>

#include "convert/model_files.h"

namespace myriad {

// In the order of their names, with InputTensor::shape as dimensions of GGUF, the contiguous one first. Errors: those
// of the weights.
Result<std::vector<InputTensor>> gguf_tensors(const ModelWeights& weights, const GgufDescription& description);
// [rows, cols] of one of them that has a dtype.
Result<WeightMatrix> gguf_matrix(const ModelWeights& weights, const GgufDescription& description,
                                 const InputTensor& tensor);
// The values of one of them that has none.
Result<std::vector<float>> gguf_values(const ModelWeights& weights, const GgufDescription& description,
                                       const InputTensor& tensor);

}  // namespace myriad
