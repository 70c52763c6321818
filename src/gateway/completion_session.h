// One answer while it is generated: from tokens to the text, the reasoning, the tool calls and the log probabilities
// that may be shown. Knows nothing of HTTP, threads or the engine.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "gateway/stop_strings.h"
#include "model/reply_parser.h"
#include "model/sampler.h"
#include "model/tokenizer.h"
#include "model/utf8_stream.h"

namespace myriad {

// A token that is shown, with where its text begins in the answer's text: Unicode characters from its start.
struct ShownToken {
  Sample sample;
  std::size_t text_offset = 0;
};

// A piece of a tool call: its beginning has an id and a name, what follows only arguments.
struct ToolCallPiece {
  int index = 0;
  std::string id, name, arguments;
};

// What became visible by one token, or in all.
struct AnswerPiece {
  std::string text;       // the answer; of a chat reply its content
  std::string reasoning;  // of a chat reply
  std::vector<ToolCallPiece> tool_calls;
  std::vector<ShownToken> tokens;  // only if log probabilities were asked for
  [[nodiscard]] bool empty() const { return text.empty() && reasoning.empty() && tool_calls.empty() && tokens.empty(); }
  // Adds what comes after; pieces of one tool call become one.
  void append(AnswerPiece next);
};

class CompletionSession {
 public:
  struct Options {
    std::vector<std::string> stop;
    bool keep_tokens = false;  // for log probabilities
    // Chat: the reply's channels are taken apart. Otherwise all tokens but special ones are text.
    std::optional<ReplyParser::Options> chat;
    bool parallel_tool_calls = true;  // false: the answer ends after its first call
  };
  // The tokenizer must outlive the session.
  CompletionSession(const Tokenizer& tokenizer, Options options);

  // The next token. After done() always nothing.
  AnswerPiece push(Sample sample);
  // The generation is over. Gives what was held back.
  AnswerPiece finish();
  // A stop string was completed, or the one call that was wanted: no further token is needed.
  [[nodiscard]] bool done() const { return done_; }
  // "tool_calls" if the answer calls one, else "stop" or, when the number of tokens ended it, "length".
  [[nodiscard]] std::string_view finish_reason(bool length) const;

 private:
  enum class Channel { none, text, reasoning };
  struct Pending {
    ShownToken token;
    std::size_t begin = 0, end = 0;  // bytes of text made before and after it
  };
  void add_text(Channel channel, std::string_view text, AnswerPiece& out);
  void leave_channel(AnswerPiece& out);
  void add_events(std::vector<ReplyEvent> events, AnswerPiece& out);
  void show_tokens(bool last, AnswerPiece& out);

  const Tokenizer& tokenizer_;
  Options options_;
  std::optional<ReplyParser> parser_;
  Utf8Stream utf8_;
  StopStrings stops_;
  Channel channel_ = Channel::none;
  std::deque<Pending> pending_;
  std::size_t made_ = 0;        // bytes of text so far, in all channels
  std::size_t shown_ = 0;       // of these, let out
  std::size_t characters_ = 0;  // of made_
  bool done_ = false;
  bool stopped_by_string_ = false;
};

}  // namespace myriad
