// Replies of models that bring a chat template, taken apart while they are generated: reasoning, answer, calls of
// tools.
//
// A mark that is a token of the vocabulary is recognised by that token alone; one that is not (Hermes' <tool_call> in a
// Llama vocabulary) by its text. A call is held back until it is complete, and given whole: what turns out to be no
// well-formed call is text of the answer, with the marks around it. White space next to a mark belongs to nobody.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/reply_event.h"
#include "model/tool_syntax.h"

namespace myriad {

class TemplateReply {
 public:
  struct Options {
    CallSyntax calls = CallSyntax::none;
    bool thinks = false;
    bool starts_with_reasoning = false;
    std::vector<std::string> tools{};  // names of the request's; Llama's bare JSON is a call of one of these or text
    std::string call_id_prefix = "call_";
  };
  // `spelled`: the marks that no token stands for.
  TemplateReply(Options options, std::vector<MarkName> spelled);

  // The next complete characters; a token that is a mark; another special token, which counts inside of calls only.
  void text(std::string_view utf8);
  void mark(const MarkName& mark);
  void token(std::string_view name);
  // Nothing more comes.
  void end();
  // What became known since the last time.
  [[nodiscard]] std::vector<ReplyEvent> take() { return std::exchange(events_, {}); }
  // Calls given so far.
  [[nodiscard]] int calls() const { return calls_; }

 private:
  // Follows a JSON value to its end.
  struct Scan {
    std::size_t at = 0;
    std::size_t depth = 0;
    bool begun = false, in_string = false, escaped = false;
    bool program = false;  // no JSON: it ends with the reply
  };
  // The text of a call so far.
  struct Body {
    std::string before;  // what stands in front of it if it is no call
    std::string text;
    bool bare = false;  // no mark announced it
    Scan scan{};
  };

  void plain(std::string_view utf8);
  // How much of the text the answer or the reasoning takes; opens a body where a bare call may begin.
  std::size_t take_answer(std::string_view utf8);
  // How much of the text belongs to the body, which may end there.
  std::size_t take_body(std::string_view utf8);
  [[nodiscard]] bool may_be_bare_call() const;
  void open_body(std::string before, bool bare);
  void close_body(std::string_view end_mark);
  void leave_reasoning();
  void put(std::string_view utf8);
  void give(std::string_view utf8);
  void give_call(WrittenCall call);

  Options options_;
  std::vector<MarkName> spelled_;
  bool reasoning_;
  bool skip_white_;          // until text comes
  bool bare_allowed_;        // nothing but calls so far
  bool after_call_ = false;  // separators may follow
  std::string held_;         // may be the beginning of a spelled mark
  std::string blank_;        // white space that may stand before a mark
  std::optional<Body> body_;
  int calls_ = 0;
  std::vector<ReplyEvent> events_;
};

}  // namespace myriad
