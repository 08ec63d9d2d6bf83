#include "engine/base/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/base/error.h"

namespace evalrun::base {

namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kTiny = 1e-300;       // stands for a zero denominator in Lentz's method
constexpr int kMaxIterations = 10000;  // large dof need some thousand terms

// Continued fraction of the incomplete beta function (NIST DLMF 8.17.22) by the modified Lentz
// method; converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  if (std::fabs(d) < kTiny) d = kTiny;
  d = 1 / d;
  double value = d;
  for (int m = 1; m < kMaxIterations; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    for (const double term : {even, odd}) {
      d = 1 + term * d;
      if (std::fabs(d) < kTiny) d = kTiny;
      d = 1 / d;
      c = 1 + term / c;
      if (std::fabs(c) < kTiny) c = kTiny;
      value *= c * d;
    }
    if (std::fabs(c * d - 1) < 2 * kEpsilon) break;
  }
  return value;
}

// Lower incomplete gamma P(a, x) by its power series (DLMF 8.11.4), for x < a + 1.
double gamma_series(double a, double x) {
  double term = 1 / a, sum = term;
  for (int n = 1; n < kMaxIterations; ++n) {
    term *= x / (a + n);
    sum += term;
    if (std::fabs(term) < kEpsilon * std::fabs(sum)) break;
  }
  return sum * std::exp(-x + a * std::log(x) - std::lgamma(a));
}

// Upper incomplete gamma Q(a, x) by its continued fraction (DLMF 8.9.2), for x >= a + 1.
double gamma_fraction(double a, double x) {
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / b, value = d;
  for (int n = 1; n < kMaxIterations; ++n) {
    const double numerator = -n * (n - a);
    b += 2;
    d = numerator * d + b;
    if (std::fabs(d) < kTiny) d = kTiny;
    d = 1 / d;
    c = b + numerator / c;
    if (std::fabs(c) < kTiny) c = kTiny;
    value *= c * d;
    if (std::fabs(c * d - 1) < 2 * kEpsilon) break;
  }
  return value * std::exp(-x + a * std::log(x) - std::lgamma(a));
}

// Inverse of a continuous increasing function by bisection: 200 halvings leave nothing but
// rounding.
template <typename F>
double invert(const F& f, double target, double lo, double hi) {
  for (int i = 0; i < 200 && lo < hi; ++i) {
    const double middle = lo + (hi - lo) / 2;
    if (middle == lo || middle == hi) break;
    (f(middle) < target ? lo : hi) = middle;
  }
  return lo + (hi - lo) / 2;
}

}  // namespace

