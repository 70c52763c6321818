#include "model/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/jinja_callable.h"
#include "model/jinja_unicode.h"

namespace myriad::jinja {
namespace {

constexpr std::size_t kIndexEntry = 64;  // bytes of an entry of Dict's index, its node included

// An integer against a real number, without rounding the integer.
int compare_numbers(std::int64_t a, double b) {
  if (b >= 0x1p63) return -1;
  if (b < -0x1p63) return 1;
  const double whole = std::floor(b);
  const auto integer = static_cast<std::int64_t>(whole);
  if (a != integer) return a < integer ? -1 : 1;
  return whole < b ? -1 : 0;
}

// Of two numbers of which none is NaN.
int compare_numbers(const Value& a, const Value& b) {
  std::int64_t x = 0, y = 0;
  const bool a_whole = as_integer(a, x), b_whole = as_integer(b, y);
  if (a_whole && b_whole) return x < y ? -1 : x > y ? 1 : 0;
  if (a_whole) return compare_numbers(x, std::get<double>(b));
  if (b_whole) return -compare_numbers(y, std::get<double>(a));
  const double u = std::get<double>(a), v = std::get<double>(b);
  return u < v ? -1 : u > v ? 1 : 0;
}

bool is_nan(const Value& value) {
  const auto* real = std::get_if<double>(&value);
  return real != nullptr && std::isnan(*real);
}

bool is_number(const Value& value) {
  return is<bool>(value) || is<std::int64_t>(value) || is<double>(value);
}

bool is_integer(const Value& value) {
  return is<bool>(value) || is<std::int64_t>(value) || is<BigInteger>(value);
}

// Integers of which one at least has more than 64 bits.
int compare_integers(const Value& a, const Value& b) {
  const auto digits = [](const Value& value) -> std::string {
    std::int64_t small = 0;
    return as_integer(value, small) ? std::to_string(small) : std::get<BigInteger>(value).digits->bytes();
  };
  const std::string x = digits(a), y = digits(b);
  const bool x_negative = x.starts_with('-'), y_negative = y.starts_with('-');
  if (x_negative != y_negative) return x_negative ? -1 : 1;
  const int order = x.size() != y.size() ? (x.size() < y.size() ? -1 : 1) : x.compare(y);
  return order == 0 ? 0 : (order < 0) != x_negative ? -1 : 1;
}

Status too_deep() {
  return fail(Code::limit, "values are nested deeper than {} levels", kMaxValueDepth);
}

}  // namespace

std::size_t Dict::position(std::string_view key) const {
  if (members_.size() > kFew) {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? kNone : found->second;
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Text* text = text_of(members_[i].first);
    if (text != nullptr && text->bytes() == key) return i;
  }
  return kNone;
}

std::size_t Dict::position(const Value& key, Budget& budget) const {
  if (const Text* text = text_of(key)) return position(text->bytes());
  budget.work(members_.size() * sizeof(Member));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Value& other = members_[i].first;
    if (is<None>(key) ? is<None>(other)
                      : is_number(key) && is_number(other) && !is_nan(key) && !is_nan(other) &&
                            compare_numbers(key, other) == 0) {
      return i;
    }
  }
  return kNone;
}

void Dict::index() {
  by_key_.clear();
  if (members_.size() <= kFew) return;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (const Text* text = text_of(members_[i].first)) by_key_.emplace(text->bytes(), i);
  }
}

const Value* Dict::find(std::string_view key) const {
  const std::size_t at = position(key);
  return at == kNone ? nullptr : &members_[at].second;
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  const std::size_t at = position(key, budget);
  return at == kNone ? nullptr : &members_[at].second;
}

List* Heap::list(List::Kind kind) {
  List* list = make(lists_);
  list->kind = kind;
  return list;
}

Dict* Heap::dict() {
  return make(dicts_);
}

void Heap::append(List* list, Value value) {
  // A vector that grows may hold twice what is in it.
  if (!budget_.take(2 * sizeof(Value)) || budget_.exceeded()) return;
  list->items.push_back(std::move(value));
}

