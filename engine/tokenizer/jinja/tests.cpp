// What follows "is".
#include <algorithm>
#include <array>

#include "engine/tokenizer/jinja/machine.h"
#include "engine/tokenizer/jinja/operators.h"
#include "engine/tokenizer/jinja/values/python_text.h"

namespace evalrun::engine::jinja {
namespace {

constexpr std::array kTests = {
    "!=",       "<",           "<=",      "==",      ">",         ">=",       "boolean", "callable",
    "defined",  "divisibleby", "eq",      "equalto", "even",      "false",    "filter",  "float",
    "ge",       "greaterthan", "gt",      "in",      "integer",   "iterable", "le",      "lessthan",
    "lower",    "lt",          "mapping", "ne",      "none",      "number",   "odd",     "sameas",
    "sequence", "string",      "test",    "true",    "undefined", "upper"};

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kGenerator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

bool is_callable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:  // Python's object has a __call__, which raises
    case Kind::kMacro:
    case Kind::kMethod:
    case Kind::kFunction:
      return true;
    default:
      return false;
  }
}

// A test without arguments; nothing when the name is none of them.
std::optional<bool> plain(const std::string& name, const Value& value) {
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.is_text();
  if (name == "mapping") return value.is_dict();
  if (name == "boolean") return value.is(Kind::kBool);
  if (name == "true") return value.is(Kind::kBool) && value.whole() != 0;
  if (name == "false") return value.is(Kind::kBool) && value.whole() == 0;
  if (name == "integer") return value.is(Kind::kInt);
  if (name == "float") return value.is(Kind::kFloat);
  if (name == "number") return value.is_numeric();
  if (name == "iterable") return is_iterable(value);
  if (name == "sequence")
    return value.is_text() || value.is_sequence() || value.is_dict() || value.is_undefined();
  if (name == "callable") return is_callable(value);
  return std::nullopt;
}

}  // namespace

bool is_test_name(const std::string& name) {
  return std::find(kTests.begin(), kTests.end(), name) != kTests.end();
}

bool Machine::test(const std::string& name, const Value& value, const Arguments& arguments) {
  budget_.step();
  const std::string who = fmt::format("test '{}'", name);
  if (const std::optional<bool> result = plain(name, value)) {
    const Bound none(who, arguments, {}, 0);
    return *result;
  }
  if (name == "lower" || name == "upper") {
    const Bound none(who, arguments, {}, 0);
    return python::is_all(str(value, budget_),
                          name == "lower" ? python::Class::kLower : python::Class::kUpper);
  }
  if (name == "filter" || name == "test") {
    const Bound none(who, arguments, {}, 0);
    return value.is_text() &&
           (name == "filter" ? is_filter_name(value.text()) : is_test_name(value.text()));
  }
  const auto rest_is = [&](int64_t divisor, int64_t rest) {
    return equal(calculate(Operator::kMod, value, Value::integer(divisor), budget_),
                 Value::integer(rest), budget_);
  };
  if (name == "odd" || name == "even") {
    const Bound none(who, arguments, {}, 0);
    return rest_is(2, name == "odd" ? 1 : 0);
  }
  if (!is_test_name(name)) throw Fault(fmt::format("there is no test '{}'", name));
  const Bound bound(who, arguments, {"other"}, 1);
  const Value& other = bound.at(0);
  if (name == "divisibleby")
    return equal(calculate(Operator::kMod, value, other, budget_), Value::integer(0), budget_);
  if (name == "==" || name == "eq" || name == "equalto") return equal(value, other, budget_);
  if (name == "!=" || name == "ne") return !equal(value, other, budget_);
  if (name == "in") return contains(other, value, budget_);
  if (name == "sameas") {
    if (value.kind() != other.kind()) return false;
    return value.object() != nullptr || other.object() != nullptr ? value.object() == other.object()
                                                                  : equal(value, other, budget_);
  }
  const int order = compare(value, other, budget_);
  if (name == "<" || name == "lt" || name == "lessthan") return order < 0;
  if (name == "<=" || name == "le") return order <= 0;
  if (name == ">" || name == "gt" || name == "greaterthan") return order > 0;
  return order >= 0;
}

}  // namespace evalrun::engine::jinja
