// The methods of dicts, lists and the loop variable.
#include <array>

#include "model/jinja_access.h"
#include "model/jinja_tables.h"

namespace myriad::jinja {
namespace {

Result<Value> get(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("get", arguments, {"key", "default"}, 1));
  if (!is_hashable(*bound[0])) {
    return fail(Code::invalid_argument, "get: a {} cannot be a dict's key", type_name(*bound[0]));
  }
  const Value* found = std::get<Dict*>(self)->find(*bound[0], heap.budget());
  if (found != nullptr) return *found;
  if (bound[1] != nullptr) return *bound[1];
  return None{};
}

enum class View { keys, values, items };
template <View Wanted>
Result<Value> view(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY_STATUS(Bound::none("a view of a dict", arguments));
  List* made = heap.list(List::Kind::view);
  for (const auto& [key, value] : std::get<Dict*>(self)->members()) {
    if (!heap.budget().step()) break;
    if (Wanted == View::items) {
      List* pair = heap.list(List::Kind::tuple);
      heap.append(pair, key);
      heap.append(pair, value);
      heap.append(made, pair);
    } else {
      heap.append(made, Wanted == View::keys ? key : value);
    }
  }
  MYRIAD_TRY_STATUS(heap.budget().status());
  return made;
}

Result<Value> pop_member(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("pop", arguments, {"key", "default"}, 1));
  Dict* dict = std::get<Dict*>(self);
  const Value* found = dict->find(*bound[0], heap.budget());
  if (found == nullptr) {
    if (bound[1] != nullptr) return *bound[1];
    return fail(Code::invalid_argument, "pop: the dict has no such key");
  }
  Value value = *found;
  heap.erase(dict, *bound[0]);
  return value;
}

Result<Value> update(Heap& heap, const Value& self, const Arguments& arguments) {
  Dict* dict = std::get<Dict*>(self);
  for (const Value& other : arguments.positional) {
    if (!is<Dict*>(other)) return fail(Code::invalid_argument, "update: a dict is expected, not {}", type_name(other));
    const auto members = std::get<Dict*>(other)->members();
    for (const auto& [key, value] : members) MYRIAD_TRY_STATUS(heap.set(dict, key, value));
  }
  for (const auto& [name, value] : arguments.named) {
    MYRIAD_TRY(Value key, heap.text(*name, true));
    MYRIAD_TRY_STATUS(heap.set(dict, std::move(key), value));
  }
  return None{};
}

Result<Value> append(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("append", arguments, {"object"}, 1));
  heap.append(std::get<List*>(self), *bound[0]);
  MYRIAD_TRY_STATUS(heap.budget().status());
  return None{};
}

Result<Value> extend(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("extend", arguments, {"iterable"}, 1));
  MYRIAD_TRY(const List* const more, elements(*bound[0], heap));
  heap.budget().work(more->items.size() * sizeof(Value));
  const std::size_t count = more->items.size();  // of a list that is extended by itself, too
  for (std::size_t i = 0; i < count && i < more->items.size(); ++i) {
    Value item = more->items[i];
    heap.append(std::get<List*>(self), std::move(item));
  }
  MYRIAD_TRY_STATUS(heap.budget().status());
  return None{};
}

Result<Value> pop_item(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("pop", arguments, {"index"}));
  MYRIAD_TRY(std::int64_t index, bound.integer(0, -1));
  auto& items = std::get<List*>(self)->items;
  const auto count = static_cast<std::int64_t>(items.size());
  if (index < 0) index += count;
  if (index < 0 || index >= count) return fail(Code::invalid_argument, "pop: the list has no such item");
  heap.budget().work((items.size() - static_cast<std::size_t>(index)) * sizeof(Value));
  Value value = items[static_cast<std::size_t>(index)];
  items.erase(items.begin() + index);
  return value;
}

