// What has to be known of a chat template beside what it renders: how its model calls tools and thinks, and in which of
// the two customary forms it expects the calls of earlier turns.
#pragma once

#include "model/chat_template.h"
#include "model/tool_syntax.h"

namespace myriad {

struct TemplateTraits {
  CallSyntax calls = CallSyntax::none;
  bool thinks = false;
  // Arguments of a call as the text that OpenAI's API has; else as an object, which is what transformers documents.
  bool arguments_as_text = false;
  // A message that only calls has the content None; else the empty string.
  bool null_content = false;
};

// By the markers that stand in the template, and by rendering a small conversation with a call: the first form of it
// that is shown with its arguments as JSON. Renders up to four times.
TemplateTraits traits_of(const ChatTemplate& made);

}  // namespace myriad
