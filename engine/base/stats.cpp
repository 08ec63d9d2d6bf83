#include "engine/base/stats.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/fisher_f.hpp>
#include <boost/math/distributions/hypergeometric.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/base/error.h"

namespace evalrun::base {

namespace {

// In double throughout: long double costs time and gives these functions no digits that we need.
using Policy = boost::math::policies::policy<boost::math::policies::promote_double<false>>;
using StudentT = boost::math::students_t_distribution<double, Policy>;
using Normal = boost::math::normal_distribution<double, Policy>;
using ChiSquared = boost::math::chi_squared_distribution<double, Policy>;
using FisherF = boost::math::fisher_f_distribution<double, Policy>;
using Binomial = boost::math::binomial_distribution<double, Policy>;

}  // namespace

double mean(std::span<const double> x) {
  EVALRUN_CHECK(!x.empty(), "mean of nothing");
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

double median(std::span<const double> x) {
  EVALRUN_CHECK(!x.empty(), "median of nothing");
  std::vector<double> values(x.begin(), x.end());
  const auto high = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), high, values.end());
  const double low = values.size() % 2 == 1 ? *high : *std::max_element(values.begin(), high);
  return (low + *high) / 2;
}

double sample_sd(std::span<const double> x) {
  if (x.size() < 2) return 0;
  const double m = mean(x);
  double sum = 0;
  for (const double v : x) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(x.size() - 1));
}

double normal_cdf(double z) { return boost::math::cdf(Normal(), z); }

double normal_quantile(double p) {
  EVALRUN_CHECK(p > 0 && p < 1, "p = {}", p);
  return boost::math::quantile(Normal(), p);
}

double student_t_cdf(double t, double dof) {
  EVALRUN_CHECK(dof > 0 && !std::isnan(t), "t = {}, dof = {}", t, dof);
  return boost::math::cdf(StudentT(dof), t);
}

double student_t_quantile(double p, double dof) {
  EVALRUN_CHECK(p > 0 && p < 1 && dof > 0, "p = {}, dof = {}", p, dof);
  return boost::math::quantile(StudentT(dof), p);
}

double chi_square_p(double statistic, int dof) {
  EVALRUN_CHECK(dof >= 1 && statistic >= 0, "statistic = {}, dof = {}", statistic, dof);
  if (statistic == 0) return 1;  // Boost 1.74 overflows there with many degrees of freedom
  return boost::math::cdf(boost::math::complement(ChiSquared(dof), statistic));
}

double fisher_f_p(double statistic, double dof, double within) {
  EVALRUN_CHECK(dof > 0 && within > 0 && statistic >= 0, "statistic = {}, dof = {}, {}", statistic,
                dof, within);
  if (statistic == 0) return 1;
  return boost::math::cdf(boost::math::complement(FisherF(dof, within), statistic));
}

double binomial_upper_p(int64_t k, int64_t n, double p) {
  EVALRUN_CHECK(k >= 0 && k <= n && p >= 0 && p <= 1, "{} of {}, p = {}", k, n, p);
  if (k == 0) return 1;
  const Binomial draws(static_cast<double>(n), p);
  return boost::math::cdf(boost::math::complement(draws, static_cast<double>(k - 1)));
}

double fisher_upper_p(int64_t k, int64_t n, int64_t k0, int64_t n0) {
  EVALRUN_CHECK(k >= 0 && k <= n && k0 >= 0 && k0 <= n0, "{} of {}, {} of {}", k, n, k0, n0);
  const int64_t marked = k + k0, fewest = std::max<int64_t>(0, marked - n0);
  if (k <= fewest) return 1;
  const boost::math::hypergeometric_distribution<double, Policy> draws(
      static_cast<unsigned>(marked), static_cast<unsigned>(n), static_cast<unsigned>(n + n0));
  return boost::math::cdf(boost::math::complement(draws, static_cast<unsigned>(k - 1)));
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
  // Exact at the ends, where the difference would leave a rounding error.
  return {share == 0 ? 0 : std::max(0.0, (centre - half) / scale),
          share == 1 ? 1 : std::min(1.0, (centre + half) / scale)};
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
