// Values of the template language: Python's, as far as chat templates see them.
//
// Containers are shared and can change, as in Python. They live in the evaluation's Heap until it ends, so that cycles
// need no care; strings are counted references.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "model/jinja_text.h"

namespace myriad::jinja {

struct List;
class Dict;
struct Namespace;
struct Callable;
struct Loop;

// The value of what does not exist. It prints as nothing; to use it otherwise is an error that names it.
struct Undefined {
  const std::string* name = nullptr;  // of the syntax tree; null where there is none
};
struct None {};
// An integer that no int64 holds; its digits.
struct BigInteger {
  TextPtr digits;
};

using Value = std::variant<Undefined, None, bool, std::int64_t, double, BigInteger, TextPtr, List*, Dict*, Namespace*,
                           Callable*, Loop*>;

struct List {
  enum class Kind {
    list,
    tuple,
    view,  // of a dict: has a length, but no positions
    once,  // what map, select and the like give: it can be walked through once, and has no length
  };
  Kind kind = Kind::list;
  std::vector<Value> items;
  [[nodiscard]] bool has_positions() const { return kind == Kind::list || kind == Kind::tuple; }
};

// Members in the order in which they came.
class Dict {
 public:
  using Member = std::pair<Value, Value>;
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  // The member's value, null if there is none. Keys are strings, numbers, booleans and None; others are never found.
  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] const Value* find(const Value& key, Budget& budget) const;

 private:
  friend class Heap;
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  static constexpr std::size_t kFew = 8;
  [[nodiscard]] std::size_t position(std::string_view key) const;
  [[nodiscard]] std::size_t position(const Value& key, Budget& budget) const;
  void index();

  std::vector<Member> members_;
  std::map<std::string_view, std::size_t> by_key_;  // string keys, once there are more than a few members
};

struct Namespace {
  Dict* members;
};

class Heap;
struct Arguments;
struct Scope;
struct MacroNode;
// A function that is part of the language. `self` is a filter's input, a method's object, undefined for a global one.
using Function = Result<Value> (*)(Heap& heap, const Value& self, const Arguments& arguments);

struct Callable {
  Function function = nullptr;
  Value self;
  const MacroNode* macro = nullptr;  // instead of a function
  Scope* scope = nullptr;            // where the macro was defined
};

// The variable `loop`.
struct Loop {
  const std::vector<Value>* items;
  std::size_t position;
  List* seen = nullptr;  // what loop.changed was last asked about
};

// Everything that one evaluation has made, and what it may still use.
class Heap {
 public:
  explicit Heap(std::chrono::local_seconds now) : now_(now) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  [[nodiscard]] Budget& budget() { return budget_; }
  [[nodiscard]] std::chrono::local_seconds now() const { return now_; }
  // The template itself has ended the evaluation, by raise_exception.
  void set_refused() { refused_ = true; }
  [[nodiscard]] bool refused() const { return refused_; }

  // These count what they take; whether it was too much, budget().status() says.
  List* list(List::Kind kind = List::Kind::list);
  Dict* dict();
  void append(List* list, Value value);
  void reserve(List* list, std::size_t items) { list->items.reserve(items < kMaxReserved ? items : kMaxReserved); }
  // Errors: invalid_argument for a key that Python could not hash.
  Status set(Dict* dict, Value key, Value value);
  // Whether there was such a member.
  bool erase(Dict* dict, const Value& key);
  template <class T, class... Args>
  T* make(std::deque<T>& pool, Args&&... args) {
    budget_.take(sizeof(T));
    return &pool.emplace_back(std::forward<Args>(args)...);
  }
  std::deque<Callable>& callables() { return callables_; }
  std::deque<Loop>& loops() { return loops_; }
  std::deque<Namespace>& namespaces() { return namespaces_; }

  Result<Value> text(std::string_view bytes, bool control);

  // A value of a request: all of its strings are plain, or all are control. Errors: limit.
  Result<Value> from_json(const nlohmann::ordered_json& json, bool control, std::size_t depth = 0);

 private:
  static constexpr std::size_t kMaxReserved = 1024;
  Budget budget_;  // the first: strings give their memory back to it
  std::chrono::local_seconds now_;
  bool refused_ = false;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> namespaces_;
  std::deque<Callable> callables_;
  std::deque<Loop> loops_;
};

template <class T>
[[nodiscard]] bool is(const Value& value) {
  return std::holds_alternative<T>(value);
}
// The characters, null if it is no string.
inline const Text* text_of(const Value& value) {
  const auto* text = std::get_if<TextPtr>(&value);
  return text == nullptr ? nullptr : text->get();
}
// Python's name of the type, for messages.
std::string_view type_name(const Value& value);
// Errors: invalid_argument, "'x' is undefined".
std::unexpected<Error> undefined_error(const Value& value);

// Whether Python can use it as a dict's key.
bool is_hashable(const Value& value);
bool truthy(const Value& value);
// An int64, of an integer or a boolean.
bool as_integer(const Value& value, std::int64_t& out);
// Any number, booleans included.
bool as_number(const Value& value, double& out);

// ==. Errors: limit.
Result<bool> equal(const Value& a, const Value& b, Budget& budget, std::size_t depth = 0);
// The order of a and b: -1, 0, 1, or 2 for a number that is not one. Errors: invalid_argument where Python has no
// order.
Result<int> compare(const Value& a, const Value& b, Budget& budget, std::size_t depth = 0);
// Whether `item` is in `container`. Errors: invalid_argument.
Result<bool> contains(const Value& container, const Value& item, Heap& heap);
// The elements, in order: of a list, the characters of a string, the keys of a dict, nothing of an undefined value. A
// list itself is given, not a copy, unless it can be walked through only once. Errors: invalid_argument.
Result<List*> elements(const Value& value, Heap& heap);
// Errors: invalid_argument where Python's len has no answer.
Result<std::int64_t> length(const Value& value, Budget& budget);

}  // namespace myriad::jinja
