#include "gateway/completion_job.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace myriad {
namespace {

constexpr std::size_t kEventsATurn = 64;

CompletionSession::Options session_options(const PreparedRequest& r, std::size_t index) {
  CompletionSession::Options o;
  o.stop = r.options.stop;
  o.keep_tokens = r.options.logprobs;
  o.chat = r.chat;
  if (o.chat) o.chat->call_id_prefix += fmt::format("{}_", index);
  o.parallel_tool_calls = r.parallel_tool_calls;
  return o;
}

// About what a piece takes in the answer's JSON.
std::size_t json_bytes(const AnswerPiece& piece, bool chat) {
  std::size_t n = piece.text.size() + piece.reasoning.size();
  for (const auto& c : piece.tool_calls) n += 64 + c.id.size() + c.name.size() + c.arguments.size();
  for (const auto& t : piece.tokens) n += (t.sample.top.size() + 1) * (chat ? 96 : 48);
  return n;
}

}  // namespace

HttpResponse error_response(const ApiError& error, HttpHeaders headers) {
  HttpResponse r;
  r.status = error.status;
  r.body = error_body(error);
  r.headers = std::move(headers);
  if (error.retry_after) r.headers.emplace_back("Retry-After", std::to_string(*error.retry_after));
  return r;
}

CompletionJob::CompletionJob(Environment environment, PreparedRequest request, std::shared_ptr<HttpExchange> exchange)
    : environment_(std::move(environment)), request_(std::move(request)), exchange_(std::move(exchange)) {
  choices_.reserve(request_.choices());
  for (std::size_t i = 0; i < request_.choices(); ++i) {
    choices_.push_back({CompletionSession(environment_.tokenizer, session_options(request_, i)), {}, {}});
  }
  for (const auto& p : request_.prompts) usage_.prompt_tokens += p.ids.size();
}

void CompletionJob::start() {
  if (exchange_->gone()) {
    end(499);
    return;
  }
  exchange_->on_gone([weak = weak_from_this()] {
    if (const auto job = weak.lock()) job->abandon();
  });
  if (const auto started = start_more(); !started) {
    fail(api_error_of(started.error()));
    return;
  }
  if (request_.options.stream) {
    HttpHeaders headers = environment_.headers;
    headers.emplace_back("Cache-Control", "no-cache");
    headers.emplace_back("X-Accel-Buffering", "no");  // a proxy in between must not gather what should arrive at once
    streaming_ = true;
    exchange_->begin_stream("text/event-stream; charset=utf-8", std::move(headers), std::string(kSseKeepAlive));
    if (request_.head.chat) {
      for (std::size_t i = 0; i < choices_.size(); ++i) exchange_->write(sse_event(chat_role_chunk(request_.head, i)));
    }
  }
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const std::string& echo = request_.prompts[i / request_.options.n].echo;
    if (echo.empty() || ended_) continue;
    AnswerPiece piece;
    piece.text = echo;
    show(i, std::move(piece));
  }
}

Status CompletionJob::start_more() {
  while (next_ < choices_.size()) {
    const std::size_t index = next_;
    const auto& prompt = request_.prompts[index / request_.options.n];
    GenerationRequest g;
    g.id = fmt::format("{}-{}", request_.head.id, index);
    g.prompt = prompt.ids;
    g.max_tokens = prompt.max_tokens;
    g.stop_tokens = request_.stop_tokens;
    g.sample.temperature = request_.options.temperature;
    g.sample.top_p = request_.options.top_p;
    g.sample.top_k = request_.options.top_k;
    g.sample.seed = *request_.options.seed;
    // Counted within a prompt, so that an answer does not depend on the other prompts of its request.
    g.sample.choice = static_cast<std::uint32_t>(index % request_.options.n);
    g.sample.top_logprobs = request_.options.top_logprobs;
    const auto started = environment_.backend.start(
        std::move(g), [job = shared_from_this(), index](const GenerationEvent& event) { job->announce(index, event); });
    if (!started) {
      // Our own generations fill the queue: go on when one of them ends.
      if (started.error().code == Code::busy && running_ > 0) return {};
      return std::unexpected(started.error());
    }
    choices_[index].generation = *started;
    choices_[index].running = true;
    ++running_;
    ++next_;
  }
  return {};
}

// On the backend's thread.
void CompletionJob::announce(std::size_t index, const GenerationEvent& event) {
  {
    const std::lock_guard lock(inbox_.mutex);
    inbox_.events.emplace_back(index, event);
    if (std::exchange(inbox_.announced, true)) return;
  }
  environment_.post([job = shared_from_this()] { job->take_events(); });
}

