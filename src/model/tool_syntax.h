// How the models of the families that bring a chat template write their calls of tools, and how a call is read back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace myriad {

enum class CallSyntax {
  none,
  hermes,  // Qwen, Hermes: <tool_call>{"name": …, "arguments": {…}}</tool_call>
  llama,  // Llama 3: {"name": …, "parameters": {…}} as the whole reply or behind <|python_tag|>; name.call(key="value")
  mistral,   // [TOOL_CALLS][{"name": …, "arguments": {…}}, …]; later models [TOOL_CALLS]name[ARGS]{…}
  deepseek,  // <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>name<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…<｜tool▁calls▁end｜>;
             // before V3.1 the word `function` in the place of the name, and the name and ```json {…} ``` behind
  kimi_k2,  // <|tool_calls_section_begin|><|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{…}<|tool_call_end|>
};

// A place in a reply that means something.
enum class ReplyMark { think, end_think, section, end_section, call, end_call };
struct MarkName {
  ReplyMark mark;
  std::string_view name;
};
// The marks of a syntax, and with `thinks` those of the reasoning.
std::vector<MarkName> marks_of(CallSyntax syntax, bool thinks);

struct WrittenCall {
  std::string name;
  std::string arguments;  // a JSON object
  std::string id;         // empty if the model gave none
};
// What stands between the marks of a call, or behind its only one. Empty if it is not well-formed: every call has a
// name and an object of arguments.
std::vector<WrittenCall> read_calls(CallSyntax syntax, std::string_view body);

// "functions.get_weather:0" → "get_weather".
std::string_view name_in_call_id(std::string_view id);

}  // namespace myriad
