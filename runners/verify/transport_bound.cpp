#include "runners/verify/transport_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/sampling.h"

namespace evalrun::runners {
namespace {

// That one of so many independent draws is among those of probability `reach`. Keeps its digits
// where that is small.
double reached_by(double reach, int draws) {
  return -std::expm1(draws * std::log1p(-std::min(reach, 1.0)));
}

// Of the race that is drawing without replacement: the chance that the first `draws` to arrive are
// all of one set, to which tokens are added one by one. The integral over t is one over ln t, by
// the trapezoid rule: its integrand is analytic and falls off on both sides, so the error falls
// exponentially with the distance of the nodes.
class RaceIntegral {
 public:
  explicit RaceIntegral(int draws) : draws_(static_cast<size_t>(draws)) {
    for (double y = kFirst; y < kLast; y += kDistance) time_.push_back(std::exp(y));
    live_ = time_.size();
    fewer_.assign(live_ * draws_, 0.0);
    for (size_t j = 0; j < live_; ++j) fewer_[j * draws_] = 1;
  }

  void add(double q) {
    for (size_t j = 0; j < live_; ++j) {
      const double rate = q * time_[j];
      if (rate < 1e-17) continue;  // nothing that a sum near 1 would notice
      const double stays = std::exp(-rate), comes = 1 - stays;
      double* count = &fewer_[j * draws_];
      for (size_t k = draws_; k-- > 1;) count[k] = count[k] * stays + count[k - 1] * comes;
      count[0] *= stays;
    }
    while (live_ > 0 && fewer_at(live_ - 1) < 1e-18) --live_;
  }

  // `outside`: the probability of all tokens that are not in the set, above 0. What the nodes do
  // not reach is missing, so that the chance is rather too small.
  double within(double outside) const {
    double sum = 0;
    for (size_t j = 0; j < time_.size(); ++j) {
      const double rate = outside * time_[j];
      if (rate > 60) break;
      const double all = j < live_ ? 1 - fewer_at(j) : 1;
      sum += kDistance * rate * std::exp(-rate) * all;
    }
    return std::min(1.0, sum);
  }

 private:
  static constexpr double kFirst = -12, kLast = 32, kDistance = 0.35;  // of ln t
  double fewer_at(size_t j) const {
    double sum = 0;
    for (size_t k = 0; k < draws_; ++k) sum += fewer_[j * draws_ + k];
    return sum;
  }

  size_t draws_, live_;        // nodes from live_ on: so many have surely arrived
  std::vector<double> time_;   // [node], ascending
  std::vector<double> fewer_;  // [node][k]: the chance that k of the set have arrived by then
};

// Of many tokens, neighbouring sets whose ratios differ by less give much the same bound.
constexpr double kRatioStep = 0.995;
constexpr size_t kFewTokens = 64;

}  // namespace

void TransportBound::sort(std::span<const double> p, std::span<const double> q) {
  tokens_.clear();
  const double mass = engine::sum(q);
  EVALRUN_CHECK(mass > 0, "the drafter's distribution has the mass {}", mass);
  for (size_t x = 0; x < p.size(); ++x) {
    const double drawn = x < q.size() ? q[x] / mass : 0;
    if (!(p[x] > 0) && !(drawn > 0)) continue;
    const double ratio = p[x] > 0 ? drawn / p[x] : std::numeric_limits<double>::infinity();
    tokens_.push_back({ratio, p[x], drawn});
  }
  std::sort(tokens_.begin(), tokens_.end(),
            [](const Token& a, const Token& b) { return a.ratio > b.ratio; });
  outside_.assign(tokens_.size() + 1, 0.0);
  for (size_t i = tokens_.size(); i-- > 0;) outside_[i] = outside_[i + 1] + tokens_[i].q;
}

double TransportBound::of_independent(std::span<const double> p, std::span<const double> q,
                                      double share, double reach, int draws) {
  if (draws == 1) {
    const double mass = engine::sum(q);
    EVALRUN_CHECK(mass > 0, "the drafter's distribution has the mass {}", mass);
    double sum = 0;
    for (size_t x = 0; x < std::min(p.size(), q.size()); ++x)
      sum += std::min(share * p[x], reach * q[x] / mass);
    return sum;
  }
  sort(p, q);
  double inside = 0, least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i <= tokens_.size(); ++i) {
    least = std::min(least, share * inside + reached_by(reach * outside_[i], draws));
    if (i < tokens_.size()) inside += tokens_[i].p;
  }
  return least;
}

double TransportBound::of_distinct(std::span<const double> p, std::span<const double> q,
                                   int draws) {
  if (draws == 1) return of_independent(p, q, 1, 1, 1);
  sort(p, q);
  RaceIntegral race(draws);
  const double step = tokens_.size() > kFewTokens ? kRatioStep : 1;
  double inside = 0, least = 1, looked = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (!(outside_[i] > 0)) return std::min(least, inside);  // all drafts are within
    if (tokens_[i].ratio < looked * step) {
      least = std::min(least, inside + 1 - race.within(outside_[i]));
      looked = tokens_[i].ratio;
    }
    race.add(tokens_[i].q);
    inside += tokens_[i].p;
  }
  return least;
}

MostKept TransportBound::of_chains(const methods::TokenTree& tree, int chains, int deepest,
                                   base::FunctionRef<std::span<const double>(int node)> p_of,
                                   methods::QOf q_of) {
  MostKept most;
  open_.assign(1, {0, 1.0, 1.0});
  while (!open_.empty()) {
    const Open here = open_.back();
    open_.pop_back();
    const int first = tree.next_child(here.node, here.node);
    if (first < 0 || tree.level[static_cast<size_t>(here.node)] >= deepest) continue;
    const std::span<const double> p = p_of(here.node), q = q_of(first);
    const double kept = of_independent(p, q, here.share, here.reach, chains);
    most.tokens += kept / reached_by(here.reach, chains);
    if (here.node == 0) most.first = kept;
    const double mass = engine::sum(q);
    for (int child = first; child >= 0; child = tree.next_child(here.node, child)) {
      const auto token = static_cast<size_t>(tree.token[static_cast<size_t>(child)]);
      EVALRUN_CHECK(token < p.size() && token < q.size() && q[token] > 0,
                    "the drafter reports no probability for the token {} it drew", token);
      const double reach = here.reach * q[token] / mass;
      const double share = std::min(here.share * p[token], reached_by(reach, chains));
      if (share > 0) open_.push_back({child, share, reach});
    }
  }
  return most;
}

}  // namespace evalrun::runners
