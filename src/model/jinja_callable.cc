#include "model/jinja_callable.h"

#include <algorithm>

namespace myriad::jinja {

Result<Bound> Bound::of(std::string_view whose, const Arguments& arguments,
                        std::initializer_list<std::string_view> parameters, std::size_t required) {
  Bound bound;
  bound.whose_ = whose;
  bound.parameters_ = parameters;
  bound.values_.assign(parameters.size(), nullptr);
  if (arguments.positional.size() > parameters.size()) {
    return fail(Code::invalid_argument, "{} takes at most {} arguments, {} are given", whose, parameters.size(),
                arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) bound.values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(parameters.begin(), parameters.end(), *name);
    if (at == parameters.end()) return fail(Code::invalid_argument, "{} has no parameter '{}'", whose, *name);
    const Value*& slot = bound.values_[static_cast<std::size_t>(at - parameters.begin())];
    if (slot != nullptr) return fail(Code::invalid_argument, "{}: the argument '{}' is given twice", whose, *name);
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (bound.values_[i] == nullptr) {
      return fail(Code::invalid_argument, "{}: the argument '{}' is missing", whose, bound.parameters_[i]);
    }
  }
  return bound;
}

Status Bound::none(std::string_view whose, const Arguments& arguments) {
  const auto bound = of(whose, arguments, {});
  if (!bound) return std::unexpected(bound.error());
  return {};
}

Result<std::int64_t> Bound::integer(std::size_t parameter, std::int64_t otherwise) const {
  if (values_[parameter] == nullptr) return otherwise;
  std::int64_t value = 0;
  if (as_integer(*values_[parameter], value)) return value;
  return fail(Code::invalid_argument, "{}: '{}' is of type {}, an integer is expected", whose_, parameters_[parameter],
              type_name(*values_[parameter]));
}

Result<TextPtr> Bound::text(std::size_t parameter, const TextPtr& otherwise) const {
  if (!given(parameter)) return otherwise;
  if (const auto* text = std::get_if<TextPtr>(values_[parameter])) return *text;
  return fail(Code::invalid_argument, "{}: '{}' is of type {}, a string is expected", whose_, parameters_[parameter],
              type_name(*values_[parameter]));
}

}  // namespace myriad::jinja
