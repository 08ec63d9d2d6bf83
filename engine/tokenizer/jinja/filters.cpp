// Filters of one value. Those of lists are in filters_of_lists.cpp.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "engine/tokenizer/jinja/machine.h"
#include "engine/tokenizer/jinja/operators.h"
#include "engine/tokenizer/jinja/python_format.h"
#include "engine/tokenizer/jinja/to_json.h"
#include "engine/tokenizer/jinja/values/python_text.h"

namespace evalrun::engine::jinja {
namespace {

constexpr std::array kFilters = {
    "abs",      "attr",       "batch",  "capitalize", "center",  "count",       "d",      "default",
    "dictsort", "e",          "escape", "first",      "float",   "forceescape", "format", "indent",
    "int",      "items",      "join",   "last",       "length",  "list",        "lower",  "map",
    "max",      "min",        "reject", "rejectattr", "replace", "reverse",     "round",  "safe",
    "select",   "selectattr", "slice",  "sort",       "string",  "sum",         "title",  "tojson",
    "trim",     "unique",     "upper"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Jinja's own rule: a word begins after white space, a hyphen or an opening bracket.
std::string titled(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const std::string_view c : python::characters(text)) {
    const bool breaks =
        c == "-" || c == "(" || c == "{" || c == "[" || c == "<" || python::strip(c).empty();
    out += breaks ? std::string(c) : (begins ? python::upper(c) : python::lower(c));
    begins = breaks;
  }
  return out;
}

std::string indented(const std::string& text, const std::string& by, bool first, bool blank,
                     Budget& budget) {
  const std::string whole = text + "\n";
  const std::vector<std::string_view> lines = python::split_lines(whole, false);
  budget.repeated(by.size() + 1, lines.size());
  budget.bytes(text.size());
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\n";
    if (i > 0 ? (blank || !lines[i].empty()) : first) out += by;
    out += lines[i];
  }
  return out;
}

std::optional<double> real_of(std::string_view text) {
  text = python::strip(text);
  std::string digits(text);
  std::erase(digits, '_');
  if (digits.starts_with('+')) digits.erase(0, 1);
  if (digits.empty() || digits.find_first_of("xXpP+") == 0) return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (end != digits.data() + digits.size() || error != std::errc()) return std::nullopt;
  return number;
}

std::optional<int64_t> whole_of(std::string_view text, int base) {
  std::string digits(python::strip(text));
  std::erase(digits, '_');
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  const char mark = digits.size() > 1 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : 0;
  if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b'))
    digits.erase(0, 2);
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  if (negative) digits.insert(0, "-");
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (error == std::errc::result_out_of_range) throw Fault("a number does not fit 64 bits");
  if (end != digits.data() + digits.size() || error != std::errc()) return std::nullopt;
  return number;
}

Value to_int(const Value& value, const Bound& bound) {
  const int64_t base = bound.whole_or(1, 10);
  if (base < 2 || base > 36) throw Fault("int: the base must be 2 to 36");
  if (value.is_whole()) return Value::integer(value.whole());
  std::optional<double> real;
  if (value.is_text()) {
    if (const auto whole = whole_of(value.text(), static_cast<int>(base)))
      return Value::integer(*whole);
    real = real_of(value.text());
  } else if (value.is(Kind::kFloat)) {
    real = value.real();
  } else {
    require_defined(value);
  }
  if (!real || !std::isfinite(*real)) return bound.value_or(0, Value::integer(0));
  if (std::abs(*real) >= 9.2e18) throw Fault("a number does not fit 64 bits");
  return Value::integer(static_cast<int64_t>(*real));
}

Value to_float(const Value& value, const Bound& bound) {
  require_defined(value);
  if (value.is_numeric()) return Value::number(value.real());
  if (value.is_text())
    if (const auto real = real_of(value.text())) return Value::number(*real);
  return bound.value_or(0, Value::number(0));
}

// To a multiple of a power of ten, halves to the even one.
Value rounded_whole(int64_t number, int64_t digits) {
  if (digits >= 0) return Value::integer(number);
  if (digits < -18) return Value::integer(0);
  int64_t unit = 1;
  for (int64_t i = 0; i > digits; --i) unit *= 10;
  const int64_t rest = (number % unit + unit) % unit, half = unit / 2;
  int64_t low = 0, result = 0;
  if (__builtin_sub_overflow(number, rest, &low)) throw Fault("a number does not fit 64 bits");
  const bool up = rest > half || (rest == half && (low / unit) % 2 != 0);
  if (__builtin_add_overflow(low, up ? unit : 0, &result))
    throw Fault("a number does not fit 64 bits");
  return Value::integer(result);
}

Value rounded(const Value& value, const Bound& bound) {
  require_defined(value);
  if (!value.is_numeric()) throw Fault(fmt::format("round: a {} is no number", type_name(value)));
  const int64_t digits = bound.whole_or(0, 0);
  const std::string_view method = bound.text_or(1, "common");
  if (digits < -300 || digits > 300) throw Fault("round: the precision is out of range");
  if (value.is_whole() && method == "common") return rounded_whole(value.whole(), digits);
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (method == "ceil") return Value::number(std::ceil(value.real() * scale) / scale);
  if (method == "floor") return Value::number(std::floor(value.real() * scale) / scale);
  if (method != "common") throw Fault("round: the method must be common, ceil or floor");
  if (digits < 0) return Value::number(std::nearbyint(value.real() * scale) / scale);
  // The decimal digits decide, as in Python.
  return Value::number(std::stod(fmt::format("{:.{}f}", value.real(), digits)));
}

JsonStyle json_style(const Bound& bound, Budget& budget) {
  JsonStyle style;
  style.ensure_ascii = bound.truth_or(0, false);
  if (bound.has(1) && !bound.at(1).is_none()) {
    if (bound.at(1).is_text()) {
      style.indent = bound.at(1).text();
    } else {
      const int64_t n = std::max<int64_t>(0, bound.whole_or(1, 0));
      budget.bytes(static_cast<size_t>(n));
      style.indent = std::string(static_cast<size_t>(n), ' ');
    }
    style.item_separator = ",";
  }
  if (bound.has(2) && !bound.at(2).is_none()) {
    const Values both = iterate(bound.at(2), budget);
    if (both.size() != 2 || !both[0].is_text() || !both[1].is_text())
      throw Fault("tojson: the separators must be two texts");
    style.item_separator = both[0].text();
    style.key_separator = both[1].text();
  }
  style.sort_keys = bound.truth_or(3, false);
  return style;
}

}  // namespace

