// The template language's tokens. White space around tags goes the way transformers configures it (trim_blocks and
// lstrip_blocks): the line break after a `{% %}` or `{# #}` is dropped, and so is what indents one that begins its
// line;
// `-` at a tag's edge drops all space on that side, `+` keeps it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace myriad::jinja {

struct Token {
  enum class Kind : std::uint8_t {
    data,            // text between tags
    variable_begin,  // {{
    variable_end,    // }}
    block_begin,     // {%
    block_end,       // %}
    name,
    string,  // with its quotes
    integer,
    real,
    sign,  // an operator or a bracket
    end,   // of the template
  };
  Kind kind = Kind::end;
  std::uint32_t from = 0, to = 0;  // bytes of the source
};

// A template's text as the lexer takes it: line breaks are \n, and one at the very end is dropped.
std::string normalized_source(std::string_view text);

// "line 3, column 7", both from 1, the column in characters.
std::string place_in(std::string_view source, std::size_t offset);

// Ends with a token of Kind::end. Comments and raw blocks are resolved. Errors: corrupt, with the place and what was
// found there.
Result<std::vector<Token>> tokenize(std::string_view source);

// The characters that a string token stands for. Errors: corrupt for a broken escape.
Result<std::string> unescaped(std::string_view quoted);

}  // namespace myriad::jinja
