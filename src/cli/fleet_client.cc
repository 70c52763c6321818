#include "cli/fleet_client.h"

#include <unistd.h>

#include <future>

namespace myriad::cli {
namespace {

constexpr Nanos kConnectLimit = std::chrono::seconds(5);
constexpr Nanos kAnswerLimit = std::chrono::seconds(10);

}  // namespace

struct FleetClient::Impl {
  Reactor reactor;
  ConnectionPtr connection;
};

FleetClient::FleetClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FleetClient::~FleetClient() {
  if (impl_->connection) impl_->connection->close();
}

Result<std::unique_ptr<FleetClient>> FleetClient::connect_to(Endpoint controller, std::string token) {
  auto impl = std::make_unique<Impl>();
  impl->reactor.start();
  const auto made = std::make_shared<std::promise<Result<ConnectionPtr>>>();
  auto future = made->get_future();
  const Hello self{Role::tool, {fmt::format("tool-{}", getpid())}, 1};
  connect(impl->reactor, std::move(controller), std::move(token), self, {}, kConnectLimit,
          [made](Result<ConnectionPtr> c) { made->set_value(std::move(c)); });
  MYRIAD_TRY(impl->connection, future.get());
  return std::unique_ptr<FleetClient>(new FleetClient(std::move(impl)));
}

Result<Message> FleetClient::ask(Message question) {
  const auto answered = std::make_shared<std::promise<Result<Message>>>();
  auto future = answered->get_future();
  impl_->connection->call(std::move(question), kAnswerLimit,
                          [answered](Result<Message> answer) { answered->set_value(std::move(answer)); });
  auto answer = future.get();
  if (answer)
    if (auto* failure = std::get_if<Failure>(&*answer)) return std::unexpected(std::move(failure->error));
  return answer;
}

Result<std::string> FleetClient::status() {
  MYRIAD_TRY(Message answer, ask(StatusRequest{}));
  if (auto* reply = std::get_if<StatusReply>(&answer)) return std::move(reply->json);
  return fail(Code::corrupt, "the controller answered a request for its status with {}", message_name(answer));
}
Status FleetClient::kill(NodeId node) {
  MYRIAD_TRY([[maybe_unused]] const Message answer, ask(KillRequest{std::move(node)}));
  return {};
}
Status FleetClient::shutdown() {
  MYRIAD_TRY([[maybe_unused]] const Message answer, ask(Shutdown{}));
  return {};
}

}  // namespace myriad::cli
