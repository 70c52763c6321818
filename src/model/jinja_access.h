// What lies inside a value: attributes, items, slices.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "model/jinja_value.h"

namespace myriad::jinja {

// `object.name`: a method, else a member; undefined if there is neither. `shown` names the result if it is undefined;
// it must outlive the evaluation. Errors: invalid_argument for an attribute of what is itself undefined; unsupported
// for a method of Python that is not part of the subset.
Result<Value> attribute_of(const Value& object, std::string_view name, const std::string* shown, Heap& heap);
// `object[key]`: an item or a member, else an attribute. The same errors.
Result<Value> item_of(const Value& object, const Value& key, const std::string* shown, Heap& heap);
// `object[start:stop:step]`; None stands for a bound that is not given.
Result<Value> slice_of(const Value& object, const Value& start, const Value& stop, const Value& step, Heap& heap);

}  // namespace myriad::jinja
