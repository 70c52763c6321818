#include "gateway/api.h"

#include <malloc.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/sha256.h"
#include "gateway/completion_job.h"
#include "gateway/prepare_request.h"
#include "gateway/small_thread.h"
#include "model/chat_format.h"

namespace myriad {
namespace {

constexpr std::size_t kPrepareThreadStack = std::size_t{768} << 10;  // a chat template takes 512 KiB
constexpr std::size_t kLargeBody = std::size_t{1} << 20;

// How other threads reach the HTTP thread; what comes after it has ended is dropped.
class Mailbox {
 public:
  void open(HttpServer* server) {
    const std::lock_guard lock(mutex_);
    server_ = server;
  }
  void close() { open(nullptr); }
  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    if (server_ != nullptr) server_->post(std::move(work));
  }

 private:
  std::mutex mutex_;
  HttpServer* server_ = nullptr;
};

// One thread that parses and tokenises, so that a long prompt holds up no stream. Its queue is bounded by the number of
// connections.
class Preparer {
 public:
  Status start() {
    return thread_.start("http-prepare", kPrepareThreadStack, [this] { run(); });
  }
  ~Preparer() { stop(); }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    wake_.notify_all();
    thread_.join();
  }
  void add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (!stopping_) queue_.push_back(std::move(work));
    }
    wake_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      auto work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      work = nullptr;  // what it holds is let go before the wait
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  SmallThread thread_;
};

