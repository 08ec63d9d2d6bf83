// Draws against a distribution that is known exactly. The p-value is that of a Monte Carlo test
// (Barnard 1963): the share of as many draws from the distribution itself that lie at least as far
// off, so it holds at any number of draws, for any cells, far in the tail. No limit theorem is
// used; how far off something lies may be measured in any way.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/multinomial.h"

namespace evalrun::base {

// Cells. A token expected five times or more is a cell; the others are joined, in the order of
// their probabilities, into cells expected five times. What is left over of the rarest is the rest.
//
// Distance. The largest of three, each as a normal deviate: Pearson's sum over the cells; the sum
// of ln p of what was drawn, which a wrong temperature shifts; too many draws in the rest.
class GoodnessOfFit {
 public:
  static constexpr int kMostCells = 512;
  static constexpr int kMostSimulations = 200'000;  // so that the smallest p is 5e-6
  // A p is settled when as many simulations lie as far off (Besag and Clifford 1991, "Sequential
  // Monte Carlo p-values"): 0.3 takes 170 simulations, and its standard error is a seventh of it.
  static constexpr int kEnough = 50;

  // `draws` of a distribution over tokens.
  GoodnessOfFit(std::span<const double> dist, int64_t draws, int most_cells = kMostCells);

  int64_t draws() const { return draws_; }
  // Without the rest. 1: only too many in the rest can be seen.
  int cells() const { return n_cells_; }
  // Nothing can be seen but a token of probability 0.
  bool certain() const { return n_cells_ == 1 && !has_rest_; }
  // [token], as many as `draws` together. 0 with a count where the probability is 0. Holds with any
  // number of `simulations`; the smallest p is their reciprocal.
  double p(std::span<const int64_t> counts, uint64_t seed,
           int simulations = kMostSimulations) const;

  // For the power of the test (fit_power.h). Tokens that have a probability, likeliest first, and
  // the cell of each; the rest is the last cell.
  std::span<const double> probs() const { return probs_; }
  std::span<const int32_t> cell_of_rank() const { return cell_of_rank_; }
  std::span<const double> cell_probs() const { return cell_probs_; }
  const Multinomial& cell_law() const { return law_; }
  double distance(std::span<const int64_t> cell_counts) const;

 private:
  void make_cells(int most_cells);
  void make_scores();
  void make_rest();

  int64_t draws_;
  std::vector<int32_t> rank_of_token_;  // -1: probability 0
  std::vector<double> probs_;
  std::vector<int32_t> cell_of_rank_;
  std::vector<double> cell_probs_;  // with the rest, if any
  int n_cells_ = 0;
  bool has_rest_ = false;
  std::vector<double> expected_, per_expected_, score_;
  std::vector<double> rest_deviate_;  // by count; the last one for all above
  Multinomial law_;
};

// p-values of independent tests as one. A fault may show much at one place (Bonferroni) or a little
// at many (Fisher's sum of -2 ln p, Statistical Methods for Research Workers, 1932, 21.1, over the
// tests that are `spread`: others have a p of 1 or next to nothing). The smaller of the two, with
// the exact distribution of the smaller of the two.
struct TestP {
  double p = 1;
  bool spread = true;
};
double joint_p(std::span<const TestP> tests);  // 1 without tests

}  // namespace evalrun::base