double mean(std::span<const double> x) {
  EVALRUN_CHECK(!x.empty(), "mean of nothing");
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

double median(std::span<const double> x) {
  EVALRUN_CHECK(!x.empty(), "median of nothing");
  std::vector<double> sorted(x.begin(), x.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t n = sorted.size();
  return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

double sample_sd(std::span<const double> x) {
  if (x.size() < 2) return 0;
  const double m = mean(x);
  double sum = 0;
  for (const double v : x) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(x.size() - 1));
}

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

double normal_quantile(double p) {
  EVALRUN_CHECK(p > 0 && p < 1, "p = {}", p);
  if (p > 0.5) return -normal_quantile(1 - p);
  return invert(normal_cdf, p, -40, 0);
}

double incomplete_beta(double a, double b, double x) {
  EVALRUN_CHECK(a > 0 && b > 0 && x >= 0 && x <= 1, "a = {}, b = {}, x = {}", a, b, x);
  if (x == 0 || x == 1) return x;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double incomplete_gamma_upper(double a, double x) {
  EVALRUN_CHECK(a > 0 && x >= 0, "a = {}, x = {}", a, x);
  if (x == 0) return 1;
  return x < a + 1 ? 1 - gamma_series(a, x) : gamma_fraction(a, x);
}

double student_t_cdf(double t, double dof) {
  EVALRUN_CHECK(dof > 0, "dof = {}", dof);
  if (t == 0) return 0.5;
  const double tail = 0.5 * incomplete_beta(dof / 2, 0.5, dof / (dof + t * t));
  return t > 0 ? 1 - tail : tail;
}

double student_t_quantile(double p, double dof) {
  EVALRUN_CHECK(p > 0 && p < 1 && dof > 0, "p = {}, dof = {}", p, dof);
  if (p == 0.5) return 0;
  if (p > 0.5) return -student_t_quantile(1 - p, dof);  // the lower tail keeps its digits
  double lo = -2;
  while (student_t_cdf(lo, dof) > p) lo *= 2;
  return invert([&](double t) { return student_t_cdf(t, dof); }, p, lo, 0);
}

double chi_square_p(double statistic, int dof) {
  EVALRUN_CHECK(dof >= 1 && statistic >= 0, "statistic = {}, dof = {}", statistic, dof);
  return incomplete_gamma_upper(dof / 2.0, statistic / 2);
}

double binomial_upper_p(int64_t k, int64_t n, double p) {
  EVALRUN_CHECK(k >= 0 && k <= n && p >= 0 && p <= 1, "{} of {}, p = {}", k, n, p);
  return k == 0 ? 1 : incomplete_beta(static_cast<double>(k), static_cast<double>(n - k + 1), p);
}

std::optional<FitTest> fit_test(std::span<const int64_t> counts, std::span<const double> dist) {
  EVALRUN_CHECK(counts.size() == dist.size(), "{} counts, {} probabilities", counts.size(),
                dist.size());
  int64_t total = 0;
  for (const int64_t c : counts) total += c;
  struct Cell {
    double count = 0, expected = 0;
  };
  std::vector<Cell> cells;
  Cell rare;
  for (size_t i = 0; i < dist.size(); ++i) {
    const Cell cell = {static_cast<double>(counts[i]), dist[i] * static_cast<double>(total)};
    if (dist[i] <= 0 && counts[i] > 0)
      return FitTest{std::numeric_limits<double>::infinity(), 0,
                     static_cast<int>(cells.size()) + 1};
    if (cell.expected >= 5) {
      cells.push_back(cell);
    } else {
      rare.count += cell.count;
      rare.expected += cell.expected;
    }
  }
  if (cells.empty()) return std::nullopt;
  std::optional<double> too_many;
  if (rare.expected >= 5) {
    cells.push_back(rare);
  } else if (rare.expected > 0) {
    const auto n = static_cast<double>(total);
    too_many = binomial_upper_p(std::llround(rare.count), total, rare.expected / n);
    // The others, given how many they are.
    const double share = (n - rare.count) / (n - rare.expected);
    for (Cell& cell : cells) cell.expected *= share;
  }
  FitTest test;
  test.cells = static_cast<int>(cells.size());
  if (test.cells < 2) {
    if (!too_many) return std::nullopt;
    test.p = *too_many;
    return test;
  }
  for (const Cell& cell : cells)
    if (cell.expected > 0)
      test.statistic += (cell.count - cell.expected) * (cell.count - cell.expected) / cell.expected;
  test.p = chi_square_p(test.statistic, test.cells - 1);
  if (too_many) test.p = std::min(1.0, 2 * std::min(test.p, *too_many));
  return test;
}

std::optional<MeanInterval> t_interval(std::span<const double> x, double confidence) {
  EVALRUN_CHECK(confidence > 0 && confidence < 1, "confidence = {}", confidence);
  if (x.size() < 2) return std::nullopt;
  MeanInterval r;
  r.n = static_cast<int>(x.size());
  r.mean = mean(x);
  r.standard_error = sample_sd(x) / std::sqrt(static_cast<double>(r.n));
  const double half = student_t_quantile((1 + confidence) / 2, r.n - 1) * r.standard_error;
  r.interval = {r.mean - half, r.mean + half};
  return r;
}

Interval wilson_interval(double share, size_t n, double confidence) {
  EVALRUN_CHECK(confidence > 0 && confidence < 1, "confidence = {}", confidence);
  EVALRUN_CHECK(n >= 1 && share >= 0 && share <= 1, "{} of {}", share, n);
  const double z = normal_quantile((1 + confidence) / 2), trials = static_cast<double>(n);
  const double centre = share + z * z / (2 * trials), scale = 1 + z * z / trials;
  const double half = z * std::sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials));
  return {std::max(0.0, (centre - half) / scale), std::min(1.0, (centre + half) / scale)};
}

std::vector<double> adjusted_p(std::span<const double> p, Adjustment how) {
  const size_t m = p.size();
  std::vector<double> adjusted(p.begin(), p.end());
  std::vector<size_t> order(m);  // ascending p
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) { return p[x] < p[y]; });
  switch (how) {
    case Adjustment::kNone:
      break;
    case Adjustment::kHolm: {  // the k-th smallest counts m - k + 1 times, never less than the last
      double previous = 0;
      for (size_t k = 0; k < m; ++k)
        adjusted[order[k]] = previous =
            std::max(previous, std::min(1.0, static_cast<double>(m - k) * p[order[k]]));
      break;
    }
    case Adjustment::kBenjaminiHochberg: {  // m / k times, never more than the next
      double next = 1;
      for (size_t k = m; k >= 1; --k)
        adjusted[order[k - 1]] = next =
            std::min(next, static_cast<double>(m) / static_cast<double>(k) * p[order[k - 1]]);
      break;
    }
  }
  return adjusted;
}

}  // namespace evalrun::base
