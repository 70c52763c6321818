#include <array>
#include <charconv>

#include "model/jinja_parser.h"

namespace myriad::jinja {
namespace {

struct Infix {
  std::string_view sign;
  int level;
  Operator meaning;
};
constexpr int kOr = 1, kAnd = 2, kNot = 3, kCompare = 4, kAdd = 5, kConcatenate = 6, kMultiply = 7, kPower = 8;
constexpr std::array<Infix, 14> kInfix{{
    {"==", kCompare, Operator::equal},
    {"!=", kCompare, Operator::not_equal},
    {"<", kCompare, Operator::less},
    {"<=", kCompare, Operator::less_equal},
    {">", kCompare, Operator::greater},
    {">=", kCompare, Operator::greater_equal},
    {"+", kAdd, Operator::add},
    {"-", kAdd, Operator::subtract},
    {"~", kConcatenate, Operator::concatenate},
    {"*", kMultiply, Operator::multiply},
    {"/", kMultiply, Operator::divide},
    {"//", kMultiply, Operator::floor_divide},
    {"%", kMultiply, Operator::modulo},
    {"**", kPower, Operator::power},
}};

// Of parts, which may be null.
std::uint32_t deepest(std::initializer_list<const Expression*> parts) {
  std::uint32_t depth = 0;
  for (const Expression* part : parts) {
    if (part != nullptr) depth = std::max(depth, part->depth);
  }
  return depth;
}
std::uint32_t deepest(const Expression& part, const ArgumentList& arguments) {
  std::uint32_t depth = part.depth;
  for (const auto& argument : arguments.positional) depth = std::max(depth, argument->depth);
  for (const auto& argument : arguments.named) depth = std::max(depth, argument.second->depth);
  return std::max(depth, deepest({arguments.list.get(), arguments.dict.get()}));
}

std::string without_underscores(std::string_view text) {
  std::string out(text);
  std::erase(out, '_');
  return out;
}

}  // namespace

Result<ExpressionPtr> Parser::make(std::uint32_t at, decltype(Expression::node) node, std::uint32_t deepest) {
  ++nodes_;
  MYRIAD_TRY_STATUS(within_limits(deepest + 1));
  return std::make_unique<Expression>(Expression{at, deepest + 1, std::move(node)});
}

Result<ExpressionPtr> Parser::expression() {
  const Nested nested(*this);
  MYRIAD_TRY_STATUS(within_limits(0));
  MYRIAD_TRY(ExpressionPtr value, operators());
  while (is_word("if")) {
    const std::uint32_t at = token().from;
    ++at_;
    MYRIAD_TRY(ExpressionPtr condition, operators());
    ExpressionPtr otherwise;
    if (skip_word("else")) {
      MYRIAD_TRY(otherwise, expression());
    }
    const std::uint32_t depth = deepest({condition.get(), value.get(), otherwise.get()});
    MYRIAD_TRY(value, make(at, Conditional{std::move(condition), std::move(value), std::move(otherwise)}, depth));
  }
  return value;
}

Result<ExpressionPtr> Parser::operators(int level) {
  ExpressionPtr left;
  if (level <= kNot && is_word("not")) {
    const Nested nested(*this);
    MYRIAD_TRY_STATUS(within_limits(0));
    const std::uint32_t at = token().from;
    ++at_;
    MYRIAD_TRY(ExpressionPtr operand, operators(kNot));
    const std::uint32_t depth = operand->depth;
    MYRIAD_TRY(left, make(at, Not{std::move(operand)}, depth));
  } else {
    MYRIAD_TRY(left, unary(true));
  }
  // Operators of one level that follow each other become one node, however many there are.
  int chained = 0;
  for (;;) {
    const std::uint32_t at = token().from;
    int found = 0;
    Operator meaning = Operator::add;
    std::size_t length = 1;
    if (is_word("or")) {
      found = kOr;
    } else if (is_word("and")) {
      found = kAnd;
    } else if (is_word("in")) {
      found = kCompare;
      meaning = Operator::in;
    } else if (is_word("not") && is_word("in", 1)) {
      found = kCompare;
      meaning = Operator::not_in;
      length = 2;
    } else if (token().kind == Kind::sign) {
      for (const Infix& infix : kInfix) {
        if (infix.sign == text()) {
          found = infix.level;
          meaning = infix.meaning;
        }
      }
    }
    if (found == 0 || found < level) return left;
    at_ += length;
    MYRIAD_TRY(ExpressionPtr right, operators(found + 1));
    if (chained != found) {
      const std::uint32_t depth = left->depth;
      if (found <= kAnd) {
        std::vector<ExpressionPtr> operands;
        operands.push_back(std::move(left));
        MYRIAD_TRY(left, make(at, Logic{found == kOr, std::move(operands)}, depth));
      } else if (found == kCompare) {
        MYRIAD_TRY(left, make(at, Comparison{std::move(left), {}}, depth));
      } else {
        MYRIAD_TRY(left, make(at, Chain{std::move(left), {}}, depth));
      }
      chained = found;
    }
    left->depth = std::max(left->depth, right->depth + 1);
    MYRIAD_TRY_STATUS(within_limits(left->depth));
    if (auto* logic = std::get_if<Logic>(&left->node)) {
      logic->operands.push_back(std::move(right));
    } else if (auto* comparison = std::get_if<Comparison>(&left->node)) {
      comparison->rest.emplace_back(meaning, std::move(right));
    } else {
      std::get<Chain>(left->node).rest.emplace_back(meaning, std::move(right));
    }
  }
}

Result<ExpressionPtr> Parser::tuple(bool conditional) {
  const std::uint32_t at = token().from;
  MYRIAD_TRY(ExpressionPtr first, conditional ? expression() : operators());
  if (!is_sign(",")) return first;
  ListLiteral list{true, {}};
  std::uint32_t depth = first->depth;
  list.items.push_back(std::move(first));
  while (skip_sign(",")) {
    if (token().kind == Kind::block_end || token().kind == Kind::variable_end || is_sign(")")) break;
    MYRIAD_TRY(ExpressionPtr next, conditional ? expression() : operators());
    depth = std::max(depth, next->depth);
    list.items.push_back(std::move(next));
  }
  return make(at, std::move(list), depth);
}

Result<ExpressionPtr> Parser::unary(bool filters) {
  ExpressionPtr value;
  if (is_sign("-") || is_sign("+")) {
    const Nested nested(*this);
    MYRIAD_TRY_STATUS(within_limits(0));
    const std::uint32_t at = token().from;
    const bool negative = is_sign("-");
    ++at_;
    MYRIAD_TRY(ExpressionPtr operand, unary(false));
    const std::uint32_t depth = operand->depth;
    MYRIAD_TRY(value, make(at, Sign{negative, std::move(operand)}, depth));
  } else {
    MYRIAD_TRY(value, primary());
  }
  MYRIAD_TRY(value, postfix(std::move(value)));
  if (!filters) return value;
  return filters_and_tests(std::move(value));
}

Result<ExpressionPtr> Parser::primary() {
  const std::uint32_t at = token().from;
  switch (token().kind) {
    case Kind::name: {
      const std::string_view word = text();
      for (const std::string_view reserved : {"and", "or", "not", "in", "is", "if", "else"}) {
        if (word == reserved) return unexpected("a value");
      }
      ++at_;
      if (word == "true" || word == "True") return make(at, Literal{true}, 0);
      if (word == "false" || word == "False") return make(at, Literal{false}, 0);
      if (word == "none" || word == "None") return make(at, Literal{None{}}, 0);
      return make(at, Variable{intern(word), find_global(word)}, 0);
    }
    case Kind::string:
      return string_literal();
    case Kind::integer:
    case Kind::real:
      return number_literal();
    case Kind::sign:
      if (is_sign("(")) return parentheses();
      if (is_sign("[")) return list_literal();
      if (is_sign("{")) return dict_literal();
      break;
    default:
      break;
  }
  return unexpected("a value");
}

Result<ExpressionPtr> Parser::string_literal() {
  const std::uint32_t at = token().from;
  std::string value;
  while (token().kind == Kind::string) {  // neighbours are one string
    auto part = unescaped(text());
    if (!part) return this->at(part.error().code, token().from, part.error().message);
    value += *part;
    ++at_;
  }
  return make(at, Literal{std::make_shared<const Text>(std::move(value), true)}, 0);
}

Result<ExpressionPtr> Parser::number_literal() {
  const std::uint32_t at = token().from;
  const bool whole = token().kind == Kind::integer;
  const std::string digits = without_underscores(text());
  ++at_;
  const char *begin = digits.data(), *end = digits.data() + digits.size();
  if (!whole) {
    double value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc{}) {
      return this->at(Code::limit, at, "the number is out of the range of real numbers");
    }
    return make(at, Literal{value}, 0);
  }
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    base = digits[1] == 'x' || digits[1] == 'X' ? 16 : digits[1] == 'o' || digits[1] == 'O' ? 8 : 2;
    if (digits[1] >= '0' && digits[1] <= '9') base = 10;
    if (base != 10) begin += 2;
  }
  std::int64_t value = 0;
  const auto [last, error] = std::from_chars(begin, end, value, base);
  if (error == std::errc::result_out_of_range) return this->at(Code::limit, at, "the number does not fit into 64 bits");
  if (error != std::errc{} || last != end) return this->at(Code::corrupt, at, "this is no number");
  return make(at, Literal{value}, 0);
}

