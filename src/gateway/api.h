// The OpenAI-compatible HTTP API in front of a model.
//
//   GET  /v1/models, /v1/models/{id}
//   POST /v1/completions, /v1/chat/completions   whole or streamed (server-sent events)
//   GET  /health   200 as long as the process lives
//   GET  /ready    200 if a request would be served now, else 503 with the reason
//
// Every refusal is OpenAI's error object. A client that leaves ends its generations at once. Nothing that a client
// sends can make the process stop, wait for ever, or hold more memory than the limits in http_server.h and
// openai_request.h say.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/generation.h"
#include "gateway/http_server.h"
#include "model/model_text.h"

namespace myriad {

class HttpApi {
 public:
  struct Options {
    std::string api_key;  // what `Authorization: Bearer` must carry under /v1; empty: nothing is asked for
    std::vector<std::string>
        cors_origins;  // web pages that may use the API ("https://example.org", or "*"); empty: none
    HttpServer::Options http;
  };
  // Serves on host:port as HttpServer::open does, on threads of its own. Text and backend must outlive the API,
  // and the backend's events may still come after it has gone. Errors: io, invalid_argument.
  static Result<std::unique_ptr<HttpApi>> open(std::string host, std::uint16_t port, const ModelText& text,
                                               GenerationBackend& backend, Options options);
  // Ends all requests: their connections are closed, their generations cancelled.
  virtual ~HttpApi() = default;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
};

}  // namespace myriad
