#include "engine/tokenizer/jinja/machine.h"
#include "engine/tokenizer/jinja/operators.h"
#include "engine/tokenizer/jinja/python_format.h"
#include "engine/tokenizer/jinja/values/python_text.h"

namespace evalrun::engine::jinja {

using Type = Expression::Type;

// Every kind that needs more than a line has a function of its own: this one is on the stack once
// for each level of an expression.
Value Machine::eval(const Expression& e, Scope& scope) {
  const Depth depth(*this);
  budget_.step();
  switch (e.type) {
    case Type::kConstant:
      return e.value;
    case Type::kName:
      return eval_name(e, scope);
    case Type::kCaptured:
      return captured_;
    case Type::kList:
    case Type::kTuple:
    case Type::kDict:
      return eval_container(e, scope);
    case Type::kAttribute: {
      const Value of = eval(*e.operands[0], scope);
      line_ = e.line;
      return attribute(of, e.name);
    }
    case Type::kItem: {
      const Value of = eval(*e.operands[0], scope);
      const Value key = eval(*e.operands[1], scope);
      line_ = e.line;
      return item(of, key);
    }
    case Type::kSlice:
      return eval_slice(e, scope);
    case Type::kCall:
      return eval_call(e, scope);
    case Type::kFilter:
    case Type::kTest:
      return eval_filter_or_test(e, scope);
    case Type::kArithmetic:
      return eval_arithmetic(e, scope);
    case Type::kCompare:
      return Value::boolean(eval_compare(e, scope));
    case Type::kConcat:
      return eval_concat(e, scope);
    case Type::kNegate:
      return negated(eval(*e.operands[0], scope));
    case Type::kPlus:
      return negated(negated(eval(*e.operands[0], scope)));
    case Type::kNot:
      return Value::boolean(!truth(eval(*e.operands[0], scope)));
    case Type::kAnd: {
      Value left = eval(*e.operands[0], scope);
      return truth(left) ? eval(*e.operands[1], scope) : left;
    }
    case Type::kOr: {
      Value left = eval(*e.operands[0], scope);
      return truth(left) ? left : eval(*e.operands[1], scope);
    }
    case Type::kCondition:
      if (truth(eval(*e.operands[0], scope))) return eval(*e.operands[1], scope);
      if (e.operands.size() > 2) return eval(*e.operands[2], scope);
      return Value::undefined("the condition of an inline 'if' is false, and it has no 'else'");
    case Type::kNamespaceTarget:
      break;
  }
  throw Fault("an expression that is a target only", e.line);
}

Value Machine::eval_name(const Expression& e, Scope& scope) {
  if (const Value* known = scope.find(e.name)) return *known;
  if (is_function_name(e.name)) {
    auto function = std::make_shared<Function>();
    function->name = e.name;
    return {Kind::kFunction, std::move(function)};
  }
  return Value::undefined(fmt::format("'{}' is undefined", e.name));
}

Value Machine::eval_container(const Expression& e, Scope& scope) {
  if (e.type == Type::kDict) {
    Entries entries;
    for (size_t i = 0; i + 1 < e.operands.size(); i += 2) {
      Value key = eval(*e.operands[i], scope);
      entries.emplace_back(std::move(key), eval(*e.operands[i + 1], scope));
    }
    line_ = e.line;
    return make_dict(std::move(entries), budget_);
  }
  Values items;
  for (const ExpressionPtr& item : e.operands) items.push_back(eval(*item, scope));
  line_ = e.line;
  return e.type == Type::kList ? budget_.list(std::move(items)) : budget_.tuple(std::move(items));
}

Arguments Machine::eval_arguments(const Expression& e, Scope& scope) {
  Arguments arguments;
  for (const ExpressionPtr& argument : e.arguments)
    arguments.positional.push_back(eval(*argument, scope));
  for (const auto& [name, argument] : e.named)
    arguments.named.emplace_back(name, eval(*argument, scope));
  if (e.all_positional != nullptr)
    for (Value& value : iterate(eval(*e.all_positional, scope), budget_))
      arguments.positional.push_back(std::move(value));
  if (e.all_named != nullptr) {
    const Value all = eval(*e.all_named, scope);
    if (!all.is_dict()) throw Fault("what follows ** must be a dict", e.line);
    for (const auto& [name, value] : all.entries()) {
      if (!name.is_text()) throw Fault("names of arguments must be texts", e.line);
      arguments.named.emplace_back(name.text(), value);
    }
  }
  return arguments;
}

Value Machine::eval_call(const Expression& e, Scope& scope, const Value* caller) {
  const Value callee = eval(*e.operands[0], scope);
  Arguments arguments = eval_arguments(e, scope);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = e.line;
  return call(callee, arguments);
}

Value Machine::eval_filter_or_test(const Expression& e, Scope& scope) {
  const Value value = eval(*e.operands[0], scope);
  const Arguments arguments = eval_arguments(e, scope);
  line_ = e.line;
  if (e.type == Type::kTest) return Value::boolean(test(e.name, value, arguments));
  return filter(e.name, value, arguments);
}

Value Machine::eval_arithmetic(const Expression& e, Scope& scope) {
  const Value a = eval(*e.operands[0], scope);
  const Value b = eval(*e.operands[1], scope);
  line_ = e.line;
  Operator op = Operator::kAdd;
  switch (e.name[0]) {
    case '+':
      break;
    case '-':
      op = Operator::kSub;
      break;
    case '*':
      op = e.name.size() == 2 ? Operator::kPow : Operator::kMul;
      break;
    case '/':
      op = e.name.size() == 2 ? Operator::kFloorDiv : Operator::kDiv;
      break;
    default:
      op = Operator::kMod;
  }
  if (op == Operator::kMod && a.is_text()) {
    require_defined(b);
    return budget_.text(percent_format(a.text(), b, budget_));
  }
  return calculate(op, a, b, budget_);
}

bool Machine::eval_compare(const Expression& e, Scope& scope) {
  Value left = eval(*e.operands[0], scope);
  for (size_t i = 0; i < e.compares.size(); ++i) {
    Value right = eval(*e.operands[i + 1], scope);
    line_ = e.line;
    const std::string& op = e.compares[i];
    bool holds = false;
    if (op == "==")
      holds = equal(left, right, budget_);
    else if (op == "!=")
      holds = !equal(left, right, budget_);
    else if (op == "in")
      holds = contains(right, left, budget_);
    else if (op == "not in")
      holds = !contains(right, left, budget_);
    else if (op == "<")
      holds = compare(left, right, budget_) < 0;
    else if (op == "<=")
      holds = compare(left, right, budget_) <= 0;
    else if (op == ">")
      holds = compare(left, right, budget_) > 0;
    else
      holds = compare(left, right, budget_) >= 0;
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Machine::eval_concat(const Expression& e, Scope& scope) {
  std::string text;
  for (const ExpressionPtr& part : e.operands) text += str(eval(*part, scope), budget_);
  line_ = e.line;
  return budget_.text(std::move(text));
}

Value Machine::eval_slice(const Expression& e, Scope& scope) {
  const Value of = eval(*e.operands[0], scope);
  const Value begin = eval(*e.operands[1], scope);
  const Value end = eval(*e.operands[2], scope);
  const Value step = eval(*e.operands[3], scope);
  line_ = e.line;
  return slice(of, begin, end, step, budget_);
}

Value Machine::attribute(const Value& of, const std::string& name) {
  require_defined(of);
  if (of.is(Kind::kNamespace)) {
    for (const auto& [known, value] : static_cast<const Namespace*>(of.object())->entries)
      if (known == name) return value;
  } else if (of.is(Kind::kLoop)) {
    return loop_attribute(of, name);
  } else if (of.is(Kind::kMacro)) {
    if (name == "name") return budget_.text(static_cast<const Macro*>(of.object())->code->name);
  } else {
    // A dict's own "items" is hidden by its method, as in Jinja.
    if (std::optional<Value> method = method_of(of, name)) return *std::move(method);
    if (of.is_dict())
      for (const auto& [key, value] : of.entries())
        if (key.is_text() && key.text() == name) return value;
  }
  return Value::undefined(fmt::format("a {} has no attribute '{}'", type_name(of), name));
}

Value Machine::item(const Value& of, const Value& key) {
  require_defined(of);
  if (of.is_dict() && !key.is(Kind::kList) && !key.is_dict()) {
    if (const Value* found = find_entry(of, key, budget_)) return *found;
    if (!key.is_text())
      return Value::undefined(fmt::format("a dict has no item {}", repr(key, budget_)));
  } else if (key.is_whole() && (of.is_text() || of.is_sequence())) {
    const int64_t n = length(of, budget_);
    const int64_t at = key.whole() < 0 ? key.whole() + n : key.whole();
    if (at < 0 || at >= n)
      return Value::undefined(fmt::format("a {} has no item {}", type_name(of), key.whole()));
    if (of.is_sequence()) return of.items()[static_cast<size_t>(at)];
    budget_.repeated(sizeof(std::string_view), static_cast<size_t>(n));
    return budget_.text(std::string(python::characters(of.text())[static_cast<size_t>(at)]));
  }
  if (key.is_text()) return attribute(of, key.text());
  return Value::undefined(fmt::format("a {} has no items by {}", type_name(of), type_name(key)));
}

Value Machine::item_by_path(const Value& of, std::string_view path) {
  Value value = of;
  for (const std::string_view part : python::split(path, ".", -1)) {
    const bool index = !part.empty() && part.size() < 10 &&
                       part.find_first_not_of("0123456789") == std::string_view::npos;
    value = item(value, index ? Value::integer(std::stoll(std::string(part)))
                              : budget_.text(std::string(part)));
  }
  return value;
}

Value Machine::call(const Value& callee, const Arguments& arguments) {
  require_defined(callee);
  switch (callee.kind()) {
    case Kind::kMacro:
      return call_macro(*static_cast<const Macro*>(callee.object()), arguments);
    case Kind::kMethod:
      return call_method(*static_cast<const Method*>(callee.object()), arguments);
    case Kind::kFunction:
      return call_function(static_cast<const Function*>(callee.object())->name, arguments);
    default:
      throw Fault(fmt::format("a {} cannot be called", type_name(callee)));
  }
}

}  // namespace evalrun::engine::jinja
