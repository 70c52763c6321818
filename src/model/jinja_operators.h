// Arithmetic and comparison, as Python does them.
#pragma once

#include "base/error.h"
#include "model/jinja_syntax.h"
#include "model/jinja_value.h"

namespace myriad::jinja {

// `a op b` for add … concatenate. Integers are of 64 bits. Errors: invalid_argument for types that do not go together
// and for a division by zero; limit for a result that does not fit.
Result<Value> calculate(Operator op, const Value& a, const Value& b, Heap& heap);
// `a op b` for equal … not_in. Errors: invalid_argument.
Result<bool> holds(Operator op, const Value& a, const Value& b, Heap& heap);
// −a or +a.
Result<Value> signed_value(bool negative, const Value& a);

}  // namespace myriad::jinja