Result<Value> insert(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("insert", arguments, {"index", "object"}, 2));
  MYRIAD_TRY(std::int64_t index, bound.integer(0, 0));
  auto& items = std::get<List*>(self)->items;
  const auto count = static_cast<std::int64_t>(items.size());
  if (index < 0) index = std::max<std::int64_t>(index + count, 0);
  index = std::min(index, count);
  heap.budget().work(items.size() * sizeof(Value));
  heap.append(std::get<List*>(self), *bound[1]);
  MYRIAD_TRY_STATUS(heap.budget().status());
  std::rotate(items.begin() + index, items.end() - 1, items.end());
  return None{};
}

Result<Value> count(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("count", arguments, {"value"}, 1));
  std::int64_t found = 0;
  for (const Value& item : std::get<List*>(self)->items) {
    MYRIAD_TRY(const bool same, equal(item, *bound[0], heap.budget()));
    found += same ? 1 : 0;
  }
  return found;
}

Result<Value> index(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("index", arguments, {"value"}, 1));
  const auto& items = std::get<List*>(self)->items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    MYRIAD_TRY(const bool same, equal(items[i], *bound[0], heap.budget()));
    if (same) return static_cast<std::int64_t>(i);
  }
  return fail(Code::invalid_argument, "index: the value is not in the list");
}

Result<Value> cycle(Heap&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) return fail(Code::invalid_argument, "loop.cycle needs values");
  return arguments.positional[std::get<Loop*>(self)->position % arguments.positional.size()];
}

// Whether the arguments are other ones than at the last call in this loop.
Result<Value> changed(Heap& heap, const Value& self, const Arguments& arguments) {
  Loop& loop = *std::get<Loop*>(self);
  if (!arguments.named.empty()) {
    return fail(Code::invalid_argument, "loop.changed takes no argument named '{}'", *arguments.named.front().first);
  }
  bool same = loop.seen != nullptr && loop.seen->items.size() == arguments.positional.size();
  for (std::size_t i = 0; same && i < arguments.positional.size(); ++i) {
    MYRIAD_TRY(same, equal(loop.seen->items[i], arguments.positional[i], heap.budget()));
  }
  if (same) return false;
  loop.seen = heap.list(List::Kind::tuple);
  for (const Value& value : arguments.positional) heap.append(loop.seen, value);
  return true;
}

constexpr std::array<Entry<Function>, 6> kDict{{
    {"get", get},
    {"items", view<View::items>},
    {"keys", view<View::keys>},
    {"pop", pop_member},
    {"update", update},
    {"values", view<View::values>},
}};
constexpr std::array<std::string_view, 5> kOtherDict{"clear", "copy", "fromkeys", "popitem", "setdefault"};
constexpr std::array<Entry<Function>, 6> kList{{
    {"append", append},
    {"count", count},
    {"extend", extend},
    {"index", index},
    {"insert", insert},
    {"pop", pop_item},
}};
constexpr std::array<std::string_view, 5> kOtherList{"clear", "copy", "remove", "reverse", "sort"};
static_assert(is_sorted(kDict) && is_sorted(kList));

template <std::size_t N>
bool has(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Function find_method(const Value& object, std::string_view name, bool& exists) {
  exists = false;
  Function found = nullptr;
  if (text_of(object) != nullptr) return find_string_method(name, exists);
  if (is<Dict*>(object)) {
    found = find_entry(kDict, name);
    exists = found != nullptr || has(kOtherDict, name);
  } else if (const auto* list = std::get_if<List*>(&object)) {
    const bool tuple = (*list)->kind == List::Kind::tuple;
    if (!(*list)->has_positions()) return nullptr;
    if (tuple && name != "count" && name != "index") return nullptr;
    found = find_entry(kList, name);
    exists = found != nullptr || has(kOtherList, name);
  } else if (is<Loop*>(object)) {
    if (name == "cycle") found = cycle;
    if (name == "changed") found = changed;
    exists = found != nullptr;
  }
  return found;
}

}  // namespace myriad::jinja
