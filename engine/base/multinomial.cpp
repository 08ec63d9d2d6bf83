#include "engine/base/multinomial.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace evalrun::base {
namespace {

constexpr double kFew = 10;  // expected: by inversion below

// ln k! - (k + 1/2) ln(k + 1) + (k + 1) - ln(2 pi) / 2.
double stirling_rest(double k) {
  static constexpr double kRest[] = {0.08106146679532726, 0.04134069595540929, 0.02767792568499834,
                                     0.02079067210376509, 0.01664469118982119, 0.01387612882307075,
                                     0.01189670994589177, 0.01041126526197209, 0.00925546218271273,
                                     0.00833056343336287};
  if (k < 10) return kRest[static_cast<size_t>(k)];
  const double k1 = k + 1, square = k1 * k1;
  return (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - 1.0 / 1680 / square) / square) / square) / k1;
}

double by_inversion(Rng& rng, double n, double p, double log_q, double odds) {
  const double most = std::min(n, n * p + 10 * std::sqrt(n * p + 1) + 10);
  while (true) {
    double left = rng.uniform(), prob = std::exp(n * log_q);
    for (double k = 0; k <= most; ++k) {
      if (left < prob) return k;
      left -= prob;
      prob *= (n - k) / (k + 1) * odds;
    }
    // Beyond `most` there is less than rounding leaves.
  }
}

double by_rejection(Rng& rng, double n, double p, double odds) {
  const double sd = std::sqrt(n * p * (1 - p));
  const double b = 1.15 + 2.53 * sd;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p;
  const double centre = n * p + 0.5, sure = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * sd;
  const double mode = std::floor((n + 1) * p);
  while (true) {
    const double u = rng.uniform() - 0.5, v = rng.uniform();
    const double edge = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / edge + b) * u + centre);
    if (edge >= 0.07 && v <= sure) return k;
    if (!(k >= 0 && k <= n)) continue;
    const double bound = (mode + 0.5) * std::log((mode + 1) / (odds * (n - mode + 1))) +
                         (n + 1) * std::log((n - mode + 1) / (n - k + 1)) +
                         (k + 0.5) * std::log(odds * (n - k + 1) / (k + 1)) + stirling_rest(mode) +
                         stirling_rest(n - mode) - stirling_rest(k) - stirling_rest(n - k);
    if (std::log(v * alpha / (a / (edge * edge) + b)) <= bound) return k;
  }
}

}  // namespace

BinomialDraws::BinomialDraws(double p) : p_(std::min(p, 1 - p)), failures_(p > 0.5) {
  EVALRUN_CHECK(p >= 0 && p <= 1, "p = {}", p);
  log_q_ = std::log1p(-p_);
  odds_ = p_ / (1 - p_);
}

int64_t BinomialDraws::draw(Rng& rng, int64_t n) const {
  const auto trials = static_cast<double>(n);
  double k = 0;
  if (n > 0 && p_ > 0)
    k = trials * p_ < kFew ? by_inversion(rng, trials, p_, log_q_, odds_)
                           : by_rejection(rng, trials, p_, odds_);
  const auto count = static_cast<int64_t>(k);
  return failures_ ? n - count : count;
}

Multinomial::Multinomial(std::span<const double> prob) {
  std::vector<double> share(prob.size());  // of a cell in what it and the cells after it have
  double left = 0;
  for (size_t i = prob.size(); i-- > 0;) {
    EVALRUN_CHECK(prob[i] >= 0, "probability {} of cell {}", prob[i], i);
    left += prob[i];
    share[i] = left > 0 ? std::min(1.0, prob[i] / left) : 0;
  }
  EVALRUN_CHECK(left > 0, "{} cells without any probability", prob.size());
  for (const double p : share) cells_.emplace_back(p);
}

void Multinomial::draw(Rng& rng, int64_t n, std::vector<int64_t>& counts) const {
  counts.assign(cells_.size(), 0);
  for (size_t i = 0; i < cells_.size() && n > 0; ++i) n -= counts[i] = cells_[i].draw(rng, n);
}

}  // namespace evalrun::base
