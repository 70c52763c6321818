#include "model/jinja_budget.h"
#include "model/jinja_parser.h"

namespace myriad::jinja {

// ---- tokens ----

bool Parser::skip_sign(std::string_view sign) {
  if (!is_sign(sign)) return false;
  ++at_;
  return true;
}

bool Parser::skip_word(std::string_view word) {
  if (!is_word(word)) return false;
  ++at_;
  return true;
}

Status Parser::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) return unexpected(fmt::format("'{}'", sign));
  return {};
}

Status Parser::expect(Kind kind, std::string_view what) {
  if (token().kind != kind) return unexpected(what);
  ++at_;
  return {};
}

Result<NamePtr> Parser::name(std::string_view what) {
  if (token().kind != Kind::name) return unexpected(what);
  const NamePtr found = intern(text());
  ++at_;
  return found;
}

NamePtr Parser::intern(std::string_view name) {
  const auto found = syntax_.by_name.find(name);
  if (found != syntax_.by_name.end()) return found->second;
  const NamePtr made = &syntax_.names.emplace_back(name);
  syntax_.by_name.emplace(*made, made);
  return made;
}

// ---- errors ----

std::unexpected<Error> Parser::at(Code code, std::uint32_t offset, std::string_view what) const {
  return fail(code, "{}: {}", place_in(syntax_.source, offset), what);
}

std::unexpected<Error> Parser::unexpected(std::string_view expected) const {
  std::string found;
  switch (token().kind) {
    case Kind::end:
      found = "the end of the template";
      break;
    case Kind::variable_end:
    case Kind::block_end:
      found = "the end of the tag";
      break;
    default:
      found = fmt::format("'{}'", text().substr(0, 40));
  }
  return at(Code::corrupt, token().from, fmt::format("{} where {} is expected", found, expected));
}

Status Parser::within_limits(std::size_t depth) const {
  if (nesting_ > kMaxSyntaxDepth || depth > kMaxSyntaxDepth) {
    return at(Code::limit, token().from, fmt::format("the template is nested deeper than {} levels", kMaxSyntaxDepth));
  }
  if (nodes_ > kMaxSyntaxNodes) {
    return at(Code::limit, token().from, fmt::format("the template has more than {} parts", kMaxSyntaxNodes));
  }
  return {};
}

// ---- statements ----

Status Parser::parse() {
  MYRIAD_TRY(tokens_, tokenize(syntax_.source));
  syntax_.caller = intern("caller");
  syntax_.varargs = intern("varargs");
  syntax_.kwargs = intern("kwargs");
  syntax_.loop = intern("loop");
  std::string_view end;
  MYRIAD_TRY(syntax_.body, body({}, end));
  return {};
}

Result<Body> Parser::body(std::initializer_list<std::string_view> ends, std::string_view& end) {
  const Nested nested(*this);
  MYRIAD_TRY_STATUS(within_limits(0));
  Body statements;
  for (;;) {
    const std::uint32_t at = token().from;
    ++nodes_;
    MYRIAD_TRY_STATUS(within_limits(0));
    switch (token().kind) {
      case Kind::end:
        if (ends.size() > 0) return unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
        return statements;
      case Kind::data:
        statements.push_back({at, std::make_shared<const Text>(std::string(text()), true)});
        ++at_;
        break;
      case Kind::variable_begin: {
        ++at_;
        MYRIAD_TRY(ExpressionPtr value, tuple(true));
        MYRIAD_TRY_STATUS(expect(Kind::variable_end, "'}}'"));
        const std::uint32_t where = value->at;
        statements.push_back({where, Output{std::move(value)}});
        break;
      }
      default: {
        MYRIAD_TRY_STATUS(expect(Kind::block_begin, "a tag"));
        for (const std::string_view word : ends) {
          if (is_word(word)) {
            ++at_;
            end = word;
            return statements;
          }
        }
        MYRIAD_TRY(Statement made, statement());
        MYRIAD_TRY_STATUS(expect(Kind::block_end, "'%}'"));
        statements.push_back(std::move(made));
      }
    }
  }
}