void CompletionJob::take_events() {
  std::vector<std::pair<std::size_t, GenerationEvent>> events;
  bool more = false;
  {
    const std::lock_guard lock(inbox_.mutex);
    for (; !inbox_.events.empty() && events.size() < kEventsATurn; inbox_.events.pop_front()) {
      events.push_back(std::move(inbox_.events.front()));
    }
    more = inbox_.announced = !inbox_.events.empty();
  }
  for (const auto& [index, event] : events) on_event(index, event);
  if (more) environment_.post([job = shared_from_this()] { job->take_events(); });
}

void CompletionJob::on_event(std::size_t index, const GenerationEvent& event) {
  if (const auto* token = std::get_if<TokenEvent>(&event)) {
    const Choice& choice = choices_[index];
    count_kept(index, token->kept_tokens);
    if (!ended_ && !choice.complete) on_token(index, token->sample);
    return;
  }
  if (!choices_[index].running) return;
  choices_[index].running = false;
  --running_;
  if (ended_) return;
  if (const auto* failed = std::get_if<FailedEvent>(&event)) {
    if (!choices_[index].complete) {
      fail(api_error_of(failed->error));
      return;
    }
  } else if (!choices_[index].complete) {
    count_kept(index, std::get<FinishedEvent>(event).kept_tokens);  // its first token may have been a stop token
    on_finished(index, std::get<FinishedEvent>(event));
  }
  if (ended_) return;
  if (const auto started = start_more(); !started) fail(api_error_of(started.error()));
}

// Once for each prompt, as its tokens are counted.
void CompletionJob::count_kept(std::size_t index, std::uint32_t tokens) {
  if (!std::exchange(choices_[index].begun, true) && index % request_.options.n == 0) usage_.cached_tokens += tokens;
}

void CompletionJob::on_token(std::size_t index, const Sample& sample) {
  Choice& choice = choices_[index];
  ++usage_.completion_tokens;
  show(index, choice.session.push(sample));
  if (ended_ || !choice.session.done()) return;
  environment_.backend.cancel(choice.generation);
  complete(index, false);
}

void CompletionJob::on_finished(std::size_t index, const FinishedEvent& event) {
  if (event.reason == FinishReason::cancelled) {
    fail(api_error_of({Code::cancelled, "The generation was cancelled by the server; try again.", {}, {}}));
    return;
  }
  show(index, choices_[index].session.finish());
  if (!ended_) complete(index, event.reason == FinishReason::length);
}

void CompletionJob::show(std::size_t index, AnswerPiece piece) {
  if (piece.empty()) return;
  if (request_.options.stream) {
    exchange_->write(sse_event(piece_chunk(request_.head, index, piece, environment_.tokenizer)));
    return;
  }
  answer_bytes_ += json_bytes(piece, request_.head.chat);
  if (answer_bytes_ > kMaxAnswerBytes) {
    fail(bad_request(
        fmt::format(
            "The answer has grown past {} bytes; stream it, or ask for fewer tokens, choices or log probabilities.",
            kMaxAnswerBytes),
        {}, "answer_too_large"));
    return;
  }
  choices_[index].answer.append(std::move(piece));
}

void CompletionJob::complete(std::size_t index, bool length) {
  Choice& choice = choices_[index];
  choice.complete = true;
  choice.finish_reason = choice.session.finish_reason(length);
  ++completed_;
  if (request_.options.stream) exchange_->write(sse_event(finish_chunk(request_.head, index, choice.finish_reason)));
  finish_if_complete();
}

void CompletionJob::finish_if_complete() {
  if (completed_ < choices_.size()) return;
  if (request_.options.stream) {
    if (request_.head.include_usage) exchange_->write(sse_event(usage_chunk(request_.head, usage_)));
    exchange_->write(std::string(kSseDone));
    exchange_->end_stream();
  } else {
    std::vector<FinishedChoice> finished;
    finished.reserve(choices_.size());
    for (Choice& c : choices_) finished.push_back({std::move(c.answer), std::move(c.finish_reason)});
    HttpResponse response;
    response.body = answer_body(request_.head, finished, usage_, environment_.tokenizer);
    response.headers = environment_.headers;
    exchange_->respond(std::move(response));
  }
  end(200);
}

void CompletionJob::fail(const ApiError& error) {
  if (ended_) return;
  if (streaming_) {
    exchange_->write(sse_event(error_body(error)));
    exchange_->end_stream();
  } else {
    exchange_->respond(error_response(error, environment_.headers));
  }
  end(error.status);
}

void CompletionJob::abandon() {
  if (!ended_) end(499);
}

void CompletionJob::end(int status) {
  ended_ = true;
  cancel_running();
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began_).count();
  log(LogLevel::info, "event=http_completion request={} status={} prompt_tokens={} completion_tokens={} ms={}",
      request_.head.id, status, usage_.prompt_tokens, usage_.completion_tokens, ms);
  if (const auto call = std::exchange(environment_.on_end, nullptr)) call();
}

void CompletionJob::cancel_running() {
  for (const Choice& c : choices_) {
    if (c.running && !c.complete) environment_.backend.cancel(c.generation);
  }
}

}  // namespace myriad
