// Reading typed members of a request's JSON, with errors that name the member.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/api_error.h"

namespace myriad {

using Json = nlohmann::ordered_json;

// What a JSON text would become, before it does: its nesting, its values and its members against the bounds of
// openai_request.h. `what` begins the error's sentence ("The body").
ApiResult<void> check_json_bounds(std::string_view text, std::string_view what, std::optional<std::string> param = {});

// Parses a body within the bounds of openai_request.h. Errors: 400 with the byte position, line and column.
ApiResult<Json> parse_request_json(std::string_view body);

// "a string", "an array" … for error messages.
std::string_view json_kind(const Json& value);
ApiError wrong_type(const std::string& param, std::string_view expected, const Json& found);

// An object and how it is called in error messages: "" for the request itself, else "messages[3]". Members that are
// absent or null are nothing; members of another type are an error.
class Fields {
 public:
  Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}
  [[nodiscard]] std::string param(std::string_view name) const;
  // nullptr when absent or null.
  [[nodiscard]] const Json* find(std::string_view name) const;

  [[nodiscard]] ApiResult<std::optional<bool>> boolean(std::string_view name) const;
  [[nodiscard]] ApiResult<std::optional<std::int64_t>> integer(std::string_view name, std::int64_t low,
                                                               std::int64_t high) const;
  [[nodiscard]] ApiResult<std::optional<double>> number(std::string_view name, double low, double high) const;
  [[nodiscard]] ApiResult<std::optional<std::string>> string(std::string_view name, std::size_t max_bytes) const;
  [[nodiscard]] ApiResult<const Json*> array(std::string_view name, std::size_t max_items) const;
  [[nodiscard]] ApiResult<const Json*> object(std::string_view name) const;

 private:
  const Json& object_;
  std::string path_;
};

}  // namespace myriad
