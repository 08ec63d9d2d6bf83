// Differences of several arms from one control, such as of their scores, paired by prompt: their
// intervals hold for all arms at once. docs/measurement.md says how, and how often they do.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/stats.h"
#include "reports/data/design.h"

namespace evalrun::reports {

// What there is to tell chance by: kEqual, the arm equals the control on every prompt; kOneUnit,
// all its prompts are one unit of the design; kConstant, every unit differs by as much; else kSeen.
enum class Spread { kEqual, kOneUnit, kConstant, kSeen };

struct ControlDifference {
  double value = 0;                // mean over the prompts that both have; exactly 0 for kEqual
  int prompts = 0, differing = 0;  // those of both; of these, with another value than the control
  Spread spread = Spread::kEqual;
  // Both for all arms of kSeen at once, and absent for the others. p is adjusted for them: it is
  // below 1 - confidence just where the interval leaves 0 out.
  std::optional<base::Interval> interval;
  std::optional<double> p;
};

// arms[a][i]: arm a less the control on prompt i; nullopt where one of the two has no value. An arm
// without such a prompt gives nullopt.
//
// The value is a mean over prompts, its standard error the jackknife's. Degrees of freedom are the
// smaller of Units::degrees of n_eff, n_eff over the units' numbers of prompts, and what the
// kurtosis leaves (Jackknife::kurtosis_dof): where few prompts differ it is about twice their
// number, so that these few count as few. The bound is the quantile of the largest absolute error
// of all arms (MaxT): a prompt that is hard for one arm is hard for the others, and all of them
// share the control. One arm alone has Student's t.
std::vector<std::optional<ControlDifference>> control_differences(
    std::span<const std::vector<std::optional<double>>> arms, uint64_t seed,
    double confidence = 0.95, const Design& design = {});

}  // namespace evalrun::reports
