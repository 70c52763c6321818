// `myriad gateway`: the OpenAI-compatible HTTP API in front of a fleet.
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <utility>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/service.h"
#include "engine/generator.h"
#include "gateway/api.h"
#include "gateway/fleet_pipeline.h"
#include "model/model_text.h"
#include "net/address_option.h"
#include "net/ports.h"
#include "net/token_file.h"
#include "part/file_io.h"

namespace myriad::cli {
namespace {

constexpr Nanos kFetchLimit = std::chrono::seconds(30);
constexpr Nanos kProbeEvery = std::chrono::seconds(5);  // while nothing else shows that the fleet answers
constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

// A directory of this process's own, gone with this object.
class TemporaryDirectory {
 public:
  static Result<TemporaryDirectory> make() {
    std::error_code error;
    MYRIAD_TRY(const std::string name, random_hex(8));
    auto path = std::filesystem::temp_directory_path(error) / ("myriad-gateway-" + name);
    if (!error) std::filesystem::create_directory(path, error);
    if (error) return fail(Code::io, "creating {}: {}", path.string(), error.message());
    return TemporaryDirectory(std::move(path));
  }
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// Tokenizer and chat template of the fleet's model, from its controller.
Result<ModelText> fetch_text(const FleetPipeline& fleet) {
  MYRIAD_TRY(const TemporaryDirectory directory, TemporaryDirectory::make());
  for (const char* name : kTextFiles) {
    const auto text = fleet.fetch_file(name, Tokenizer::kMaxVocabularyBytes, kFetchLimit);
    if (!text && text.error().code == Code::not_found) continue;
    if (!text) return std::unexpected(text.error());
    MYRIAD_TRY_STATUS(write_file_atomically(directory.path() / name, std::as_bytes(std::span(*text))));
  }
  return load_model_text(directory.path(), static_cast<std::int32_t>(fleet.plan().vocabulary));
}

// Waits for a controller as long as it takes, unless this process is to end or the controller refuses it.
Status join(const FleetPipeline& fleet, const StopSignal& stop) {
  for (;;) {
    auto joined = fleet.wait_joined(std::chrono::seconds(1));
    if (joined) return {};
    if (joined.error().code != Code::deadline) return joined;
    if (stop.pending()) return fail(Code::cancelled, "asked to stop before the controller was reached");
    log(LogLevel::warning, "event=waiting_for_controller reason={}", log_value(joined.error().message));
  }
}

Status serve(const GatewayCommandOptions& options, StopSignal& stop) {
  FleetPipelineOptions fleet_options;
  MYRIAD_TRY(fleet_options.controller, parse_join_option("--join", options.join, kControllerPort));
  MYRIAD_TRY(const Endpoint http, parse_listen_option("--http", options.http, kGatewayHttpPort));
  HttpApi::Options api_options;
  for (const std::string& origin : options.cors_origins) {
    MYRIAD_TRY(std::string known, parse_origin_option("--cors-origin", origin));
    api_options.cors_origins.push_back(std::move(known));
  }
  MYRIAD_TRY(fleet_options.token, read_token_file(options.token_file));
  MYRIAD_TRY_STATUS(check_can_listen("--http", options.http, http));  // before the wait for the controller
  if (!options.api_key_file.empty()) {
    MYRIAD_TRY(api_options.api_key, read_token_file(options.api_key_file, Secret::api_key));
  }
  MYRIAD_TRY(const std::string suffix, random_hex(4));
  fleet_options.id = {"gateway-" + suffix};
  log_configure(log_level_from_environment(LogLevel::warning), "gateway");

  Reactor reactor;
  reactor.start();
  const auto fleet = std::make_shared<FleetPipeline>(reactor, std::move(fleet_options));
  MYRIAD_TRY_STATUS(join(*fleet, stop));
  auto text = fetch_text(*fleet);
  if (!text) return std::unexpected(std::move(text).error().within("fetching the model's tokenizer"));
  Generator generator(fleet, {.probe_every = kProbeEvery});
  MYRIAD_TRY(const std::unique_ptr<HttpApi> api,
             HttpApi::open(http.host, http.port, *text, generator, std::move(api_options)));
  const std::string url = fmt::format(
      "http://{}", Endpoint{http.host.empty() || http.host == "*" ? "127.0.0.1" : http.host, api->port()}.to_string());
  report_ready(options.ready_fd, fmt::format("{{\"port\": {}, \"url\": \"{}\"}}", api->port(), url),
               fmt::format("gateway answers at {}/v1", url));
  stop.wait();
  return {};
}

}  // namespace

int gateway_command(const GatewayCommandOptions& options) {
  StopSignal stop;
  return finish_service("gateway", options.ready_fd, serve(options, stop));
}

}  // namespace myriad::cli
