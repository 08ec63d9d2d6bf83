#include "engine/tokenizer/jinja/syntax/parser.h"

#include <algorithm>

namespace evalrun::engine::jinja {

using Type = Token::Type;

Body parse(std::string_view source) { return Parser(tokenize(source)).parse_all(); }

Token Parser::take() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::is_operator(std::string_view text) const {
  return is(Type::kOperator) && current().text == text;
}
bool Parser::is_name(std::string_view text) const {
  return is(Type::kName) && current().text == text;
}
bool Parser::is_name(Names names) const {
  return is(Type::kName) && std::find(names.begin(), names.end(), current().text) != names.end();
}
bool Parser::skip_operator(std::string_view text) {
  const bool there = is_operator(text);
  if (there) take();
  return there;
}
bool Parser::skip_name(std::string_view text) {
  const bool there = is_name(text);
  if (there) take();
  return there;
}
void Parser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail_unexpected(fmt::format("'{}'", text).c_str());
}
void Parser::expect_name(std::string_view text) {
  if (!skip_name(text)) fail_unexpected(fmt::format("'{}'", text).c_str());
}
void Parser::expect(Type type, const char* what) {
  if (!is(type)) fail_unexpected(what);
  take();
}
std::string Parser::take_name() {
  if (!is(Type::kName)) fail_unexpected("a name");
  return take().text;
}

void Parser::fail(const std::string& why, int line) const { throw Fault(why, line); }

void Parser::fail_unexpected(const char* wanted) const {
  const Token& token = current();
  std::string found;
  switch (token.type) {
    case Type::kName:
    case Type::kOperator:
    case Type::kInteger:
    case Type::kFloat:
      found = fmt::format("'{}'", token.text);
      break;
    case Type::kText:
      found = "a text";
      break;
    case Type::kVariableEnd:
      found = "the end of an expression, '}}'";
      break;
    case Type::kBlockEnd:
      found = "the end of a statement, '%}'";
      break;
    default:
      found = "the end of the template";
  }
  fail(fmt::format("expected {}, found {}", wanted, found), token.line);
}

void Parser::fail_deep() const {
  fail(fmt::format("expressions or statements are nested deeper than {}", kMaxDepth),
       current().line);
}

Body Parser::parse_all() { return parse_body({}); }

Body Parser::parse_body(Names ends) {
  const Nesting nesting(*this);
  Body body;
  while (!is(Type::kEnd)) {
    const int line = current().line;
    Statement made;
    made.line = line;
    if (is(Type::kData)) {
      made.text = take().text;
    } else if (is(Type::kVariableBegin)) {
      take();
      made.type = Statement::Type::kPrint;
      made.expressions.push_back(parse_tuple(true, {}, false));
      expect(Type::kVariableEnd, "'}}'");
    } else {
      expect(Type::kBlockBegin, "'{%'");
      if (is_name(ends)) return body;
      made = parse_statement();
      made.line = line;
      expect(Type::kBlockEnd, "'%}'");
    }
    body.push_back(std::move(made));
  }
  if (ends.size() > 0)
    fail(fmt::format("the template ends inside of a statement; it needs {}",
                     fmt::join(ends, " or ")),
         current().line);
  return body;
}

Body Parser::parse_statements(Names ends, bool drop_end) {
  skip_operator(":");
  expect(Type::kBlockEnd, "'%}'");
  Body body = parse_body(ends);
  if (drop_end) take();
  return body;
}

Statement Parser::parse_statement() {
  const Token tag = current();
  if (tag.type != Type::kName) fail_unexpected("the name of a statement");
  if (tag.text == "if") return parse_if();
  if (tag.text == "for") return parse_for();
  if (tag.text == "set") return parse_set();
  if (tag.text == "with") return parse_with();
  if (tag.text == "macro") return parse_macro();
  if (tag.text == "call") return parse_call_block();
  if (tag.text == "print") return parse_print();
  if (tag.text == "block") return parse_block();
  take();
  Statement made;
  if (tag.text == "filter") {
    made.type = Statement::Type::kFilter;
    made.value = parse_filter(make(Expression::Type::kCaptured, tag.line), true);
    made.body = parse_statements({"endfilter"}, true);
  } else if (tag.text == "break" || tag.text == "continue") {
    if (loops_ == 0) fail(fmt::format("'{}' is outside of a loop", tag.text), tag.line);
    made.type = tag.text == "break" ? Statement::Type::kBreak : Statement::Type::kContinue;
  } else if (tag.text == "generation") {
    // It marks what the model wrote, for training. Its text is printed as it is.
    made.type = Statement::Type::kScope;
    const int outside = std::exchange(loops_, 0);
    made.body = parse_statements({"endgeneration"}, true);
    loops_ = outside;
  } else if (tag.text == "include" || tag.text == "import" || tag.text == "from" ||
             tag.text == "extends") {
    fail(fmt::format("'{}' reads another file; a chat template is one text", tag.text), tag.line);
  } else {
    fail(fmt::format("unknown statement '{}'", tag.text), tag.line);
  }
  return made;
}

Statement Parser::parse_if() {
  Statement made;
  made.type = Statement::Type::kIf;
  take();
  while (true) {
    Branch branch;
    branch.condition = parse_tuple(false, {}, false);
    branch.body = parse_statements({"elif", "else", "endif"}, false);
    made.branches.push_back(std::move(branch));
    const std::string end = take().text;
    if (end == "elif") continue;
    if (end == "else") {
      Branch last;
      last.body = parse_statements({"endif"}, true);
      made.branches.push_back(std::move(last));
    }
    return made;
  }
}

