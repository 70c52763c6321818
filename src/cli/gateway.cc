// `myriad gateway`: the OpenAI-compatible HTTP API in front of a fleet.
#include <unistd.h>

#include <thread>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/service.h"
#include "engine/generator.h"
#include "gateway/api.h"
#include "gateway/fleet_pipeline.h"
#include "net/ports.h"
#include "net/token_file.h"

namespace myriad::cli {
namespace {

constexpr Nanos kFetchLimit = std::chrono::seconds(30);
constexpr Nanos kProbeEvery = std::chrono::seconds(5);  // while nothing else shows that the fleet answers
constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

// The tokenizer of the fleet's model, from its controller.
Result<Tokenizer> fetch_tokenizer(const FleetPipeline& fleet) {
  MYRIAD_TRY(const std::string ranks, fleet.fetch_file("tiktoken.model", Tokenizer::kMaxVocabularyBytes, kFetchLimit));
  auto specials = fleet.fetch_file("tokenizer_config.json", Tokenizer::kMaxConfigBytes, kFetchLimit);
  if (!specials && specials.error().code != Code::not_found) return std::unexpected(std::move(specials).error());
  return Tokenizer::parse(ranks, specials.value_or(""), static_cast<std::int32_t>(fleet.plan().vocabulary));
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
  MYRIAD_TRY(fleet_options.controller, parse_endpoint(options.join, kControllerPort));
  MYRIAD_TRY(fleet_options.token, read_token_file(options.token_file));
  MYRIAD_TRY(const Endpoint http, parse_endpoint(options.http, kGatewayHttpPort));
  HttpApi::Options api_options;
  api_options.cors_origins = options.cors_origins;
  if (!options.api_key_file.empty()) {
    MYRIAD_TRY(api_options.api_key, read_token_file(options.api_key_file));
  }
  MYRIAD_TRY(const std::string suffix, random_hex(4));
  fleet_options.id = {"gateway-" + suffix};
  log_configure(log_level_from_environment(LogLevel::warning), "gateway");

  Reactor reactor;
  reactor.start();
  const auto fleet = std::make_shared<FleetPipeline>(reactor, std::move(fleet_options));
  MYRIAD_TRY_STATUS(join(*fleet, stop));
  auto tokenizer = fetch_tokenizer(*fleet);
  if (!tokenizer) return std::unexpected(std::move(tokenizer).error().within("fetching the model's tokenizer"));
  Generator generator(fleet, {.probe_every = kProbeEvery});
  MYRIAD_TRY(const std::unique_ptr<HttpApi> api,
             HttpApi::open(http.host, http.port, *tokenizer, generator, std::move(api_options)));
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
