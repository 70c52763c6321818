// Filters that walk through sequences.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja_access.h"
#include "model/jinja_operators.h"
#include "model/jinja_print.h"
#include "model/jinja_strings.h"
#include "model/jinja_tables.h"

namespace myriad::jinja {
namespace {

// The value that an attribute such as "function.name" or 0 leads to.
Result<Value> follow(const Value& item, const Value& attribute, Heap& heap) {
  if (text_of(attribute) == nullptr) return item_of(item, attribute, nullptr, heap);
  Value value = item;
  std::string_view path = text_of(attribute)->bytes();
  for (;;) {
    const std::size_t dot = path.find('.');
    const std::string_view step = path.substr(0, dot);
    Value key;
    if (!step.empty() && step.size() < 10 && step.find_first_not_of("0123456789") == std::string_view::npos) {
      key = static_cast<std::int64_t>(std::stol(std::string(step)));
    } else {
      MYRIAD_TRY(key, heap.text(step, true));
    }
    MYRIAD_TRY(value, item_of(value, key, nullptr, heap));
    if (dot == std::string_view::npos) return value;
    path.remove_prefix(dot + 1);
  }
}

// What elements are compared by: of strings, unless asked otherwise, the text in small letters.
Result<Value> sort_key(const Value& item, const Value* attribute, bool case_sensitive, Heap& heap) {
  Value key = item;
  if (attribute != nullptr && !is<None>(*attribute)) {
    if (text_of(*attribute) != nullptr && text_of(*attribute)->bytes().find(',') != std::string::npos) {
      return fail(Code::unsupported, "an order by several attributes");
    }
    MYRIAD_TRY(key, follow(item, *attribute, heap));
  }
  if (!case_sensitive && text_of(key) != nullptr) return with_case(*text_of(key), CaseChange::lower, heap);
  return key;
}

// The elements' numbers in ascending order. Errors: invalid_argument where two of them have no order.
Result<std::vector<std::size_t>> sorted_order(const std::vector<Value>& keys, bool reverse, Heap& heap) {
  std::vector<std::size_t> order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  Status status;
  const auto less = [&](std::size_t a, std::size_t b) {
    if (!status) return false;
    const auto same = equal(keys[a], keys[b], heap.budget());
    if (same && *same) return false;
    const auto found = same ? compare(keys[a], keys[b], heap.budget()) : Result<int>(std::unexpected(same.error()));
    if (!found) status = std::unexpected(found.error());
    return found && *found == -1;
  };
  // Equal elements keep their order, also when it is reversed.
  if (reverse) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return less(b, a); });
  } else {
    std::stable_sort(order.begin(), order.end(), less);
  }
  if (!status) return std::unexpected(status.error());
  return order;
}

Result<Value> sort(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  MYRIAD_TRY(const List* const items, elements(value, heap));
  std::vector<Value> keys;
  for (const Value& item : items->items) {
    MYRIAD_TRY(Value key, sort_key(item, bound[2], bound.boolean(1, false), heap));
    keys.push_back(std::move(key));
  }
  MYRIAD_TRY(const std::vector<std::size_t> order, sorted_order(keys, bound.boolean(0, false), heap));
  List* made = heap.list();
  for (const std::size_t i : order) heap.append(made, items->items[i]);
  return made;
}

Result<List*> pairs_of(const Value& value, Heap& heap) {
  List* made = heap.list();
  if (is<Undefined>(value)) return made;
  const auto* dict = std::get_if<Dict*>(&value);
  if (dict == nullptr) return fail(Code::invalid_argument, "items of a value of type {}", type_name(value));
  for (const auto& [key, item] : (*dict)->members()) {
    List* pair = heap.list(List::Kind::tuple);
    heap.append(pair, key);
    heap.append(pair, item);
    heap.append(made, pair);
    if (!heap.budget().step()) break;
  }
  MYRIAD_TRY_STATUS(heap.budget().status());
  return made;
}

Result<Value> items(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY_STATUS(Bound::none("items", arguments));
  MYRIAD_TRY(List* const pairs, pairs_of(value, heap));
  pairs->kind = List::Kind::once;
  return pairs;
}

