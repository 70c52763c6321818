// Walks a syntax tree with the values of one request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/jinja_syntax.h"
#include "model/jinja_value.h"

namespace myriad::jinja {

// The variables of a block: those of the template, of one round of a loop, of a macro that is called.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<NamePtr, Value>> names;
  bool kept = false;  // a macro was defined in it or inside of it, so it stays until the end
};

class Evaluator {
 public:
  Evaluator(const Syntax& syntax, Heap& heap);

  // A variable of the template's outermost block.
  void set(NamePtr name, Value value);
  // Writes what the template gives. Errors: see model/chat_template.h.
  Status run(TextBuilder& out);
  // The byte of the source where the last error arose.
  [[nodiscard]] std::uint32_t place() const { return place_.value_or(0); }

 private:
  enum class Flow : std::uint8_t { normal, break_loop, continue_loop };

  // ---- variables ----
  class Inner;  // a scope inside of the present one, until the end of the block
  Scope* push(Scope* parent);
  void pop(Scope* scope);
  void keep(Scope* scope);
  static void set(Scope& scope, NamePtr name, Value value);
  const Value* find(NamePtr name);
  Status assign(const Target& target, Value value);
  Status assign_member(const Target& target, Value value);
  Status assign_parts(const Target& target, const Value& value);

  // ---- expressions (jinja_evaluate_expression.cc) ----
  Result<Value> evaluate(const Expression& expression);
  Result<Value> dispatch(const Expression& expression);
  Result<Value> variable(const Variable& node);
  Result<Value> list(const ListLiteral& node);
  Result<Value> dict(const DictLiteral& node);
  Result<Value> chain(const Chain& node);
  Result<Value> comparison(const Comparison& node);
  Result<Value> logic(const Logic& node);
  Result<Value> negation(const Not& node);
  Result<Value> sign(const Sign& node);
  Result<Value> conditional(const Conditional& node);
  Result<Value> attribute(const Attribute& node);
  Result<Value> subscript(const Subscript& node);
  Result<Value> slice(const Slice& node);
  Result<Value> call(const Call& node, Callable* caller);
  Result<Value> filter(const Filter& node, const Value& operand);
  Result<Value> filter(const Filter& node);
  Result<Value> test(const TestCall& node);
  Result<Arguments> arguments(const ArgumentList& list);
  Status spread(const Value& value, Arguments& given);
  Result<Value> optional(const ExpressionPtr& expression);  // None where there is none
  Result<Value> call_macro(const Callable& macro, const Arguments& arguments, Callable* caller);
  Status bind(const MacroNode& macro, const Arguments& arguments, Callable* caller);

  // ---- statements (jinja_evaluate_statement.cc) ----
  // Takes a step and goes a level deeper; the caller goes back up by --depth_. Errors: limit.
  Status enter(std::uint32_t at);
  Result<Flow> run(const Body& body);
  Result<Flow> run(const Statement& statement);
  Result<Flow> output(const Output& node);
  Result<Flow> branch(const If& node);
  Result<Flow> loop(const For& node);
  Result<Flow> round(const For& node, Loop* loop);
  Result<List*> loop_items(const For& node);
  Result<Flow> set_variable(const Set& node);
  Result<Flow> set_block(const SetBlock& node);
  Result<Flow> filter_block(const FilterBlock& node);
  Result<Flow> define(const MacroNode& node);
  Result<Flow> call_block(const CallBlock& node);
  // What a body writes, in a scope of its own.
  Result<Value> captured(const Body& body);
  Result<Value> filtered(const Body& body, const std::vector<Filter>& filters);

  const Syntax& syntax_;
  Heap& heap_;
  std::deque<Scope> scopes_;
  std::deque<std::string> names_;  // of arguments that the template does not name
  std::vector<Scope*> free_;
  Scope* scope_ = nullptr;
  TextBuilder* out_ = nullptr;
  std::size_t depth_ = 0;
  std::uintptr_t stack_top_ = 0;  // the address of a frame of run(out)
  std::optional<std::uint32_t> place_;
};

class Evaluator::Inner {
 public:
  explicit Inner(Evaluator& evaluator) : Inner(evaluator, evaluator.scope_) {}
  Inner(Evaluator& evaluator, Scope* parent) : evaluator_(evaluator), before_(evaluator.scope_) {
    evaluator_.scope_ = evaluator_.push(parent);
  }
  ~Inner() {
    evaluator_.pop(evaluator_.scope_);
    evaluator_.scope_ = before_;
  }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;

 private:
  Evaluator& evaluator_;
  Scope* before_;
};

}  // namespace myriad::jinja
