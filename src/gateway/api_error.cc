#include "gateway/api_error.h"

#include <nlohmann/json.hpp>

namespace myriad {

ApiError bad_request(std::string message, std::optional<std::string> param, std::string code) {
  return {400, std::move(message), "invalid_request_error", std::move(param), std::move(code), {}};
}

ApiError api_error_of(const Error& error) {
  const std::string text = error.to_string();
  switch (error.code) {
    case Code::invalid_argument:
      return bad_request(text);
    case Code::unsupported:
      return bad_request(text, {}, "unsupported");
    case Code::limit:
      return bad_request(text, {}, "context_length_exceeded");
    case Code::busy:
      return {429, text, "rate_limit_error", {}, "rate_limit_exceeded", 1};
    case Code::unavailable:
    case Code::does_not_fit:
    case Code::cancelled:
    case Code::stale:
      return {503, text, "server_error", {}, "service_unavailable", 5};
    case Code::deadline:
      return {504, text, "server_error", {}, "deadline_exceeded", {}};
    default:
      return {500, text, "server_error", {}, std::string(code_name(error.code)), {}};
  }
}

ApiError api_error_of_status(int status, std::string message) {
  ApiError e{status, std::move(message), status < 500 ? "invalid_request_error" : "server_error", {}, {}, {}};
  switch (status) {
    case 401:
      e.code = "invalid_api_key";
      break;
    case 404:
      e.code = "unknown_url";
      break;
    case 405:
      e.code = "method_not_allowed";
      break;
    case 408:
      e.code = "request_timeout";
      break;
    case 413:
      e.code = "request_too_large";
      break;
    case 415:
      e.code = "unsupported_media_type";
      break;
    case 431:
      e.code = "header_too_large";
      break;
    case 429:
      e.type = "rate_limit_error";
      e.code = "rate_limit_exceeded";
      e.retry_after = 1;
      break;
    case 503:
      e.code = "service_unavailable";
      e.retry_after = 5;
      break;
    default:
      e.code = status < 500 ? "bad_request" : "internal";
      break;
  }
  return e;
}

std::string error_body(const ApiError& error) {
  nlohmann::ordered_json inner;
  inner["message"] = error.message;
  inner["type"] = error.type;
  inner["param"] = error.param ? nlohmann::ordered_json(*error.param) : nlohmann::ordered_json();
  inner["code"] = error.code ? nlohmann::ordered_json(*error.code) : nlohmann::ordered_json();
  // What is quoted in a message may have been cut inside a character.
  return nlohmann::ordered_json{{"error", std::move(inner)}}.dump(-1, ' ', false,
                                                                  nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace myriad