bool is_filter_name(const std::string& name) {
  return std::find(kFilters.begin(), kFilters.end(), name) != kFilters.end();
}

Value Machine::filter(const std::string& name, const Value& value, const Arguments& arguments) {
  budget_.step();
  Value result;
  if (filter_of_value(name, value, arguments, result) ||
      filter_of_list(name, value, arguments, result))
    return result;
  throw Fault(fmt::format("there is no filter '{}'", name));
}

bool Machine::filter_of_value(const std::string& name, const Value& value,
                              const Arguments& arguments, Value& result) {
  const std::string who = fmt::format("filter '{}'", name);
  const auto bind = [&](std::initializer_list<const char*> names, size_t required = 0) {
    return Bound(who, arguments, names, required);
  };
  const auto text = [&](std::string_view made) { return budget_.text(std::string(made)); };
  if (name == "default" || name == "d") {
    const Bound bound = bind({"default_value", "boolean"});
    const bool missing = value.is_undefined() || (bound.truth_or(1, false) && !truth(value));
    result = missing ? bound.value_or(0, text("")) : value;
  } else if (name == "tojson") {
    const Bound bound = bind({"ensure_ascii", "indent", "separators", "sort_keys"});
    require_defined(value);
    result = text(to_json(value, json_style(bound, budget_), budget_));
  } else if (name == "string" || name == "safe") {
    bind({});
    result = value.is_text() ? value : text(str(value, budget_));
  } else if (name == "trim") {
    const Bound bound = bind({"chars"});
    const std::string self = str(value, budget_);
    if (bound.has(0) && !bound.at(0).is_none()) {
      budget_.repeated(bound.text_or(0, "").size(), 64 + self.size() / 16);
      result = text(python::strip(self, bound.text_or(0, ""), python::Side::kBoth));
    } else {
      result = text(python::strip(self));
    }
  } else if (name == "upper" || name == "lower" || name == "capitalize" || name == "title") {
    bind({});
    const std::string self = str(value, budget_);
    result = text(name == "upper"   ? python::upper(self)
                  : name == "lower" ? python::lower(self)
                  : name == "title" ? titled(self)
                                    : python::capitalize(self));
  } else if (name == "escape" || name == "e" || name == "forceescape") {
    bind({});
    const std::string self = str(value, budget_);
    budget_.repeated(self.size(), 4);  // escapes are longer
    result = text(escaped(self));
  } else if (name == "replace") {
    const Bound bound = bind({"old", "new", "count"}, 2);
    Arguments same;
    same.positional = {text(str(bound.at(0), budget_)), text(str(bound.at(1), budget_))};
    if (bound.has(2) && !bound.at(2).is_none()) same.positional.push_back(bound.at(2));
    result = call_text_method(str(value, budget_), "replace", same);
  } else if (name == "center") {
    const Bound bound = bind({"width"});
    Arguments same;
    same.positional = {Value::integer(bound.whole_or(0, 80))};
    result = call_text_method(str(value, budget_), "center", same);
  } else if (name == "indent") {
    const Bound bound = bind({"width", "first", "blank"});
    std::string by;
    if (bound.has(0) && bound.at(0).is_text()) {
      by = bound.at(0).text();
    } else {
      const int64_t n = std::max<int64_t>(0, bound.whole_or(0, 4));
      budget_.bytes(static_cast<size_t>(n));
      by.assign(static_cast<size_t>(n), ' ');
    }
    require_defined(value);
    if (!value.is_text()) throw Fault(fmt::format("indent: a {} is no text", type_name(value)));
    result = text(
        indented(value.text(), by, bound.truth_or(1, false), bound.truth_or(2, false), budget_));
  } else if (name == "format") {
    if (!arguments.positional.empty() && !arguments.named.empty())
      throw Fault("format: arguments have names, or none of them has");
    Entries named;
    for (const auto& [key, given] : arguments.named) named.emplace_back(text(key), given);
    const Value values =
        named.empty() ? budget_.tuple(arguments.positional) : make_dict(std::move(named), budget_);
    result = text(percent_format(str(value, budget_), values, budget_));
  } else if (name == "int") {
    result = to_int(value, bind({"default", "base"}));
  } else if (name == "float") {
    result = to_float(value, bind({"default"}));
  } else if (name == "abs") {
    bind({});
    result =
        compare(value, Value::integer(0), budget_) < 0 ? negated(value) : negated(negated(value));
  } else if (name == "round") {
    result = rounded(value, bind({"precision", "method"}));
  } else if (name == "attr") {
    const Bound bound = bind({"name"}, 1);
    require_defined(value);
    const std::string wanted(bound.text_or(0, ""));
    // Attributes alone, not a dict's entries.
    if (std::optional<Value> method = method_of(value, wanted))
      result = *std::move(method);
    else
      result = value.is_dict()
                   ? Value::undefined(fmt::format("a dict has no attribute '{}'", wanted))
                   : attribute(value, wanted);
  } else {
    return false;
  }
  return true;
}

}  // namespace evalrun::engine::jinja
