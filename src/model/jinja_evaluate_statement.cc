#include <algorithm>
#include <utility>

#include "model/jinja_evaluator.h"
#include "model/jinja_print.h"

namespace myriad::jinja {

Evaluator::Evaluator(const Syntax& syntax, Heap& heap) : syntax_(syntax), heap_(heap) {
  scope_ = push(nullptr);
}

Status Evaluator::run(TextBuilder& out) {
  out_ = &out;
  stack_top_ = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const Result<Flow> flow = run(syntax_.body);
  if (!flow) return std::unexpected(flow.error());
  return {};
}

// ---- variables ----

Scope* Evaluator::push(Scope* parent) {
  Scope* scope = nullptr;
  if (free_.empty()) {
    scope = heap_.make(scopes_);
  } else {
    scope = free_.back();
    free_.pop_back();
  }
  scope->parent = parent;
  return scope;
}

void Evaluator::pop(Scope* scope) {
  if (scope->kept) {
    heap_.budget().take(scope->names.capacity() * sizeof scope->names[0]);
    return;
  }
  scope->names.clear();
  free_.push_back(scope);
}

void Evaluator::keep(Scope* scope) {
  for (; scope != nullptr && !scope->kept; scope = scope->parent) scope->kept = true;
}

void Evaluator::set(Scope& scope, NamePtr name, Value value) {
  for (auto& [known, old] : scope.names) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  scope.names.emplace_back(name, std::move(value));
}

void Evaluator::set(NamePtr name, Value value) {
  set(*scope_, name, std::move(value));
}

const Value* Evaluator::find(NamePtr name) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    heap_.budget().work(scope->names.size() * 4);
    for (const auto& [known, value] : scope->names) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Status Evaluator::assign(const Target& target, Value value) {
  if (!target.parts.empty()) return assign_parts(target, value);
  if (target.member != nullptr) return assign_member(target, std::move(value));
  heap_.budget().work(scope_->names.size() * 4);
  set(*scope_, target.name, std::move(value));
  return {};
}

Status Evaluator::assign_member(const Target& target, Value value) {
  const Value* found = find(target.name);
  const auto* space = found == nullptr ? nullptr : std::get_if<Namespace*>(found);
  if (space == nullptr) {
    return fail(Code::invalid_argument, "an assignment to '{}.{}', but '{}' is no namespace", *target.name,
                *target.member, *target.name);
  }
  MYRIAD_TRY(Value key, heap_.text(*target.member, true));
  return heap_.set((*space)->members, std::move(key), std::move(value));
}

Status Evaluator::assign_parts(const Target& target, const Value& value) {
  MYRIAD_TRY(const List* const items, elements(value, heap_));
  if (items->items.size() != target.parts.size()) {
    return fail(Code::invalid_argument, "an assignment of {} values to {} targets", items->items.size(),
                target.parts.size());
  }
  for (std::size_t i = 0; i < target.parts.size(); ++i) {
    MYRIAD_TRY_STATUS(assign(target.parts[i], items->items[i]));
  }
  return {};
}

// ---- statements ----

Result<Evaluator::Flow> Evaluator::run(const Body& body) {
  for (const Statement& statement : body) {
    if (const auto* text = std::get_if<TextPtr>(&statement.node)) {
      out_->append(**text);
      continue;
    }
    MYRIAD_TRY(const Flow flow, run(statement));
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Status Evaluator::enter(std::uint32_t at) {
  Status status;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const std::size_t used = stack_top_ > here ? stack_top_ - here : here - stack_top_;
  if (depth_ >= kMaxEvaluationDepth || used > kMaxStackBytes) {
    status = fail(Code::limit, "the evaluation is nested deeper than {} levels", depth_);
  } else if (!heap_.budget().step() || heap_.budget().exceeded()) {
    status = heap_.budget().status();
  }
  if (!status) {
    if (!place_) place_ = at;
    return status;
  }
  ++depth_;
  return {};
}

Result<Evaluator::Flow> Evaluator::run(const Statement& statement) {
  MYRIAD_TRY_STATUS(enter(statement.at));
  Result<Flow> flow = [&]() -> Result<Flow> {
    const auto& node = statement.node;
    switch (node.index()) {
      case 1:
        return output(std::get<Output>(node));
      case 2:
        return branch(std::get<If>(node));
      case 3:
        return loop(std::get<For>(node));
      case 4:
        return set_variable(std::get<Set>(node));
      case 5:
        return set_block(std::get<SetBlock>(node));
      case 6:
        return filter_block(std::get<FilterBlock>(node));
      case 7: {
        const Inner inner(*this);
        return run(std::get<ScopedBlock>(node).body);
      }
      case 8:
        return define(*std::get<std::unique_ptr<MacroNode>>(node));
      case 9:
        return call_block(std::get<CallBlock>(node));
      default:
        static_assert(std::variant_size_v<decltype(Statement::node)> == 11);
        return std::get<Jump>(node) == Jump::break_loop ? Flow::break_loop : Flow::continue_loop;
    }
  }();
  --depth_;
  if (!flow && !place_) place_ = statement.at;
  return flow;
}

Result<Evaluator::Flow> Evaluator::output(const Output& node) {
  MYRIAD_TRY(const Value value, evaluate(*node.value));
  MYRIAD_TRY_STATUS(append_str(*out_, value, heap_.budget()));
  return Flow::normal;
}

Result<Evaluator::Flow> Evaluator::branch(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    MYRIAD_TRY(const Value value, evaluate(*condition));
    if (truthy(value)) return run(body);
  }
  return run(node.otherwise);
}

Result<List*> Evaluator::loop_items(const For& node) {
  MYRIAD_TRY(const Value value, evaluate(*node.items));
  MYRIAD_TRY(List* const all, elements(value, heap_));
  if (node.filter == nullptr) return all;
  List* kept = heap_.list();
  for (std::size_t i = 0; i < all->items.size(); ++i) {
    const Inner inner(*this);
    const Value item = all->items[i];
    MYRIAD_TRY_STATUS(assign(node.target, item));
    MYRIAD_TRY(const Value passes, evaluate(*node.filter));
    if (truthy(passes)) heap_.append(kept, item);
  }
  MYRIAD_TRY_STATUS(heap_.budget().status());
  return kept;
}

Result<Evaluator::Flow> Evaluator::round(const For& node, Loop* loop) {
  const Inner inner(*this);
  set(*scope_, syntax_.loop, loop);
  MYRIAD_TRY_STATUS(assign(node.target, Value((*loop->items)[loop->position])));
  return run(node.body);
}

Result<Evaluator::Flow> Evaluator::loop(const For& node) {
  MYRIAD_TRY(const List* const list, loop_items(node));
  Loop* state = heap_.make(heap_.loops(), Loop{&list->items, 0});
  Result<Flow> flow = Flow::normal;
  bool completed = false;  // a round, to its end
  // The list can grow while it is walked through.
  for (; state->position < list->items.size() && heap_.budget().step(); ++state->position) {
    flow = round(node, state);
    if (!flow || *flow == Flow::break_loop) break;
    if (*flow == Flow::normal) completed = true;
  }
  if (!flow) return flow;
  MYRIAD_TRY_STATUS(heap_.budget().status());
  if (completed || node.otherwise.empty()) return Flow::normal;
  // `else` is for loops without a round, and in Jinja also for those whose every round was cut short.
  const Inner inner(*this);
  return run(node.otherwise);
}

Result<Evaluator::Flow> Evaluator::set_variable(const Set& node) {
  MYRIAD_TRY(Value value, evaluate(*node.value));
  MYRIAD_TRY_STATUS(assign(node.target, std::move(value)));
  return Flow::normal;
}

Result<Value> Evaluator::captured(const Body& body) {
  TextBuilder text(heap_.budget());
  TextBuilder* const before = std::exchange(out_, &text);
  const Result<Flow> flow = run(body);
  out_ = before;
  if (!flow) return std::unexpected(flow.error());
  return std::move(text).finish();
}

Result<Value> Evaluator::filtered(const Body& body, const std::vector<Filter>& filters) {
  Value value;
  {
    const Inner inner(*this);
    MYRIAD_TRY(value, captured(body));
  }
  for (const Filter& one : filters) {
    MYRIAD_TRY(value, filter(one, value));
  }
  return value;
}

Result<Evaluator::Flow> Evaluator::set_block(const SetBlock& node) {
  MYRIAD_TRY(Value value, filtered(node.body, node.filters));
  MYRIAD_TRY_STATUS(assign(node.target, std::move(value)));
  return Flow::normal;
}

Result<Evaluator::Flow> Evaluator::filter_block(const FilterBlock& node) {
  MYRIAD_TRY(const Value value, filtered(node.body, node.filters));
  MYRIAD_TRY_STATUS(append_str(*out_, value, heap_.budget()));
  return Flow::normal;
}

Result<Evaluator::Flow> Evaluator::define(const MacroNode& node) {
  keep(scope_);
  set(*scope_, node.name, heap_.make(heap_.callables(), Callable{nullptr, Undefined{}, &node, scope_}));
  return Flow::normal;
}

Result<Evaluator::Flow> Evaluator::call_block(const CallBlock& node) {
  keep(scope_);
  Callable* caller = heap_.make(heap_.callables(), Callable{nullptr, Undefined{}, node.caller.get(), scope_});
  MYRIAD_TRY(const Value value, call(std::get<Call>(node.call->node), caller));
  MYRIAD_TRY_STATUS(append_str(*out_, value, heap_.budget()));
  return Flow::normal;
}

}  // namespace myriad::jinja
