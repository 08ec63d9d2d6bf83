// The delete-one jackknife: how much an estimate owes to each prompt, and so its standard error.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/stats.h"

namespace evalrun::reports {

// What a prompt adds to the sums that an estimate is a function of: tokens and time of an arm, and
// of its baseline.
using Sums = std::array<double, 4>;
using Statistic = double (*)(const Sums&);

double log_ratio(const Sums& s);  // ln (s0 / s1) / (s2 / s3)
double quotient(const Sums& s);   // s0 / s1: a mean, with 1 for s1

struct Jackknife {
  double value = 0;  // of all prompts
  // What each prompt moves it by: statistic of all but one, less the mean of these, times
  // sqrt((n - 1) / n). Their squares add up to the variance, their products to a covariance.
  std::vector<double> deviations;
  double standard_error() const;
  // Degrees of freedom that a variance of such deviations is worth: 2 n / (k - 1), k their kurtosis
  // (3 for normal numbers, n where one prompt has all). Infinite where all are as large.
  double kurtosis_dof() const;
};

// nullopt for fewer than two prompts, and where a single one has all there is to divide by.
std::optional<Jackknife> jackknife(std::span<const Sums> prompts, Statistic statistic);

// 1 / sum of the squares of the shares: as many prompts of equal weight say as much. 0 for none.
double effective_count(std::span<const double> weights);

// value +- Student's t times the standard error, with at least one degree of freedom.
base::Interval student_interval(const Jackknife& j, double dof, double confidence);

}  // namespace evalrun::reports