Result<ExpressionPtr> Parser::parentheses() {
  const std::uint32_t at = token().from;
  ++at_;
  if (skip_sign(")")) return make(at, ListLiteral{true, {}}, 0);
  MYRIAD_TRY(ExpressionPtr value, tuple(true));
  MYRIAD_TRY_STATUS(expect_sign(")"));
  return value;
}

Result<ExpressionPtr> Parser::list_literal() {
  const std::uint32_t at = token().from;
  ++at_;
  ListLiteral list{false, {}};
  std::uint32_t depth = 0;
  while (!is_sign("]")) {
    if (!list.items.empty()) {
      MYRIAD_TRY_STATUS(expect_sign(","));
      if (is_sign("]")) break;
    }
    MYRIAD_TRY(ExpressionPtr item, expression());
    depth = std::max(depth, item->depth);
    list.items.push_back(std::move(item));
  }
  ++at_;
  return make(at, std::move(list), depth);
}

Result<ExpressionPtr> Parser::dict_literal() {
  const std::uint32_t at = token().from;
  ++at_;
  DictLiteral dict;
  std::uint32_t depth = 0;
  while (!is_sign("}")) {
    if (!dict.members.empty()) {
      MYRIAD_TRY_STATUS(expect_sign(","));
      if (is_sign("}")) break;
    }
    MYRIAD_TRY(ExpressionPtr key, expression());
    MYRIAD_TRY_STATUS(expect_sign(":"));
    MYRIAD_TRY(ExpressionPtr value, expression());
    depth = std::max({depth, key->depth, value->depth});
    dict.members.emplace_back(std::move(key), std::move(value));
  }
  ++at_;
  return make(at, std::move(dict), depth);
}

