// Chi-square goodness of fit for the sampling tests.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/base/error.h"

namespace evalrun::tests {

// P(X >= x) for a chi-square variable: the regularised upper incomplete gamma function Q(df/2,
// x/2), by series below the bend and by continued fraction above it (Abramowitz &
// Stegun 6.5.29, 6.5.31).
inline double chi_square_tail(double x, double df) {
  const double a = df / 2, z = x / 2;
  if (z <= 0) return 1;
  const double scale = std::exp(-z + a * std::log(z) - std::lgamma(a));
  if (z < a + 1) {
    double term = 1 / a, sum = term;
    for (int n = 1; n < 10000 && term > sum * 1e-16; ++n) sum += term *= z / (a + n);
    return 1 - sum * scale;
  }
  double b = z + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int n = 1; n < 10000; ++n) {
    const double an = -n * (n - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (std::abs(d * c - 1) < 1e-16) break;
  }
  return scale * h;
}

// p-value of counts against a distribution given exactly. Cells expected fewer than five times are
// pooled, as the chi-square approximation wants; a count in a cell that cannot occur gives 0.
inline double chi_square_p(const std::vector<int64_t>& counts, const std::vector<double>& dist) {
  EVALRUN_CHECK(counts.size() == dist.size());
  int64_t total = 0;
  for (int64_t c : counts) total += c;
  double statistic = 0, pooled_expected = 0, pooled_count = 0;
  int cells = 0;
  const auto add = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < dist.size(); ++i) {
    if (dist[i] <= 0) {
      if (counts[i] > 0) return 0;
      continue;
    }
    const double expected = dist[i] * static_cast<double>(total);
    if (expected >= 5) {
      add(static_cast<double>(counts[i]), expected);
    } else {
      pooled_expected += expected;
      pooled_count += static_cast<double>(counts[i]);
    }
  }
  if (pooled_expected >= 5) add(pooled_count, pooled_expected);
  EVALRUN_CHECK(cells >= 2, "one cell is no test");
  return chi_square_tail(statistic, cells - 1);
}

}  // namespace evalrun::tests
