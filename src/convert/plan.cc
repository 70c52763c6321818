#include "convert/plan.h"

#include <algorithm>
#include <array>

#include "model/ggml_type.h"

namespace myriad {
namespace {

constexpr QuantFormat plain(std::string_view name, DType type, std::string_view about) {
  return {name, type, false, type, about};
}

constexpr std::array<QuantFormat, 16> kFormats = {{
    {"int8-tensor", DType::i8_row, true, DType::i8_row, "INT8, one scale for a whole tensor (directories only)"},
    plain("int8-channel", DType::i8_row, "INT8, one scale for an output row (directories only)"),
    plain("int8-group", DType::q8_0, "INT8, one scale for 32 values"),
    {"int4-group", DType::q4_0, false, DType::q8_0, "INT4, one scale for 32 values; embedding and head int8-group"},
    {"int4-zero", DType::i4_zero, false, DType::q8_0,
     "INT4, scale and zero point for 32 values (directories only); embedding and head int8-group"},
    plain("q8_0", DType::q8_0, "all matrices in 8.5 bits a weight: int8-group"),
    plain("q6_k", DType::q6_k, "6.56 bits: scales of 16 values share a larger one"),
    plain("q5_k", DType::q5_k, "5.5 bits, with minima"),
    plain("q5_1", DType::q5_1, "6 bits, with minima"),
    plain("q5_0", DType::q5_0, "5.5 bits"),
    plain("q4_k", DType::q4_k, "4.5 bits, with minima"),
    plain("q4_1", DType::q4_1, "5 bits, with minima"),
    plain("q4_0", DType::q4_0, "4.5 bits, embedding and head too"),
    plain("iq4_nl", DType::iq4_nl, "4.5 bits, steps that widen away from zero"),
    plain("mxfp4", DType::mxfp4, "4.25 bits: E2M1 values, scales that are powers of two"),
    plain("i4_zero", DType::i4_zero, "4.75 bits, embedding and head too (directories only)"),
}};

}  // namespace

std::span<const QuantFormat> quant_formats() {
  return kFormats;
}

const QuantFormat* find_quant_format(std::string_view name) {
  const auto it = std::find_if(kFormats.begin(), kFormats.end(), [&](const QuantFormat& f) { return f.name == name; });
  return it == kFormats.end() ? nullptr : &*it;
}

bool in_gguf(DType t) {
  return ggml_type_of(t).has_value();
}

std::string_view reason_to_stay(const InputTensor& tensor) {
  for (const auto& use : tensor.uses) {
    if (use.role == OpRole::router) return "router";
    switch (use.matrix) {
      case MatrixRole::b:
      case MatrixRole::f_a:
      case MatrixRole::f_b:
        return "feeds the decay";
      default:
        break;
    }
  }
  return {};
}

std::optional<DType> fitting_type(DType wanted, std::size_t cols) {
  if (fits_blocks(wanted, cols)) return wanted;
  const DType next = wanted == DType::q4_k   ? DType::q5_0
                     : wanted == DType::q5_k ? DType::q5_1
                     : wanted == DType::q6_k ? DType::q8_0
                                             : wanted;
  if (fits_blocks(next, cols)) return next;
  return std::nullopt;
}

TensorPlan plan_tensor(const InputTensor& tensor, DType wanted, bool one_scale) {
  const auto type = fitting_type(wanted, tensor.cols);
  if (!type) return {.note = fmt::format("rows of {} values are no whole blocks", tensor.cols)};
  if (tensor.rows * row_bytes(*type, tensor.cols) >= tensor.bytes) return {.note = "kept: no larger"};
  return {*type, one_scale,
          *type == wanted
              ? std::string()
              : fmt::format("rows of {} values are no whole blocks of {}", tensor.cols, dtype_name(wanted))};
}

bool is_end(const InputTensor& tensor) {
  return std::any_of(tensor.uses.begin(), tensor.uses.end(),
                     [](const auto& use) { return use.role == OpRole::embed || use.role == OpRole::head; });
}

std::vector<TensorPlan> uniform_plan(const ModelFiles& files, const QuantFormat& format) {
  std::vector<TensorPlan> plan;
  for (const InputTensor& t : files.tensors()) {
    if (t.uses.empty() || !t.dtype) {
      plan.emplace_back();
    } else if (const auto why = reason_to_stay(t); !why.empty()) {
      plan.push_back({.note = std::string(why)});
    } else {
      plan.push_back(plan_tensor(t, is_end(t) ? format.ends : format.type, format.one_scale));
    }
  }
  return plan;
}

std::uint64_t planned_bytes(const InputTensor& tensor, const TensorPlan& plan) {
  return plan.type ? tensor.rows * row_bytes(*plan.type, tensor.cols) : tensor.bytes;
}

}  // namespace myriad
