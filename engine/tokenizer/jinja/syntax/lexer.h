// A template's text as tokens. White space around tags is gone as `trim_blocks` and `lstrip_blocks`
// have it: the line end after a statement or a comment, and the blanks before one.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evalrun::engine::jinja {

struct Token {
  enum class Type {
    kData,
    kVariableBegin,  // {{
    kVariableEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kText,  // a literal, its escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Type type = Type::kEnd;
  int line = 1;
  std::string text = {};
  int64_t integer = 0;
  double number = 0;
};

// Throws Fault with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace evalrun::engine::jinja