Result<ExpressionPtr> Parser::postfix(ExpressionPtr object) {
  for (;;) {
    if (is_sign(".")) {
      MYRIAD_TRY(object, attribute(std::move(object)));
    } else if (is_sign("[")) {
      MYRIAD_TRY(object, subscript(std::move(object)));
    } else if (is_sign("(")) {
      MYRIAD_TRY(object, call(std::move(object)));
    } else {
      return object;
    }
  }
}

Result<ExpressionPtr> Parser::filters_and_tests(ExpressionPtr operand) {
  for (;;) {
    if (is_sign("|")) {
      const std::uint32_t at = token(1).from;
      ++at_;
      MYRIAD_TRY(Filter made, filter());
      const std::uint32_t depth = deepest(*operand, made.arguments);
      made.operand = std::move(operand);
      MYRIAD_TRY(operand, make(at, std::move(made), depth));
    } else if (is_word("is")) {
      MYRIAD_TRY(operand, test(std::move(operand)));
    } else if (is_sign("(")) {
      MYRIAD_TRY(operand, call(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Result<ExpressionPtr> Parser::attribute(ExpressionPtr object) {
  const std::uint32_t at = token(1).from;
  ++at_;
  const std::uint32_t depth = object->depth;
  if (token().kind == Kind::integer) {
    MYRIAD_TRY(ExpressionPtr index, number_literal());
    return make(at, Subscript{std::move(object), std::move(index)}, depth);
  }
  MYRIAD_TRY(const NamePtr member, name("an attribute's name"));
  return make(at, Attribute{std::move(object), member}, depth);
}

Result<ExpressionPtr> Parser::subscript(ExpressionPtr object) {
  const std::uint32_t at = token().from;
  ++at_;
  std::array<ExpressionPtr, 3> bounds;
  bool slice = false;
  if (!is_sign(":")) {
    MYRIAD_TRY(bounds[0], expression());
  }
  for (std::size_t i = 1; i < 3 && is_sign(":"); ++i) {
    ++at_;
    slice = true;
    if (!is_sign(":") && !is_sign("]")) {
      MYRIAD_TRY(bounds[i], expression());
    }
  }
  MYRIAD_TRY_STATUS(expect_sign("]"));
  const std::uint32_t depth = deepest({object.get(), bounds[0].get(), bounds[1].get(), bounds[2].get()});
  if (!slice) return make(at, Subscript{std::move(object), std::move(bounds[0])}, depth);
  return make(at, Slice{std::move(object), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2])}, depth);
}

Result<ExpressionPtr> Parser::call(ExpressionPtr callee) {
  const std::uint32_t at = token().from;
  MYRIAD_TRY(ArgumentList given, arguments());
  const std::uint32_t depth = deepest(*callee, given);
  return make(at, Call{std::move(callee), std::move(given)}, depth);
}

Result<ArgumentList> Parser::arguments() {
  MYRIAD_TRY_STATUS(expect_sign("("));
  ArgumentList list;
  for (bool first = true; !is_sign(")"); first = false) {
    if (!first) {
      MYRIAD_TRY_STATUS(expect_sign(","));
      if (is_sign(")")) break;
    }
    if (is_sign("*") || is_sign("**")) {
      ExpressionPtr& spread = is_sign("*") ? list.list : list.dict;
      if (spread != nullptr || list.dict != nullptr) return unexpected("an argument of another kind");
      ++at_;
      MYRIAD_TRY(spread, expression());
      continue;
    }
    if (list.dict != nullptr) return unexpected("no argument after '**'");
    if (token().kind == Kind::name && is_sign("=", 1)) {
      const NamePtr keyword = intern(text());
      at_ += 2;
      MYRIAD_TRY(ExpressionPtr value, expression());
      list.named.emplace_back(keyword, std::move(value));
    } else {
      if (!list.named.empty() || list.list != nullptr) return unexpected("an argument with a name");
      MYRIAD_TRY(ExpressionPtr value, expression());
      list.positional.push_back(std::move(value));
    }
  }
  ++at_;
  return list;
}

Result<std::string> Parser::dotted_name() {
  MYRIAD_TRY(const NamePtr first, name("a name"));
  std::string whole = *first;
  while (skip_sign(".")) {
    MYRIAD_TRY(const NamePtr next, name("a name"));
    whole += "." + *next;
  }
  return whole;
}

Result<Filter> Parser::filter() {
  MYRIAD_TRY(std::string which, dotted_name());
  Filter made{nullptr, std::move(which), nullptr, {}};
  made.function = find_filter(made.name);
  if (is_sign("(")) {
    MYRIAD_TRY(made.arguments, arguments());
  }
  return made;
}

Result<ExpressionPtr> Parser::test(ExpressionPtr operand) {
  const std::uint32_t at = token(1).from;
  ++at_;
  const bool negated = skip_word("not");
  MYRIAD_TRY(std::string which, dotted_name());
  TestCall made{std::move(operand), std::move(which), nullptr, negated, {}};
  made.function = find_test(made.name);
  const bool begins_value = token().kind == Kind::name || token().kind == Kind::string ||
                            token().kind == Kind::integer || token().kind == Kind::real || is_sign("[") || is_sign("{");
  if (is_sign("(")) {
    MYRIAD_TRY(made.arguments, arguments());
  } else if (begins_value && !is_word("else") && !is_word("or") && !is_word("and") && !is_word("if")) {
    if (is_word("is")) return unexpected("no second test of the same value");
    MYRIAD_TRY(ExpressionPtr value, primary());
    MYRIAD_TRY(value, postfix(std::move(value)));
    made.arguments.positional.push_back(std::move(value));
  }
  const std::uint32_t depth = deepest(*made.operand, made.arguments);
  return make(at, std::move(made), depth);
}

}  // namespace myriad::jinja
