#include "model/config_fields.h"

#include <algorithm>

namespace myriad {

std::string found(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

DType read_trunk_dtype(Fields& text, Fields& top) {
  for (Fields* holder : {&text, &top})
    for (const char* name : {"dtype", "torch_dtype"}) {
      if (!holder->has(name)) continue;
      const std::string dtype = holder->text(name);
      if (dtype == "float32") return DType::f32;
      if (dtype == "float16") return DType::f16;
      if (dtype != "bfloat16")
        holder->expected(name, holder->get(name), "\"bfloat16\", \"float16\" or \"float32\"; convert the checkpoint",
                         Code::unsupported);
      return DType::bf16;
    }
  return DType::bf16;
}

std::vector<std::uint32_t> read_tokens(Fields& text, Fields& top, std::string_view name, std::size_t vocab) {
  Fields& holder = text.has(name) ? text : top;
  const Json* v = holder.get(name);
  if (v == nullptr) return {};
  std::vector<std::uint32_t> out;
  const auto take = [&](const Json& id) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= vocab) return false;
    out.push_back(static_cast<std::uint32_t>(id.get<std::uint64_t>()));
    return true;
  };
  constexpr std::size_t kMost = 64;
  const bool good = v->is_array() ? v->size() <= kMost && std::all_of(v->begin(), v->end(), take) : take(*v);
  if (!good) {
    holder.expected(name, v, fmt::format("a token id below vocab_size = {} (or a list of at most {})", vocab, kMost));
    return {};
  }
  return out;
}

bool has_own_quantization(Fields& holder) {
  const Json* quantization = holder.get("quantization_config");
  if (quantization == nullptr || !quantization->is_object()) return false;
  const auto method = quantization->find("quant_method");
  return method != quantization->end() && *method == kOwnQuantMethod;
}

std::optional<std::uint32_t> one_token(const std::vector<std::uint32_t>& ids) {
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

namespace {

// More weights than this (two million Kimi K3s would be fewer) and byte counts come near 2^63.
constexpr double kMaxParameters = 1ULL << 58;

// Weights by the large matrices alone, in double: only to see that the bounds together stay sane.
double parameters(const ModelConfig& c) {
  const auto d = [](std::size_t n) { return static_cast<double>(n); };
  const double hidden = d(c.hidden);
  const double attention =
      std::max({5 * d(c.kda.width()), 4 * d(c.gqa.width()), d(c.mla.heads) * d(c.mla.qk_dim() + 2 * c.mla.v_dim)}) *
      hidden;
  const double expert = 3 * d(c.expert_width()) * d(c.moe.intermediate);
  return 2 * d(c.vocab) * hidden +
         d(c.layers()) * (attention + 3 * hidden * d(c.intermediate) + d(c.moe.experts) * expert);
}

}  // namespace

void check_whole(Fields& text, const ModelConfig& c) {
  if (c.expert_format == ExpertFormat::mxfp4 && c.moe.experts != 0)
    for (const auto& [name, n] :
         {std::pair{c.moe.latent != 0 ? "routed_expert_hidden_size" : "hidden_size", c.expert_width()},
          std::pair{"moe_intermediate_size", c.moe.intermediate}})
      if (n % kGroup != 0)
        text.refuse(Code::corrupt, "{} is {}, expected a multiple of {}: the experts are MXFP4", text.path(name), n,
                    kGroup);
  if (parameters(c) > kMaxParameters)
    text.refuse(Code::limit, "the sizes make a model of {:.3g} parameters, expected at most {:.3g}", parameters(c),
                kMaxParameters);
}

}  // namespace myriad