Result<Body> Parser::block(std::initializer_list<std::string_view> ends, std::string_view& end) {
  skip_sign(":");
  MYRIAD_TRY_STATUS(expect(Kind::block_end, "'%}'"));
  return body(ends, end);
}

Result<Body> Parser::scoped_block(std::string_view end) {
  const std::size_t loops = std::exchange(loops_, 0);
  std::string_view found;
  MYRIAD_TRY(Body made, block({end}, found));
  loops_ = loops;
  return made;
}

Result<Statement> Parser::statement() {
  const std::uint32_t at = token().from;
  if (token().kind != Kind::name) return unexpected("a tag's name");
  const std::string_view tag = text();
  ++at_;
  if (tag == "if") return if_statement(at);
  if (tag == "for") return for_statement(at);
  if (tag == "set") return set_statement(at);
  if (tag == "macro") return macro_statement(at);
  if (tag == "call") return call_statement(at);
  if (tag == "filter") return filter_statement(at);
  if (tag == "generation") {
    MYRIAD_TRY(Body inner, scoped_block("endgeneration"));
    return Statement{at, ScopedBlock{std::move(inner)}};
  }
  if (tag == "break" || tag == "continue") {
    if (loops_ == 0) return this->at(Code::corrupt, at, fmt::format("'{}' outside of a loop", tag));
    return Statement{at, tag == "break" ? Jump::break_loop : Jump::continue_loop};
  }
  for (const std::string_view inner :
       {"elif", "else", "endif", "endfor", "endset", "endmacro", "endcall", "endfilter"}) {
    if (tag == inner) return this->at(Code::corrupt, at, fmt::format("'{}' without its beginning", tag));
  }
  return this->at(Code::unsupported, at, fmt::format("the tag '{}' is not part of the supported subset", tag));
}

Result<Statement> Parser::if_statement(std::uint32_t at) {
  If made;
  for (;;) {
    MYRIAD_TRY(ExpressionPtr condition, tuple(false));
    std::string_view end;
    MYRIAD_TRY(Body then, block({"elif", "else", "endif"}, end));
    made.branches.emplace_back(std::move(condition), std::move(then));
    if (end == "elif") continue;
    if (end == "else") {
      MYRIAD_TRY(made.otherwise, block({"endif"}, end));
    }
    return Statement{at, std::move(made)};
  }
}

Result<Statement> Parser::for_statement(std::uint32_t at) {
  For made;
  MYRIAD_TRY(made.target, target(false));
  if (!skip_word("in")) return unexpected("'in'");
  MYRIAD_TRY(made.items, tuple(false));
  if (skip_word("if")) {
    MYRIAD_TRY(made.filter, expression());
  }
  if (is_word("recursive")) return this->at(Code::unsupported, token().from, "a recursive loop");
  std::string_view end;
  ++loops_;
  MYRIAD_TRY(made.body, block({"else", "endfor"}, end));
  --loops_;
  if (end == "else") {
    MYRIAD_TRY(made.otherwise, block({"endfor"}, end));
  }
  return Statement{at, std::move(made)};
}

Result<Statement> Parser::set_statement(std::uint32_t at) {
  MYRIAD_TRY(Target to, target(true));
  if (skip_sign("=")) {
    MYRIAD_TRY(ExpressionPtr value, tuple(true));
    return Statement{at, Set{std::move(to), std::move(value)}};
  }
  if (!to.parts.empty()) return unexpected("'='");
  std::vector<Filter> filters;
  if (is_sign("|")) {
    ++at_;
    MYRIAD_TRY(filters, block_filters());
  }
  MYRIAD_TRY(Body inner, scoped_block("endset"));
  return Statement{at, SetBlock{std::move(to), std::move(filters), std::move(inner)}};
}

Result<std::vector<Filter>> Parser::block_filters() {
  std::vector<Filter> filters;
  do {
    MYRIAD_TRY(Filter made, filter());
    filters.push_back(std::move(made));
  } while (skip_sign("|"));
  return filters;
}

