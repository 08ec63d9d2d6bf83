#include "engine/tokenizer/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/tokenizer/jinja/values/python_text.h"

namespace evalrun::engine::jinja {
namespace {

const char* symbol(Operator op) {
  static constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<int>(op)];
}

[[noreturn]] void fail_operands(const char* what, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  throw Fault(fmt::format("unsupported operand types for {}: '{}' and '{}'", what, type_name(a),
                          type_name(b)));
}

[[noreturn]] void fail_large() { throw Fault("a number does not fit 64 bits"); }

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (base == 0 || base == 1) return base;
    if (base == -1) return exponent % 2 == 0 ? result : -result;
    if (__builtin_mul_overflow(result, base, &result)) fail_large();
  }
  return result;
}

Value calculate_whole(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) fail_large();
      break;
    case Operator::kSub:
      if (__builtin_sub_overflow(a, b, &result)) fail_large();
      break;
    case Operator::kMul:
      if (__builtin_mul_overflow(a, b, &result)) fail_large();
      break;
    case Operator::kDiv:
      if (b == 0) throw Fault("division by zero");
      return Value::number(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDiv:
    case Operator::kMod: {
      if (b == 0) throw Fault("division by zero");
      if (b == -1) {  // the one quotient that may not fit
        if (op == Operator::kMod) return Value::integer(0);
        if (__builtin_sub_overflow(int64_t{0}, a, &result)) fail_large();
        break;
      }
      int64_t quotient = a / b, rest = a % b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        --quotient;
        rest += b;
      }
      result = op == Operator::kMod ? rest : quotient;
      break;
    }
    case Operator::kPow:
      if (b >= 0) {
        result = power(a, b);
        break;
      }
      if (a == 0) throw Fault("division by zero");
      return Value::number(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  return Value::integer(result);
}

Value calculate_real(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::number(a + b);
    case Operator::kSub:
      return Value::number(a - b);
    case Operator::kMul:
      return Value::number(a * b);
    case Operator::kDiv:
      if (b == 0) throw Fault("division by zero");
      return Value::number(a / b);
    case Operator::kFloorDiv:
    case Operator::kMod: {
      if (b == 0) throw Fault("division by zero");
      double rest = std::fmod(a, b);
      if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
      return Value::number(op == Operator::kMod ? rest : std::round((a - rest) / b));
    }
    case Operator::kPow:
      if (a < 0 && b != std::floor(b)) throw Fault("a power is a complex number");
      if (a == 0 && b < 0) throw Fault("division by zero");
      return Value::number(std::pow(a, b));
  }
  return {};
}

Value repeat(const Value& value, int64_t times, Budget& budget) {
  const size_t n = times > 0 ? static_cast<size_t>(times) : 0;
  if (value.is_text()) {
    budget.repeated(value.text().size(), n);
    std::string out;
    if (!value.text().empty())
      for (size_t i = 0; i < n; ++i) out += value.text();
    return budget.text(std::move(out));
  }
  budget.repeated(sizeof(Value) * value.items().size(), n);
  Values items;
  if (!value.items().empty())
    for (size_t i = 0; i < n; ++i)
      items.insert(items.end(), value.items().begin(), value.items().end());
  return value.is(Kind::kList) ? budget.list(std::move(items)) : budget.tuple(std::move(items));
}

Value joined(const Value& a, const Value& b, Budget& budget) {
  if (a.is_text()) {
    budget.read(a.text().size() + b.text().size());
    return budget.text(a.text() + b.text());
  }
  budget.repeated(sizeof(Value), a.items().size() + b.items().size());
  Values items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? budget.list(std::move(items)) : budget.tuple(std::move(items));
}

template <typename T>
int sign_of(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

bool equal_dicts(const Value& a, const Value& b, Budget& budget) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = find_entry(b, key, budget);
    if (other == nullptr || !equal(value, *other, budget)) return false;
  }
  return true;
}

void append_items(std::string& out, const Values& items, Budget& budget) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    out += repr(items[i], budget);
  }
}

