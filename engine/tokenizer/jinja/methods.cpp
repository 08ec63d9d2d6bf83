// Methods of texts, lists and dicts. Those that change their object are refused, as in Jinja's
// immutable sandbox.
#include <algorithm>
#include <array>

#include "engine/tokenizer/jinja/machine.h"
#include "engine/tokenizer/jinja/operators.h"
#include "engine/tokenizer/jinja/python_format.h"
#include "engine/tokenizer/jinja/values/python_text.h"

namespace evalrun::engine::jinja {
namespace {

using python::Side;

constexpr std::array kTextMethods = {
    "capitalize",   "casefold",     "center",  "count",      "endswith",   "find",    "format",
    "index",        "isalnum",      "isalpha", "isdecimal",  "isdigit",    "islower", "isnumeric",
    "isspace",      "isupper",      "join",    "ljust",      "lower",      "lstrip",  "partition",
    "removeprefix", "removesuffix", "replace", "rfind",      "rindex",     "rjust",   "rpartition",
    "rsplit",       "rstrip",       "split",   "splitlines", "startswith", "strip",   "swapcase",
    "title",        "upper",        "zfill"};
constexpr std::array kMethodsWithNames = {"format", "rsplit", "split", "splitlines"};
constexpr std::array kDictMethods = {"copy", "get", "items", "keys", "values"};
constexpr std::array kDictChanges = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array kListMethods = {"copy", "count", "index"};
constexpr std::array kListChanges = {"append", "clear",  "extend",  "insert",
                                     "pop",    "remove", "reverse", "sort"};

template <typename Names>
bool holds(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Values texts(const std::vector<std::string_view>& parts, Budget& budget) {
  budget.repeated(sizeof(Value), parts.size());
  Values values;
  for (const std::string_view part : parts) values.push_back(budget.text(std::string(part)));
  return values;
}

// Does `self` begin (or end) with the text, or with one of the tuple's?
bool has_end(std::string_view self, const Value& ends, bool front) {
  require_defined(ends);
  if (ends.is(Kind::kTuple)) {
    for (const Value& one : ends.items())
      if (one.is(Kind::kTuple) || has_end(self, one, front)) {
        if (one.is(Kind::kTuple)) throw Fault("startswith and endswith need texts");
        return true;
      }
    return false;
  }
  if (!ends.is_text()) throw Fault("startswith and endswith need a text or a tuple of texts");
  return front ? self.starts_with(ends.text()) : self.ends_with(ends.text());
}

// The part of `self` between two character positions, as find(part, begin, end) has it, and the
// characters before it.
struct Window {
  std::string_view text;
  int64_t before = 0;
};
Window window(const std::string& self, const Bound& bound, Budget& budget) {
  if (!bound.has(1) && !bound.has(2)) return {self, 0};
  budget.repeated(sizeof(std::string_view), self.size());
  const std::vector<std::string_view> letters = python::characters(self);
  const int64_t n = static_cast<int64_t>(letters.size());
  const auto clip = [&](size_t i, int64_t usual) {
    if (!bound.has(i) || bound.at(i).is_none()) return usual;
    const int64_t at = bound.whole_or(i, usual);
    return std::clamp(at < 0 ? (at < -n ? 0 : at + n) : at, int64_t{0}, n);
  };
  const int64_t begin = clip(1, 0), end = std::max(begin, clip(2, n));
  const auto offset = [&](int64_t i) {
    return i == n ? self.size()
                  : static_cast<size_t>(letters[static_cast<size_t>(i)].data() - self.data());
  };
  return {std::string_view(self).substr(offset(begin), offset(end) - offset(begin)), begin};
}

int64_t count(std::string_view text, std::string_view part) {
  if (part.empty()) return python::length(text) + 1;
  int64_t n = 0;
  for (size_t at = python::find(text, part); at != std::string_view::npos;
       at = python::find(text, part, at + part.size()))
    ++n;
  return n;
}

std::string aligned(const std::string& self, const Bound& bound, char how, Budget& budget) {
  const std::string_view fill = bound.text_or(1, " ");
  if (python::length(fill) != 1) throw Fault("the text to fill with must be one character");
  const int64_t missing = bound.whole_or(0, 0) - python::length(self);
  if (missing <= 0) return self;
  budget.repeated(fill.size(), static_cast<size_t>(missing));
  const int64_t width = bound.whole_or(0, 0);
  int64_t left = how == '<' ? 0 : missing;
  if (how == '^') left = missing / 2 + (missing & width & 1);  // as Python rounds
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

std::string swapped_case(std::string_view text) {
  std::string out;
  for (const std::string_view c : python::characters(text)) {
    const std::string upper = python::upper(c);
    out += upper == c ? python::lower(c) : upper;
  }
  return out;
}

}  // namespace

std::optional<Value> Machine::method_of(const Value& self, const std::string& name) {
  bool known = false, changes = false;
  if (self.is_text()) {
    known = holds(kTextMethods, name);
  } else if (self.is_dict()) {
    known = holds(kDictMethods, name);
    changes = holds(kDictChanges, name);
  } else if (self.is_sequence()) {
    known = holds(kListMethods, name) && (self.is(Kind::kList) || name != "copy");
    changes = self.is(Kind::kList) && holds(kListChanges, name);
  }
  if (changes)
    return Value::undefined(fmt::format(
        "'{}' of a {} would change it; values of a template do not change", name, type_name(self)));
  if (!known) return std::nullopt;
  return budget_.method(self, name);
}

Value Machine::call_method(const Method& method, const Arguments& arguments) {
  const Value& self = method.self;
  const std::string& name = method.name;
  const std::string who = fmt::format("{}.{}", type_name(self), name);
  const bool takes_names = self.is_text() && holds(kMethodsWithNames, name);
  if (!arguments.named.empty() && !takes_names)
    throw Fault(fmt::format("{} takes no arguments by name", who));
  if (self.is_text()) return call_text_method(self.text(), name, arguments);
  if (self.is(Kind::kLoop)) {
    auto& loop = *static_cast<Loop*>(self.object());
    const Values& given = arguments.positional;
    if (name == "cycle") {
      if (given.empty()) throw Fault("loop.cycle needs something to choose from");
      return given[loop.index % given.size()];
    }
    for (const Value& value : given) Budget::nested(value);
    bool same = loop.asked_changed && loop.changed.size() == given.size();
    for (size_t i = 0; same && i < given.size(); ++i)
      same = equal(loop.changed[i], given[i], budget_);
    loop.asked_changed = true;
    loop.changed = given;
    return Value::boolean(!same);
  }
  if (self.is_dict()) {
    if (name == "get") {
      const Bound bound(who, arguments, {"key", "default"}, 1);
      require_hashable(bound.at(0));
      const Value* found = find_entry(self, bound.at(0), budget_);
      return found != nullptr ? *found : bound.value_or(1, Value::none());
    }
    const Bound none(who, arguments, {}, 0);
    if (name == "copy") return self;
    Values items;
    for (const auto& [key, value] : self.entries())
      items.push_back(name == "items" ? budget_.tuple({key, value})
                                      : (name == "keys" ? key : value));
    return budget_.view(
        name == "items" ? "dict_items" : (name == "keys" ? "dict_keys" : "dict_values"),
        std::move(items));
  }
  if (name == "copy") return self;
  const Bound bound(who, arguments, {"value"}, 1);
  int64_t n = 0;
  for (size_t i = 0; i < self.items().size(); ++i) {
    if (!equal(self.items()[i], bound.at(0), budget_)) continue;
    if (name == "index") return Value::integer(static_cast<int64_t>(i));
    ++n;
  }
  if (name == "index") throw Fault("the list does not hold the value asked for");
  return Value::integer(n);
}

Value Machine::call_text_method(const std::string& self, const std::string& name,
                                const Arguments& arguments) {
  const std::string who = "str." + name;
  budget_.read(self.size());
  const auto text = [&](std::string_view made) { return budget_.text(std::string(made)); };
  if (name == "format") return text(brace_format(self, arguments, budget_));
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Bound bound(who, arguments, {"chars"}, 0);
    const Side side =
        name == "strip" ? Side::kBoth : (name == "lstrip" ? Side::kLeft : Side::kRight);
    if (!bound.has(0) || bound.at(0).is_none()) return text(python::strip(self, side));
    const std::string_view set = bound.text_or(0, "");
    budget_.repeated(set.size(), 64 + self.size() / 16);
    return text(python::strip(self, set, side));
  }
  if (name == "split" || name == "rsplit") {
    const Bound bound(who, arguments, {"sep", "maxsplit"}, 0);
    const int64_t max = bound.whole_or(1, -1);
    const bool right = name == "rsplit";
    if (!bound.has(0) || bound.at(0).is_none())
      return budget_.list(
          texts(right ? python::split_right(self, max) : python::split(self, max), budget_));
    const std::string_view by = bound.text_or(0, "");
    if (by.empty()) throw Fault("a text cannot be split by an empty one");
    if (right) budget_.repeated(by.size(), 1 + self.size() / 16);
    return budget_.list(
        texts(right ? python::split_right(self, by, max) : python::split(self, by, max), budget_));
  }
  if (name == "splitlines") {
    const Bound bound(who, arguments, {"keepends"}, 0);
    return budget_.list(texts(python::split_lines(self, bound.whole_or(0, 0) != 0), budget_));
  }
  if (name == "partition" || name == "rpartition") {
    const Bound bound(who, arguments, {"sep"}, 1);
    const std::string_view by = bound.text_or(0, "");
    if (by.empty()) throw Fault("a text cannot be split by an empty one");
    if (name == "rpartition") budget_.repeated(by.size(), 1 + self.size() / 16);
    const size_t at = name == "partition" ? python::find(self, by) : self.rfind(by);
    if (at == std::string::npos) {
      const bool front = name == "partition";
      return budget_.tuple({text(front ? self : ""), text(""), text(front ? "" : self)});
    }
    return budget_.tuple({text(self.substr(0, at)), text(by), text(self.substr(at + by.size()))});
  }
  if (name == "startswith" || name == "endswith") {
    const Bound bound(who, arguments, {"prefix", "start", "end"}, 1);
    return Value::boolean(
        has_end(window(self, bound, budget_).text, bound.at(0), name == "startswith"));
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex" || name == "count") {
    const Bound bound(who, arguments, {"sub", "start", "end"}, 1);
    const std::string_view part = bound.text_or(0, "");
    const Window in = window(self, bound, budget_);
    if (name == "count") return Value::integer(count(in.text, part));
    const bool right = name[0] == 'r';
    if (right) budget_.repeated(part.size(), 1 + in.text.size() / 16);
    const size_t at = right ? in.text.rfind(part) : python::find(in.text, part);
    if (at != std::string_view::npos)
      return Value::integer(in.before + python::length(in.text.substr(0, at)));
    if (name.ends_with("index")) throw Fault("the text does not hold the part asked for");
    return Value::integer(-1);
  }
  if (name == "replace") {
    const Bound bound(who, arguments, {"old", "new", "count"}, 2);
    const std::string_view from = bound.text_or(0, ""), to = bound.text_or(1, "");
    budget_.bytes(self.size());
    budget_.repeated(to.size(), static_cast<size_t>(count(self, from)));
    return text(python::replace(self, from, to, bound.whole_or(2, -1)));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const Bound bound(who, arguments, {"part"}, 1);
    const std::string_view part = bound.text_or(0, "");
    std::string_view rest = self;
    if (name == "removeprefix" && rest.starts_with(part)) rest.remove_prefix(part.size());
    if (name == "removesuffix" && rest.ends_with(part)) rest.remove_suffix(part.size());
    return text(rest);
  }
  if (name == "join") {
    const Bound bound(who, arguments, {"iterable"}, 1);
    std::string out;
    bool first = true;
    for (const Value& part : iterate(bound.at(0), budget_)) {
      require_defined(part);
      if (!part.is_text())
        throw Fault(fmt::format("str.join needs texts, not {}", type_name(part)));
      budget_.bytes(self.size() + part.text().size());
      if (!first) out += self;
      first = false;
      out += part.text();
    }
    return text(out);
  }
  if (name == "center" || name == "ljust" || name == "rjust") {
    const Bound bound(who, arguments, {"width", "fillchar"}, 1);
    return text(
        aligned(self, bound, name == "center" ? '^' : (name == "ljust" ? '<' : '>'), budget_));
  }
  if (name == "zfill") {
    const Bound bound(who, arguments, {"width"}, 1);
    const int64_t missing = bound.whole_or(0, 0) - python::length(self);
    if (missing <= 0) return text(self);
    budget_.bytes(static_cast<size_t>(missing));
    const size_t sign = self.starts_with('-') || self.starts_with('+') ? 1 : 0;
    return text(self.substr(0, sign) + std::string(static_cast<size_t>(missing), '0') +
                self.substr(sign));
  }
  const Bound none(who, arguments, {}, 0);
  if (name == "upper") return text(python::upper(self));
  if (name == "lower" || name == "casefold") return text(python::lower(self));
  if (name == "title") return text(python::title(self));
  if (name == "capitalize") return text(python::capitalize(self));
  if (name == "swapcase") return text(swapped_case(self));
  using python::Class;
  const Class what = name == "isalpha"   ? Class::kAlpha
                     : name == "isalnum" ? Class::kAlnum
                     : name == "isspace" ? Class::kSpace
                     : name == "isupper" ? Class::kUpper
                     : name == "islower" ? Class::kLower
                                         : Class::kDigit;
  return Value::boolean(python::is_all(self, what));
}

}  // namespace evalrun::engine::jinja
