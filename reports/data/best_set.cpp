#include "reports/data/best_set.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/stats.h"
#include "reports/data/jackknife.h"

namespace evalrun::reports {
namespace {

constexpr int kDraws = 4000;  // enough for the second digit of a 95 % point

using Arms = std::vector<std::vector<TokensAndTime>>;

Arms decoded_by_all(std::span<const std::vector<TokensAndTime>> arms, std::vector<size_t>& places) {
  Arms kept(arms.size());
  for (size_t i = 0; i < arms.front().size(); ++i) {
    const bool decoded = std::all_of(arms.begin(), arms.end(),
                                     [&](const auto& a) { return a[i].tokens > 0 && a[i].ns > 0; });
    if (decoded) places.push_back(i);
    for (size_t a = 0; decoded && a < arms.size(); ++a) kept[a].push_back(arms[a][i]);
  }
  return kept;
}

// An arm's prompts as sums whose statistic is its ln speed.
Units units_of_arm(const std::vector<TokensAndTime>& prompts, Estimator estimator,
                   const Design& design) {
  std::vector<Sums> sums;
  for (const TokensAndTime& p : prompts) {
    switch (estimator) {
      case Estimator::kSum:
        sums.push_back({p.tokens, p.ns, 1, 1});
        continue;
      case Estimator::kGeo:
        sums.push_back({std::log(p.tokens / p.ns), 1, 1, 1});
        continue;
      case Estimator::kLegacy:
      case Estimator::kLegacyDecode:
        sums.push_back({p.tokens / p.ns, 1, 1, 1});
        continue;
    }
    EVALRUN_CHECK(false, "unknown estimator {}", static_cast<int>(estimator));
  }
  return units_of(sums, design);
}

// Row-major m x m matrices.
using Matrix = std::vector<double>;

// The jackknife's covariances of the estimates.
Matrix covariances(const std::vector<Jackknife>& logs) {
  const size_t m = logs.size(), n = logs.front().deviations.size();
  Matrix c(m * m);
  for (size_t a = 0; a < m; ++a)
    for (size_t b = 0; b <= a; ++b) {
      double sum = 0;
      for (size_t i = 0; i < n; ++i) sum += logs[a].deviations[i] * logs[b].deviations[i];
      c[a * m + b] = c[b * m + a] = sum;
    }
  return c;
}

// Lower triangular L with L L^T = c; a pivot lost in rounding gives a column of zeros.
Matrix cholesky(const Matrix& c, size_t m) {
  Matrix l(m * m);
  for (size_t j = 0; j < m; ++j) {
    double pivot = c[j * m + j];
    for (size_t k = 0; k < j; ++k) pivot -= l[j * m + k] * l[j * m + k];
    if (pivot <= 1e-12 * c[j * m + j]) continue;
    l[j * m + j] = std::sqrt(pivot);
    for (size_t i = j + 1; i < m; ++i) {
      double sum = c[i * m + j];
      for (size_t k = 0; k < j; ++k) sum -= l[i * m + k] * l[j * m + k];
      l[i * m + j] = sum / l[j * m + j];
    }
  }
  return l;
}

// Standard normal numbers (Box and Muller 1958).
void fill_normals(base::Rng& rng, std::vector<double>& out) {
  for (size_t i = 0; i < out.size(); i += 2) {
    const double r = std::sqrt(-2 * std::log(1 - rng.uniform()));
    const double angle = 2 * std::numbers::pi * rng.uniform();
    out[i] = r * std::cos(angle);
    if (i + 1 < out.size()) out[i + 1] = r * std::sin(angle);
  }
}

// kDraws draws of the m estimates' errors, and of m independent numbers.
struct Draws {
  std::vector<double> errors, own;
};

Draws draw(const Matrix& covariance, size_t m, uint64_t seed) {
  const Matrix l = cholesky(covariance, m);
  base::Rng rng(seed);
  Draws d;
  std::vector<double> z(m);
  for (int draw = 0; draw < kDraws; ++draw) {
    fill_normals(rng, z);
    for (size_t a = 0; a < m; ++a) {
      double sum = 0;
      for (size_t k = 0; k <= a; ++k) sum += l[a * m + k] * z[k];
      d.errors.push_back(sum);
    }
    fill_normals(rng, z);
    d.own.insert(d.own.end(), z.begin(), z.end());
  }
  return d;
}

// The standard normal number that is as rare as t in Student's distribution.
double as_normal(double t, double dof) {
  const double p = base::student_t_cdf(-std::fabs(t), dof);
  const double z = p > 0 ? -base::normal_quantile(p) : std::numeric_limits<double>::infinity();
  return t < 0 ? -z : z;
}

class Comparison {
 public:
  // degrees: units less strata.
  Comparison(const std::vector<Jackknife>& logs, double dof, double degrees, uint64_t seed,
             double confidence)
      : logs_(logs),
        m_(logs.size()),
        dof_(dof),
        confidence_(confidence),
        covariance_(covariances(logs)),
        draws_(draw(covariance_, m_, seed)) {
    const auto k = static_cast<double>(m_ - 1);
    shrink_ = k / (k + degrees);
  }

