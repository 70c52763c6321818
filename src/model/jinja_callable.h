// What can be called, and with what.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja_value.h"

namespace myriad::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<const std::string*, Value>> named;  // names of the syntax tree
};

// Arguments by the names of their parameters, as Python binds them.
class Bound {
 public:
  // `whose` names the function in messages. Errors: invalid_argument for one that is unknown, given twice, too much, or
  // missing among the first `required`.
  static Result<Bound> of(std::string_view whose, const Arguments& arguments,
                          std::initializer_list<std::string_view> parameters, std::size_t required = 0);
  // For a function without parameters.
  static Status none(std::string_view whose, const Arguments& arguments);
  // Null if it was not given.
  [[nodiscard]] const Value* operator[](std::size_t parameter) const { return values_[parameter]; }
  // What was given as this parameter. Errors: invalid_argument unless it is of the type.
  Result<std::int64_t> integer(std::size_t parameter, std::int64_t otherwise) const;
  Result<TextPtr> text(std::size_t parameter, const TextPtr& otherwise) const;
  [[nodiscard]] bool boolean(std::size_t parameter, bool otherwise) const {
    return values_[parameter] == nullptr ? otherwise : truthy(*values_[parameter]);
  }
  [[nodiscard]] bool given(std::size_t parameter) const {
    return values_[parameter] != nullptr && !is<None>(*values_[parameter]);
  }

 private:
  std::string_view whose_;
  std::vector<std::string_view> parameters_;
  std::vector<const Value*> values_;  // into the Arguments
};

using Test = Result<bool> (*)(Heap& heap, const Value& value, const Arguments& arguments);

// By name; null if there is none.
Function find_filter(std::string_view name);
Test find_test(std::string_view name);
Function find_global(std::string_view name);
// The method of a string, list, dict or loop. Python has more of them: `exists` says whether there is one at all.
Function find_method(const Value& object, std::string_view name, bool& exists);

}  // namespace myriad::jinja
