// What the API says when it refuses: OpenAI's error object and the HTTP status that goes with it.
#pragma once

#include <expected>
#include <optional>
#include <string>

#include "base/error.h"

namespace myriad {

struct ApiError {
  int status = 500;
  std::string message;
  std::string type = "server_error";
  std::optional<std::string> param{};  // the member of the request that is wrong: "messages[2].content"
  std::optional<std::string> code{};
  std::optional<int> retry_after{};  // seconds, for the Retry-After header
};
template <class T>
using ApiResult = std::expected<T, ApiError>;

// 400 about one member of the request.
[[nodiscard]] ApiError bad_request(std::string message, std::optional<std::string> param = {},
                                   std::string code = "invalid_value");
// An error of the engine, the tokenizer or the chat format, in the API's terms.
[[nodiscard]] ApiError api_error_of(const Error& error);
// For errors below the API: malformed HTTP, limits, timeouts, unknown routes.
[[nodiscard]] ApiError api_error_of_status(int status, std::string message);

// {"error":{"message":…,"type":…,"param":…,"code":…}}
[[nodiscard]] std::string error_body(const ApiError& error);

}  // namespace myriad
