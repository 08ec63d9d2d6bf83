// Differences of estimates looked at all at once: how far the largest of them may be off by chance,
// in standard errors (max-t). Normal numbers of the estimates' covariance are drawn for it.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "reports/data/jackknife.h"

namespace evalrun::reports {

// The standard normal number that is as rare as t in Student's distribution. Differences with
// different degrees of freedom can be looked at together that way.
double as_normal(double t, double dof);

// The distribution of the largest absolute error of some differences, each as a normal number.
class LargestError {
 public:
  // Drawn; without any: of one difference alone, which needs no draws.
  explicit LargestError(std::vector<double> drawn = {});
  // The bound that all errors keep to at once with that confidence.
  double bound(double confidence) const;
  // The chance of an error of that size somewhere: below 1 - confidence just where z is beyond the
  // bound of that confidence. The draws count the error itself as one of them, so it is never 0.
  double p(double z) const;

 private:
  std::vector<double> drawn_;  // ascending
};

class MaxT {
 public:
  using Pairs = std::vector<std::pair<size_t, size_t>>;

  // Estimates of the same units, two at least. degrees: units less strata. Correlations of few
  // units are too good to be true; they are shrunk by k / (k + degrees), k one less than estimates.
  MaxT(std::span<const Jackknife> estimates, double degrees, uint64_t seed);

  // Of the difference of two estimates; 0 where it is no more than rounding.
  double standard_error(size_t a, size_t b) const;
  // Of all these differences, either way. Correlations are shrunk towards those of independent
  // estimates.
  LargestError largest(const Pairs& pairs) const;
  // The bound of "rival less a" for all rivals at once, from above alone. Correlations are shrunk
  // towards 0. `rivals` have a standard error.
  double upper_bound(size_t a, const std::vector<size_t>& rivals, double confidence) const;

 private:
  size_t m_;
  double shrink_;
  std::vector<double> covariance_;    // m x m, by row
  std::vector<double> errors_, own_;  // draws of m numbers: the estimates' errors; independent ones
};

}  // namespace evalrun::reports
