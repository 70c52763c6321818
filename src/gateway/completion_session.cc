#include "gateway/completion_session.h"

#include <algorithm>
#include <utility>

namespace myriad {
namespace {

std::size_t count_characters(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

void AnswerPiece::append(AnswerPiece next) {
  text += next.text;
  reasoning += next.reasoning;
  for (ToolCallPiece& piece : next.tool_calls) {
    if (!tool_calls.empty() && tool_calls.back().index == piece.index && piece.name.empty()) {
      tool_calls.back().arguments += piece.arguments;
    } else {
      tool_calls.push_back(std::move(piece));
    }
  }
  std::move(next.tokens.begin(), next.tokens.end(), std::back_inserter(tokens));
}

CompletionSession::CompletionSession(const Tokenizer& tokenizer, Options options)
    : tokenizer_(tokenizer), options_(std::move(options)), stops_(std::move(options_.stop)) {
  if (options_.chat) parser_.emplace(tokenizer_, *options_.chat);
}

AnswerPiece CompletionSession::push(Sample sample) {
  AnswerPiece out;
  if (done_) return out;
  const std::int32_t id = sample.token;
  const std::size_t begin = made_;
  if (options_.keep_tokens) pending_.push_back({{std::move(sample), characters_}, begin, begin});
  if (parser_) {
    add_events(parser_->push(id), out);
  } else if (!tokenizer_.is_special(id)) {
    add_text(Channel::text, utf8_.push(tokenizer_.token_bytes(id)), out);
  }
  if (options_.keep_tokens) {
    pending_.back().end = made_;
    show_tokens(done_, out);
  }
  return out;
}

AnswerPiece CompletionSession::finish() {
  AnswerPiece out;
  if (done_) return out;
  if (parser_)
    add_events(parser_->finish(), out);
  else
    add_text(Channel::text, utf8_.flush(), out);
  if (!done_) leave_channel(out);
  done_ = true;
  show_tokens(true, out);
  return out;
}

std::string_view CompletionSession::finish_reason(bool length) const {
  if (length && !stopped_by_string_) return "length";
  return parser_ && parser_->tool_calls() > 0 ? "tool_calls" : "stop";
}

void CompletionSession::add_text(Channel channel, std::string_view text, AnswerPiece& out) {
  if (done_) return;
  if (channel != channel_) leave_channel(out);
  channel_ = channel;
  made_ += text.size();
  characters_ += count_characters(text);
  const std::string shown = stops_.push(text);
  shown_ += shown.size();
  (channel == Channel::reasoning ? out.reasoning : out.text) += shown;
  if (stops_.stopped()) done_ = stopped_by_string_ = true;
}

// A stop string never spans two channels: what was held back in the one is shown before the other begins.
void CompletionSession::leave_channel(AnswerPiece& out) {
  const std::string held = stops_.flush();
  (channel_ == Channel::reasoning ? out.reasoning : out.text) += held;
  shown_ = made_;
  channel_ = Channel::none;
}

void CompletionSession::add_events(std::vector<ReplyEvent> events, AnswerPiece& out) {
  for (ReplyEvent& e : events) {
    if (done_) return;
    switch (e.kind) {
      case ReplyEvent::Kind::reasoning:
        add_text(Channel::reasoning, e.text, out);
        break;
      case ReplyEvent::Kind::content:
        add_text(Channel::text, e.text, out);
        break;
      case ReplyEvent::Kind::tool_call:
      case ReplyEvent::Kind::tool_call_arguments:
        leave_channel(out);
        made_ += e.text.size();
        characters_ += count_characters(e.text);
        shown_ = made_;
        out.tool_calls.push_back({e.index, std::move(e.id), std::move(e.name), std::move(e.text)});
        break;
      case ReplyEvent::Kind::tool_call_end:
        if (!options_.parallel_tool_calls) done_ = true;
        break;
      case ReplyEvent::Kind::finished:
        leave_channel(out);
        break;
    }
  }
}

// A token is shown once its text is; one without text (half a character, structure) with what follows it. Tokens whose
// text begins in or behind a stop string are never shown.
void CompletionSession::show_tokens(bool last, AnswerPiece& out) {
  while (!pending_.empty()) {
    const Pending& p = pending_.front();
    const bool all_shown = p.end > p.begin ? p.end <= shown_ : p.begin < shown_;
    const bool at_end = last && (p.begin < shown_ || !stopped_by_string_);
    if (!all_shown && !at_end) break;
    out.tokens.push_back(std::move(pending_.front().token));
    pending_.pop_front();
  }
  if (last) pending_.clear();
}

}  // namespace myriad
