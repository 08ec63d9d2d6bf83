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
// "1.42 [1.31, 1.54]", a star after it when the interval is from fewer than kIndicativeBelow
// prompts.
inline constexpr int kIndicativeBelow = 30;
std::string with_interval(const std::optional<double>& v, const std::optional<base::Interval>& i,
                          int64_t n_prompts, int decimals = 2);

std::string bracket(const base::Interval& i, int decimals);  // "[1.31, 1.54]"

}  // namespace evalrun::reports
