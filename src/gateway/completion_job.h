// One request while it is served: starts its generations, gathers their events, writes the answer or the stream, and
// ends everything the moment nobody waits for it any more. All calls on the HTTP thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/generation.h"
#include "gateway/completion_session.h"
#include "gateway/http_server.h"
#include "gateway/openai_response.h"
#include "gateway/prepare_request.h"

namespace myriad {

// Of an answer that is not streamed: text and log probabilities, as JSON, of all its choices.
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{8} << 20;

class CompletionJob : public std::enable_shared_from_this<CompletionJob> {
 public:
  struct Environment {
    const Tokenizer& tokenizer;
    GenerationBackend& backend;
    // Thread-safe; brings work to the HTTP thread, or drops it when that has ended.
    std::function<void(std::function<void()>)> post;
    std::function<void()> on_end;  // once, when the request needs nothing more
    HttpHeaders headers;           // of the answer, whatever it is
  };
  CompletionJob(Environment environment, PreparedRequest request, std::shared_ptr<HttpExchange> exchange);

  // Starts the generations. As many as the backend takes at once; the others follow as earlier ones end.
  void start();
  // Nobody waits for the answer: cancels all generations. Also safe after the HTTP thread has ended.
  void abandon();

 private:
  struct Choice {
    CompletionSession session;
    AnswerPiece answer;  // of an answer that is not streamed
    std::string finish_reason;
    std::uint64_t generation = 0;
    bool running = false;  // in the backend, whose last event is still to come
    bool complete = false;
    bool begun = false;  // its first event has come
  };
  // Events on their way from the backend's thread. One piece of work on the HTTP thread takes all that have come, so
  // that a fast model neither floods that thread's queue nor keeps it from others.
  struct Inbox {
    std::mutex mutex;
    std::deque<std::pair<std::size_t, GenerationEvent>> events;
    bool announced = false;
  };
  void announce(std::size_t index, const GenerationEvent& event);
  void take_events();
  Status start_more();
  void on_event(std::size_t index, const GenerationEvent& event);
  void count_kept(std::size_t index, std::uint32_t tokens);
  void on_token(std::size_t index, const Sample& sample);
  void on_finished(std::size_t index, const FinishedEvent& event);
  void show(std::size_t index, AnswerPiece piece);
  void complete(std::size_t index, bool length);
  void finish_if_complete();
  void fail(const ApiError& error);
  void end(int status);
  void cancel_running();

  Environment environment_;
  PreparedRequest request_;
  std::shared_ptr<HttpExchange> exchange_;
  std::vector<Choice> choices_;
  std::size_t next_ = 0;     // the first choice that was not started
  std::size_t running_ = 0;  // choices that are
  std::size_t completed_ = 0;
  std::size_t answer_bytes_ = 0;
  Usage usage_;
  Inbox inbox_;
  bool streaming_ = false;  // the stream's head was sent
  bool ended_ = false;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// The answer to a request that is refused.
HttpResponse error_response(const ApiError& error, HttpHeaders headers = {});

}  // namespace myriad