Status Heap::set(Dict* dict, Value key, Value value) {
  if (!text_of(key) && !is_number(key) && !is<None>(key)) {
    return fail(Code::invalid_argument, "a {} cannot be a dict's key", type_name(key));
  }
  const std::size_t at = dict->position(key, budget_);
  if (at != Dict::kNone) {
    dict->members_[at].second = std::move(value);
    return {};
  }
  budget_.take(2 * sizeof(Dict::Member) + kIndexEntry);
  MYRIAD_TRY_STATUS(budget_.status());
  dict->members_.emplace_back(std::move(key), std::move(value));
  if (dict->members_.size() == Dict::kFew + 1) {
    dict->index();
  } else if (dict->members_.size() > Dict::kFew) {
    if (const Text* text = text_of(dict->members_.back().first)) {
      dict->by_key_.emplace(text->bytes(), dict->members_.size() - 1);
    }
  }
  return {};
}

bool Heap::erase(Dict* dict, const Value& key) {
  const std::size_t at = dict->position(key, budget_);
  if (at == Dict::kNone) return false;
  budget_.work(dict->members_.size() * (sizeof(Dict::Member) + kIndexEntry));
  dict->by_key_.clear();
  dict->members_.erase(dict->members_.begin() + static_cast<std::ptrdiff_t>(at));
  dict->index();
  return true;
}

Result<Value> Heap::text(std::string_view bytes, bool control) {
  TextBuilder builder(budget_);
  builder.append(bytes, control);
  return std::move(builder).finish();
}

Result<Value> Heap::from_json(const nlohmann::ordered_json& json, bool control, std::size_t depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > kMaxValueDepth) return std::unexpected(too_deep().error());
  if (!budget_.step()) return std::unexpected(budget_.status().error());
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<std::int64_t>();
    case Type::number_unsigned: {
      const auto value = json.get<std::uint64_t>();
      if (value <= static_cast<std::uint64_t>(INT64_MAX)) return static_cast<std::int64_t>(value);
      MYRIAD_TRY(const Value digits, text(std::to_string(value), control));
      return BigInteger{std::get<TextPtr>(digits)};
    }
    case Type::number_float:
      return json.get<double>();
    case Type::binary: {  // json_text.h: an integer that no 64-bit type holds
      const auto& bytes = json.get_binary();
      MYRIAD_TRY(const Value digits, text(std::string(bytes.begin(), bytes.end()), control));
      return BigInteger{std::get<TextPtr>(digits)};
    }
    case Type::string:
      return text(json.get_ref<const std::string&>(), control);
    case Type::array: {
      List* made = list();
      reserve(made, json.size());
      for (const auto& item : json) {
        MYRIAD_TRY(Value value, from_json(item, control, depth + 1));
        append(made, std::move(value));
      }
      return made;
    }
    case Type::object: {
      Dict* made = dict();
      for (const auto& [key, item] : json.get_ref<const nlohmann::ordered_json::object_t&>()) {
        MYRIAD_TRY(Value name, text(key, control));
        MYRIAD_TRY(Value value, from_json(item, control, depth + 1));
        MYRIAD_TRY_STATUS(set(made, std::move(name), std::move(value)));
      }
      return made;
    }
    case Type::null:
    case Type::discarded:
      break;
  }
  return None{};
}

std::string_view type_name(const Value& value) {
  switch (value.index()) {
    case 0:
      return "undefined value";
    case 1:
      return "None";
    case 2:
      return "bool";
    case 3:
    case 5:
      return "int";
    case 4:
      return "float";
    case 6:
      return "str";
    case 7: {
      const auto kind = std::get<List*>(value)->kind;
      return kind == List::Kind::list    ? "list"
             : kind == List::Kind::tuple ? "tuple"
             : kind == List::Kind::view  ? "dict's view"
                                         : "generator";
    }
    case 8:
      return "dict";
    case 9:
      return "namespace";
    case 10:
      return "function";
    default:
      return "loop";
  }
}

std::unexpected<Error> undefined_error(const Value& value) {
  const auto* undefined = std::get_if<Undefined>(&value);
  if (undefined == nullptr || undefined->name == nullptr) {
    return fail(Code::invalid_argument, "a value that is used here is undefined");
  }
  return fail(Code::invalid_argument, "'{}' is undefined", *undefined->name);
}

