#include "gateway/request_fields.h"

#include <algorithm>
#include <cmath>

#include "gateway/openai_request.h"
#include "model/json_text.h"

namespace myriad {
ApiResult<void> check_json_bounds(std::string_view text, std::string_view what, std::optional<std::string> param) {
  std::size_t depth = 0, values = 0, members = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
      continue;
    }
    switch (c) {
      case '"':
        in_string = true;
        break;
      case '{':
      case '[':
        ++members;
        if (++depth > kMaxRequestDepth) {
          return std::unexpected(
              bad_request(fmt::format("{} is nested deeper than {} levels at byte {}.", what, kMaxRequestDepth, i),
                          std::move(param), "too_deep"));
        }
        break;
      case '}':
      case ']':
        if (depth > 0) --depth;
        break;
      case ',':
        ++values;
        break;
      case ':':
        ++members;
        break;
      default:
        break;
    }
  }
  if (values <= kMaxRequestValues && members <= kMaxRequestMembers) return {};
  return std::unexpected(
      bad_request(fmt::format("{} holds {} list separators and {} members and containers; at most {} and {} are taken.",
                              what, values, members, kMaxRequestValues, kMaxRequestMembers),
                  std::move(param), "too_many_values"));
}

ApiResult<Json> parse_request_json(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return std::unexpected(bad_request("The body is empty; a JSON object was expected.", {}, "invalid_json"));
  }
  if (auto bounds = check_json_bounds(body, "The body"); !bounds) return std::unexpected(std::move(bounds).error());
  auto json = parse_json_text(body);
  if (!json)
    return std::unexpected(bad_request("The body is not valid JSON: " + json.error().message, {}, "invalid_json"));
  if (!json->is_object()) {
    return std::unexpected(
        bad_request(fmt::format("The body is {}; a JSON object was expected.", json_kind(*json)), {}, "invalid_type"));
  }
  return std::move(*json);
}

std::string_view json_kind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a decimal number";
    case Json::value_t::binary:
      return "an integer of more than 64 bits";
    default:
      return "something else";
  }
}

ApiError wrong_type(const std::string& param, std::string_view expected, const Json& found) {
  return bad_request(fmt::format("Invalid type for '{}': expected {}, but got {}.", param, expected, json_kind(found)),
                     param, "invalid_type");
}

std::string Fields::param(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* Fields::find(std::string_view name) const {
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

ApiResult<std::optional<bool>> Fields::boolean(std::string_view name) const {
  const Json* v = find(name);
  if (v == nullptr) return std::nullopt;
  if (!v->is_boolean()) return std::unexpected(wrong_type(param(name), "a boolean", *v));
  return v->get<bool>();
}

ApiResult<std::optional<std::int64_t>> Fields::integer(std::string_view name, std::int64_t low,
                                                       std::int64_t high) const {
  const Json* v = find(name);
  if (v == nullptr) return std::nullopt;
  std::int64_t n = 0;
  if (v->is_number_unsigned() && v->get<std::uint64_t>() > static_cast<std::uint64_t>(high)) {
    n = high;
    return std::unexpected(
        bad_request(fmt::format("Invalid '{}': {} is above the maximum of {}.", param(name), v->dump(), high),
                    param(name), "integer_above_max_value"));
  }
  if (v->is_number_integer()) {
    n = v->get<std::int64_t>();
  } else if (v->is_number_float() && std::abs(v->get<double>()) < 9e15 &&
             v->get<double>() == std::trunc(v->get<double>())) {
    n = static_cast<std::int64_t>(v->get<double>());  // 16.0 means 16
  } else {
    return std::unexpected(wrong_type(param(name), "an integer", *v));
  }
  if (n < low) {
    return std::unexpected(bad_request(fmt::format("Invalid '{}': {} is below the minimum of {}.", param(name), n, low),
                                       param(name), "integer_below_min_value"));
  }
  if (n > high) {
    return std::unexpected(
        bad_request(fmt::format("Invalid '{}': {} is above the maximum of {}.", param(name), n, high), param(name),
                    "integer_above_max_value"));
  }
  return n;
}

ApiResult<std::optional<double>> Fields::number(std::string_view name, double low, double high) const {
  const Json* v = find(name);
  if (v == nullptr) return std::nullopt;
  if (!v->is_number()) return std::unexpected(wrong_type(param(name), "a number", *v));
  const double x = v->get<double>();
  if (!(x >= low && x <= high)) {  // also what is not a number
    return std::unexpected(
        bad_request(fmt::format("Invalid '{}': {} is not between {} and {}.", param(name), x, low, high), param(name),
                    x < low ? "decimal_below_min_value" : "decimal_above_max_value"));
  }
  return x;
}

ApiResult<std::optional<std::string>> Fields::string(std::string_view name, std::size_t max_bytes) const {
  const Json* v = find(name);
  if (v == nullptr) return std::nullopt;
  if (!v->is_string()) return std::unexpected(wrong_type(param(name), "a string", *v));
  const auto& s = v->get_ref<const std::string&>();
  if (s.size() > max_bytes) {
    return std::unexpected(bad_request(
        fmt::format("Invalid '{}': the string has {} bytes; at most {} are taken.", param(name), s.size(), max_bytes),
        param(name), "string_above_max_length"));
  }
  return s;
}

ApiResult<const Json*> Fields::array(std::string_view name, std::size_t max_items) const {
  const Json* v = find(name);
  if (v == nullptr) return nullptr;
  if (!v->is_array()) return std::unexpected(wrong_type(param(name), "an array", *v));
  if (v->size() > max_items) {
    return std::unexpected(bad_request(
        fmt::format("Invalid '{}': the array has {} items; at most {} are taken.", param(name), v->size(), max_items),
        param(name), "array_above_max_length"));
  }
  return v;
}

ApiResult<const Json*> Fields::object(std::string_view name) const {
  const Json* v = find(name);
  if (v == nullptr) return nullptr;
  if (!v->is_object()) return std::unexpected(wrong_type(param(name), "an object", *v));
  return v;
}

}  // namespace myriad
