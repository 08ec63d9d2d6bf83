// Statistics used by reports, the gate and the tests: small, exact enough (about 1e-12 relative
// unless said otherwise), without state. The distributions are Boost.Math's. Arguments outside a
// function's domain are our own mistakes.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace evalrun::base {

double mean(std::span<const double> x);       // x not empty
double median(std::span<const double> x);     // mean of the middle two for an even count; not empty
double sample_sd(std::span<const double> x);  // n - 1 in the denominator; 0 for n < 2

// Standard normal: P(Z <= z) and its inverse, 0 < p < 1.
double normal_cdf(double z);
double normal_quantile(double p);

// Student's t with dof > 0 degrees of freedom (real numbers allowed): P(T <= t) and its inverse.
double student_t_cdf(double t, double dof);
double student_t_quantile(double p, double dof);

// P(X >= statistic) for a chi-square variable with dof >= 1 degrees of freedom.
double chi_square_p(double statistic, int dof);

// P(X >= statistic) for a variable of Fisher's F with dof > 0 degrees of freedom above and `within`
// > 0 below (real numbers allowed).
double fisher_f_p(double statistic, double dof, double within);

// P(X >= k) for X of n trials with probability p each, exactly.
double binomial_upper_p(int64_t k, int64_t n, double p);

// Fisher's exact test (Statistical Methods for Research Workers, 1934, 21.02), one-sided: the
// chance that of k + k0 marked among n + n0 at least k are among the n, if both groups have one
// share. 0 <= k <= n, 0 <= k0 <= n0.
double fisher_upper_p(int64_t k, int64_t n, int64_t k0, int64_t n0);

struct Interval {
  double lo = 0, hi = 0;
};

// Two-sided t interval of the mean, e.g. confidence 0.95. nullopt for fewer than two values.
struct MeanInterval {
  double mean = 0, standard_error = 0;
  int n = 0;
  Interval interval;
};
std::optional<MeanInterval> t_interval(std::span<const double> x, double confidence);

// Wilson's score interval of a proportion `share` seen in n >= 1 trials (Wilson 1927): inside [0,
// 1], and of some width also for shares 0 and 1.
Interval wilson_interval(double share, size_t n, double confidence);

// The p-values of a family of tests, adjusted, in the order given: the tests whose adjusted p is
// below a level are called at that level. kHolm (Holm 1979): any false call in the whole family has
// at most that chance, however the tests depend on each other. kBenjaminiHochberg (1995): of the
// calls, that share is false on average, for independent or positively dependent tests.
enum class Adjustment { kNone, kHolm, kBenjaminiHochberg };
std::vector<double> adjusted_p(std::span<const double> p, Adjustment how);

}  // namespace evalrun::base
