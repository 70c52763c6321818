// The syntax tree of a template, and the parser that makes it. Trees are immutable and shared by all evaluations.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "model/jinja_callable.h"
#include "model/jinja_value.h"

namespace myriad::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

// A name that occurs in the template; names are equal exactly if their pointers are.
using NamePtr = const std::string*;

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<NamePtr, ExpressionPtr>> named;
  ExpressionPtr list, dict;  // after `*` and `**`; may be null
};

// ---- expressions ----
struct Literal {
  Value value;
};
struct Variable {
  NamePtr name;
  Function global;  // the function of the language with this name, unless a variable has it; null if there is none
};
struct ListLiteral {
  bool tuple;
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> members;
};
enum class Operator : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  concatenate,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};
// first op second op third …, from left to right; of comparisons all neighbours must hold.
struct Chain {
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};
struct Logic {
  bool any;  // or; else and
  std::vector<ExpressionPtr> operands;
};
struct Not {
  ExpressionPtr operand;
};
struct Sign {
  bool negative;
  ExpressionPtr operand;
};
struct Conditional {
  ExpressionPtr test, value, otherwise;  // otherwise may be null
};
struct Attribute {
  ExpressionPtr object;
  NamePtr name;
};
struct Subscript {
  ExpressionPtr object, index;
};
struct Slice {
  ExpressionPtr object, start, stop, step;  // the last three may be null
};
struct Call {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct Filter {
  ExpressionPtr operand;  // null in the filters of a block
  std::string name;
  Function function;  // null if there is none of this name
  ArgumentList arguments;
};
struct TestCall {
  ExpressionPtr operand;
  std::string name;
  Test function;
  bool negated;
  ArgumentList arguments;
};

struct Expression {
  std::uint32_t at;  // byte of the source
  std::uint32_t depth;
  std::variant<Literal, Variable, ListLiteral, DictLiteral, Chain, Comparison, Logic, Not, Sign, Conditional, Attribute,
               Subscript, Slice, Call, Filter, TestCall>
      node;
};

// ---- statements ----
struct Statement;
using Body = std::vector<Statement>;

// What `set` and `for` assign to: a name, a namespace's member, or several targets.
struct Target {
  NamePtr name = nullptr;
  NamePtr member = nullptr;
  std::vector<Target> parts;  // instead of a name
};
struct Output {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr items, filter;  // filter may be null
  Body body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  std::vector<Filter> filters;
  Body body;
};
struct FilterBlock {
  std::vector<Filter> filters;
  Body body;
};
struct ScopedBlock {  // `generation`
  Body body;
};
struct MacroNode {
  NamePtr name;
  std::vector<std::pair<NamePtr, ExpressionPtr>> parameters;  // with their defaults, which may be null
  Body body;
  // Whether the body names `varargs` and `kwargs`: arguments without a parameter are taken then.
  bool takes_list = false, takes_dict = false;
};
struct CallBlock {
  std::unique_ptr<MacroNode> caller;
  ExpressionPtr call;
};
enum class Jump : std::uint8_t { break_loop, continue_loop };

struct Statement {
  std::uint32_t at;
  std::variant<TextPtr, Output, If, For, Set, SetBlock, FilterBlock, ScopedBlock, std::unique_ptr<MacroNode>, CallBlock,
               Jump>
      node;
};

struct Syntax {
  std::string source;  // normalized_source
  std::deque<std::string> names;
  std::map<std::string_view, NamePtr> by_name;
  NamePtr caller = nullptr, loop = nullptr, varargs = nullptr, kwargs = nullptr;
  Body body;
};

// Errors: limit; corrupt for text that is no template; unsupported for tags that are not part of the subset. With the
// line and column.
Result<std::unique_ptr<const Syntax>> parse_syntax(std::string_view text);

}  // namespace myriad::jinja
