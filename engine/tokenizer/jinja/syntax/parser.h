// Tokens to a tree, by the grammar of Jinja 3.1 with its loop controls.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/jinja/syntax/ast.h"
#include "engine/tokenizer/jinja/syntax/lexer.h"

namespace evalrun::engine::jinja {

// Throws Fault with the line.
Body parse(std::string_view source);

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Body parse_all();

 private:
  using Names = std::initializer_list<std::string_view>;
  struct Nesting {
    explicit Nesting(Parser& owner) : parser(owner) {
      if (++parser.depth_ > kMaxDepth) parser.fail_deep();
    }
    ~Nesting() { --parser.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    Parser& parser;
  };

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool is(Token::Type type) const { return current().type == type; }
  bool is_operator(std::string_view text) const;
  bool is_name(std::string_view text) const;
  bool is_name(Names names) const;
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  void expect_name(std::string_view text);
  void expect(Token::Type type, const char* what);
  std::string take_name();
  [[noreturn]] void fail(const std::string& why, int line) const;
  [[noreturn]] void fail_unexpected(const char* wanted) const;
  [[noreturn]] void fail_deep() const;

  // Statements (parser.cpp).
  Body parse_body(Names ends);  // up to an end tag's name, which stays the current token
  Body parse_statements(Names ends, bool drop_end);
  Statement parse_statement();
  Statement parse_if();
  Statement parse_for();
  Statement parse_set();
  Statement parse_with();
  Statement parse_macro();
  Statement parse_call_block();
  Statement parse_print();
  Statement parse_block();
  void parse_signature(MacroCode& code);
  ExpressionPtr parse_target(bool with_namespace, Names ends);

  // Expressions (parser_expressions.cpp).
  ExpressionPtr make(Expression::Type type, int line, std::vector<ExpressionPtr> operands = {});
  ExpressionPtr measured(ExpressionPtr e) const;  // sets its depth, within bounds
  ExpressionPtr parse_tuple(bool conditions, Names ends, bool parentheses);
  bool is_tuple_end(Names ends) const;
  ExpressionPtr parse_expression(bool conditions = true);
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr e);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr e);
  ExpressionPtr parse_subscript(ExpressionPtr e);
  ExpressionPtr parse_subscribed(ExpressionPtr of, int line);
  ExpressionPtr parse_filter(ExpressionPtr e, bool pipe_is_taken = false);
  ExpressionPtr parse_test(ExpressionPtr e);
  ExpressionPtr parse_call(ExpressionPtr e);
  void parse_arguments(Expression& e);
  std::string parse_dotted_name();

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  std::vector<MacroCode*> codes_;  // around the current token
};

}  // namespace evalrun::engine::jinja
