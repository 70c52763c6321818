// What becomes known of a model's reply while it is being generated.
#pragma once

#include <string>

namespace myriad {

struct ReplyEvent {
  enum class Kind {
    reasoning,            // `text` continues the reasoning
    content,              // `text` continues the answer
    tool_call,            // call `index` begins: `id`, `name`
    tool_call_arguments,  // `text` continues the arguments of call `index`
    tool_call_end,  // call `index` is complete; `text` has its whole arguments again: a JSON object, or, where the
                    // model wrote its arguments as one text, that text, whatever it is
    finished,       // nothing more comes; `complete` says whether the model ended its message itself
  };
  Kind kind = Kind::content;
  std::string text{};  // complete UTF-8 characters only
  int index = 0;       // of a tool call, from 0
  std::string id{};
  std::string name{};
  bool complete = false;
  friend bool operator==(const ReplyEvent&, const ReplyEvent&) = default;
};

}  // namespace myriad
