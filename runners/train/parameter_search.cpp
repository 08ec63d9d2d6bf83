#include "runners/train/parameter_search.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/braces.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::runners {
namespace {

constexpr const char* kSpaceForm =
    "write it as --space length=3..8,branches=4..20..4,match=first|recent";

// "2..8" and "4..20..4" as whole numbers, "a|b" as texts, anything else as itself.
std::vector<std::string> values_of_text(const std::string& text) {
  if (text.find('|') != std::string::npos) {
    std::vector<std::string> values;
    for (const std::string_view value : base::split(text, '|')) values.emplace_back(value);
    return values;
  }
  if (text.find("..") == std::string::npos) return {text};
  try {
    return base::expand_braces("{" + text + "}");
  } catch (const base::Error& e) {
    throw base::usage_error(fmt::format("--space: '{}' is no range: {}", text, e.message()),
                            kSpaceForm);
  }
}

}  // namespace

SearchSpace::SearchSpace(const std::string& method, const std::vector<std::string>& texts)
    : method_(methods::parse_method(method)) {
  std::set<std::string> names;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw base::usage_error(fmt::format("--space: '{}' is no parameter with values", text),
                              kSpaceForm);
    Axis axis{text.substr(0, equals), {}};
    if (!names.insert(axis.name).second)
      throw base::usage_error(fmt::format("--space: '{}' is there twice", axis.name), kSpaceForm);
    for (const std::string& value : values_of_text(text.substr(equals + 1))) {
      const methods::MethodParams one(method_.info->params, {{axis.name, value}},
                                      {method_.info->name});
      const std::string& spelled = one.text(axis.name);
      if (std::find(axis.values.begin(), axis.values.end(), spelled) == axis.values.end())
        axis.values.push_back(spelled);
    }
    axes_.push_back(std::move(axis));
  }
  if (axes_.empty()) throw base::usage_error("--space: there is nothing to search", kSpaceForm);
}

size_t SearchSpace::size() const {
  size_t n = 1;
  for (const Axis& axis : axes_) n *= axis.values.size();
  return n;
}

SearchSpace::Point SearchSpace::start() const {
  Point point;
  for (const Axis& axis : axes_) {
    const auto own =
        std::find(axis.values.begin(), axis.values.end(), method_.params.text(axis.name));
    point.push_back(own == axis.values.end() ? axis.values.size() / 2
                                             : static_cast<size_t>(own - axis.values.begin()));
  }
  return point;
}

std::string SearchSpace::others(const Point& point, size_t axis) const {
  std::vector<std::string> texts;
  for (size_t i = 0; i < axes_.size(); ++i)
    if (i != axis) texts.push_back(fmt::format("{}={}", axes_[i].name, axes_[i].values[point[i]]));
  return texts.empty() ? method() : fmt::format("{}", fmt::join(texts, ","));
}

std::string SearchSpace::spec_of(const Point& point) const {
  std::map<std::string, std::string> values;
  for (size_t i = 0; i < point.size(); ++i) values[axes_[i].name] = axes_[i].values[point[i]];
  std::vector<std::string> changed;
  for (const methods::ParamInfo& info : method_.info->params) {
    const auto own = values.find(info.name);
    const std::string& value = own == values.end() ? method_.params.text(info.name) : own->second;
    if (value != info.default_value) changed.push_back(fmt::format("{}={}", info.name, value));
  }
  return fmt::format("{}{}{}", method_.info->name, changed.empty() ? "" : ":",
                     fmt::join(changed, ","));
}

std::optional<std::string> SearchSpace::spec(const Point& point) const {
  const std::string text = spec_of(point);
  try {
    methods::parse_method(text);
  } catch (const base::Error&) {
    return std::nullopt;
  }
  return text;
}

void RaceTime::add(const RaceTime& other) {
  tokens += other.tokens, ns += other.ns;
  plain_tokens += other.plain_tokens, plain_ns += other.plain_ns;
}

double RaceTime::speedup() const {
  if (!(tokens > 0 && ns > 0 && plain_tokens > 0 && plain_ns > 0)) return 0;
  return (tokens / ns) / (plain_tokens / plain_ns);
}

ParameterSearch::Result ParameterSearch::run(const SearchSpace& space) const {
  EVALRUN_CHECK(measure != nullptr && first_prompts >= 1 && prompts >= 1 && rounds >= 1);
  struct Racer {
    SearchSpace::Point point;
    std::string method;
    RaceTime time;
    int met = 0;  // prompts
  };
  Result result;
  result.point = space.start();
  std::set<std::string> tried;
  std::set<SearchSpace::Point> impossible;
  const auto stopped = [this] { return stop && stop(); };

  // The best value of an axis, the others as in `result`. False when the search is over.
  const auto race = [&](size_t axis) {
    std::vector<Racer> racers;
    SearchSpace::Point point = result.point;
    for (point[axis] = 0; point[axis] < space.axes()[axis].values.size(); ++point[axis]) {
      if (const auto method = space.spec(point))
        racers.push_back({point, *method, {}, 0});
      else
        impossible.insert(point);
    }
    if (racers.empty())
      throw base::usage_error(
          fmt::format("--space: no value of {} goes with {}", space.axes()[axis].name,
                      space.others(result.point, axis)),
          "evalrun list methods says which values a method takes");
    if (racers.size() == 1) {  // nothing to race
      result.point = racers[0].point;
      return true;
    }
    const int raced = static_cast<int>(racers.size());
    for (int begin = 0; begin < prompts && !stopped();) {
      const int end = std::min(prompts, begin == 0 ? first_prompts : 2 * begin);
      std::vector<std::string> specs;
      for (const Racer& racer : racers) specs.push_back(racer.method);
      const std::vector<RaceTime> times = measure(specs, begin, end);
      if (times.empty()) break;  // stopped in the middle
      EVALRUN_CHECK(times.size() == racers.size(), "{} times of {} methods", times.size(),
                    racers.size());
      for (size_t i = 0; i < racers.size(); ++i) {
        racers[i].time.add(times[i]);
        racers[i].met = end;
        tried.insert(racers[i].method);
      }
      std::stable_sort(racers.begin(), racers.end(), [](const Racer& a, const Racer& b) {
        return a.time.speedup() > b.time.speedup();
      });
      racers.resize(std::max<size_t>((racers.size() + 1) / 2, 2));
      begin = end;
      if (progress)
        progress({racers[0].method, axis, raced, racers[0].met, racers[0].time.speedup()});
    }
    if (racers[0].met == 0) return false;  // nothing was measured
    result.point = racers[0].point;
    result.speedup = racers[0].time.speedup();
    result.prompts = racers[0].met;
    return !stopped();
  };

  size_t unchanged = 0;  // races in a row
  const size_t n = space.axes().size();
  size_t axis = 0;
  for (int left = rounds * static_cast<int>(n); left > 0 && unchanged < n; --left) {
    const SearchSpace::Point before = result.point;
    if (!race(axis)) {
      result.finished = false;
      break;
    }
    unchanged = result.point == before ? unchanged + 1 : 1;
    axis = (axis + 1) % n;
  }
  if (unchanged < n) result.finished = false;
  result.method = space.spec(result.point).value_or(space.method());
  result.tried = static_cast<int>(tried.size());
  result.impossible = static_cast<int>(impossible.size());
  return result;
}

}  // namespace evalrun::runners
