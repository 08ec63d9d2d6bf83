// Filters of what can be looped over.
#include <algorithm>
#include <numeric>

#include "engine/tokenizer/jinja/machine.h"
#include "engine/tokenizer/jinja/operators.h"
#include "engine/tokenizer/jinja/values/python_text.h"

namespace evalrun::engine::jinja {
namespace {

// All but the first `n` arguments.
Arguments all_but_first(const Arguments& arguments, size_t n) {
  Arguments rest = arguments;
  rest.positional.erase(
      rest.positional.begin(),
      rest.positional.begin() + static_cast<std::ptrdiff_t>(std::min(n, rest.positional.size())));
  return rest;
}

std::string text_argument(const char* who, const Arguments& arguments, size_t i) {
  if (arguments.positional.size() <= i || !arguments.positional[i].is_text())
    throw Fault(fmt::format("{} needs a text as its argument {}", who, i + 1));
  return arguments.positional[i].text();
}

}  // namespace

// Texts compare without their case unless asked otherwise.
Value Machine::folded(const Value& value, bool case_sensitive) {
  if (!value.is_text() || case_sensitive) return value;
  return budget_.text(python::lower(value.text()));
}

// Stable; by keys, which are as many as items.
void Machine::sort_by(Values& items, Values keys, bool reverse) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // A sort must not run over the ends where an order is none (not-a-number): merging does not.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? compare(keys[b], keys[a], budget_) < 0
                   : compare(keys[a], keys[b], budget_) < 0;
  });
  Values sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  items = std::move(sorted);
}

bool Machine::filter_of_list(const std::string& name, const Value& value,
                             const Arguments& arguments, Value& result) {
  const std::string who = fmt::format("filter '{}'", name);
  const auto bind = [&](std::initializer_list<const char*> names, size_t required = 0) {
    return Bound(who, arguments, names, required);
  };
  if (name == "length" || name == "count") {
    bind({});
    result = Value::integer(length(value, budget_));
  } else if (name == "list") {
    bind({});
    result = budget_.list(iterate(value, budget_));
  } else if (name == "first") {
    bind({});
    Values items = iterate(value, budget_);
    result = items.empty() ? Value::undefined("no first item, the list is empty") : items.front();
  } else if (name == "last") {
    bind({});
    if (value.is(Kind::kGenerator)) throw Fault("last: a generator has no last item");
    Values items = iterate(value, budget_);
    result = items.empty() ? Value::undefined("no last item, the list is empty") : items.back();
  } else if (name == "reverse") {
    bind({});
    Values items = iterate(value, budget_);
    std::reverse(items.begin(), items.end());
    if (value.is_text()) {
      std::string text;
      for (const Value& c : items) text += c.text();
      result = budget_.text(std::move(text));
    } else {
      result = budget_.generator(std::move(items));
    }
  } else if (name == "items") {
    bind({});
    Values pairs;
    if (!value.is_undefined() && !value.is_dict())
      throw Fault(fmt::format("items: a {} is no dict", type_name(value)));
    if (value.is_dict())
      for (const auto& [key, entry] : value.entries()) pairs.push_back(budget_.tuple({key, entry}));
    result = budget_.generator(std::move(pairs));
  } else if (name == "sum") {
    const Bound bound = bind({"attribute", "start"});
    result = bound.value_or(1, Value::integer(0));
    for (const Value& item : iterate(value, budget_))
      result = calculate(Operator::kAdd, result,
                         bound.has(0) && !bound.at(0).is_none()
                             ? item_by_path(item, str(bound.at(0), budget_))
                             : item,
                         budget_);
  } else if (name == "join") {
    result = joined(value, arguments);
  } else if (name == "map") {
    result = map(value, arguments);
  } else if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    result = select(name, value, arguments);
  } else if (name == "sort") {
    result = sorted(value, arguments);
  } else if (name == "dictsort") {
    result = dict_sorted(value, arguments);
  } else if (name == "unique") {
    result = unique(value, arguments);
  } else if (name == "min" || name == "max") {
    result = extreme(name, value, arguments);
  } else if (name == "batch" || name == "slice") {
    result = batched(name, value, arguments);
  } else {
    return false;
  }
  return true;
}

Value Machine::joined(const Value& value, const Arguments& arguments) {
  const Bound bound("filter 'join'", arguments, {"d", "attribute"}, 0);
  const std::string between = bound.has(0) ? str(bound.at(0), budget_) : std::string();
  std::string text;
  bool first = true;
  for (const Value& item : iterate(value, budget_)) {
    budget_.bytes(between.size());
    if (!first) text += between;
    first = false;
    text +=
        str(bound.has(1) && !bound.at(1).is_none() ? item_by_path(item, str(bound.at(1), budget_))
                                                   : item,
            budget_);
  }
  return budget_.text(std::move(text));
}

Value Machine::map(const Value& value, const Arguments& arguments) {
  Values mapped;
  if (!truth(value)) return budget_.generator({});  // none as well
  if (arguments.positional.empty()) {
    const Bound bound("filter 'map'", arguments, {"attribute", "default"}, 1);
    const std::string path = str(bound.at(0), budget_);
    for (const Value& item : iterate(value, budget_)) {
      Value found = item_by_path(item, path);
      mapped.push_back(found.is_undefined() && bound.has(1) ? bound.at(1) : found);
    }
  } else {
    const std::string name = text_argument("filter 'map'", arguments, 0);
    const Arguments rest = all_but_first(arguments, 1);
    const Depth depth(*this);
    for (const Value& item : iterate(value, budget_)) mapped.push_back(filter(name, item, rest));
  }
  return budget_.generator(std::move(mapped));
}

