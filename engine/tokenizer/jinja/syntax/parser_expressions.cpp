#include "engine/tokenizer/jinja/syntax/parser.h"

namespace evalrun::engine::jinja {

using Type = Token::Type;
using Kinds = Expression::Type;

namespace {

std::vector<ExpressionPtr> listed(ExpressionPtr a, ExpressionPtr b = nullptr) {
  std::vector<ExpressionPtr> all;
  all.push_back(std::move(a));
  if (b != nullptr) all.push_back(std::move(b));
  return all;
}

}  // namespace

ExpressionPtr Parser::make(Expression::Type type, int line, std::vector<ExpressionPtr> operands) {
  auto e = std::make_unique<Expression>();
  e->type = type;
  e->line = line;
  e->operands = std::move(operands);
  return measured(std::move(e));
}

ExpressionPtr Parser::measured(ExpressionPtr e) const {
  const auto holds = [&](const ExpressionPtr& part) {
    if (part != nullptr) e->depth = std::max(e->depth, part->depth + 1);
  };
  for (const ExpressionPtr& part : e->operands) holds(part);
  for (const ExpressionPtr& part : e->arguments) holds(part);
  for (const auto& part : e->named) holds(part.second);
  holds(e->all_positional);
  holds(e->all_named);
  if (e->depth > kMaxDepth) fail_deep();
  return e;
}

bool Parser::is_tuple_end(Names ends) const {
  return is(Type::kVariableEnd) || is(Type::kBlockEnd) || is_operator(")") || is_name(ends);
}

ExpressionPtr Parser::parse_tuple(bool conditions, Names ends, bool parentheses) {
  const int line = current().line;
  std::vector<ExpressionPtr> parts;
  bool tuple = false;
  while (!is_tuple_end(ends)) {
    parts.push_back(parse_expression(conditions));
    if (!skip_operator(",")) break;
    tuple = true;
  }
  if (!tuple && !parts.empty()) return std::move(parts[0]);
  if (!tuple && !parentheses) fail_unexpected("an expression");
  return make(Kinds::kTuple, line, std::move(parts));
}

ExpressionPtr Parser::parse_expression(bool conditions) {
  const Nesting nesting(*this);
  if (!conditions) return parse_or();
  ExpressionPtr e = parse_or();
  while (is_name("if")) {
    const int line = take().line;
    std::vector<ExpressionPtr> parts = listed(parse_or(), std::move(e));
    if (skip_name("else")) parts.push_back(parse_expression());
    e = make(Kinds::kCondition, line, std::move(parts));
  }
  return e;
}

ExpressionPtr Parser::parse_or() {
  ExpressionPtr left = parse_and();
  while (is_name("or")) {
    const int line = take().line;
    left = make(Kinds::kOr, line, listed(std::move(left), parse_and()));
  }
  return left;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr left = parse_not();
  while (is_name("and")) {
    const int line = take().line;
    left = make(Kinds::kAnd, line, listed(std::move(left), parse_not()));
  }
  return left;
}

ExpressionPtr Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  const int line = take().line;
  return make(Kinds::kNot, line, listed(parse_not()));
}

ExpressionPtr Parser::parse_compare() {
  const int line = current().line;
  std::vector<ExpressionPtr> operands = listed(parse_sum());
  std::vector<std::string> compares;
  while (true) {
    if (is_operator("==") || is_operator("!=") || is_operator("<") || is_operator("<=") ||
        is_operator(">") || is_operator(">=")) {
      compares.push_back(take().text);
    } else if (skip_name("in")) {
      compares.emplace_back("in");
    } else if (is_name("not") && ahead().type == Type::kName && ahead().text == "in") {
      take();
      take();
      compares.emplace_back("not in");
    } else {
      break;
    }
    operands.push_back(parse_sum());
  }
  if (compares.empty()) return std::move(operands[0]);
  ExpressionPtr e = make(Kinds::kCompare, line, std::move(operands));
  e->compares = std::move(compares);
  return e;
}

ExpressionPtr Parser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (is_operator("+") || is_operator("-")) {
    const Token op = take();
    left = make(Kinds::kArithmetic, op.line, listed(std::move(left), parse_concat()));
    left->name = op.text;
  }
  return left;
}

