#include "reports/data/control_differences.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "reports/data/jackknife.h"
#include "reports/data/max_t.h"

namespace evalrun::reports {
namespace {

using Prompts = std::vector<std::optional<double>>;

std::optional<ControlDifference> difference_of(const Prompts& arm) {
  ControlDifference d;
  double sum = 0;
  for (const auto& value : arm) {
    if (!value) continue;
    sum += *value;
    ++d.prompts;
    d.differing += *value != 0 ? 1 : 0;
  }
  if (d.prompts == 0) return std::nullopt;
  d.value = sum / d.prompts;
  return d;
}

// An arm of the family.
struct Member {
  size_t arm = 0;
  double dof = 0;
};

}  // namespace

std::vector<std::optional<ControlDifference>> control_differences(std::span<const Prompts> arms,
                                                                  uint64_t seed, double confidence,
                                                                  const Design& design) {
  EVALRUN_CHECK(confidence > 0 && confidence < 1, "confidence {}", confidence);
  std::vector<std::optional<ControlDifference>> differences;
  for (const Prompts& arm : arms) {
    EVALRUN_CHECK(arm.size() == arms.front().size(), "arms of different prompts");
    differences.push_back(difference_of(arm));
  }
  const auto differs = [&](size_t a) { return differences[a] && differences[a]->differing > 0; };
  // The prompts of those that differ.
  std::vector<size_t> places;
  for (size_t i = 0; !arms.empty() && i < arms.front().size(); ++i)
    for (size_t a = 0; a < arms.size(); ++a)
      if (differs(a) && arms[a][i]) {
        places.push_back(i);
        break;
      }
  Design room;
  const Design& of_places = design.of(places, room);
  std::vector<Member> family;
  // The control first: it differs from itself by nothing.
  std::vector<Jackknife> estimates(1);
  double degrees = 0;
  for (size_t a = 0; a < arms.size(); ++a) {
    if (!differs(a)) continue;
    std::vector<Sums> sums;
    sums.reserve(places.size());
    double largest = 0;
    for (const size_t i : places) {
      const auto& value = arms[a][i];
      sums.push_back(value ? Sums{*value, 1, 1, 1} : Sums{});
      largest = std::max(largest, std::fabs(value.value_or(0)));
    }
    const Units units = units_of(std::move(sums), of_places);
    auto j = jackknife(units, quotient);
    differences[a]->spread = !j ? Spread::kOneUnit
                             // Nothing but rounding.
                             : j->standard_error() <= 1e-12 * largest ? Spread::kConstant
                                                                      : Spread::kSeen;
    if (differences[a]->spread != Spread::kSeen) continue;
    degrees = units.most_degrees();
    const double dof = std::min(units.degrees(units.effective_count(1)), j->kurtosis_dof());
    family.push_back({a, std::max(1.0, dof)});
    estimates.push_back(std::move(*j));
  }
  if (family.empty()) return differences;
  estimates.front().deviations.resize(estimates.back().deviations.size());
  MaxT::Pairs pairs;
  for (size_t e = 1; e < estimates.size(); ++e) pairs.emplace_back(0, e);
  const LargestError largest = family.size() == 1
                                   ? LargestError()
                                   : MaxT(estimates, std::max(1.0, degrees), seed).largest(pairs);
  const double bound = largest.bound(confidence);
  for (size_t m = 0; m < family.size(); ++m) {
    ControlDifference& d = *differences[family[m].arm];
    const double error = estimates[m + 1].standard_error(), dof = family[m].dof;
    const double half = base::student_t_quantile(base::normal_cdf(bound), dof) * error;
    d.interval = base::Interval{d.value - half, d.value + half};
    d.p = largest.p(as_normal(d.value / error, dof));
  }
  return differences;
}

}  // namespace evalrun::reports
