// The delete-one jackknife: how much an estimate owes to each unit of a design, and so its standard
// error.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/stats.h"
#include "reports/data/design.h"

namespace evalrun::reports {

// What a prompt adds to the sums that an estimate is a function of: tokens and time of an arm, and
// of its baseline.
using Sums = std::array<double, 4>;
using Statistic = double (*)(const Sums&);

double log_ratio(const Sums& s);     // ln (s0 / s1) / (s2 / s3)
double log_quotient(const Sums& s);  // ln s0 / s1: to the bit log_ratio of equal s2 and s3
double quotient(const Sums& s);      // s0 / s1: a mean, with 1 for s1

// Prompts added up by unit.
struct Units {
  std::vector<Sums> sums;
  std::shared_ptr<const Strata> strata;  // of the units
  // Units less strata.
  double most_degrees() const {
    return static_cast<double>(sums.size()) - static_cast<double>(strata->sizes.size());
  }
  double degrees(double n_eff) const { return strata->degrees(n_eff); }
  // With one of the sums as weights.
  double effective_count(size_t column) const;
};
Units units_of(std::vector<Sums> prompts, const Design& design);

struct Jackknife {
  double value = 0;  // of all prompts
  // What each unit moves it by: the statistic without the unit, less the mean of these over its
  // stratum, times sqrt((n - 1) / n) for n units there; the others of the stratum stand for the one
  // left out, so that strata keep their shares. Squares add up to the variance, products to a
  // covariance.
  std::vector<double> deviations;
  double standard_error() const;
  // Degrees of freedom that a variance of such deviations is worth: 2 n / (k - 1), k their kurtosis
  // (3 for normal numbers, n where one unit has all). Infinite where all are as large.
  double kurtosis_dof() const;
};

// nullopt for fewer than two units, and where a single one has all there is to divide by.
std::optional<Jackknife> jackknife(const Units& units, Statistic statistic);

// value +- Student's t times the standard error, with at least one degree of freedom.
base::Interval student_interval(const Jackknife& j, double dof, double confidence);

// The interval of a mean over prompts: Student's t, degrees of freedom as of units of the weights
// of their numbers of prompts. nullopt for fewer than two units.
struct DesignedMean {
  base::Interval interval;
  double standard_error = 0, dof = 0, n_eff = 0;
};
std::optional<DesignedMean> mean_interval(std::span<const double> values, const Design& design,
                                          double confidence = 0.95);

}  // namespace evalrun::reports