Result<Value> dictsort(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  MYRIAD_TRY(const TextPtr by, bound.text(1, nullptr));
  const bool by_value = by != nullptr && by->bytes() == "value";
  if (by != nullptr && !by_value && by->bytes() != "key") {
    return fail(Code::invalid_argument, "dictsort: 'by' is key or value, not '{}'", by->bytes());
  }
  if (is<Undefined>(value)) return undefined_error(value);
  MYRIAD_TRY(List* const pairs, pairs_of(value, heap));
  std::vector<Value> keys;
  for (const Value& pair : pairs->items) {
    const Value& member = std::get<List*>(pair)->items[by_value ? 1 : 0];
    MYRIAD_TRY(Value key, sort_key(member, nullptr, bound.boolean(0, false), heap));
    keys.push_back(std::move(key));
  }
  MYRIAD_TRY(const std::vector<std::size_t> order, sorted_order(keys, bound.boolean(2, false), heap));
  List* made = heap.list();
  for (const std::size_t i : order) heap.append(made, pairs->items[i]);
  return made;
}

Result<Value> unique(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("unique", arguments, {"case_sensitive", "attribute"}));
  MYRIAD_TRY(const List* const all, elements(value, heap));
  List* made = heap.list(List::Kind::once);
  std::vector<Value> keys;
  for (const Value& item : all->items) {
    MYRIAD_TRY(Value key, sort_key(item, bound[1], bound.boolean(0, false), heap));
    if (!is_hashable(key)) {
      return fail(Code::invalid_argument, "unique: a value of type {} cannot be looked up", type_name(key));
    }
    bool seen = false;
    for (std::size_t i = 0; i < keys.size() && !seen; ++i) {
      MYRIAD_TRY(seen, equal(key, keys[i], heap.budget()));
    }
    if (seen) continue;
    keys.push_back(std::move(key));
    heap.append(made, item);
  }
  return made;
}

template <int Sign>
Result<Value> extreme(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("min or max", arguments, {"case_sensitive", "attribute"}));
  MYRIAD_TRY(const List* const all, elements(value, heap));
  Value best, best_key;
  for (std::size_t i = 0; i < all->items.size(); ++i) {
    MYRIAD_TRY(Value key, sort_key(all->items[i], bound[1], bound.boolean(0, false), heap));
    int order = Sign;
    if (i > 0) {
      MYRIAD_TRY(order, compare(key, best_key, heap.budget()));
    }
    if (order != Sign) continue;
    best = all->items[i];
    best_key = std::move(key);
  }
  return best;
}

Result<Value> sum(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("sum", arguments, {"attribute", "start"}));
  MYRIAD_TRY(const List* const all, elements(value, heap));
  Value total = bound[1] != nullptr ? *bound[1] : Value(std::int64_t{0});
  if (text_of(total) != nullptr) return fail(Code::invalid_argument, "sum of strings");
  for (const Value& item : all->items) {
    Value part = item;
    if (bound.given(0)) {
      MYRIAD_TRY(part, follow(item, *bound[0], heap));
    }
    MYRIAD_TRY(total, calculate(Operator::add, total, part, heap));
  }
  return total;
}

Result<Value> join_filter(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("join", arguments, {"d", "attribute"}));
  MYRIAD_TRY(const List* all, elements(value, heap));
  if (bound.given(1)) {
    List* parts = heap.list();
    for (const Value& item : all->items) {
      MYRIAD_TRY(Value part, follow(item, *bound[1], heap));
      heap.append(parts, std::move(part));
    }
    all = parts;
  }
  TextPtr between = std::make_shared<const Text>(std::string(), true);
  if (bound[0] != nullptr) {
    MYRIAD_TRY(between, str(*bound[0], heap.budget()));
  }
  return join(*all, *between, false, heap);
}

Result<Value> list_filter(Heap& heap, const Value& value, const Arguments& arguments) {
  MYRIAD_TRY_STATUS(Bound::none("list", arguments));
  MYRIAD_TRY(List* const all, elements(value, heap));
  List* made = heap.list();
  heap.budget().work(all->items.size() * sizeof(Value));
  for (const Value& item : all->items) heap.append(made, item);
  MYRIAD_TRY_STATUS(heap.budget().status());
  return made;
}

Result<Value> first(Heap& heap, const Value& value, const Arguments&) {
  if (const auto* list = std::get_if<List*>(&value); list != nullptr && (*list)->kind == List::Kind::once) {
    // The rest can still be walked through.
    auto& rest = (*list)->items;
    if (rest.empty()) return Undefined{};
    Value front = std::move(rest.front());
    heap.budget().work(rest.size() * sizeof(Value));
    rest.erase(rest.begin());
    return front;
  }
  MYRIAD_TRY(const List* const all, elements(value, heap));
  return all->items.empty() ? Value(Undefined{}) : all->items.front();
}