Statement Parser::parse_for() {
  Statement made;
  made.type = Statement::Type::kFor;
  take();
  made.target = parse_target(false, {"in"});
  expect_name("in");
  made.value = parse_tuple(false, {"recursive"}, false);
  if (skip_name("if")) made.condition = parse_expression();
  if (is_name("recursive")) fail("recursive loops are not supported", current().line);
  ++loops_;
  made.body = parse_statements({"endfor", "else"}, false);
  --loops_;
  if (take().text == "else") made.otherwise = parse_statements({"endfor"}, true);
  return made;
}

Statement Parser::parse_set() {
  Statement made;
  const int line = take().line;
  made.target = parse_target(true, {});
  if (skip_operator("=")) {
    made.type = Statement::Type::kSet;
    made.value = parse_tuple(true, {}, false);
    return made;
  }
  made.type = Statement::Type::kSetBlock;
  made.value = make(Expression::Type::kCaptured, line);
  if (is_operator("|")) made.value = parse_filter(std::move(made.value));
  made.body = parse_statements({"endset"}, true);
  return made;
}

Statement Parser::parse_with() {
  Statement made;
  made.type = Statement::Type::kWith;
  take();
  while (!is(Type::kBlockEnd) && !is(Type::kEnd)) {
    if (!made.targets.empty()) expect_operator(",");
    made.targets.push_back(parse_target(false, {}));
    expect_operator("=");
    made.expressions.push_back(parse_expression());
  }
  made.body = parse_statements({"endwith"}, true);
  return made;
}

void Parser::parse_signature(MacroCode& code) {
  expect_operator("(");
  while (!is_operator(")")) {
    if (!code.parameters.empty()) expect_operator(",");
    const int line = current().line;
    MacroCode::Parameter parameter{take_name(), nullptr};
    if (skip_operator("="))
      parameter.usual = parse_expression();
    else if (!code.parameters.empty() && code.parameters.back().usual != nullptr)
      fail("a parameter without a default follows one that has one", line);
    code.parameters.push_back(std::move(parameter));
  }
  take();
}

Statement Parser::parse_macro() {
  Statement made;
  made.type = Statement::Type::kMacro;
  take();
  made.code = std::make_unique<MacroCode>();
  made.code->name = take_name();
  codes_.push_back(made.code.get());
  parse_signature(*made.code);
  const int outside = std::exchange(loops_, 0);
  made.code->body = parse_statements({"endmacro"}, true);
  loops_ = outside;
  codes_.pop_back();
  return made;
}

Statement Parser::parse_call_block() {
  Statement made;
  made.type = Statement::Type::kCall;
  const int line = take().line;
  made.code = std::make_unique<MacroCode>();
  made.code->name = "caller";
  if (is_operator("(")) parse_signature(*made.code);
  made.value = parse_expression();
  if (made.value->type != Expression::Type::kCall) fail("expected a call", line);
  codes_.push_back(made.code.get());
  const int outside = std::exchange(loops_, 0);
  made.code->body = parse_statements({"endcall"}, true);
  loops_ = outside;
  codes_.pop_back();
  return made;
}

Statement Parser::parse_print() {
  Statement made;
  made.type = Statement::Type::kPrint;
  take();
  while (!is(Type::kBlockEnd) && !is(Type::kEnd)) {
    if (!made.expressions.empty()) expect_operator(",");
    made.expressions.push_back(parse_expression());
  }
  return made;
}

Statement Parser::parse_block() {
  Statement made;
  made.type = Statement::Type::kScope;
  take();
  const std::string name = take_name();
  skip_name("scoped");
  skip_name("required");
  const int outside = std::exchange(loops_, 0);
  made.body = parse_statements({"endblock"}, true);
  loops_ = outside;
  skip_name(name);
  return made;
}

// A name, name.attribute with_namespace, or a tuple of them.
ExpressionPtr Parser::parse_target(bool with_namespace, Names ends) {
  const Nesting nesting(*this);
  const int line = current().line;
  std::vector<ExpressionPtr> parts;
  bool tuple = false;
  while (true) {
    if (is_tuple_end(ends) || is_operator("=")) break;
    if (skip_operator("(")) {
      parts.push_back(parse_target(with_namespace, {}));
      expect_operator(")");
    } else {
      const int at = current().line;
      auto part = make(Expression::Type::kName, at);
      part->name = take_name();
      for (const char* fixed : {"true", "false", "none", "True", "False", "None"})
        if (part->name == fixed) fail(fmt::format("cannot assign to '{}'", fixed), at);
      if (with_namespace && skip_operator(".")) {
        part->type = Expression::Type::kNamespaceTarget;
        part->value = Value(Kind::kText, std::make_shared<Text>(take_name()));
      }
      parts.push_back(std::move(part));
    }
    if (!skip_operator(",")) break;
    tuple = true;
  }
  if (parts.empty()) fail_unexpected("a name to assign to");
  if (!tuple) return std::move(parts[0]);
  return make(Expression::Type::kTuple, line, std::move(parts));
}

}  // namespace evalrun::engine::jinja