ExpressionPtr Parser::parse_concat() {
  const int line = current().line;
  std::vector<ExpressionPtr> parts = listed(parse_product());
  while (skip_operator("~")) parts.push_back(parse_product());
  if (parts.size() == 1) return std::move(parts[0]);
  return make(Kinds::kConcat, line, std::move(parts));
}

ExpressionPtr Parser::parse_product() {
  ExpressionPtr left = parse_power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const Token op = take();
    left = make(Kinds::kArithmetic, op.line, listed(std::move(left), parse_power()));
    left->name = op.text;
  }
  return left;
}

ExpressionPtr Parser::parse_power() {
  ExpressionPtr left = parse_unary();
  while (is_operator("**")) {
    const Token op = take();
    left = make(Kinds::kArithmetic, op.line, listed(std::move(left), parse_unary()));
    left->name = op.text;
  }
  return left;
}

ExpressionPtr Parser::parse_unary(bool filters) {
  const Nesting nesting(*this);
  ExpressionPtr e;
  if (is_operator("-") || is_operator("+")) {
    const Token sign = take();
    e = make(sign.text == "-" ? Kinds::kNegate : Kinds::kPlus, sign.line,
             listed(parse_unary(false)));
  } else {
    e = parse_primary();
  }
  e = parse_postfix(std::move(e));
  return filters ? parse_filters_and_tests(std::move(e)) : std::move(e);
}

ExpressionPtr Parser::parse_primary() {
  const int line = current().line;
  const auto constant = [&](Value value) {
    ExpressionPtr e = make(Kinds::kConstant, line);
    e->value = std::move(value);
    return e;
  };
  if (is(Type::kName)) {
    const std::string name = take().text;
    if (name == "true" || name == "True") return constant(Value::boolean(true));
    if (name == "false" || name == "False") return constant(Value::boolean(false));
    if (name == "none" || name == "None") return constant(Value::none());
    for (MacroCode* code : codes_) {
      code->uses_varargs |= name == "varargs";
      code->uses_kwargs |= name == "kwargs";
      code->uses_caller |= name == "caller";
    }
    ExpressionPtr e = make(Kinds::kName, line);
    e->name = name;
    return e;
  }
  if (is(Type::kText)) {
    std::string text = take().text;
    while (is(Type::kText)) text += take().text;
    return constant(Value(Kind::kText, std::make_shared<Text>(std::move(text))));
  }
  if (is(Type::kInteger)) return constant(Value::integer(take().integer));
  if (is(Type::kFloat)) return constant(Value::number(take().number));
  if (skip_operator("(")) {
    ExpressionPtr e = parse_tuple(true, {}, true);
    expect_operator(")");
    return e;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  fail_unexpected("an expression");
}

ExpressionPtr Parser::parse_list() {
  const int line = take().line;
  std::vector<ExpressionPtr> items;
  while (!is_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (is_operator("]")) break;
    items.push_back(parse_expression());
  }
  take();
  return make(Kinds::kList, line, std::move(items));
}

ExpressionPtr Parser::parse_dict() {
  const int line = take().line;
  std::vector<ExpressionPtr> items;
  while (!is_operator("}")) {
    if (!items.empty()) expect_operator(",");
    if (is_operator("}")) break;
    items.push_back(parse_expression());
    expect_operator(":");
    items.push_back(parse_expression());
  }
  take();
  return make(Kinds::kDict, line, std::move(items));
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr e) {
  while (true) {
    if (is_operator(".") || is_operator("["))
      e = parse_subscript(std::move(e));
    else if (is_operator("("))
      e = parse_call(std::move(e));
    else
      return e;
  }
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr e) {
  while (true) {
    if (is_operator("|"))
      e = parse_filter(std::move(e));
    else if (is_name("is"))
      e = parse_test(std::move(e));
    else if (is_operator("("))
      e = parse_call(std::move(e));
    else
      return e;
  }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr e) {
  const Token token = take();
  if (token.text == "[") return parse_subscribed(std::move(e), token.line);
  if (is(Type::kName)) {
    ExpressionPtr made = make(Kinds::kAttribute, token.line, listed(std::move(e)));
    made->name = take().text;
    return made;
  }
  if (!is(Type::kInteger)) fail_unexpected("a name or a number");
  ExpressionPtr index = make(Kinds::kConstant, token.line);
  index->value = Value::integer(take().integer);
  return make(Kinds::kItem, token.line, listed(std::move(e), std::move(index)));
}

// After "[": an index, several of them (a tuple), or a slice.
ExpressionPtr Parser::parse_subscribed(ExpressionPtr of, int line) {
  std::vector<ExpressionPtr> indices;
  const auto none = [&] {
    ExpressionPtr e = make(Kinds::kConstant, line);
    e->value = Value::none();
    return e;
  };
  while (!is_operator("]")) {
    if (!indices.empty()) expect_operator(",");
    ExpressionPtr first = is_operator(":") ? none() : parse_expression();
    if (!is_operator(":")) {
      indices.push_back(std::move(first));
      continue;
    }
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(of));
    parts.push_back(std::move(first));
    while (parts.size() < 4 && skip_operator(":"))
      parts.push_back(is_operator(":") || is_operator("]") ? none() : parse_expression());
    while (parts.size() < 4) parts.push_back(none());
    if (!indices.empty() || !is_operator("]")) fail("a slice must stand alone", line);
    take();
    return make(Kinds::kSlice, line, std::move(parts));
  }
  take();
  if (indices.size() == 1)
    return make(Kinds::kItem, line, listed(std::move(of), std::move(indices[0])));
  return make(Kinds::kItem, line,
              listed(std::move(of), make(Kinds::kTuple, line, std::move(indices))));
}