Result<Value> last(Heap& heap, const Value& value, const Arguments&) {
  if (is<Undefined>(value)) return value;
  if (const auto* list = std::get_if<List*>(&value); list != nullptr && (*list)->kind == List::Kind::once) {
    return fail(Code::invalid_argument, "last of a sequence that has no length; make a list of it first");
  }
  MYRIAD_TRY(const List* const all, elements(value, heap));
  return all->items.empty() ? Value(Undefined{}) : all->items.back();
}

Result<Value> reverse(Heap& heap, const Value& value, const Arguments&) {
  if (text_of(value) != nullptr) return slice_of(value, None{}, None{}, std::int64_t{-1}, heap);
  MYRIAD_TRY(const List* const all, elements(value, heap));
  List* made = heap.list(List::Kind::once);
  heap.budget().work(all->items.size() * sizeof(Value));
  for (auto item = all->items.rbegin(); item != all->items.rend(); ++item) heap.append(made, *item);
  MYRIAD_TRY_STATUS(heap.budget().status());
  return made;
}

// The name in an argument, and the arguments after it.
Result<std::string> name_argument(std::string_view whose, const Arguments& arguments, std::size_t at, Arguments& rest) {
  if (at >= arguments.positional.size() || text_of(arguments.positional[at]) == nullptr) {
    return fail(Code::invalid_argument, "{}: a name in quotes is expected as argument {}", whose, at + 1);
  }
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                         arguments.positional.end());
  rest.named = arguments.named;
  return text_of(arguments.positional[at])->bytes();
}

Result<Value> map(Heap& heap, const Value& value, const Arguments& arguments) {
  List* made = heap.list(List::Kind::once);
  if (!truthy(value)) return made;  // None too
  MYRIAD_TRY(const List* const all, elements(value, heap));
  if (arguments.positional.empty()) {
    MYRIAD_TRY(const Bound bound, Bound::of("map", arguments, {"attribute", "default"}, 1));
    for (const Value& item : all->items) {
      MYRIAD_TRY(Value part, follow(item, *bound[0], heap));
      if (is<Undefined>(part) && bound.given(1)) part = *bound[1];
      heap.append(made, std::move(part));
    }
    return made;
  }
  Arguments rest;
  MYRIAD_TRY(const std::string name, name_argument("map", arguments, 0, rest));
  const Function filter = find_filter(name);
  if (filter == nullptr) return fail(Code::unsupported, "the filter '{}'", name);
  for (const Value& item : all->items) {
    if (!heap.budget().step()) break;
    MYRIAD_TRY(Value part, filter(heap, item, rest));
    heap.append(made, std::move(part));
  }
  MYRIAD_TRY_STATUS(heap.budget().status());
  return made;
}

template <bool Keep, bool ByAttribute>
Result<Value> select(Heap& heap, const Value& value, const Arguments& arguments) {
  List* made = heap.list(List::Kind::once);
  if (!truthy(value)) return made;  // None too
  MYRIAD_TRY(const List* const all, elements(value, heap));
  if (ByAttribute && arguments.positional.empty()) {
    return fail(Code::invalid_argument, "selectattr or rejectattr: the attribute is missing");
  }
  constexpr std::size_t kTest = ByAttribute ? 1 : 0;
  Test test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > kTest) {
    MYRIAD_TRY(const std::string name, name_argument("select or reject", arguments, kTest, rest));
    test = find_test(name);
    if (test == nullptr) return fail(Code::unsupported, "the test '{}'", name);
  }
  for (const Value& item : all->items) {
    if (!heap.budget().step()) break;
    Value seen = item;
    if (ByAttribute) {
      MYRIAD_TRY(seen, follow(item, arguments.positional[0], heap));
    }
    bool passes = truthy(seen);
    if (test != nullptr) {
      MYRIAD_TRY(passes, test(heap, seen, rest));
    }
    if (passes == Keep) heap.append(made, item);
  }
  MYRIAD_TRY_STATUS(heap.budget().status());
  return made;
}

constexpr std::array<Entry<Function>, 17> kFilters{{
    {"dictsort", dictsort},
    {"first", first},
    {"items", items},
    {"join", join_filter},
    {"last", last},
    {"list", list_filter},
    {"map", map},
    {"max", extreme<1>},
    {"min", extreme<-1>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"reverse", reverse},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
}};
static_assert(is_sorted(kFilters));

}  // namespace

Function find_list_filter(std::string_view name) {
  return find_entry(kFilters, name);
}

Function find_filter(std::string_view name) {
  const Function found = find_text_filter(name);
  return found != nullptr ? found : find_list_filter(name);
}

}  // namespace myriad::jinja
