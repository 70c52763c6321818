// Prompts by the Jinja text that comes with a model: GGUF's `tokenizer.chat_template`, or the file chat_template.jinja
// or the member `chat_template` of tokenizer_config.json in a Hugging Face directory.
//
// Templates are evaluated as transformers does it: Jinja with trim_blocks, lstrip_blocks and loop controls, the filter
// `tojson` without escapes for HTML, the functions raise_exception and strftime_now, Python's values and Python's ways
// of writing them. What is not part of the subset is refused with its name, line and column. Templates are foreign
// bytes: model/jinja_budget.h lists the limits, which end the evaluation with an error.
//
// Injection: the text of a rendered prompt does not tell a template's own `<|im_end|>` from one that a user has written
// into a message. Therefore the evaluator knows of each byte where it came from, through every operation, and
// render_segments says so: `control` is text that stands in the template, also inside its string constants, or that the
// model's special_tokens brought; all text of the request is plain. Three kinds of text have no author: numbers, True,
// False and None are control, since they are one of a few words, and so is a message's role if it is one of those
// that every template knows (kRoles), because some templates put it between `<|` and `|>`; what tojson and str() add
// around the strings of a list or dict is plain.
//
// Which tokens a prompt is, Tokenizer::encode_spans says: special tokens are found in control text alone.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/chat_format.h"

namespace myriad {

namespace jinja {
struct Syntax;
}

// Roles whose names count as control. None of them can be part of a special token that the template does not spell out
// around it.
inline constexpr std::array<std::string_view, 7> kTemplateRoles{"system", "developer", "user",   "assistant",
                                                                "tool",   "function",  "ipython"};

// Immutable; several threads may render at once. Rendering needs at most 512 KiB of stack.
class ChatTemplate {
 public:
  // Errors: limit; corrupt for text that is no template; unsupported for tags and constructs outside of the subset.
  // Each with the line and column. Filters, tests, methods and functions outside of the subset are found when they are
  // used.
  static Result<ChatTemplate> parse(std::string_view text);

  // `variables` is an object whose members the template sees: messages, tools, documents, add_generation_prompt,
  // enable_thinking and whatever else the model knows; they are the request's. tools and documents are null and
  // add_generation_prompt is false where they are missing, as in transformers. `special_tokens` is an object of the
  // model's own: bos_token, eos_token and so on (ModelText::special_tokens). Its strings count
  // as control, and its members win over variables of the same name, so never let a request have a say in it. `now` is
  // what strftime_now shows, as the clock on the wall.
  // Errors: invalid_argument when the template refuses the request by raise_exception, with its words, and when the
  // request does not have what the template uses; unsupported; limit. With the line and column.
  Result<std::string> render(const nlohmann::ordered_json& variables, const nlohmann::ordered_json& special_tokens,
                             std::chrono::local_seconds now) const;
  // The same, and where its text comes from: neighbours differ in `control`.
  Result<std::vector<Segment>> render_segments(const nlohmann::ordered_json& variables,
                                               const nlohmann::ordered_json& special_tokens,
                                               std::chrono::local_seconds now) const;
  // Its text, with line breaks as \n.
  [[nodiscard]] std::string_view source() const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Syntax> syntax) : syntax_(std::move(syntax)) {}
  std::shared_ptr<const jinja::Syntax> syntax_;
};

}  // namespace myriad
