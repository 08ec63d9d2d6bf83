// Numbers as text.
#pragma once
#include <optional>
#include <string>

#include "engine/base/stats.h"

namespace evalrun::reports {

// "-" for absent values.
std::string number(const std::optional<double>& v, int decimals);
std::string percent(const std::optional<double>& v, int decimals);  // 0.25 -> "25.0 %"
std::string count(double v);                                        // 12345 -> "12,345"
// Prompts of equal weight (Estimate::n_eff) that an interval needs to be more than indicative.
inline constexpr int kIndicativeBelow = 20;
inline constexpr const char* kIndicative =
    "from fewer than 20 prompts of equal weight, indicative only";
// "1.42 [1.31, 1.54]", a star after it when n_eff is below kIndicativeBelow.
std::string with_interval(const std::optional<double>& v, const std::optional<base::Interval>& i,
                          double n_eff, int decimals = 2);

// "[1.31, 1.54]"; "[0.00, >1e6]" where the upper end says nothing.
std::string bracket(const base::Interval& i, int decimals);

}  // namespace evalrun::reports
