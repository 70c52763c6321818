#include "model/jinja_operators.h"

#include <cmath>
#include <limits>
#include <string_view>

#include "model/jinja_print.h"
#include "model/jinja_strings.h"

namespace myriad::jinja {
namespace {

std::string_view sign_of(Operator op) {
  switch (op) {
    case Operator::add:
      return "+";
    case Operator::subtract:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::floor_divide:
      return "//";
    case Operator::modulo:
      return "%";
    case Operator::power:
      return "**";
    default:
      return "~";
  }
}

std::unexpected<Error> too_large() {
  return fail(Code::limit, "the result does not fit into 64 bits");
}
std::unexpected<Error> by_zero() {
  return fail(Code::invalid_argument, "a division by zero");
}

// Towards minus infinity. b is neither 0 nor, with the smallest a, −1.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double floor_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

// The quotient without the rest, which a / b may round up to the next integer.
double floor_divide(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Result<Value> power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return by_zero();
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  std::int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) return too_large();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return too_large();
  }
  return result;
}

Result<Value> calculate_integers(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) return too_large();
      return result;
    case Operator::subtract:
      if (__builtin_sub_overflow(a, b, &result)) return too_large();
      return result;
    case Operator::multiply:
      if (__builtin_mul_overflow(a, b, &result)) return too_large();
      return result;
    case Operator::divide:
      if (b == 0) return by_zero();
      return static_cast<double>(a) / static_cast<double>(b);
    case Operator::floor_divide:
      if (b == 0) return by_zero();
      if (b == -1 && a == std::numeric_limits<std::int64_t>::min()) return too_large();
      return floor_divide(a, b);
    case Operator::modulo:
      if (b == 0) return by_zero();
      if (b == -1) return std::int64_t{0};
      return a - b * floor_divide(a, b);
    default:
      return power(a, b);
  }
}

Result<Value> calculate_reals(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::subtract:
      return a - b;
    case Operator::multiply:
      return a * b;
    case Operator::divide:
      if (b == 0) return by_zero();
      return a / b;
    case Operator::floor_divide:
      if (b == 0) return by_zero();
      return floor_divide(a, b);
    case Operator::modulo:
      if (b == 0) return by_zero();
      return floor_modulo(a, b);
    default: {
      if (a == 0 && b < 0) return by_zero();
      const double result = std::pow(a, b);
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) {
        return fail(Code::limit, "the result is out of the range of real numbers");
      }
      if (std::isnan(result)) return fail(Code::unsupported, "a power that is no real number");
      return result;
    }
  }
}

Result<Value> repeated(const Value& sequence, std::int64_t times, Heap& heap) {
  Budget& budget = heap.budget();
  if (const Text* text = text_of(sequence)) {
    TextBuilder out(budget);
    for (std::int64_t i = 0; i < times && !text->bytes().empty() && !budget.exceeded(); ++i) {
      out.append(*text);
      if (out.bytes().size() + text->bytes().size() > kMaxTextBytes && i + 1 < times) {
        return fail(Code::limit, "a string would have more than {} MiB", kMaxTextBytes >> 20);
      }
    }
    return std::move(out).finish();
  }
  const List& list = *std::get<List*>(sequence);
  List* made = heap.list(list.kind);
  for (std::int64_t i = 0; i < times && !list.items.empty() && !budget.exceeded(); ++i) {
    budget.work(list.items.size() * sizeof(Value));
    for (const Value& item : list.items) heap.append(made, item);
  }
  MYRIAD_TRY_STATUS(budget.status());
  return made;
}

bool is_sequence(const Value& value) {
  const auto* list = std::get_if<List*>(&value);
  return text_of(value) != nullptr || (list != nullptr && (*list)->has_positions());
}

Result<Value> joined(const Value& a, const Value& b, Heap& heap) {
  Budget& budget = heap.budget();
  if (text_of(a) != nullptr) {
    TextBuilder out(budget);
    out.append(*text_of(a));
    out.append(*text_of(b));
    return std::move(out).finish();
  }
  const List &x = *std::get<List*>(a), &y = *std::get<List*>(b);
  List* made = heap.list(x.kind);
  budget.work((x.items.size() + y.items.size()) * sizeof(Value));
  for (const Value& item : x.items) heap.append(made, item);
  for (const Value& item : y.items) heap.append(made, item);
  MYRIAD_TRY_STATUS(budget.status());
  return made;
}

}  // namespace

Result<Value> calculate(Operator op, const Value& a, const Value& b, Heap& heap) {
  if (op == Operator::concatenate) {
    TextBuilder out(heap.budget());
    MYRIAD_TRY_STATUS(append_str(out, a, heap.budget()));
    MYRIAD_TRY_STATUS(append_str(out, b, heap.budget()));
    return std::move(out).finish();
  }
  if (op == Operator::modulo && text_of(a) != nullptr) return format_percent(*text_of(a), b, heap);
  if (is<Undefined>(a)) return undefined_error(a);
  if (is<Undefined>(b)) return undefined_error(b);
  std::int64_t x = 0, y = 0;
  const bool a_whole = as_integer(a, x), b_whole = as_integer(b, y);
  if (a_whole && b_whole) return calculate_integers(op, x, y);
  double u = 0, v = 0;
  if (as_number(a, u) && as_number(b, v)) return calculate_reals(op, u, v);
  if (op == Operator::multiply && is_sequence(a) && b_whole) return repeated(a, y, heap);
  if (op == Operator::multiply && is_sequence(b) && a_whole) return repeated(b, x, heap);
  if (op == Operator::add && is_sequence(a) && is_sequence(b) && type_name(a) == type_name(b))
    return joined(a, b, heap);
  if (is<BigInteger>(a) || is<BigInteger>(b))
    return fail(Code::unsupported, "arithmetic with integers of over 64 bits");
  return fail(Code::invalid_argument, "'{}' between {} and {}", sign_of(op), type_name(a), type_name(b));
}

Result<bool> holds(Operator op, const Value& a, const Value& b, Heap& heap) {
  switch (op) {
    case Operator::equal:
      return equal(a, b, heap.budget());
    case Operator::not_equal: {
      MYRIAD_TRY(const bool same, equal(a, b, heap.budget()));
      return !same;
    }
    case Operator::in:
      return contains(b, a, heap);
    case Operator::not_in: {
      MYRIAD_TRY(const bool inside, contains(b, a, heap));
      return !inside;
    }
    default:
      break;
  }
  MYRIAD_TRY(const int order, compare(a, b, heap.budget()));
  switch (op) {
    case Operator::less:
      return order == -1;
    case Operator::less_equal:
      return order == -1 || order == 0;
    case Operator::greater:
      return order == 1;
    default:
      return order == 0 || order == 1;
  }
}

Result<Value> signed_value(bool negative, const Value& a) {
  std::int64_t integer = 0;
  if (as_integer(a, integer)) {
    if (negative && integer == std::numeric_limits<std::int64_t>::min()) return too_large();
    return negative ? -integer : integer;
  }
  if (const auto* real = std::get_if<double>(&a)) return negative ? -*real : *real;
  if (is<Undefined>(a)) return undefined_error(a);
  return fail(Code::invalid_argument, "a sign before a value of type {}", type_name(a));
}

}  // namespace myriad::jinja
