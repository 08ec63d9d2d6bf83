// A template after parsing. Trees are at most kMaxDepth deep, so that walks over them can recurse.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/tokenizer/jinja/values/value.h"

namespace evalrun::engine::jinja {

inline constexpr int kMaxDepth = 150;

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Type {
    kConstant,    // value
    kName,        // name
    kCaptured,    // the text of a block, before its filters
    kList,        // operands
    kTuple,       // operands
    kDict,        // operands: key, value, key, value, ...
    kAttribute,   // operands[0].name
    kItem,        // operands[0][operands[1]]
    kSlice,       // operands[0][operands[1]:operands[2]:operands[3]]
    kCall,        // operands[0](arguments)
    kFilter,      // operands[0] | name(arguments)
    kTest,        // operands[0] is name(arguments)
    kArithmetic,  // operands[0] name operands[1]: + - * / // % **
    kCompare,     // operands[0] compares[0] operands[1] compares[1] operands[2] ...
    kConcat,      // operands[0] ~ operands[1] ~ ...
    kNegate,
    kPlus,
    kNot,
    kAnd,
    kOr,
    kCondition,        // operands[1] if operands[0] else operands[2], which may be missing
    kNamespaceTarget,  // in a set: name.attribute, the attribute as value
  };
  Type type = Type::kConstant;
  int line = 0;
  int depth = 1;
  std::string name = {};
  Value value = {};
  std::vector<ExpressionPtr> operands = {};
  std::vector<std::string> compares = {};
  // Of a call, a filter or a test.
  std::vector<ExpressionPtr> arguments = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};
  ExpressionPtr all_positional = {}, all_named = {};  // *list, **dict
};

struct Statement;
using Body = std::vector<Statement>;

struct MacroCode {
  struct Parameter {
    std::string name;
    ExpressionPtr usual;  // may be null
  };
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Branch {
  ExpressionPtr condition;  // null = else
  Body body;
};

struct Statement {
  enum class Type {
    kData,      // text
    kPrint,     // expressions
    kIf,        // branches
    kFor,       // target in value if condition: body, otherwise
    kSet,       // target = value
    kSetBlock,  // target = body, through value
    kMacro,     // code
    kCall,      // value is the call, code its caller
    kFilter,    // body, through value
    kWith,      // targets = expressions, body
    kScope,     // body
    kBreak,
    kContinue,
  };
  Type type = Type::kData;
  int line = 0;
  std::string text = {};
  ExpressionPtr target = {}, value = {}, condition = {};
  std::vector<ExpressionPtr> expressions = {}, targets = {};
  std::vector<Branch> branches = {};
  Body body = {}, otherwise = {};
  std::unique_ptr<MacroCode> code = {};
};

}  // namespace evalrun::engine::jinja
