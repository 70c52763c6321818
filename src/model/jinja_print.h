// Values as text: Python's str and repr, and JSON as transformers' filter `tojson` writes it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/error.h"
#include "model/jinja_value.h"

namespace myriad::jinja {

// What `{{ value }}` and str() give. Strings keep their marks; numbers, True, False and None count as control, since
// their text is one of a few words; brackets and quotes around the elements of lists and dicts are plain. Errors:
// limit; unsupported for values whose text in Python is an address.
Status append_str(TextBuilder& out, const Value& value, Budget& budget);
Result<TextPtr> str(const Value& value, Budget& budget);

struct JsonOptions {
  bool ascii = false;  // other characters as \u escapes
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level's; null: all in one line
  std::string comma = ", ", colon = ": ";
};
// All punctuation is plain, strings keep their marks. Errors: limit; invalid_argument for what JSON cannot hold.
Status append_json(TextBuilder& out, const Value& value, const JsonOptions& options, Budget& budget);

}  // namespace myriad::jinja
