// The parser's state and its two halves, expressions and statements. Internal to them; see model/jinja_syntax.h.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja_lexer.h"
#include "model/jinja_syntax.h"

namespace myriad::jinja {

class Parser {
 public:
  explicit Parser(Syntax& syntax) : syntax_(syntax) {}
  Status parse();

 private:
  using Kind = Token::Kind;
  // Counts the nesting of the recursion.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) { ++parser_.nesting_; }
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  // ---- tokens ----
  [[nodiscard]] const Token& token(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  [[nodiscard]] std::string_view text(std::size_t ahead = 0) const {
    const Token& t = token(ahead);
    return std::string_view(syntax_.source).substr(t.from, t.to - t.from);
  }
  [[nodiscard]] bool is_sign(std::string_view sign, std::size_t ahead = 0) const {
    return token(ahead).kind == Kind::sign && text(ahead) == sign;
  }
  [[nodiscard]] bool is_word(std::string_view word, std::size_t ahead = 0) const {
    return token(ahead).kind == Kind::name && text(ahead) == word;
  }
  bool skip_sign(std::string_view sign);
  bool skip_word(std::string_view word);
  Status expect_sign(std::string_view sign);
  Status expect(Kind kind, std::string_view what);
  Result<NamePtr> name(std::string_view what);
  NamePtr intern(std::string_view name);

  // ---- errors ----
  [[nodiscard]] std::unexpected<Error> unexpected(std::string_view expected) const;
  [[nodiscard]] std::unexpected<Error> at(Code code, std::uint32_t offset, std::string_view what) const;
  // Errors: limit, if the recursion or the tree is too deep or the tree too large.
  Status within_limits(std::size_t depth) const;

  // ---- expressions (jinja_parse_expression.cc) ----
  // `deepest` is the depth of the deepest part.
  Result<ExpressionPtr> make(std::uint32_t at, decltype(Expression::node) node, std::uint32_t deepest);
  Result<ExpressionPtr> expression();              // with `if … else …`
  Result<ExpressionPtr> operators(int level = 1);  // of at least this precedence
  Result<ExpressionPtr> tuple(bool conditional);   // one expression, or several with commas
  Result<ExpressionPtr> unary(bool filters);
  Result<ExpressionPtr> primary();
  Result<ExpressionPtr> parentheses();
  Result<ExpressionPtr> list_literal();
  Result<ExpressionPtr> dict_literal();
  Result<ExpressionPtr> string_literal();
  Result<ExpressionPtr> number_literal();
  Result<ExpressionPtr> postfix(ExpressionPtr object);
  Result<ExpressionPtr> filters_and_tests(ExpressionPtr operand);
  Result<ExpressionPtr> attribute(ExpressionPtr object);
  Result<ExpressionPtr> subscript(ExpressionPtr object);
  Result<ExpressionPtr> call(ExpressionPtr callee);
  Result<ExpressionPtr> test(ExpressionPtr operand);
  Result<ArgumentList> arguments();
  Result<Filter> filter();  // from its name on
  Result<std::string> dotted_name();

  // ---- statements (jinja_parse_statement.cc) ----
  // Everything up to a tag that begins with one of the words, which `end` then is; or to the template's end if there
  // are no words.
  Result<Body> body(std::initializer_list<std::string_view> ends, std::string_view& end);
  // The same after the tag that opens it has ended; takes the end tag too, unless it is `else` or `elif`.
  Result<Body> block(std::initializer_list<std::string_view> ends, std::string_view& end);
  Result<Body> macro_body(MacroNode& macro, std::string_view end);  // and notes which arguments it takes
  Result<Body> scoped_block(std::string_view end);  // in which the loops around it cannot be left
  Result<Statement> statement();
  Result<Statement> if_statement(std::uint32_t at);
  Result<Statement> for_statement(std::uint32_t at);
  Result<Statement> set_statement(std::uint32_t at);
  Result<Statement> macro_statement(std::uint32_t at);
  Result<Statement> call_statement(std::uint32_t at);
  Result<Statement> filter_statement(std::uint32_t at);
  Status parameters(MacroNode& macro);
  Result<std::vector<Filter>> block_filters();
  Result<Target> target(bool members);
  Result<Target> target_part(bool members);

  Syntax& syntax_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::size_t nesting_ = 0, nodes_ = 0;
  std::size_t loops_ = 0;  // loops that a break here could leave
};

}  // namespace myriad::jinja