  // Whether no other arm is faster than `a` beyond chance.
  bool may_be_fastest(size_t a) const {
    double largest = -std::numeric_limits<double>::infinity();
    std::vector<size_t> rivals;
    std::vector<double> errors;
    for (size_t b = 0; b < m_; ++b) {
      if (b == a) continue;
      const double ahead = logs_[b].value - logs_[a].value, error = standard_error(a, b);
      // Arms of the same times to the bit differ by nothing, and by no chance.
      if (error == 0 && ahead > 0) return false;
      if (error == 0) continue;
      largest = std::max(largest, as_normal(ahead / error, dof_));
      rivals.push_back(b);
      errors.push_back(error);
    }
    return rivals.empty() || largest <= bound(a, rivals, errors);
  }

  // By how many standard errors, as normal numbers, all of these differences may be off at once.
  using Pairs = std::vector<std::pair<size_t, size_t>>;
  double bound_of(const Pairs& pairs) const {
    const double together = std::sqrt(1 - shrink_), apart = std::sqrt(shrink_ / 2);
    std::vector<double> errors;
    for (const auto& [a, b] : pairs) errors.push_back(standard_error(a, b));
    std::vector<double> largest;
    for (int draw = 0; draw < kDraws; ++draw) {
      const double* error = draws_.errors.data() + static_cast<size_t>(draw) * m_;
      const double* own = draws_.own.data() + static_cast<size_t>(draw) * m_;
      double z = 0;
      for (size_t p = 0; p < pairs.size(); ++p) {
        const auto& [a, b] = pairs[p];
        if (errors[p] == 0) continue;
        z = std::max(
            z, std::fabs(together * (error[b] - error[a]) / errors[p] + apart * (own[b] - own[a])));
      }
      largest.push_back(z);
    }
    const auto at = largest.begin() + static_cast<std::ptrdiff_t>(confidence_ * kDraws);
    std::nth_element(largest.begin(), at, largest.end());
    return *at;
  }

  std::vector<ArmRank> ranks(size_t fastest) const {
    std::vector<ArmRank> ranks(m_);
    for (ArmRank& r : ranks) r.highest = static_cast<int>(m_);
    Pairs all;
    for (size_t a = 0; a < m_; ++a)
      for (size_t b = a + 1; b < m_; ++b) all.emplace_back(a, b);
    const double bound = bound_of(all);
    for (const auto& [a, b] : all) {
      const double ahead = logs_[a].value - logs_[b].value, error = standard_error(a, b);
      const bool apart =
          error == 0 ? ahead != 0 : std::fabs(as_normal(ahead / error, dof_)) > bound;
      if (!apart) continue;
      ++ranks[ahead > 0 ? b : a].lowest;
      --ranks[ahead > 0 ? a : b].highest;
    }
    // The bound as a t of these degrees of freedom.
    const double t = base::student_t_quantile(base::normal_cdf(bound), dof_);
    for (size_t a = 0; a < m_; ++a) {
      ranks[a].log_ratio = logs_[a].value - logs_[fastest].value;
      const double half = t * standard_error(a, fastest);
      if (a != fastest)
        ranks[a].behind = base::Interval{ranks[a].log_ratio - half, ranks[a].log_ratio + half};
    }
    return ranks;
  }

