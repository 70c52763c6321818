#include <string>

#include "model/jinja_access.h"
#include "model/jinja_evaluator.h"
#include "model/jinja_operators.h"
#include "model/jinja_print.h"

namespace myriad::jinja {
namespace {

// What a subscript's result is called if it is undefined: its key, if that stands in the template.
const std::string* shown_key(const Expression& index) {
  const auto* literal = std::get_if<Literal>(&index.node);
  const Text* text = literal == nullptr ? nullptr : text_of(literal->value);
  return text == nullptr ? nullptr : &text->bytes();
}

}  // namespace

Result<Value> Evaluator::evaluate(const Expression& expression) {
  MYRIAD_TRY_STATUS(enter(expression.at));
  Result<Value> result = dispatch(expression);
  --depth_;
  if (!result && !place_) place_ = expression.at;
  return result;
}

Result<Value> Evaluator::dispatch(const Expression& expression) {
  const auto& node = expression.node;
  switch (node.index()) {
    case 0:
      return std::get<Literal>(node).value;
    case 1:
      return variable(std::get<Variable>(node));
    case 2:
      return list(std::get<ListLiteral>(node));
    case 3:
      return dict(std::get<DictLiteral>(node));
    case 4:
      return chain(std::get<Chain>(node));
    case 5:
      return comparison(std::get<Comparison>(node));
    case 6:
      return logic(std::get<Logic>(node));
    case 7:
      return negation(std::get<Not>(node));
    case 8:
      return sign(std::get<Sign>(node));
    case 9:
      return conditional(std::get<Conditional>(node));
    case 10:
      return attribute(std::get<Attribute>(node));
    case 11:
      return subscript(std::get<Subscript>(node));
    case 12:
      return slice(std::get<Slice>(node));
    case 13:
      return call(std::get<Call>(node), nullptr);
    case 14:
      return filter(std::get<Filter>(node));
    default:
      static_assert(std::variant_size_v<decltype(Expression::node)> == 16);
      return test(std::get<TestCall>(node));
  }
}

Result<Value> Evaluator::optional(const ExpressionPtr& expression) {
  if (expression == nullptr) return None{};
  return evaluate(*expression);
}

Result<Value> Evaluator::variable(const Variable& node) {
  if (const Value* found = find(node.name)) return *found;
  if (node.global == nullptr) return Undefined{node.name};
  return heap_.make(heap_.callables(), Callable{node.global, Undefined{}, nullptr, nullptr});
}

Result<Value> Evaluator::list(const ListLiteral& node) {
  List* made = heap_.list(node.tuple ? List::Kind::tuple : List::Kind::list);
  for (const auto& item : node.items) {
    MYRIAD_TRY(Value value, evaluate(*item));
    heap_.append(made, std::move(value));
  }
  MYRIAD_TRY_STATUS(heap_.budget().status());
  return made;
}

Result<Value> Evaluator::dict(const DictLiteral& node) {
  Dict* made = heap_.dict();
  for (const auto& [key, item] : node.members) {
    MYRIAD_TRY(Value name, evaluate(*key));
    MYRIAD_TRY(Value value, evaluate(*item));
    MYRIAD_TRY_STATUS(heap_.set(made, std::move(name), std::move(value)));
  }
  MYRIAD_TRY_STATUS(heap_.budget().status());
  return made;
}

Result<Value> Evaluator::chain(const Chain& node) {
  MYRIAD_TRY(Value value, evaluate(*node.first));
  for (const auto& [op, operand] : node.rest) {
    MYRIAD_TRY(const Value right, evaluate(*operand));
    MYRIAD_TRY(value, calculate(op, value, right, heap_));
  }
  return value;
}

Result<Value> Evaluator::comparison(const Comparison& node) {
  MYRIAD_TRY(Value left, evaluate(*node.first));
  for (const auto& [op, operand] : node.rest) {
    MYRIAD_TRY(Value right, evaluate(*operand));
    MYRIAD_TRY(const bool true_here, holds(op, left, right, heap_));
    if (!true_here) return false;
    left = std::move(right);
  }
  return true;
}

Result<Value> Evaluator::logic(const Logic& node) {
  Value value;
  for (const auto& operand : node.operands) {
    MYRIAD_TRY(value, evaluate(*operand));
    if (truthy(value) == node.any) break;
  }
  return value;
}

Result<Value> Evaluator::negation(const Not& node) {
  MYRIAD_TRY(const Value value, evaluate(*node.operand));
  return !truthy(value);
}

Result<Value> Evaluator::sign(const Sign& node) {
  MYRIAD_TRY(const Value value, evaluate(*node.operand));
  return signed_value(node.negative, value);
}

Result<Value> Evaluator::conditional(const Conditional& node) {
  MYRIAD_TRY(const Value condition, evaluate(*node.test));
  if (truthy(condition)) return evaluate(*node.value);
  if (node.otherwise == nullptr) return Undefined{};
  return evaluate(*node.otherwise);
}

Result<Value> Evaluator::attribute(const Attribute& node) {
  MYRIAD_TRY(const Value object, evaluate(*node.object));
  return attribute_of(object, *node.name, node.name, heap_);
}

Result<Value> Evaluator::subscript(const Subscript& node) {
  MYRIAD_TRY(const Value object, evaluate(*node.object));
  MYRIAD_TRY(const Value key, evaluate(*node.index));
  return item_of(object, key, shown_key(*node.index), heap_);
}

Result<Value> Evaluator::slice(const Slice& node) {
  MYRIAD_TRY(const Value object, evaluate(*node.object));
  MYRIAD_TRY(const Value start, optional(node.start));
  MYRIAD_TRY(const Value stop, optional(node.stop));
  MYRIAD_TRY(const Value step, optional(node.step));
  return slice_of(object, start, stop, step, heap_);
}

Result<Arguments> Evaluator::arguments(const ArgumentList& list) {
  Arguments given;
  given.positional.reserve(list.positional.size());
  for (const auto& argument : list.positional) {
    MYRIAD_TRY(Value value, evaluate(*argument));
    given.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : list.named) {
    MYRIAD_TRY(Value value, evaluate(*argument));
    given.named.emplace_back(name, std::move(value));
  }
  if (list.list != nullptr) {
    MYRIAD_TRY(const Value value, evaluate(*list.list));
    MYRIAD_TRY(const List* const more, elements(value, heap_));
    heap_.budget().work(more->items.size() * sizeof(Value));
    given.positional.insert(given.positional.end(), more->items.begin(), more->items.end());
  }
  if (list.dict != nullptr) {
    MYRIAD_TRY(const Value value, evaluate(*list.dict));
    MYRIAD_TRY_STATUS(spread(value, given));
  }
  return given;
}

Status Evaluator::spread(const Value& value, Arguments& given) {
  const auto* dict = std::get_if<Dict*>(&value);
  if (dict == nullptr) return fail(Code::invalid_argument, "'**' before a value of type {}", type_name(value));
  for (const auto& [key, item] : (*dict)->members()) {
    const Text* text = text_of(key);
    if (text == nullptr) return fail(Code::invalid_argument, "'**' before a dict with a key of type {}", type_name(key));
    const auto known = syntax_.by_name.find(text->bytes());
    NamePtr name = nullptr;
    if (known != syntax_.by_name.end()) {
      name = known->second;
    } else {
      heap_.budget().take(text->bytes().size());
      name = heap_.make(names_, text->bytes());
    }
    given.named.emplace_back(name, item);
    MYRIAD_TRY_STATUS(heap_.budget().status());
  }
  return {};
}

Result<Value> Evaluator::call(const Call& node, Callable* caller) {
  // A method or function that is called where it is named needs no value of its own.
  Function function = nullptr;
  Value self;
  if (const auto* named = std::get_if<Variable>(&node.callee->node); named != nullptr && find(named->name) == nullptr) {
    function = named->global;
  } else if (const auto* member = std::get_if<Attribute>(&node.callee->node)) {
    MYRIAD_TRY(self, evaluate(*member->object));
    bool exists = false;
    function = find_method(self, *member->name, exists);
  }
  if (function == nullptr) {
    Value callee;
    if (const auto* member = std::get_if<Attribute>(&node.callee->node)) {
      MYRIAD_TRY(callee, attribute_of(self, *member->name, member->name, heap_));
    } else {
      MYRIAD_TRY(callee, evaluate(*node.callee));
    }
    if (is<Undefined>(callee)) return undefined_error(callee);
    const auto* callable = std::get_if<Callable*>(&callee);
    if (callable == nullptr) return fail(Code::invalid_argument, "a value of type {} is called", type_name(callee));
    MYRIAD_TRY(const Arguments given, arguments(node.arguments));
    if ((*callable)->macro != nullptr) return call_macro(**callable, given, caller);
    if (caller != nullptr) return fail(Code::unsupported, "a call block around what is no macro");
    return (*callable)->function(heap_, (*callable)->self, given);
  }
  if (caller != nullptr) return fail(Code::unsupported, "a call block around what is no macro");
  MYRIAD_TRY(const Arguments given, arguments(node.arguments));
  return function(heap_, self, given);
}

Result<Value> Evaluator::filter(const Filter& node, const Value& operand) {
  if (node.function == nullptr) return fail(Code::unsupported, "the filter '{}'", node.name);
  MYRIAD_TRY(const Arguments given, arguments(node.arguments));
  return node.function(heap_, operand, given);
}

Result<Value> Evaluator::filter(const Filter& node) {
  MYRIAD_TRY(const Value operand, evaluate(*node.operand));
  return filter(node, operand);
}

Result<Value> Evaluator::test(const TestCall& node) {
  if (node.function == nullptr) return fail(Code::unsupported, "the test '{}'", node.name);
  MYRIAD_TRY(const Value operand, evaluate(*node.operand));
  MYRIAD_TRY(const Arguments given, arguments(node.arguments));
  MYRIAD_TRY(const bool passes, node.function(heap_, operand, given));
  return passes != node.negated;
}

Status Evaluator::bind(const MacroNode& macro, const Arguments& given, Callable* caller) {
  const auto& parameters = macro.parameters;
  if (given.positional.size() > parameters.size() && !macro.takes_list) {
    return fail(Code::invalid_argument, "the macro '{}' takes at most {} arguments, {} are given", *macro.name,
                parameters.size(), given.positional.size());
  }
  set(*scope_, syntax_.caller, caller == nullptr ? Value(Undefined{syntax_.caller}) : Value(caller));
  std::vector<const Value*> values(parameters.size());
  for (std::size_t i = 0; i < std::min(given.positional.size(), parameters.size()); ++i) values[i] = &given.positional[i];
  if (macro.takes_list) {
    List* rest = heap_.list(List::Kind::tuple);
    for (std::size_t i = parameters.size(); i < given.positional.size(); ++i) heap_.append(rest, given.positional[i]);
    set(*scope_, syntax_.varargs, rest);
  }
  Dict* rest = macro.takes_dict ? heap_.dict() : nullptr;
  if (rest != nullptr) set(*scope_, syntax_.kwargs, rest);
  for (const auto& [name, value] : given.named) {
    std::size_t at = 0;
    while (at < parameters.size() && parameters[at].first != name) ++at;
    if (at == parameters.size() && rest != nullptr) {
      MYRIAD_TRY(Value key, heap_.text(*name, true));
      MYRIAD_TRY_STATUS(heap_.set(rest, std::move(key), value));
      continue;
    }
    if (at == parameters.size()) {
      return fail(Code::invalid_argument, "the macro '{}' has no parameter '{}'", *macro.name, *name);
    }
    if (values[at] != nullptr) {
      return fail(Code::invalid_argument, "the macro '{}': the argument '{}' is given twice", *macro.name, *name);
    }
    values[at] = &value;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, otherwise] = parameters[i];
    if (values[i] != nullptr) {
      set(*scope_, name, *values[i]);
    } else if (otherwise != nullptr) {
      MYRIAD_TRY(Value value, evaluate(*otherwise));
      set(*scope_, name, std::move(value));
    } else {
      set(*scope_, name, Undefined{name});
    }
  }
  return {};
}

Result<Value> Evaluator::call_macro(const Callable& macro, const Arguments& given, Callable* caller) {
  const Inner inner(*this, macro.scope);
  MYRIAD_TRY_STATUS(bind(*macro.macro, given, caller));
  return captured(macro.macro->body);
}

}  // namespace myriad::jinja
