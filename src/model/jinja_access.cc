#include "model/jinja_access.h"

#include <algorithm>

#include "model/jinja_callable.h"
#include "model/jinja_unicode.h"

namespace myriad::jinja {
namespace {

Value loop_attribute(const Loop& loop, std::string_view name, const std::string* shown) {
  const auto count = static_cast<std::int64_t>(loop.items->size());
  const auto at = static_cast<std::int64_t>(loop.position);
  if (name == "index") return at + 1;
  if (name == "index0") return at;
  if (name == "revindex") return count - at;
  if (name == "revindex0") return count - at - 1;
  if (name == "first") return at == 0;
  if (name == "last") return at + 1 == count;
  if (name == "length") return count;
  // How deep a recursive loop has gone, and there is none.
  if (name == "depth") return std::int64_t{1};
  if (name == "depth0") return std::int64_t{0};
  if (name == "previtem" && at > 0 && at <= count) return (*loop.items)[loop.position - 1];
  if (name == "nextitem" && at + 1 < count) return (*loop.items)[loop.position + 1];
  return Undefined{shown};
}

Result<Value> character_of(const TextPtr& text, std::int64_t index, const std::string* shown, Heap& heap) {
  const std::string& bytes = text->bytes();
  heap.budget().work(bytes.size());
  if (index < 0) index += static_cast<std::int64_t>(count_characters(bytes));
  if (index < 0) return Undefined{shown};
  const std::size_t from = offset_of_character(bytes, static_cast<std::size_t>(index));
  if (from >= bytes.size()) return Undefined{shown};
  TextBuilder character(heap.budget());
  character.append(*text, from, next_character(bytes, from));
  return std::move(character).finish();
}

// A bound of a slice, as Python cuts it to the sequence's length.
Result<std::int64_t> bound(const Value& value, std::int64_t otherwise, std::int64_t low, std::int64_t high,
                           std::int64_t count) {
  if (is<None>(value)) return otherwise;
  std::int64_t index = 0;
  if (is<Undefined>(value)) return undefined_error(value);
  if (!as_integer(value, index)) {
    return fail(Code::invalid_argument, "a slice's bound is of type {}, an integer is expected", type_name(value));
  }
  if (index < 0) index = index < -count ? low : index + count;
  return std::clamp(index, low, high);
}

struct Bounds {
  std::int64_t start, stop, step;
};

Result<Bounds> bounds_of(const Value& start, const Value& stop, const Value& step, std::int64_t count) {
  Bounds bounds{0, 0, 1};
  if (!is<None>(step) && !as_integer(step, bounds.step)) {
    return fail(Code::invalid_argument, "a slice's step is of type {}, an integer is expected", type_name(step));
  }
  if (bounds.step == 0) return fail(Code::invalid_argument, "a slice's step is 0");
  // Steps longer than the sequence are all alike.
  bounds.step = std::clamp(bounds.step, -count - 1, count + 1);
  const bool forward = bounds.step > 0;
  const std::int64_t low = forward ? 0 : -1, high = forward ? count : count - 1;
  MYRIAD_TRY(bounds.start, bound(start, forward ? low : high, low, high, count));
  MYRIAD_TRY(bounds.stop, bound(stop, forward ? high : low, low, high, count));
  return bounds;
}

// Calls `visit` with every index of the slice.
template <class Visit>
void walk(const Bounds& bounds, Visit visit) {
  if (bounds.step > 0) {
    for (std::int64_t i = bounds.start; i < bounds.stop; i += bounds.step) visit(static_cast<std::size_t>(i));
  } else {
    for (std::int64_t i = bounds.start; i > bounds.stop; i += bounds.step) visit(static_cast<std::size_t>(i));
  }
}

Result<Value> slice_of_text(const Text& text, const Value& start, const Value& stop, const Value& step, Heap& heap) {
  const std::string& bytes = text.bytes();
  Budget& budget = heap.budget();
  budget.work(2 * bytes.size());
  MYRIAD_TRY_STATUS(budget.status());
  const std::size_t count = count_characters(bytes);
  MYRIAD_TRY(const Bounds bounds, bounds_of(start, stop, step, static_cast<std::int64_t>(count)));
  TextBuilder out(budget);
  if (bounds.step == 1) {
    if (bounds.start >= bounds.stop) return std::move(out).finish();
    const std::size_t from = offset_of_character(bytes, static_cast<std::size_t>(bounds.start));
    const auto characters = static_cast<std::size_t>(bounds.stop - bounds.start);
    out.append(text, from, from + offset_of_character(std::string_view(bytes).substr(from), characters));
  } else if (count == bytes.size()) {
    walk(bounds, [&](std::size_t i) { out.append(text, i, i + 1); });
  } else {
    const std::size_t memory = (count + 1) * sizeof(std::uint32_t);
    budget.take(memory);
    if (const Status status = budget.status(); !status) return std::unexpected(status.error());
    std::vector<std::uint32_t> offsets;
    offsets.reserve(count + 1);
    for (std::size_t at = 0; at < bytes.size(); at = next_character(bytes, at)) {
      offsets.push_back(static_cast<std::uint32_t>(at));
    }
    offsets.push_back(static_cast<std::uint32_t>(bytes.size()));
    walk(bounds, [&](std::size_t i) { out.append(text, offsets[i], offsets[i + 1]); });
    budget.give(memory);
  }
  return std::move(out).finish();
}

}  // namespace

Result<Value> attribute_of(const Value& object, std::string_view name, const std::string* shown, Heap& heap) {
  if (is<Undefined>(object)) return undefined_error(object);
  bool exists = false;
  if (const Function function = find_method(object, name, exists); function != nullptr) {
    return heap.make(heap.callables(), Callable{function, object, nullptr, nullptr});
  }
  const Dict* members = nullptr;
  if (const auto* dict = std::get_if<Dict*>(&object)) members = *dict;
  if (const auto* space = std::get_if<Namespace*>(&object)) members = (*space)->members;
  if (members != nullptr) {
    if (const Value* found = members->find(name); found != nullptr) return *found;
  } else if (const auto* loop = std::get_if<Loop*>(&object)) {
    return loop_attribute(**loop, name, shown);
  }
  if (exists) return fail(Code::unsupported, "the method '{}' of a {}", name, type_name(object));
  return Undefined{shown};
}

Result<Value> item_of(const Value& object, const Value& key, const std::string* shown, Heap& heap) {
  if (is<Undefined>(object)) return undefined_error(object);
  std::int64_t index = 0;
  const bool whole = as_integer(key, index);
  if (const auto* dict = std::get_if<Dict*>(&object)) {
    if (const Value* found = (*dict)->find(key, heap.budget()); found != nullptr) return *found;
  } else if (const auto* list = std::get_if<List*>(&object); list != nullptr && (*list)->has_positions()) {
    const auto count = static_cast<std::int64_t>((*list)->items.size());
    if (whole && index < 0) index += count;
    if (whole && index >= 0 && index < count) return (*list)->items[static_cast<std::size_t>(index)];
  } else if (const auto* text = std::get_if<TextPtr>(&object); text != nullptr && whole) {
    return character_of(*text, index, shown, heap);
  }
  if (const Text* name = text_of(key)) return attribute_of(object, name->bytes(), shown, heap);
  return Undefined{shown};
}

Result<Value> slice_of(const Value& object, const Value& start, const Value& stop, const Value& step, Heap& heap) {
  if (is<Undefined>(object)) return undefined_error(object);
  if (const Text* text = text_of(object)) return slice_of_text(*text, start, stop, step, heap);
  const auto* list = std::get_if<List*>(&object);
  if (list == nullptr || !(*list)->has_positions()) {
    return fail(Code::invalid_argument, "a slice of a value of type {}", type_name(object));
  }
  MYRIAD_TRY(const Bounds bounds, bounds_of(start, stop, step, static_cast<std::int64_t>((*list)->items.size())));
  List* made = heap.list((*list)->kind);
  heap.budget().work((*list)->items.size() * sizeof(Value));
  walk(bounds, [&](std::size_t i) { heap.append(made, (*list)->items[i]); });
  MYRIAD_TRY_STATUS(heap.budget().status());
  return made;
}

}  // namespace myriad::jinja