template <class T>
T random_value() {
  T value{};
  std::size_t got = 0;
  while (got < sizeof value) {
    const ssize_t n = getrandom(reinterpret_cast<char*>(&value) + got, sizeof value - got, 0);
    if (n > 0) got += static_cast<std::size_t>(n);
  }
  return value;
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// `%2F` in a path segment; a malformed escape stays as it is and so names no model.
std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

bool is_json(std::string_view content_type) {
  std::string type = lower_case(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  return type.empty() || type == "application/json" || type == "text/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

enum class Route { unknown, models, model, completions, chat, health, ready };
constexpr std::string_view kModelPrefix = "/v1/models/";

Route route_of(std::string_view path) {
  if (path == "/v1/models") return Route::models;
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) return Route::model;
  if (path == "/v1/completions") return Route::completions;
  if (path == "/v1/chat/completions") return Route::chat;
  if (path == "/health") return Route::health;
  if (path == "/ready") return Route::ready;
  return Route::unknown;
}
bool is_post(Route route) {
  return route == Route::completions || route == Route::chat;
}
std::string_view methods_of(Route route) {
  return is_post(route) ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

class HttpApiServer final : public HttpApi {
 public:
  HttpApiServer(const ModelText& text, GenerationBackend& backend, Options options)
      : text_(text),
        backend_(backend),
        options_(std::move(options)),
        started_(unix_seconds()),
        longest_token_(longest_token_of(text.tokenizer)) {
    if (auto format = chat_format_of(text_.tokenizer))
      chat_format_ = *format;
    else if (text_.chat_template)
      chat_format_ = ChatFormat::templated;
    if (!options_.api_key.empty()) key_digest_ = digest_of(options_.api_key);
  }
  ~HttpApiServer() override {
    preparer_.stop();
    mailbox_->close();
    if (server_) server_->stop();
    for (auto& [id, job] : std::exchange(jobs_, {})) {
      if (const auto alive = job.lock()) alive->abandon();
    }
    server_.reset();
  }

  Status serve(const std::string& host, std::uint16_t port) {
    MYRIAD_TRY_STATUS(preparer_.start());
    MYRIAD_TRY(server_, HttpServer::open(host, port, options_.http,
                                         {[this](const HttpHead& head) { return refuse(head); },
                                          [this](HttpHead head, HttpBody body, std::shared_ptr<HttpExchange> exchange) {
                                            handle(head, std::move(body), std::move(exchange));
                                          },
                                          [](int status, std::string message) {
                                            return error_response(api_error_of_status(status, std::move(message)));
                                          }}));
    mailbox_->open(server_.get());
    return {};
  }
  std::uint16_t port() const override { return server_->port(); }

 private:
  static Sha256Digest digest_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

  // Whether a web page of this origin may read the answer, in the headers that say so.
  HttpHeaders cors_headers(const HttpHead& head) const {
    if (options_.cors_origins.empty() || head.origin.empty()) return {};
    for (const std::string& allowed : options_.cors_origins) {
      if (allowed == "*") return {{"Access-Control-Allow-Origin", "*"}};
      if (allowed == head.origin) return {{"Access-Control-Allow-Origin", head.origin}, {"Vary", "Origin"}};
    }
    return {};
  }

  // All that can be said before the body is read.
  std::optional<HttpResponse> refuse(const HttpHead& head) const {
    const Route route = route_of(head.path);
    const auto error = [&](int status, std::string message) {
      return error_response(api_error_of_status(status, std::move(message)), cors_headers(head));
    };
    if (head.method == "OPTIONS" && (route != Route::unknown || head.path == "*")) return preflight(head, route);
    if (route == Route::unknown) {
      return error(
          404, fmt::format(
                   "Unknown request URL: {} {}. There are /v1/models, /v1/completions, /v1/chat/completions, /health "
                   "and /ready.",
                   head.method, head.path.substr(0, 256)));
    }
    const bool method_fits = is_post(route) ? head.method == "POST" : head.method == "GET" || head.method == "HEAD";
    if (!method_fits) {
      auto response = error(405, fmt::format("{} is not allowed for {}; use {}.", head.method.substr(0, 32),
                                             head.path.substr(0, 256), is_post(route) ? "POST" : "GET"));
      response.headers.emplace_back("Allow", methods_of(route));
      return response;
    }
    if (key_digest_ && head.path.starts_with("/v1/") && !authorized(head.authorization)) {
      auto response =
          error(401, head.authorization.empty()
                         ? "This server asks for an API key: send 'Authorization: Bearer KEY'."
                         : "The API key in 'Authorization' is not the one of this server; 'Bearer KEY' was expected.");
      response.headers.emplace_back("WWW-Authenticate", "Bearer");
      return response;
    }
    // curl -d says x-www-form-urlencoded unless told otherwise; a browser that says so on another site's behalf sends
    // an Origin.
    const bool from_curl = head.origin.empty() && head.content_type == "application/x-www-form-urlencoded";
    if (is_post(route) && !is_json(head.content_type) && !from_curl) {
      return error(415, fmt::format("The content type '{}' is not supported; send 'application/json'.",
                                    head.content_type.substr(0, 128)));
    }
    return std::nullopt;
  }

  HttpResponse preflight(const HttpHead& head, Route route) const {
    HttpResponse response;
    response.status = 204;
    const std::string methods(route == Route::unknown ? "GET, HEAD, POST, OPTIONS" : methods_of(route));
    response.headers = cors_headers(head);
    if (!response.headers.empty()) {
      response.headers.emplace_back("Access-Control-Allow-Methods", methods);
      response.headers.emplace_back("Access-Control-Allow-Headers", head.requested_headers.empty()
                                                                        ? "authorization, content-type"
                                                                        : head.requested_headers);
      response.headers.emplace_back("Access-Control-Max-Age", "600");
    }
    response.headers.emplace_back("Allow", methods);
    return response;
  }

  bool authorized(std::string_view authorization) const {
    constexpr std::string_view kScheme = "bearer ";
    if (lower_case(authorization.substr(0, kScheme.size())) != kScheme) return false;
    std::string_view key = authorization.substr(kScheme.size());
    while (key.starts_with(' ')) key.remove_prefix(1);
    // Digests, so that neither the key's length nor its first wrong byte shows in the time.
    const Sha256Digest digest = digest_of(key);
    return equal_constant_time(digest, *key_digest_);
  }

  void handle(const HttpHead& head, HttpBody body, std::shared_ptr<HttpExchange> exchange) {
    HttpResponse response;
    response.headers = cors_headers(head);
    switch (route_of(head.path)) {
      case Route::models:
        response.body = model_list_body(backend_.info(), started_);
        break;
      case Route::model: {
        const ModelInfo info = backend_.info();
        const std::string asked = percent_decoded(std::string_view(head.path).substr(kModelPrefix.size()));
        if (asked == info.name)
          response.body = model_body(info, started_);
        else
          response = error_response(model_not_found(asked, info.name), response.headers);
        break;
      }
      case Route::health:
        response.body = R"({"status":"ok"})";
        break;
      case Route::ready: {
        const Status ready = backend_.ready();
        if (ready)
          response.body = R"({"status":"ready"})";
        else
          response = error_response(api_error_of_status(503, ready.error().to_string()), response.headers);
        break;
      }
      case Route::completions:
        complete(false, std::move(response.headers), std::move(body), std::move(exchange));
        return;
      case Route::chat:
        complete(true, std::move(response.headers), std::move(body), std::move(exchange));
        return;
      case Route::unknown:
        response = error_response(api_error_of_status(404, "Unknown request URL."), response.headers);
        break;
    }
    exchange->respond(std::move(response));
  }

  void complete(bool chat, HttpHeaders headers, HttpBody body, std::shared_ptr<HttpExchange> exchange) {
    const auto random = random_value<std::array<std::byte, 12>>();
    const std::string id = to_hex(random);
    headers.emplace_back("X-Request-Id", id);
    const ModelInfo info = backend_.info();
    if (info.context == 0) {  // nothing is known of the model yet: the fleet was never ready
      const Status ready = backend_.ready();
      exchange->respond(
          error_response(ready ? api_error_of_status(503, "The model is not known yet; try again in a moment.")
                               : api_error_of(ready.error()),
                         std::move(headers)));
      return;
    }
    const RequestContext context{text_, info, chat_format_,   longest_token_,
                                 chat,  id,   unix_seconds(), random_value<std::uint64_t>()};
    // A function must be copyable, a body need not be copied.
    auto shared_body = std::make_shared<HttpBody>(std::move(body));
    preparer_.add([this, context, headers, shared_body, exchange] {
      std::shared_ptr<ApiResult<PreparedRequest>> prepared;
      try {
        prepared = std::make_shared<ApiResult<PreparedRequest>>(prepare_request(shared_body->text(), context));
      } catch (const std::bad_alloc&) {
        prepared = std::make_shared<ApiResult<PreparedRequest>>(std::unexpected(api_error_of_status(
            503, "There is not enough memory for this request now; try again later or send less.")));
      }
      const bool large = shared_body->text().size() > kLargeBody;
      *shared_body = {};
      // Memory is scarce where this runs: what a large request took goes back to the system at once.
      if (large) malloc_trim(0);
      mailbox_->post([this, headers, prepared, exchange] {
        if (*prepared)
          begin(std::move(**prepared), headers, exchange);
        else
          exchange->respond(error_response(prepared->error(), headers));
      });
    });
  }

  void begin(PreparedRequest request, HttpHeaders headers, const std::shared_ptr<HttpExchange>& exchange) {
    if (!request.warning.empty()) {
      log(LogLevel::info, "event=request_warning id={} text={}", request.head.id, log_value(request.warning));
      headers.emplace_back(kWarningHeader, request.warning);
    }
    const std::uint64_t number = next_job_++;
    auto job = std::make_shared<CompletionJob>(
        CompletionJob::Environment{text_.tokenizer, backend_,
                                   [mailbox = mailbox_](std::function<void()> work) { mailbox->post(std::move(work)); },
                                   [this, number] { jobs_.erase(number); }, std::move(headers)},
        std::move(request), exchange);
    jobs_.emplace(number, job);
    job->start();
  }

  const ModelText& text_;
  GenerationBackend& backend_;
  const Options options_;
  const std::int64_t started_;
  const std::size_t longest_token_;
  std::optional<ChatFormat> chat_format_;
  std::optional<Sha256Digest> key_digest_;
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::map<std::uint64_t, std::weak_ptr<CompletionJob>> jobs_;
  std::uint64_t next_job_ = 0;
  std::unique_ptr<HttpServer> server_;
  Preparer preparer_;
};

}  // namespace

Result<std::unique_ptr<HttpApi>> HttpApi::open(std::string host, std::uint16_t port, const ModelText& text,
                                               GenerationBackend& backend, Options options) {
  auto api = std::make_unique<HttpApiServer>(text, backend, std::move(options));
  MYRIAD_TRY_STATUS(api->serve(host, port));
  return api;
}

}  // namespace myriad
