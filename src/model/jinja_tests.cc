// What can stand behind `is`.
#include <array>
#include <string>

#include "model/jinja_operators.h"
#include "model/jinja_print.h"
#include "model/jinja_strings.h"
#include "model/jinja_tables.h"

namespace myriad::jinja {
namespace {

Result<bool> plain(const Arguments& arguments, bool answer) {
  if (!arguments.positional.empty() || !arguments.named.empty()) {
    return fail(Code::invalid_argument, "this test takes no arguments");
  }
  return answer;
}

Result<bool> defined(Heap&, const Value& value, const Arguments& a) {
  return plain(a, !is<Undefined>(value));
}
Result<bool> undefined(Heap&, const Value& value, const Arguments& a) {
  return plain(a, is<Undefined>(value));
}
Result<bool> none(Heap&, const Value& value, const Arguments& a) {
  return plain(a, is<None>(value));
}
Result<bool> string(Heap&, const Value& value, const Arguments& a) {
  return plain(a, is<TextPtr>(value));
}
Result<bool> boolean(Heap&, const Value& value, const Arguments& a) {
  return plain(a, is<bool>(value));
}
Result<bool> integer(Heap&, const Value& value, const Arguments& a) {
  return plain(a, is<std::int64_t>(value) || is<BigInteger>(value));
}
Result<bool> real(Heap&, const Value& value, const Arguments& a) {
  return plain(a, is<double>(value));
}
Result<bool> number(Heap&, const Value& value, const Arguments& a) {
  return plain(a, is<std::int64_t>(value) || is<BigInteger>(value) || is<double>(value) || is<bool>(value));
}
Result<bool> mapping(Heap&, const Value& value, const Arguments& a) {
  return plain(a, is<Dict*>(value));
}
// What has a length and can be indexed; to Jinja that holds for dicts and for undefined values too.
Result<bool> sequence(Heap&, const Value& value, const Arguments& a) {
  const auto* list = std::get_if<List*>(&value);
  return plain(a, is<TextPtr>(value) || is<Dict*>(value) || is<Undefined>(value) ||
                      (list != nullptr && (*list)->has_positions()));
}
Result<bool> iterable(Heap&, const Value& value, const Arguments& a) {
  return plain(a, is<TextPtr>(value) || is<Dict*>(value) || is<Undefined>(value) || is<List*>(value));
}
Result<bool> callable(Heap&, const Value& value, const Arguments& a) {
  // In Jinja what is undefined has a call, which is an error, and so has `loop`.
  return plain(a, is<Callable*>(value) || is<Undefined>(value) || is<Loop*>(value));
}
template <bool Wanted>
Result<bool> exactly(Heap&, const Value& value, const Arguments& a) {
  const auto* found = std::get_if<bool>(&value);
  return plain(a, found != nullptr && *found == Wanted);
}
template <bool Upper>
Result<bool> letters(Heap& heap, const Value& value, const Arguments& a) {
  MYRIAD_TRY(const TextPtr text, str(value, heap.budget()));
  heap.budget().work(text->bytes().size());
  return plain(a, has_case(text->bytes(), Upper));
}

Result<bool> divisible(Heap& heap, const Value& value, const Arguments& a) {
  MYRIAD_TRY(const Bound bound, Bound::of("divisibleby", a, {"num"}, 1));
  if (text_of(value) != nullptr) return fail(Code::invalid_argument, "a test of divisibility of a string");
  MYRIAD_TRY(const Value rest, calculate(Operator::modulo, value, *bound[0], heap));
  return !truthy(rest);
}
template <bool Odd>
Result<bool> parity(Heap& heap, const Value& value, const Arguments& a) {
  if (text_of(value) != nullptr) return fail(Code::invalid_argument, "a test of parity of a string");
  MYRIAD_TRY(const Value rest, calculate(Operator::modulo, value, std::int64_t{2}, heap));
  MYRIAD_TRY(const bool answer, equal(rest, std::int64_t{Odd ? 1 : 0}, heap.budget()));
  return plain(a, answer);
}

template <Operator Op>
Result<bool> comparison(Heap& heap, const Value& value, const Arguments& a) {
  MYRIAD_TRY(const Bound bound, Bound::of("a comparison", a, {"other"}, 1));
  return holds(Op, value, *bound[0], heap);
}

Result<bool> same(Heap& heap, const Value& value, const Arguments& a) {
  MYRIAD_TRY(const Bound bound, Bound::of("sameas", a, {"other"}, 1));
  if (value.index() != bound[0]->index()) return false;
  if (const auto* list = std::get_if<List*>(&value)) return *list == std::get<List*>(*bound[0]);
  if (const auto* dict = std::get_if<Dict*>(&value)) return *dict == std::get<Dict*>(*bound[0]);
  return equal(value, *bound[0], heap.budget());
}

Result<bool> filter_exists(Heap&, const Value& value, const Arguments& a) {
  return plain(a, text_of(value) != nullptr && find_filter(text_of(value)->bytes()) != nullptr);
}
Result<bool> test_exists(Heap&, const Value& value, const Arguments& a) {
  return plain(a, text_of(value) != nullptr && find_test(text_of(value)->bytes()) != nullptr);
}

constexpr std::array<Entry<Test>, 38> kTests{{
    {"!=", comparison<Operator::not_equal>},
    {"<", comparison<Operator::less>},
    {"<=", comparison<Operator::less_equal>},
    {"==", comparison<Operator::equal>},
    {">", comparison<Operator::greater>},
    {">=", comparison<Operator::greater_equal>},
    {"boolean", boolean},
    {"callable", callable},
    {"defined", defined},
    {"divisibleby", divisible},
    {"eq", comparison<Operator::equal>},
    {"equalto", comparison<Operator::equal>},
    {"even", parity<false>},
    {"false", exactly<false>},
    {"filter", filter_exists},
    {"float", real},
    {"ge", comparison<Operator::greater_equal>},
    {"greaterthan", comparison<Operator::greater>},
    {"gt", comparison<Operator::greater>},
    {"in", comparison<Operator::in>},
    {"integer", integer},
    {"iterable", iterable},
    {"le", comparison<Operator::less_equal>},
    {"lessthan", comparison<Operator::less>},
    {"lower", letters<false>},
    {"lt", comparison<Operator::less>},
    {"mapping", mapping},
    {"ne", comparison<Operator::not_equal>},
    {"none", none},
    {"number", number},
    {"odd", parity<true>},
    {"sameas", same},
    {"sequence", sequence},
    {"string", string},
    {"test", test_exists},
    {"true", exactly<true>},
    {"undefined", undefined},
    {"upper", letters<true>},
}};
static_assert(is_sorted(kTests));

}  // namespace

Test find_test(std::string_view name) {
  return find_entry(kTests, name);
}

}  // namespace myriad::jinja