std::string repr_entries(const Value& dict, Budget& budget) {
  std::string out = "{";
  for (const auto& [key, value] : dict.entries()) {
    if (out.size() > 1) out += ", ";
    out += repr(key, budget) + ": " + repr(value, budget);
  }
  return out += "}";
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_numeric() && b.is_numeric()) {
    if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
    return a.real() == b.real();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      budget.read(std::min(a.text().size(), b.text().size()));
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return a.items().size() == b.items().size() &&
             std::equal(a.items().begin(), a.items().end(), b.items().begin(),
                        [&](const Value& x, const Value& y) { return equal(x, y, budget); });
    case Kind::kDict:
      return equal_dicts(a, b, budget);
    default:
      return a.object() == b.object();
  }
}

int compare(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_whole() && b.is_whole()) return sign_of(a.whole(), b.whole());
  if (a.is_numeric() && b.is_numeric()) return sign_of(a.real(), b.real());
  if (a.is_text() && b.is_text()) {
    budget.read(std::min(a.text().size(), b.text().size()));
    return a.text().compare(b.text());
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const size_t n = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < n; ++i)
      if (!equal(a.items()[i], b.items()[i], budget))
        return compare(a.items()[i], b.items()[i], budget);
    return sign_of(a.items().size(), b.items().size());
  }
  fail_operands("a comparison of order", a, b);
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_text()) {
    require_defined(item);
    if (!item.is_text())
      throw Fault(fmt::format("'in <string>' requires a string, not {}", type_name(item)));
    budget.read(container.text().size());
    return python::find(container.text(), item.text()) != std::string_view::npos;
  }
  if (container.is_dict()) {
    require_hashable(item);
    return find_entry(container, item, budget) != nullptr;
  }
  for (const Value& other : iterate(container, budget))
    if (equal(other, item, budget)) return true;
  return false;
}

void require_hashable(const Value& key) {
  if (key.is(Kind::kList) || key.is_dict() || key.is(Kind::kView))
    throw Fault(fmt::format("a {} cannot be a key", type_name(key)));
  if (key.is(Kind::kTuple))
    for (const Value& item : key.items()) require_hashable(item);
}

const Value* find_entry(const Value& dict, const Value& key, Budget& budget) {
  for (const auto& [name, value] : dict.entries())
    if (equal(name, key, budget)) return &value;
  return nullptr;
}

Value calculate(Operator op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_whole() && b.is_whole()) return calculate_whole(op, a.whole(), b.whole());
  if (a.is_numeric() && b.is_numeric()) return calculate_real(op, a.real(), b.real());
  if (op == Operator::kAdd && a.kind() == b.kind() && (a.is_text() || a.is_sequence()))
    return joined(a, b, budget);
  if (op == Operator::kMul) {
    if ((a.is_text() || a.is_sequence()) && b.is_whole()) return repeat(a, b.whole(), budget);
    if ((b.is_text() || b.is_sequence()) && a.is_whole()) return repeat(b, a.whole(), budget);
  }
  fail_operands(symbol(op), a, b);
}

Value negated(const Value& value) {
  require_defined(value);
  if (value.is(Kind::kFloat)) return Value::number(-value.real());
  if (!value.is_whole()) throw Fault(fmt::format("bad operand for -: '{}'", type_name(value)));
  return calculate_whole(Operator::kSub, 0, value.whole());
}

Values iterate(const Value& value, Budget& budget) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kText: {
      budget.read(value.text().size());
      Values all;
      for (const std::string_view c : python::characters(value.text()))
        all.push_back(budget.text(std::string(c)));
      return all;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      budget.repeated(sizeof(Value), value.items().size());
      return value.items();
    case Kind::kGenerator: {
      auto* generator = static_cast<Sequence*>(value.object());
      if (generator->consumed) return {};
      generator->consumed = true;
      return std::move(generator->items);
    }
    case Kind::kDict: {
      Values keys;
      for (const auto& entry : value.entries()) keys.push_back(entry.first);
      budget.repeated(sizeof(Value), keys.size());
      return keys;
    }
    default:
      throw Fault(fmt::format("'{}' cannot be looped over", type_name(value)));
  }
}

