#include "engine/base/goodness_of_fit.h"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/stats.h"

namespace evalrun::base {
namespace {

constexpr double kLeastExpected = 5;

// Wilson and Hilferty 1931: a chi-square variable as a normal deviate, in the far tail as well.
double deviate(double chi_square, double dof) {
  const double v = 2 / (9 * dof);
  return (std::cbrt(chi_square / dof) - (1 - v)) / std::sqrt(v);
}

// The order in which tokens are joined: likeliest first, lowest id first on ties.
std::vector<int32_t> ranked(std::span<const double> dist) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < dist.size(); ++i)
    if (dist[i] > 0) order.push_back(static_cast<int32_t>(i));
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return dist[static_cast<size_t>(a)] > dist[static_cast<size_t>(b)];
  });
  return order;
}

}  // namespace

GoodnessOfFit::GoodnessOfFit(std::span<const double> dist, int64_t draws, int most_cells)
    : draws_(draws), rank_of_token_(dist.size(), -1) {
  EVALRUN_CHECK(draws > 0 && most_cells >= 8, "{} draws, {} cells", draws, most_cells);
  const double all = std::accumulate(dist.begin(), dist.end(), 0.0);
  EVALRUN_CHECK(std::abs(all - 1) < 1e-6, "probabilities sum to {}", all);
  for (const int32_t token : ranked(dist)) {
    rank_of_token_[static_cast<size_t>(token)] = static_cast<int32_t>(probs_.size());
    probs_.push_back(dist[static_cast<size_t>(token)] / all);
  }
  make_cells(most_cells);
  make_scores();
  make_rest();
  law_ = Multinomial(cell_probs_);
}

void GoodnessOfFit::make_cells(int most_cells) {
  const double least = kLeastExpected / static_cast<double>(draws_);
  const auto alone = static_cast<size_t>(most_cells) * 3 / 4;
  size_t rank = 0;
  while (rank < probs_.size() && rank < alone && probs_[rank] >= least) {
    cell_of_rank_.push_back(static_cast<int32_t>(rank));
    cell_probs_.push_back(probs_[rank++]);
  }
  double left = 0;
  for (size_t i = probs_.size(); i-- > rank;) left += probs_[i];
  const double wanted = std::max(least, left / (most_cells - static_cast<int>(alone) - 1));
  double joined = 0;
  for (; rank < probs_.size(); ++rank) {
    cell_of_rank_.push_back(static_cast<int32_t>(cell_probs_.size()));
    joined += probs_[rank];
    if (joined < wanted) continue;
    cell_probs_.push_back(joined);
    joined = 0;
  }
  n_cells_ = static_cast<int>(cell_probs_.size());
  if (joined == 0) return;
  cell_probs_.push_back(joined);
  if (joined >= least || n_cells_ == 0) {
    ++n_cells_;
  } else {
    has_rest_ = true;
  }
}

void GoodnessOfFit::make_scores() {
  const auto cells = static_cast<size_t>(n_cells_);
  std::vector<double> mean_log(cell_probs_.size());
  for (size_t rank = 0; rank < probs_.size(); ++rank)
    mean_log[static_cast<size_t>(cell_of_rank_[rank])] += probs_[rank] * std::log(probs_[rank]);
  double all = 0, mean = 0, square = 0;
  for (size_t c = 0; c < cells; ++c) {
    all += cell_probs_[c];
    mean += mean_log[c];
    mean_log[c] /= cell_probs_[c];
  }
  mean /= all;
  for (size_t c = 0; c < cells; ++c)
    square += cell_probs_[c] * (mean_log[c] - mean) * (mean_log[c] - mean);
  const auto n = static_cast<double>(draws_);
  // Where all are alike rounding leaves a little.
  const double unit = square > 1e-12 ? 1 / std::sqrt(square * n) : 0;
  for (size_t c = 0; c < cells; ++c) {
    expected_.push_back(n * cell_probs_[c]);
    per_expected_.push_back(1 / expected_[c]);
    score_.push_back((mean_log[c] - mean) * unit);
  }
}