void Parser::parse_arguments(Expression& e) {
  const int line = current().line;
  expect_operator("(");
  const auto ensure = [&](bool good) {
    if (!good) fail("arguments are in a wrong order", line);
  };
  bool first = true;
  while (!is_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (is_operator(")")) break;
    }
    first = false;
    if (skip_operator("*")) {
      ensure(e.all_positional == nullptr && e.all_named == nullptr);
      e.all_positional = parse_expression();
    } else if (skip_operator("**")) {
      ensure(e.all_named == nullptr);
      e.all_named = parse_expression();
    } else if (is(Type::kName) && ahead().type == Type::kOperator && ahead().text == "=") {
      ensure(e.all_named == nullptr);
      std::string name = take().text;
      take();
      e.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(e.all_positional == nullptr && e.all_named == nullptr && e.named.empty());
      e.arguments.push_back(parse_expression());
    }
  }
  take();
}

ExpressionPtr Parser::parse_call(ExpressionPtr e) {
  ExpressionPtr call = make(Kinds::kCall, current().line, listed(std::move(e)));
  parse_arguments(*call);
  return measured(std::move(call));
}

std::string Parser::parse_dotted_name() {
  std::string name = take_name();
  while (skip_operator(".")) name += "." + take_name();
  return name;
}

ExpressionPtr Parser::parse_filter(ExpressionPtr e, bool pipe_is_taken) {
  while (pipe_is_taken || is_operator("|")) {
    if (!pipe_is_taken) take();
    pipe_is_taken = false;
    ExpressionPtr made = make(Kinds::kFilter, current().line, listed(std::move(e)));
    made->name = parse_dotted_name();
    if (is_operator("(")) parse_arguments(*made);
    e = measured(std::move(made));
  }
  return e;
}

ExpressionPtr Parser::parse_test(ExpressionPtr e) {
  const int line = take().line;
  const bool negated = skip_name("not");
  ExpressionPtr test = make(Kinds::kTest, line, listed(std::move(e)));
  test->name = parse_dotted_name();
  if (is_operator("(")) {
    parse_arguments(*test);
  } else if ((is(Type::kName) && !is_name({"else", "or", "and"})) || is(Type::kText) ||
             is(Type::kInteger) || is(Type::kFloat) || is_operator("[") || is_operator("{")) {
    if (is_name("is")) fail("tests with 'is' cannot be chained", current().line);
    test->arguments.push_back(parse_postfix(parse_primary()));
  }
  test = measured(std::move(test));
  return negated ? make(Kinds::kNot, line, listed(std::move(test))) : std::move(test);
}

}  // namespace evalrun::engine::jinja