bool is_hashable(const Value& value) {
  const auto* list = std::get_if<List*>(&value);
  return !is<Dict*>(value) &&
         (list == nullptr || (*list)->kind == List::Kind::tuple || (*list)->kind == List::Kind::once);
}

bool truthy(const Value& value) {
  if (is<Undefined>(value) || is<None>(value)) return false;
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer != 0;
  if (const auto* real = std::get_if<double>(&value)) return *real != 0;
  if (const Text* text = text_of(value)) return !text->bytes().empty();
  if (const auto* list = std::get_if<List*>(&value)) {
    return (*list)->kind == List::Kind::once || !(*list)->items.empty();
  }
  if (const auto* dict = std::get_if<Dict*>(&value)) return !(*dict)->members().empty();
  return true;
}

bool as_integer(const Value& value, std::int64_t& out) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    out = *integer;
    return true;
  }
  if (const auto* boolean = std::get_if<bool>(&value)) {
    out = *boolean ? 1 : 0;
    return true;
  }
  return false;
}

bool as_number(const Value& value, double& out) {
  std::int64_t integer = 0;
  if (const auto* real = std::get_if<double>(&value)) {
    out = *real;
  } else if (as_integer(value, integer)) {
    out = static_cast<double>(integer);
  } else {
    return false;
  }
  return true;
}

Result<bool> equal(const Value& a, const Value& b, Budget& budget, std::size_t depth) {
  if (depth > kMaxValueDepth) return std::unexpected(too_deep().error());
  if (!budget.step()) return std::unexpected(budget.status().error());
  if (const Text* x = text_of(a), *y = text_of(b); x != nullptr || y != nullptr) {
    if (x == nullptr || y == nullptr || x->bytes().size() != y->bytes().size()) return false;
    budget.work(x->bytes().size());
    return x->bytes() == y->bytes();
  }
  if (is_number(a) && is_number(b)) return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
  if (a.index() != b.index()) return false;
  if (const auto* big = std::get_if<BigInteger>(&a)) {
    return big->digits->bytes() == std::get<BigInteger>(b).digits->bytes();
  }
  if (const auto* list = std::get_if<List*>(&a)) {
    const List &x = **list, &y = *std::get<List*>(b);
    if (&x == &y) return true;
    if (x.kind != y.kind || x.kind == List::Kind::once || x.items.size() != y.items.size()) return false;
    for (std::size_t i = 0; i < x.items.size(); ++i) {
      MYRIAD_TRY(const bool same, equal(x.items[i], y.items[i], budget, depth + 1));
      if (!same) return false;
    }
    return true;
  }
  if (const auto* dict = std::get_if<Dict*>(&a)) {
    const Dict &x = **dict, &y = *std::get<Dict*>(b);
    if (&x == &y) return true;
    if (x.members().size() != y.members().size()) return false;
    for (const auto& [key, value] : x.members()) {
      const Value* other = y.find(key, budget);
      if (other == nullptr) return false;
      MYRIAD_TRY(const bool same, equal(value, *other, budget, depth + 1));
      if (!same) return false;
    }
    return true;
  }
  if (const auto* space = std::get_if<Namespace*>(&a)) return *space == std::get<Namespace*>(b);
  if (const auto* callable = std::get_if<Callable*>(&a)) return *callable == std::get<Callable*>(b);
  if (const auto* loop = std::get_if<Loop*>(&a)) return *loop == std::get<Loop*>(b);
  return true;  // both undefined, or None
}

