#include "reports/data/max_t.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/stats.h"

namespace evalrun::reports {
namespace {

constexpr int kDraws = 4000;  // enough for the second digit of a 95 % point

// Row-major m x m matrices.
using Matrix = std::vector<double>;

// The jackknife's covariances of the estimates. Four sums at a time, so that none waits for its own
// last addition; each is added up unit by unit.
Matrix covariances(std::span<const Jackknife> estimates) {
  constexpr size_t kAtOnce = 4;
  const size_t m = estimates.size(), n = estimates.front().deviations.size();
  Matrix c(m * m);
  for (size_t a = 0; a < m; ++a)
    for (size_t first = 0; first <= a; first += kAtOnce) {
      const size_t count = std::min(kAtOnce, a + 1 - first);
      std::array<const double*, kAtOnce> others;
      for (size_t k = 0; k < kAtOnce; ++k)
        others[k] = estimates[k < count ? first + k : first].deviations.data();
      const double* own = estimates[a].deviations.data();
      std::array<double, kAtOnce> sums = {};
      for (size_t i = 0; i < n; ++i)
        for (size_t k = 0; k < kAtOnce; ++k) sums[k] += own[i] * others[k][i];
      for (size_t k = 0; k < count; ++k) c[a * m + first + k] = c[(first + k) * m + a] = sums[k];
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

// The place of the bound among ascending draws.
size_t place_of(double confidence) { return static_cast<size_t>(confidence * kDraws); }

}  // namespace

double as_normal(double t, double dof) {
  const double p = base::student_t_cdf(-std::fabs(t), dof);
  const double z = p > 0 ? -base::normal_quantile(p) : std::numeric_limits<double>::infinity();
  return t < 0 ? -z : z;
}

LargestError::LargestError(std::vector<double> drawn) : drawn_(std::move(drawn)) {
  std::sort(drawn_.begin(), drawn_.end());
}

double LargestError::bound(double confidence) const {
  if (drawn_.empty()) return base::normal_quantile((1 + confidence) / 2);
  return drawn_[place_of(confidence)];
}

double LargestError::p(double z) const {
  if (drawn_.empty()) return 2 * base::normal_cdf(-std::fabs(z));
  const auto beyond = drawn_.end() - std::lower_bound(drawn_.begin(), drawn_.end(), std::fabs(z));
  return static_cast<double>(1 + beyond) / static_cast<double>(1 + drawn_.size());
}

MaxT::MaxT(std::span<const Jackknife> estimates, double degrees, uint64_t seed)
    : m_(estimates.size()), covariance_(covariances(estimates)) {
  EVALRUN_CHECK(m_ >= 2, "{} estimates", m_);
  const auto rivals = static_cast<double>(m_ - 1);
  shrink_ = rivals / (rivals + degrees);
  const Matrix l = cholesky(covariance_, m_);
  base::Rng rng(seed);
  std::vector<double> z(m_);
  for (int draw = 0; draw < kDraws; ++draw) {
    fill_normals(rng, z);
    for (size_t a = 0; a < m_; ++a) {
      double sum = 0;
      for (size_t k = 0; k <= a; ++k) sum += l[a * m_ + k] * z[k];
      errors_.push_back(sum);
    }
    fill_normals(rng, z);
    own_.insert(own_.end(), z.begin(), z.end());
  }
}

double MaxT::standard_error(size_t a, size_t b) const {
  const double variance =
      covariance_[a * m_ + a] + covariance_[b * m_ + b] - 2 * covariance_[a * m_ + b];
  const double scale = covariance_[a * m_ + a] + covariance_[b * m_ + b];
  return variance > 1e-14 * scale ? std::sqrt(variance) : 0;
}

LargestError MaxT::largest(const Pairs& pairs) const {
  const double together = std::sqrt(1 - shrink_), apart = std::sqrt(shrink_ / 2);
  std::vector<double> standard_errors;
  for (const auto& [a, b] : pairs) standard_errors.push_back(standard_error(a, b));
  if (std::count_if(standard_errors.begin(), standard_errors.end(),
                    [](double e) { return e > 0; }) == 1)
    return LargestError();
  std::vector<double> drawn;
  for (int draw = 0; draw < kDraws; ++draw) {
    const double* error = errors_.data() + static_cast<size_t>(draw) * m_;
    const double* own = own_.data() + static_cast<size_t>(draw) * m_;
    double z = 0;
    for (size_t p = 0; p < pairs.size(); ++p) {
      const auto& [a, b] = pairs[p];
      if (standard_errors[p] == 0) continue;
      z = std::max(z, std::fabs(together * (error[b] - error[a]) / standard_errors[p] +
                                apart * (own[b] - own[a])));
    }
    drawn.push_back(z);
  }
  return LargestError(std::move(drawn));
}

double MaxT::upper_bound(size_t a, const std::vector<size_t>& rivals, double confidence) const {
  const double together = std::sqrt(1 - shrink_), apart = std::sqrt(shrink_);
  std::vector<double> standard_errors;
  for (const size_t b : rivals) standard_errors.push_back(standard_error(a, b));
  std::vector<double> largest;
  for (int draw = 0; draw < kDraws; ++draw) {
    const double* error = errors_.data() + static_cast<size_t>(draw) * m_;
    const double* own = own_.data() + static_cast<size_t>(draw) * m_;
    double z = -std::numeric_limits<double>::infinity();
    for (size_t r = 0; r < rivals.size(); ++r)
      z = std::max(z, together * (error[rivals[r]] - error[a]) / standard_errors[r] +
                          apart * own[rivals[r]]);
    largest.push_back(z);
  }
  const auto at = largest.begin() + static_cast<std::ptrdiff_t>(place_of(confidence));
  std::nth_element(largest.begin(), at, largest.end());
  return *at;
}

}  // namespace evalrun::reports
