// Which tensor of a model gets which type.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/model_files.h"

namespace myriad {

// What `myriad quantize --format` names.
struct QuantFormat {
  std::string_view name;
  DType type = DType::q8_0;
  bool one_scale = false;  // i8_row with one scale for all rows
  // Of embedding and head, where not the same: what one token reads, and what every logit comes from, costs most in
  // four bits.
  DType ends = DType::q8_0;
  std::string_view about;  // for people
};
std::span<const QuantFormat> quant_formats();
const QuantFormat* find_quant_format(std::string_view name);  // nullptr: there is none

// Whether a GGUF file can hold the type.
bool in_gguf(DType t);

struct TensorPlan {
  std::optional<DType> type;  // nothing: stays as it is
  bool one_scale = false;
  std::string note;  // why it stays, or has another type than was asked for; empty for what is no matrix of the model
};

// Why a matrix is not quantised whatever the format; empty: it may be. Routers and what feeds the decay of linear
// attention stay: they are small, and what they decide lasts.
std::string_view reason_to_stay(const InputTensor& tensor);
// The type itself or, where rows are no whole number of its blocks, the next larger one that fits: q4_k → q5_0,
// q5_k → q5_1, q6_k → q8_0. Nothing if none does.
std::optional<DType> fitting_type(DType wanted, std::size_t cols);
// Of a tensor that may be quantised: `wanted`, or what comes nearest to it. It stays as it is where that is no smaller.
TensorPlan plan_tensor(const InputTensor& tensor, DType wanted, bool one_scale);
// Whether it is the embedding or the head.
bool is_end(const InputTensor& tensor);
// All tensors by one format.
std::vector<TensorPlan> uniform_plan(const ModelFiles& files, const QuantFormat& format);

// Bytes that the tensor takes in the output.
std::uint64_t planned_bytes(const InputTensor& tensor, const TensorPlan& plan);

}  // namespace myriad