Result<int> compare(const Value& a, const Value& b, Budget& budget, std::size_t depth) {
  if (depth > kMaxValueDepth) return std::unexpected(too_deep().error());
  if (is<Undefined>(a)) return undefined_error(a);
  if (is<Undefined>(b)) return undefined_error(b);
  if (const Text* x = text_of(a), *y = text_of(b); x != nullptr && y != nullptr) {
    budget.work(std::min(x->bytes().size(), y->bytes().size()));
    MYRIAD_TRY_STATUS(budget.status());
    const int order = x->bytes().compare(y->bytes());  // the order of UTF-8 is the order of code points
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (is_number(a) && is_number(b)) return is_nan(a) || is_nan(b) ? 2 : compare_numbers(a, b);
  if (is_integer(a) && is_integer(b)) return compare_integers(a, b);
  if (is<BigInteger>(a) && is<double>(b)) return compare(std::strtod(std::get<BigInteger>(a).digits->bytes().c_str(), nullptr), b, budget, depth);
  if (is<double>(a) && is<BigInteger>(b)) return compare(a, std::strtod(std::get<BigInteger>(b).digits->bytes().c_str(), nullptr), budget, depth);
  if (is<List*>(a) && is<List*>(b)) {
    const List &x = *std::get<List*>(a), &y = *std::get<List*>(b);
    if (x.kind == y.kind && x.has_positions()) {
      for (std::size_t i = 0; i < std::min(x.items.size(), y.items.size()); ++i) {
        MYRIAD_TRY(const bool same, equal(x.items[i], y.items[i], budget, depth + 1));
        if (!same) return compare(x.items[i], y.items[i], budget, depth + 1);
      }
      return x.items.size() < y.items.size() ? -1 : x.items.size() > y.items.size() ? 1 : 0;
    }
  }
  return fail(Code::invalid_argument, "there is no order between {} and {}", type_name(a), type_name(b));
}

Result<bool> contains(const Value& container, const Value& item, Heap& heap) {
  if (is<Undefined>(container)) return false;
  if (const Text* text = text_of(container)) {
    const Text* part = text_of(item);
    if (part == nullptr) {
      return fail(Code::invalid_argument, "'in' a string asks for a string on its left, not {}", type_name(item));
    }
    heap.budget().work(text->bytes().size() + part->bytes().size());
    MYRIAD_TRY_STATUS(heap.budget().status());
    return find_bytes(text->bytes(), part->bytes()) != std::string_view::npos;
  }
  if (const auto* dict = std::get_if<Dict*>(&container)) {
    if (!is_hashable(item)) return fail(Code::invalid_argument, "a {} cannot be a dict's key", type_name(item));
    return (*dict)->find(item, heap.budget()) != nullptr;
  }
  MYRIAD_TRY(const List* const list, elements(container, heap));
  for (const Value& candidate : list->items) {
    MYRIAD_TRY(const bool same, equal(candidate, item, heap.budget()));
    if (same) return true;
  }
  return false;
}

Result<List*> elements(const Value& value, Heap& heap) {
  if (const auto* list = std::get_if<List*>(&value)) {
    if ((*list)->kind != List::Kind::once) return *list;
    List* items = heap.list();
    items->items.swap((*list)->items);
    return items;
  }
  List* items = heap.list();
  if (is<Undefined>(value)) return items;
  if (const Text* text = text_of(value)) {
    const std::string& bytes = text->bytes();
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t next = next_character(bytes, at);
      TextBuilder character(heap.budget());
      character.append(*text, at, next);
      MYRIAD_TRY(TextPtr made, std::move(character).finish());
      heap.append(items, std::move(made));
      at = next;
    }
  } else if (const auto* dict = std::get_if<Dict*>(&value)) {
    heap.budget().work((*dict)->members().size() * sizeof(Value));
    for (const auto& member : (*dict)->members()) heap.append(items, member.first);
  } else {
    return fail(Code::invalid_argument, "a value of type {} cannot be walked through", type_name(value));
  }
  MYRIAD_TRY_STATUS(heap.budget().status());
  return items;
}

Result<std::int64_t> length(const Value& value, Budget& budget) {
  if (is<Undefined>(value)) return 0;
  if (const Text* text = text_of(value)) {
    budget.work(text->bytes().size());
    return static_cast<std::int64_t>(count_characters(text->bytes()));
  }
  if (const auto* list = std::get_if<List*>(&value); list != nullptr && (*list)->kind != List::Kind::once) {
    return static_cast<std::int64_t>((*list)->items.size());
  }
  if (const auto* dict = std::get_if<Dict*>(&value)) return static_cast<std::int64_t>((*dict)->members().size());
  return fail(Code::invalid_argument, "a value of type {} has no length", type_name(value));
}

}  // namespace myriad::jinja
