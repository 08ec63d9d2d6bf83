#include "reports/data/best_set.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/stats.h"
#include "reports/data/jackknife.h"

namespace evalrun::reports {
namespace {

constexpr int kDraws = 4000;  // enough for the second digit of a 95 % point

using Arms = std::vector<std::vector<TokensAndTime>>;

Arms decoded_by_all(std::span<const std::vector<TokensAndTime>> arms) {
  Arms kept(arms.size());
  for (size_t i = 0; i < arms.front().size(); ++i) {
    const bool decoded = std::all_of(arms.begin(), arms.end(),
                                     [&](const auto& a) { return a[i].tokens > 0 && a[i].ns > 0; });
    for (size_t a = 0; decoded && a < arms.size(); ++a) kept[a].push_back(arms[a][i]);
  }
  return kept;
}

// ln speed of all prompts, and of all but one.
struct LogSpeeds {
  double all = 0;
  std::vector<double> without;
};

LogSpeeds log_speeds(const std::vector<TokensAndTime>& prompts, Estimator estimator) {
  EVALRUN_CHECK(prompts.size() >= 2, "{} prompts", prompts.size());
  double first = 0, second = 0;
  const auto terms = [&](const TokensAndTime& p) {
    switch (estimator) {
      case Estimator::kSum:
        return std::pair(p.tokens, p.ns);
      case Estimator::kGeo:
        return std::pair(std::log(p.tokens / p.ns), 1.0);
      case Estimator::kLegacy:
        return std::pair(p.tokens / p.ns, 1.0);
    }
    EVALRUN_CHECK(false, "unknown estimator {}", static_cast<int>(estimator));
  };
  const auto log_of = [&](double a, double b) {
    return estimator == Estimator::kGeo ? a / b : std::log(a / b);
  };
  for (const TokensAndTime& p : prompts) first += terms(p).first, second += terms(p).second;
  LogSpeeds logs{.all = log_of(first, second), .without = {}};
  for (const TokensAndTime& p : prompts)
    logs.without.push_back(log_of(first - terms(p).first, second - terms(p).second));
  return logs;
}

double effective_prompts(const Arms& arms) {
  double smallest = std::numeric_limits<double>::infinity();
  for (const auto& prompts : arms) {
    std::vector<double> times;
    for (const TokensAndTime& p : prompts) times.push_back(p.ns);
    smallest = std::min(smallest, effective_count(times));
  }
  return smallest;
}

// Row-major m x m matrices.
using Matrix = std::vector<double>;

// The jackknife's covariances of the estimates.
Matrix covariances(const std::vector<LogSpeeds>& logs) {
  const size_t m = logs.size(), n = logs.front().without.size();
  std::vector<double> means(m);
  for (size_t a = 0; a < m; ++a) means[a] = base::mean(logs[a].without);
  Matrix c(m * m);
  const double scale = (static_cast<double>(n) - 1) / static_cast<double>(n);
  for (size_t a = 0; a < m; ++a)
    for (size_t b = 0; b <= a; ++b) {
      double sum = 0;
      for (size_t i = 0; i < n; ++i)
        sum += (logs[a].without[i] - means[a]) * (logs[b].without[i] - means[b]);
      c[a * m + b] = c[b * m + a] = scale * sum;
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
  Comparison(const std::vector<LogSpeeds>& logs, double dof, uint64_t seed, double confidence)
      : logs_(logs),
        m_(logs.size()),
        dof_(dof),
        confidence_(confidence),
        covariance_(covariances(logs)),
        draws_(draw(covariance_, m_, seed)) {
    const auto k = static_cast<double>(m_ - 1), n = static_cast<double>(logs[0].without.size());
    shrink_ = k / (k + n - 1);
  }

  // Whether no other arm is faster than `a` beyond chance.
  bool may_be_fastest(size_t a) const {
    double largest = -std::numeric_limits<double>::infinity();
    std::vector<size_t> rivals;
    std::vector<double> errors;
    for (size_t b = 0; b < m_; ++b) {
      if (b == a) continue;
      const double ahead = logs_[b].all - logs_[a].all, error = standard_error(a, b);
      // Arms of the same times to the bit differ by nothing, and by no chance.
      if (error == 0 && ahead > 0) return false;
      if (error == 0) continue;
      largest = std::max(largest, as_normal(ahead / error, dof_));
      rivals.push_back(b);
      errors.push_back(error);
    }
    return rivals.empty() || largest <= bound(a, rivals, errors);
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

  const std::vector<LogSpeeds>& logs_;
  size_t m_;
  double dof_, confidence_, shrink_ = 0;
  Matrix covariance_;
  Draws draws_;
};

}  // namespace

std::optional<BestSet> best_set(std::span<const std::vector<TokensAndTime>> arms,
                                Estimator estimator, uint64_t seed, double confidence) {
  EVALRUN_CHECK(confidence > 0 && confidence < 1, "confidence {}", confidence);
  if (arms.size() < 2) return std::nullopt;
  for (const auto& prompts : arms)
    EVALRUN_CHECK(prompts.size() == arms.front().size(), "arms of different prompts");
  const Arms decoded = decoded_by_all(arms);
  if (decoded.front().size() < 2) return std::nullopt;
  std::vector<LogSpeeds> logs;
  for (const auto& prompts : decoded) logs.push_back(log_speeds(prompts, estimator));
  const double n = estimator == Estimator::kSum ? effective_prompts(decoded)
                                                : static_cast<double>(decoded.front().size());
  const Comparison comparison(logs, std::max(1.0, n - 1), seed, confidence);
  BestSet best{
      .fastest = 0, .member = {}, .n = static_cast<int>(decoded.front().size()), .n_eff = n};
  for (size_t a = 0; a < logs.size(); ++a) {
    if (logs[a].all > logs[best.fastest].all) best.fastest = a;
    best.member.push_back(comparison.may_be_fastest(a));
  }
  best.member[best.fastest] = true;
  return best;
}

}  // namespace evalrun::reports