Result<Statement> Parser::filter_statement(std::uint32_t at) {
  MYRIAD_TRY(std::vector<Filter> filters, block_filters());
  MYRIAD_TRY(Body inner, scoped_block("endfilter"));
  return Statement{at, FilterBlock{std::move(filters), std::move(inner)}};
}

Status Parser::parameters(MacroNode& macro) {
  MYRIAD_TRY_STATUS(expect_sign("("));
  while (!is_sign(")")) {
    if (!macro.parameters.empty()) MYRIAD_TRY_STATUS(expect_sign(","));
    MYRIAD_TRY(const NamePtr parameter, name("a parameter's name"));
    ExpressionPtr otherwise;
    if (skip_sign("=")) {
      MYRIAD_TRY(otherwise, expression());
    } else if (!macro.parameters.empty() && macro.parameters.back().second != nullptr) {
      return unexpected("a default, as the parameter before has one,");
    }
    macro.parameters.emplace_back(parameter, std::move(otherwise));
  }
  ++at_;
  return {};
}

Result<Statement> Parser::macro_statement(std::uint32_t at) {
  auto made = std::make_unique<MacroNode>();
  MYRIAD_TRY(made->name, name("the macro's name"));
  MYRIAD_TRY_STATUS(parameters(*made));
  MYRIAD_TRY(made->body, macro_body(*made, "endmacro"));
  return Statement{at, std::move(made)};
}

Result<Body> Parser::macro_body(MacroNode& macro, std::string_view end) {
  const std::size_t from = at_;
  MYRIAD_TRY(Body body, scoped_block(end));
  for (std::size_t i = from; i < at_; ++i) {
    const Token& t = tokens_[i];
    if (t.kind != Kind::name) continue;
    const std::string_view word = std::string_view(syntax_.source).substr(t.from, t.to - t.from);
    macro.takes_list = macro.takes_list || word == "varargs";
    macro.takes_dict = macro.takes_dict || word == "kwargs";
  }
  return body;
}

Result<Statement> Parser::call_statement(std::uint32_t at) {
  CallBlock made{std::make_unique<MacroNode>(), nullptr};
  made.caller->name = syntax_.caller;
  if (is_sign("(")) MYRIAD_TRY_STATUS(parameters(*made.caller));
  MYRIAD_TRY(made.call, expression());
  if (!std::holds_alternative<Call>(made.call->node)) {
    return this->at(Code::corrupt, made.call->at, "a call block calls nothing");
  }
  MYRIAD_TRY(made.caller->body, macro_body(*made.caller, "endcall"));
  return Statement{at, std::move(made)};
}

Result<Target> Parser::target(bool members) {
  MYRIAD_TRY(Target first, target_part(members));
  if (!is_sign(",")) return first;
  Target several;
  several.parts.push_back(std::move(first));
  while (skip_sign(",")) {
    if (is_word("in") || is_sign("=") || is_sign(")")) break;
    MYRIAD_TRY(Target next, target_part(members));
    several.parts.push_back(std::move(next));
  }
  return several;
}

Result<Target> Parser::target_part(bool members) {
  if (is_sign("(")) {
    const Nested nested(*this);
    MYRIAD_TRY_STATUS(within_limits(0));
    ++at_;
    MYRIAD_TRY(Target inner, target(members));
    MYRIAD_TRY_STATUS(expect_sign(")"));
    return inner;
  }
  Target made;
  MYRIAD_TRY(made.name, name("a name to assign to"));
  if (members && skip_sign(".")) {
    MYRIAD_TRY(made.member, name("a member's name"));
  }
  return made;
}

Result<std::unique_ptr<const Syntax>> parse_syntax(std::string_view text) {
  if (text.size() > kMaxTemplateBytes) {
    return fail(Code::limit, "it has {} bytes, at most {} are supported", text.size(), kMaxTemplateBytes);
  }
  auto syntax = std::make_unique<Syntax>();
  syntax->source = normalized_source(text);
  MYRIAD_TRY_STATUS(Parser(*syntax).parse());
  return std::unique_ptr<const Syntax>(std::move(syntax));
}

}  // namespace myriad::jinja
