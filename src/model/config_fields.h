// Reading a config.json field by field; shared by the files that know the families (internal to `model`).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/config.h"

namespace myriad {

using Json = nlohmann::json;

// A value as found, for a message; never longer than a line.
std::string found(const Json& value);

// The fields of one JSON object. The first failure is kept and every later read gives a harmless value, so that a
// caller reads all it needs and asks once.
class Fields {
 public:
  Fields(const Json& object, std::string where, std::optional<Error>& error)
      : object_(object), where_(std::move(where)), error_(error) {}

  [[nodiscard]] const Json* get(std::string_view name) const {
    const auto it = object_.find(name);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  [[nodiscard]] bool has(std::string_view name) const { return get(name) != nullptr; }
  [[nodiscard]] std::string path(std::string_view name) const { return where_ + std::string(name); }

  template <class... Args>
  void refuse(Code code, fmt::format_string<Args...> format, Args&&... args) {
    if (!error_)
      error_ = Error{code, "reading config.json: " + fmt::format(format, std::forward<Args>(args)...), {}, {}};
  }
  void expected(std::string_view name, const Json* value, std::string_view what, Code code = Code::corrupt) {
    if (value == nullptr) {
      refuse(code, "{} is missing or null, expected {}", path(name), what);
    } else {
      refuse(code, "{} is {}, expected {}", path(name), found(*value), what);
    }
  }

  std::size_t size(std::string_view name, std::size_t min, std::size_t max) {
    const Json* v = get(name);
    if (v != nullptr && v->is_number_unsigned()) {
      const auto n = v->get<std::uint64_t>();
      if (n >= min && n <= max) return n;
      expected(name, v, fmt::format("an integer from {} to {}", min, max), n > max ? Code::limit : Code::corrupt);
    } else {
      expected(name, v, fmt::format("an integer from {} to {}", min, max));
    }
    return min;
  }
  std::size_t size_or(std::string_view name, std::size_t otherwise, std::size_t min, std::size_t max) {
    return has(name) ? size(name, min, max) : otherwise;
  }
  float number(std::string_view name, double min, double max) {
    const Json* v = get(name);
    if (v != nullptr && v->is_number()) {
      const double x = v->get<double>();
      if (x >= min && x <= max) return static_cast<float>(x);  // false for NaN
    }
    expected(name, v, fmt::format("a number from {} to {}", min, max));
    return static_cast<float>(min);
  }
  bool flag(std::string_view name) {
    const Json* v = get(name);
    if (v != nullptr && v->is_boolean()) return v->get<bool>();
    expected(name, v, "true or false");
    return false;
  }
  bool flag_or(std::string_view name, bool otherwise) { return has(name) ? flag(name) : otherwise; }
  std::string text(std::string_view name) {
    const Json* v = get(name);
    if (v != nullptr && v->is_string()) return v->get<std::string>();
    expected(name, v, "a string");
    return {};
  }
  Fields object(std::string_view name) {
    static const Json kEmpty = Json::object();
    const Json* v = get(name);
    if (v == nullptr || !v->is_object()) {
      expected(name, v, "an object");
      v = &kEmpty;
    }
    return {*v, path(name) + ".", error_};
  }

 private:
  const Json& object_;
  std::string where_;
  std::optional<Error>& error_;
};

// `dtype`, or `torch_dtype` as older files call it; BF16 if the file does not say.
DType read_trunk_dtype(Fields& text, Fields& top);
// Token ids: of the text config, else of the top level; a list of ids or one.
std::vector<std::uint32_t> read_tokens(Fields& text, Fields& top, std::string_view name, std::size_t vocab);
std::optional<std::uint32_t> one_token(const std::vector<std::uint32_t>& ids);
// What no single field shows: the sizes together.
void check_whole(Fields& text, const ModelConfig& c);

// Whether `holder` has a quantization_config that `myriad quantize` wrote. The files' headers say the rest: each matrix
// of a quantised type names it (Checkpoint::find_matrix).
inline constexpr std::string_view kOwnQuantMethod = "myriad";
bool has_own_quantization(Fields& holder);

// Llama, Mistral, Mixtral, Qwen 2 and 3, DeepSeek V3 and Kimi K2.
bool is_llama_family(std::string_view model_type);
ModelConfig read_llama_family(Fields& top, std::string_view model_type);

// The `model_type` of what config_to_json writes.
inline constexpr std::string_view kOwnModelType = "myriad";
Result<ModelConfig> config_from_json(const Json& root);

}  // namespace myriad