void GoodnessOfFit::make_rest() {
  if (!has_rest_) return;
  for (int64_t k = 0; k <= draws_; ++k) {
    const double p = binomial_upper_p(k, draws_, cell_probs_.back());
    if (p < 1e-300) break;
    rest_deviate_.push_back(p >= 1 ? -10 : -normal_quantile(p));
  }
}

double GoodnessOfFit::distance(std::span<const int64_t> cell_counts) const {
  double farthest = -10;
  if (n_cells_ > 1) {
    double pearson = 0, score = 0;
    for (size_t c = 0; c < expected_.size(); ++c) {
      const double off = static_cast<double>(cell_counts[c]) - expected_[c];
      pearson += off * off * per_expected_[c];
      score += off * score_[c];
    }
    farthest = std::max({farthest, deviate(pearson, n_cells_ - 1), deviate(score * score, 1)});
  }
  if (has_rest_) {
    const auto count = static_cast<size_t>(cell_counts.back());
    farthest = std::max(farthest, rest_deviate_[std::min(count, rest_deviate_.size() - 1)]);
  }
  return farthest;
}

double GoodnessOfFit::p(std::span<const int64_t> counts, uint64_t seed, int simulations) const {
  EVALRUN_CHECK(counts.size() == rank_of_token_.size(), "{} counts, {} probabilities",
                counts.size(), rank_of_token_.size());
  std::vector<int64_t> cell_counts(cell_probs_.size());
  int64_t all = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    if (rank_of_token_[i] < 0) return 0;
    cell_counts[static_cast<size_t>(cell_of_rank_[static_cast<size_t>(rank_of_token_[i])])] +=
        counts[i];
    all += counts[i];
  }
  EVALRUN_CHECK(all == draws_, "{} counts of {} draws", all, draws_);
  if (certain()) return 1;
  // Too many in the rest is all there is: no simulation is needed.
  if (n_cells_ == 1) return binomial_upper_p(cell_counts.back(), draws_, cell_probs_.back());
  // Equal distances may come from different counts, with other roundings.
  const double found = distance(cell_counts) - 1e-9;
  Rng rng(seed);
  int as_far = 0;
  for (int i = 1; i <= simulations; ++i) {
    law_.draw(rng, draws_, cell_counts);
    as_far += distance(cell_counts) >= found;
    if (as_far == kEnough) return static_cast<double>(kEnough) / i;
  }
  return (1.0 + as_far) / (1.0 + simulations);
}

double joint_p(std::span<const TestP> tests) {
  if (tests.empty()) return 1;
  double smallest = 1, sum = 0;
  int spread = 0;
  for (const TestP& test : tests) {
    if (test.p <= 0) return 0;
    smallest = std::min(smallest, test.p);
    if (test.spread) sum -= 2 * std::log(test.p), ++spread;
  }
  const auto n = static_cast<double>(tests.size());
  const double fisher = spread == 0 ? 1 : chi_square_p(sum, 2 * spread);
  const double t = std::min({1.0, n * smallest, fisher});
  if (t >= 1) return 1;
  if (t < 1e-12) return 2 * t;  // an upper bound: how many digits it has is of no interest
  // How often the smaller of the two is at most t. None of the tests that are not spread is below
  // a = t / n, none of the others either, and Fisher's sum is below its quantile c: inclusion and
  // exclusion over which of the m others are below a; -2 ln p has no memory, so each of these
  // shortens the sum by -2 ln a.
  const double a = t / n;
  const double rare_below = -std::expm1((n - spread) * std::log1p(-a));
  if (spread == 0) return rare_below;
  const boost::math::chi_squared_distribution<double> fisher_sum(2 * spread);
  const double c = boost::math::quantile(boost::math::complement(fisher_sum, t));
  double others = t, ways = 1;
  for (int k = 1; k <= spread; ++k) {
    const double rest = c + 2 * k * std::log(a);
    if (rest <= 0) break;
    ways *= -a * (spread - k + 1) / k;
    others -= ways * boost::math::cdf(fisher_sum, rest);
  }
  return std::min(1.0, others + (1 - others) * rare_below);
}

}  // namespace evalrun::base
