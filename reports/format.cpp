#include "reports/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace evalrun::reports {

namespace {
// No ratio, rate or share of a run is as large: an interval that reaches it says that nothing is
// known.
constexpr double kUnbounded = 1e6;
}  // namespace

std::string number(const std::optional<double>& v, int decimals) {
  if (!v || !std::isfinite(*v)) return "-";
  // "-0.00" says nothing that "0.00" does not.
  const double rounded = std::round(*v * std::pow(10, decimals)) == 0 ? 0 : *v;
  return fmt::format("{:.{}f}", rounded, decimals);
}

std::string percent(const std::optional<double>& v, int decimals) {
  return v && std::isfinite(*v) ? fmt::format("{} %", number(100 * *v, decimals)) : "-";
}

std::string count(double v) {
  std::string digits = fmt::format("{:.0f}", v);
  for (int at = static_cast<int>(digits.size()) - 3; at > (v < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::string with_interval(const std::optional<double>& v, const std::optional<base::Interval>& i,
                          double n_eff, int decimals) {
  if (!v || !i) return number(v, decimals);
  return fmt::format("{} {}{}", number(v, decimals), bracket(*i, decimals),
                     n_eff < kIndicativeBelow ? "*" : "");
}

std::string bracket(const base::Interval& i, int decimals) {
  const bool unbounded = i.hi > kUnbounded;
  return fmt::format("[{}, {}]", number(i.lo, decimals),
                     unbounded ? ">1e6" : number(i.hi, decimals));
}

}  // namespace evalrun::reports
