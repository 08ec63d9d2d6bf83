// Functions that every template has, and the attributes of `loop`.
#include <algorithm>
#include <array>
#include <ctime>

#include "engine/tokenizer/jinja/machine.h"
#include "engine/tokenizer/jinja/operators.h"

namespace evalrun::engine::jinja {
namespace {

constexpr std::array kFunctions = {"dict", "namespace", "raise_exception", "range", "strftime_now"};

std::string formatted(const Date& date, const std::string& pattern) {
  std::tm time{};
  time.tm_year = date.year - 1900;
  time.tm_mon = date.month - 1;
  time.tm_mday = date.day;
  ::timegm(&time);  // the day of the week and of the year
  std::array<char, 1024> text{};
  const std::string marked = pattern + "x";  // an empty text is no failure
  const size_t n = std::strftime(text.data(), text.size(), marked.c_str(), &time);
  if (n == 0) throw Fault("strftime_now: the date would be too long");
  return {text.data(), n - 1};
}

Value range(const Arguments& arguments, Budget& budget) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  const bool one = !bound.has(1);
  const int64_t begin = one ? 0 : bound.whole_or(0, 0);
  const int64_t end = one ? bound.whole_or(0, 0) : bound.whole_or(1, 0);
  const int64_t step = bound.whole_or(2, 1);
  if (step == 0) throw Fault("range: the step is zero");
  Values items;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange)
      throw Fault(fmt::format("range: more than {} items", kMaxRange));
    items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return budget.list(std::move(items));
}

// dict(...) and namespace(...): a dict or pairs, then named arguments.
Entries entries_of(const char* who, const Arguments& arguments, Budget& budget) {
  Entries entries;
  if (arguments.positional.size() > 1)
    throw Fault(fmt::format("{} takes at most one argument without a name", who));
  for (const Value& given : arguments.positional) {
    if (given.is_dict()) {
      entries = given.entries();
      continue;
    }
    require_defined(given);
    for (const Value& item : iterate(given, budget)) {
      const Values pair = iterate(item, budget);
      if (pair.size() != 2) throw Fault(fmt::format("{} needs a dict, or pairs", who));
      entries.emplace_back(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(budget.text(name), value);
  return entries;
}

}  // namespace

bool is_function_name(std::string_view name) {
  return std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end();
}

Value Machine::call_function(const std::string& name, const Arguments& arguments) {
  if (name == "range") return range(arguments, budget_);
  if (name == "dict") return make_dict(entries_of("dict", arguments, budget_), budget_);
  if (name == "namespace")
    return make_namespace(entries_of("namespace", arguments, budget_), budget_);
  if (name == "strftime_now") {
    const Bound bound(name, arguments, {"format"}, 1);
    return budget_.text(formatted(date_, std::string(bound.text_or(0, ""))));
  }
  const Bound bound(name, arguments, {"message"}, 1);
  throw Fault(fmt::format("the template refuses the conversation: {}", str(bound.at(0), budget_)));
}

Value Machine::loop_attribute(const Value& of, const std::string& name) {
  const Loop& loop = *static_cast<const Loop*>(of.object());
  const auto n = static_cast<int64_t>(loop.items.size()), i = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::integer(i + 1);
  if (name == "index0") return Value::integer(i);
  if (name == "revindex") return Value::integer(n - i);
  if (name == "revindex0") return Value::integer(n - i - 1);
  if (name == "first") return Value::boolean(i == 0);
  if (name == "last") return Value::boolean(i + 1 == n);
  if (name == "length") return Value::integer(n);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return i > 0 ? loop.items[static_cast<size_t>(i - 1)]
                 : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return i + 1 < n ? loop.items[static_cast<size_t>(i + 1)]
                     : Value::undefined("there is no next item");
  if (name == "cycle" || name == "changed") return budget_.method(of, name);
  return Value::undefined(fmt::format("a loop has no attribute '{}'", name));
}

}  // namespace evalrun::engine::jinja