// select, reject, selectattr, rejectattr.
Value Machine::select(const std::string& name, const Value& value, const Arguments& arguments) {
  if (!truth(value)) return budget_.generator({});  // none as well
  const bool by_attribute = name.ends_with("attr"), keeps = name.starts_with("select");
  const size_t n = by_attribute ? 1 : 0;
  const std::string path = by_attribute ? text_argument(name.c_str(), arguments, 0) : "";
  const bool has_test = arguments.positional.size() > n;
  const std::string test_name = has_test ? text_argument(name.c_str(), arguments, n) : "";
  const Arguments rest = all_but_first(arguments, n + 1);
  Values kept;
  for (Value& item : iterate(value, budget_)) {
    const Value tested = by_attribute ? item_by_path(item, path) : item;
    if ((has_test ? test(test_name, tested, rest) : truth(tested)) == keeps)
      kept.push_back(std::move(item));
  }
  return budget_.generator(std::move(kept));
}

Value Machine::sorted(const Value& value, const Arguments& arguments) {
  const Bound bound("filter 'sort'", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
  Values items = iterate(value, budget_), keys;
  const bool exact = bound.truth_or(1, false);
  for (const Value& item : items) {
    if (!bound.has(2) || bound.at(2).is_none()) {
      keys.push_back(folded(item, exact));
      continue;
    }
    Values parts;  // "role,content" sorts by both
    const std::string paths = str(bound.at(2), budget_);
    for (const std::string_view path : python::split(paths, ",", -1))
      parts.push_back(folded(item_by_path(item, path), exact));
    keys.push_back(budget_.tuple(std::move(parts)));
  }
  sort_by(items, std::move(keys), bound.truth_or(0, false));
  return budget_.list(std::move(items));
}

Value Machine::dict_sorted(const Value& value, const Arguments& arguments) {
  const Bound bound("filter 'dictsort'", arguments, {"case_sensitive", "by", "reverse"}, 0);
  require_defined(value);
  if (!value.is_dict()) throw Fault(fmt::format("dictsort: a {} is no dict", type_name(value)));
  const std::string_view by = bound.text_or(1, "key");
  if (by != "key" && by != "value") throw Fault("dictsort: 'by' must be key or value");
  Values items, keys;
  for (const auto& [key, entry] : value.entries()) {
    keys.push_back(folded(by == "key" ? key : entry, bound.truth_or(0, false)));
    items.push_back(budget_.tuple({key, entry}));
  }
  sort_by(items, std::move(keys), bound.truth_or(2, false));
  return budget_.list(std::move(items));
}

Value Machine::unique(const Value& value, const Arguments& arguments) {
  const Bound bound("filter 'unique'", arguments, {"case_sensitive", "attribute"}, 0);
  Values seen, kept;
  for (const Value& item : iterate(value, budget_)) {
    Value key = bound.has(1) && !bound.at(1).is_none()
                    ? item_by_path(item, str(bound.at(1), budget_))
                    : item;
    key = folded(key, bound.truth_or(0, false));
    require_hashable(key);
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Value& other) { return equal(key, other, budget_); });
    if (known) continue;
    seen.push_back(std::move(key));
    kept.push_back(item);
  }
  return budget_.generator(std::move(kept));
}

Value Machine::extreme(const std::string& name, const Value& value, const Arguments& arguments) {
  const Bound bound(fmt::format("filter '{}'", name), arguments, {"case_sensitive", "attribute"},
                    0);
  const Values items = iterate(value, budget_);
  if (items.empty()) return Value::undefined(fmt::format("no {} item, the list is empty", name));
  const auto key = [&](const Value& item) {
    return folded(bound.has(1) && !bound.at(1).is_none()
                      ? item_by_path(item, str(bound.at(1), budget_))
                      : item,
                  bound.truth_or(0, false));
  };
  size_t best = 0;
  Value best_key = key(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value other = key(items[i]);
    const int order = compare(other, best_key, budget_);
    if (name == "max" ? order > 0 : order < 0) {
      best = i;
      best_key = std::move(other);
    }
  }
  return items[best];
}

// batch: lists of `n` items each. slice: `n` lists, the first ones longer by one.
Value Machine::batched(const std::string& name, const Value& value, const Arguments& arguments) {
  const Bound bound(fmt::format("filter '{}'", name), arguments, {"n", "fill_with"}, 1);
  const Values items = iterate(value, budget_);
  const int64_t n = bound.whole_or(0, 0);
  if (n < 1) throw Fault(fmt::format("{}: the number must be at least 1", name));
  const size_t count = static_cast<size_t>(n), size = items.size();
  const bool fills = bound.has(1) && !bound.at(1).is_none();
  Values parts;
  if (name == "batch") {
    for (size_t at = 0; at < size; at += std::min(count, size - at)) {
      Values part(items.begin() + static_cast<std::ptrdiff_t>(at),
                  items.begin() + static_cast<std::ptrdiff_t>(at + std::min(count, size - at)));
      if (fills && part.size() < count) {
        budget_.repeated(sizeof(Value), count - part.size());
        part.resize(count, bound.at(1));
      }
      parts.push_back(budget_.list(std::move(part)));
    }
    return budget_.generator(std::move(parts));
  }
  budget_.repeated(sizeof(Value), count);
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t length = size / count + (i < size % count ? 1 : 0);
    Values part(items.begin() + static_cast<std::ptrdiff_t>(at),
                items.begin() + static_cast<std::ptrdiff_t>(at + length));
    if (fills && i >= size % count) part.push_back(bound.at(1));
    parts.push_back(budget_.list(std::move(part)));
    at += length;
  }
  return budget_.generator(std::move(parts));
}

}  // namespace evalrun::engine::jinja