int64_t length(const Value& value, Budget& budget) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      budget.read(value.text().size());
      return python::length(value.text());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.entries().size());
    default:
      throw Fault(fmt::format("'{}' has no length", type_name(value)));
  }
}

Value slice(const Value& value, const Value& begin, const Value& end, const Value& step,
            Budget& budget) {
  require_defined(value);
  if (!value.is_text() && !value.is_sequence())
    throw Fault(fmt::format("'{}' cannot be sliced", type_name(value)));
  for (const Value* bound : {&begin, &end, &step})
    if (!bound->is_none() && !bound->is_whole())
      throw Fault(fmt::format("a slice needs whole numbers, not '{}'", type_name(*bound)));
  const int64_t stride = step.is_none() ? 1 : step.whole();
  if (stride == 0) throw Fault("the step of a slice is zero");
  std::vector<std::string_view> letters;
  if (value.is_text()) {
    budget.read(value.text().size());
    budget.repeated(sizeof(Value), value.text().size());
    letters = python::characters(value.text());
  }
  const int64_t n = static_cast<int64_t>(value.is_text() ? letters.size() : value.items().size());
  // As Python clips bounds: counted from the end when negative, and never outside.
  const auto clip = [&](const Value& bound, int64_t usual) {
    if (bound.is_none()) return usual;
    const int64_t low = stride < 0 ? -1 : 0, high = stride < 0 ? n - 1 : n;
    int64_t at = bound.whole();
    if (at < 0) at = at < -n ? low : at + n;
    return std::clamp(at, low, std::max(low, high));
  };
  const int64_t first = clip(begin, stride < 0 ? n - 1 : 0);
  const int64_t last = clip(end, stride < 0 ? -1 : n);
  std::string text;
  Values items;
  for (int64_t at = first; stride < 0 ? at > last : at < last;) {
    if (value.is_text())
      text += letters[static_cast<size_t>(at)];
    else
      items.push_back(value.items()[static_cast<size_t>(at)]);
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  if (value.is_text()) return budget.text(std::move(text));
  return value.is(Kind::kList) ? budget.list(std::move(items)) : budget.tuple(std::move(items));
}

std::string number_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string str(const Value& value, Budget& budget) {
  if (value.is_text()) {
    budget.bytes(value.text().size());
    return value.text();
  }
  return value.is_undefined() ? std::string() : repr(value, budget);
}

std::string repr(const Value& value, Budget& budget) {
  budget.step();
  std::string out;
  switch (value.kind()) {
    case Kind::kUndefined:
      out = "Undefined";
      break;
    case Kind::kNone:
      out = "None";
      break;
    case Kind::kBool:
      out = value.whole() != 0 ? "True" : "False";
      break;
    case Kind::kInt:
      out = fmt::format("{}", value.whole());
      break;
    case Kind::kFloat:
      out = number_text(value.real());
      break;
    case Kind::kText:
      budget.repeated(value.text().size(), 4);  // escapes are longer
      out = python::quoted(value.text());
      break;
    case Kind::kList:
      out = "[";
      append_items(out, value.items(), budget);
      out += "]";
      break;
    case Kind::kTuple:
      out = "(";
      append_items(out, value.items(), budget);
      out += value.items().size() == 1 ? ",)" : ")";
      break;
    case Kind::kView:
      out = static_cast<const Sequence*>(value.object())->name + "([";
      append_items(out, value.items(), budget);
      out += "])";
      break;
    case Kind::kDict:
      out = repr_entries(value, budget);
      break;
    case Kind::kNamespace:
      out = "<Namespace {";
      for (const auto& [name, entry] : static_cast<const Namespace*>(value.object())->entries) {
        if (!out.ends_with('{')) out += ", ";
        out += python::quoted(name) + ": " + repr(entry, budget);
      }
      out += "}>";
      break;
    default:  // Python prints addresses
      throw Fault(fmt::format("a {} cannot be printed", type_name(value)));
  }
  budget.bytes(out.size());
  return out;
}

}  // namespace evalrun::engine::jinja
