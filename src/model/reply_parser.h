// Takes a model's reply apart while it is being generated: reasoning, answer, tool calls.
//
// Structure is recognised by the ids of control tokens, never by text. Nothing a model does is an error: text of a
// malformed reply comes out as content, and a call that breaks off is closed so that its arguments are a JSON object.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat_format.h"
#include "model/tokenizer.h"
#include "model/utf8_stream.h"

namespace myriad {

struct ReplyEvent {
  enum class Kind {
    reasoning,            // `text` continues the reasoning
    content,              // `text` continues the answer
    tool_call,            // call `index` begins: `id`, `name`
    tool_call_arguments,  // `text` continues the arguments of call `index`; all of them together are one JSON object
    tool_call_end,        // call `index` is complete; `text` has its whole arguments again
    finished,             // nothing more comes; `complete` says whether the model ended its message itself
  };
  Kind kind = Kind::content;
  std::string text{};  // complete UTF-8 characters only
  int index = 0;       // of a tool call, from 0
  std::string id{};
  std::string name{};
  bool complete = false;
  friend bool operator==(const ReplyEvent&, const ReplyEvent&) = default;
};

class ReplyParser {
 public:
  struct Options {
    ChatFormat format = ChatFormat::kimi_k3;
    bool starts_with_reasoning = true;     // as reply_starts_with_reasoning says of the prompt
    std::string call_id_prefix = "call_";  // the id of call n is this and n; make it unique for each reply. Kimi
                                           // Linear's model writes ids itself, they are passed on
  };
  // The tokenizer must outlive the parser.
  ReplyParser(const Tokenizer& tokenizer, Options options);

  // The next token of the reply; gives what became known by it, often nothing. After `finished` everything is ignored.
  std::vector<ReplyEvent> push(std::int32_t id);
  std::vector<ReplyEvent> push(std::span<const std::int32_t> ids);
  // The reply is over (the model stopped, or the limit of tokens was reached). Gives what is still held back, and
  // `finished` unless that has been given already.
  std::vector<ReplyEvent> finish();

  [[nodiscard]] bool finished() const { return finished_; }
  // Calls begun so far; more than 0 makes OpenAI's finish_reason "tool_calls".
  [[nodiscard]] int tool_calls() const { return calls_; }

 private:
  // Where text goes. `none` is structure, where only white space is expected.
  enum class Place { none, reasoning, content, call, argument, raw_arguments, call_name };
  // What is collected between <|open|> or <|close|> and <|sep|>.
  enum class Header { none, open, close };
  struct Call {
    int index = 0;
    bool begun = false;     // the event was given
    std::string arguments;  // as given so far
    bool any = false;       // at least one argument was given
    std::string key, type;  // of the argument that is open
  };

  void push_k3(std::int32_t id);
  void push_linear(std::int32_t id);
  void text(std::string_view bytes);
  void text_is_over();
  void put(std::string_view utf8);
  void open_tag();
  void close_tag();
  void header_as_text();
  void begin_call(std::string_view name, std::string id);
  void end_argument();
  void end_call();
  void leave(Place place);
  void give_arguments(std::string piece);
  void end(bool complete);

  const Tokenizer& tokenizer_;
  Options options_;
  std::int32_t open_ = -1, close_ = -1, sep_ = -1, end_of_message_ = -1, eos_ = -1;
  std::int32_t section_begin_ = -1, section_end_ = -1, call_begin_ = -1, call_argument_ = -1, call_end_ = -1;
  std::int32_t think_begin_ = -1, think_end_ = -1;

  Place place_ = Place::content;
  Header header_ = Header::none;
  std::string header_text_;
  Utf8Stream utf8_;
  std::string outside_;  // white space between tags, shown only if other text follows it
  std::string value_;    // of the open argument, raw arguments or call name
  Call call_;
  bool in_call_ = false;
  int calls_ = 0;
  bool finished_ = false;
  std::vector<ReplyEvent> events_;
};

}  // namespace myriad