 private:
  double standard_error(size_t a, size_t b) const {
    const double variance =
        covariance_[a * m_ + a] + covariance_[b * m_ + b] - 2 * covariance_[a * m_ + b];
    const double scale = covariance_[a * m_ + a] + covariance_[b * m_ + b];
    return variance > 1e-14 * scale ? std::sqrt(variance) : 0;
  }

  double bound(size_t a, const std::vector<size_t>& rivals,
               const std::vector<double>& errors) const {
    const double together = std::sqrt(1 - shrink_), apart = std::sqrt(shrink_);
    std::vector<double> largest;
    for (int draw = 0; draw < kDraws; ++draw) {
      const double* error = draws_.errors.data() + static_cast<size_t>(draw) * m_;
      const double* own = draws_.own.data() + static_cast<size_t>(draw) * m_;
      double z = -std::numeric_limits<double>::infinity();
      for (size_t r = 0; r < rivals.size(); ++r)
        z = std::max(z,
                     together * (error[rivals[r]] - error[a]) / errors[r] + apart * own[rivals[r]]);
      largest.push_back(z);
    }
    const auto at = largest.begin() + static_cast<std::ptrdiff_t>(confidence_ * kDraws);
    std::nth_element(largest.begin(), at, largest.end());
    return *at;
  }

  const std::vector<Jackknife>& logs_;
  size_t m_;
  double dof_, confidence_, shrink_ = 0;
  Matrix covariance_;
  Draws draws_;
};

}  // namespace

std::optional<BestSet> best_set(std::span<const std::vector<TokensAndTime>> arms,
                                Estimator estimator, uint64_t seed, double confidence,
                                const Design& design) {
  EVALRUN_CHECK(confidence > 0 && confidence < 1, "confidence {}", confidence);
  if (arms.size() < 2) return std::nullopt;
  for (const auto& prompts : arms)
    EVALRUN_CHECK(prompts.size() == arms.front().size(), "arms of different prompts");
  std::vector<size_t> places;
  const Arms decoded = decoded_by_all(arms, places);
  const Design of_decoded = design.of(places);
  std::vector<Jackknife> logs;
  BestSet best{.fastest = 0,
               .member = {},
               .ranks = {},
               .n = static_cast<int>(decoded.front().size()),
               .n_eff = std::numeric_limits<double>::infinity()};
  double degrees = 0, dof = std::numeric_limits<double>::infinity();
  for (const auto& prompts : decoded) {
    const Units units = units_of_arm(prompts, estimator, of_decoded);
    const auto j = jackknife(units, estimator == Estimator::kGeo ? quotient : log_ratio);
    if (!j) return std::nullopt;
    logs.push_back(*j);
    const double n_eff = effective_count(units.column(1));
    degrees = static_cast<double>(units.sums.size()) - units.n_strata();
    dof = std::min(dof, units.degrees(n_eff));
    best.n_eff = std::min(best.n_eff, n_eff);
  }
  const Comparison comparison(logs, std::max(1.0, dof), std::max(1.0, degrees), seed, confidence);
  for (size_t a = 0; a < logs.size(); ++a) {
    if (logs[a].value > logs[best.fastest].value) best.fastest = a;
    best.member.push_back(comparison.may_be_fastest(a));
  }
  best.member[best.fastest] = true;
  best.ranks = comparison.ranks(best.fastest);
  return best;
}

}  // namespace evalrun::reports
