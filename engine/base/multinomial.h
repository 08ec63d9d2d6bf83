// Counts of draws from a known distribution, without drawing them one by one. From base::Rng's
// numbers alone; libm's exp and log enter only where a number is compared with another, so two
// machines agree unless a number lies within libm's last bits of such a border.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/rng.h"

namespace evalrun::base {

// What draws of one binomial distribution of any n need again and again.
class BinomialDraws {
 public:
  explicit BinomialDraws(double p);  // in [0, 1]
  // Of `n` trials. Inversion where few are expected, else BTRS (Hoermann 1993, "The generation of
  // binomial random variates", J. Stat. Comput. Simul. 46).
  int64_t draw(Rng& rng, int64_t n) const;

 private:
  double p_;  // at most a half: of failures when `failures_`
  double log_q_ = 0, odds_ = 0;
  bool failures_;
};

// Each cell is binomial given the cells before it.
class Multinomial {
 public:
  Multinomial() = default;
  // Probabilities of the cells; need not be normalised (sum > 0).
  explicit Multinomial(std::span<const double> prob);
  void draw(Rng& rng, int64_t n, std::vector<int64_t>& counts) const;
  size_t size() const { return cells_.size(); }

 private:
  std::vector<BinomialDraws> cells_;
};

}  // namespace evalrun::base
