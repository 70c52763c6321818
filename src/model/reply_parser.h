// Takes a model's reply apart while it is being generated: reasoning, answer, tool calls.
//
// Structure is recognised by the ids of control tokens, never by text, but for what model/template_reply.h says of models
// that bring a chat template. Nothing that a model does is an error: what a
// malformed reply has in the wrong place comes out as text of the place where it stands, and a call that breaks off is
// closed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat_format.h"
#include "model/reply_event.h"
#include "model/template_reply.h"
#include "model/tokenizer.h"
#include "model/utf8_stream.h"

namespace myriad {

class ReplyParser {
 public:
  struct Options {
    ChatFormat format = ChatFormat::kimi_k3;
    bool starts_with_reasoning = true;  // as reply_starts_with_reasoning says of the prompt
    // Of a templated format (model/template_traits.h): how the model writes calls and whether it thinks aloud, and the
    // names of the request's tools.
    CallSyntax calls = CallSyntax::none;
    bool thinks = false;
    std::vector<std::string> tools{};
    // Kimi K3's calls have no ids: that of call n becomes this and n. Make it unique for each reply. Kimi Linear's
    // model writes ids itself, they are passed on.
    std::string call_id_prefix = "call_";
  };
  // The tokenizer must outlive the parser.
  ReplyParser(const Tokenizer& tokenizer, Options options);

  // The next tokens of the reply; gives what became known by them, often nothing. After `finished` everything is
  // ignored.
  std::vector<ReplyEvent> push(std::int32_t id) { return push(std::span(&id, 1)); }
  std::vector<ReplyEvent> push(std::span<const std::int32_t> ids);
  // The reply is over (the model stopped, or the limit of tokens was reached). Gives what is still held back, and
  // `finished` unless that has been given already.
  std::vector<ReplyEvent> finish();

  [[nodiscard]] bool finished() const { return finished_; }
  // Calls begun so far; more than 0 makes OpenAI's finish_reason "tool_calls".
  [[nodiscard]] int tool_calls() const { return templated_ ? templated_->calls() : calls_; }

 private:
  // Where text goes. In `structure` and `call` only white space is expected.
  enum class Place { structure, reasoning, content, call, argument, raw_arguments, call_id };
  // What is collected between <|open|> or <|close|> and <|sep|>.
  enum class Tag { none, open, close };
  struct Call {
    bool open = false;
    int index = 0;
    std::string arguments;  // as given so far
    bool raw = false;       // they were one text
    std::string key, type;  // of the argument that is being read
  };

  void push_k3(std::int32_t id);
  void push_linear(std::int32_t id);
  void push_templated(std::int32_t id);
  // Bytes of text, and the end of a text: what is incomplete then stays so.
  void text(std::string_view bytes);
  void end_text();
  void put(std::string_view utf8);
  void give(ReplyEvent event);
  // The tag in tag_text_ is complete: whether it means something here, and what it means is done.
  bool open_tag();
  bool close_tag();
  void tag_as_text(bool with_end);
  void begin_call(std::string_view name, std::string id);
  void end_argument();
  void end_call();
  void give_arguments(std::string piece);
  void end(bool complete);

  const Tokenizer& tokenizer_;
  Options options_;
  // Ids of control tokens, −1 for one that this tokenizer has not.
  std::int32_t open_, close_, sep_, section_begin_, section_end_, call_begin_, call_argument_, call_end_, think_,
      end_think_;
  std::vector<std::int32_t> stop_ids_;

  std::optional<TemplateReply> templated_;
  std::vector<std::pair<std::int32_t, MarkName>> marks_;  // of the templated format, by their tokens

  Place place_;
  Tag tag_ = Tag::none;
  std::string tag_text_;
  Utf8Stream utf8_;
  std::string blank_;  // white space between tags, shown only if text follows it there
  std::string value_;  // of the argument, raw arguments or call id that is being read
  Call call_;
  int calls_ = 0;
  bool finished_ = false;
  std::vector<ReplyEvent> events_;
};

}  // namespace myriad
