#include "engine/base/fit_power.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace evalrun::base {
namespace {

constexpr double kPower = 0.95;
constexpr int kTrials = 600;  // the standard error of a power of 95 % is 0.9 %
constexpr int kHalves = 50;   // ways to halve a distribution
constexpr double kPrecision = 1.05;

// Simulations of a test's own distribution: as many as the test itself does, where that is cheap.
int null_simulations(const GoodnessOfFit& fit) {
  const double affordable = 8e7 / static_cast<double>(fit.cell_law().size());
  return static_cast<int>(std::clamp(affordable, 4e4, 2e5));
}

// One side of a division of the tokens: its probability in each cell, and in all.
struct Side {
  std::vector<double> in_cell;
  double all = 0;
  double other = 0;  // what the other side has
};

class Place {
 public:
  Place(const GoodnessOfFit& fit, uint64_t seed) : fit_(fit) {
    const std::span<const double> probs = fit.probs();
    room_ = (1 - probs.front()) / 2;
    certain_ = probs.size() == 1;
    if (certain_) room_ = 0;
    if (certain_ || fit.certain()) return;
    Rng rng(seed);
    simulate(rng);
    for (int i = 0; i < kHalves; ++i) halves_.push_back(half(rng));
    double head = 0;
    size_t n = 0;
    while (n == 0 || (head < 0.5 && n + 1 < probs.size())) head += probs[n++];
    head_ = side([n](size_t rank) { return rank < n; });
  }
  double room() const { return room_; }
  bool certain() const { return certain_; }
  bool silent() const { return fit_.certain(); }

  // The distribution of cells after a fault. `half`: 0 to 2 kHalves - 1, both directions of each;
  // -1: to the tail.
  Multinomial moved(double variation, int half) const {
    const Side& from = half < 0 ? head_ : halves_[static_cast<size_t>(half % kHalves)];
    variation = std::min(variation, room_);
    bool reverse = half >= kHalves;  // from the other side
    if ((reverse ? from.other : from.all) < variation) reverse = !reverse;
    double lose = 1 - variation / (reverse ? from.other : from.all);
    double gain = 1 + variation / (reverse ? from.all : from.other);
    if (reverse) std::swap(lose, gain);
    std::vector<double> cells(fit_.cell_probs().begin(), fit_.cell_probs().end());
    for (size_t c = 0; c < cells.size(); ++c)
      cells[c] = std::max(0.0, from.in_cell[c] * lose + (cells[c] - from.in_cell[c]) * gain);
    return Multinomial(cells);
  }
  TestP test(const Multinomial& law, Rng& rng, std::vector<int64_t>& counts) const {
    law.draw(rng, fit_.draws(), counts);
    const double distance = fit_.distance(counts) - 1e-9;
    const auto as_far = null_.end() - std::lower_bound(null_.begin(), null_.end(), distance);
    return {(1.0 + static_cast<double>(as_far)) / (1.0 + static_cast<double>(null_.size())),
            fit_.cells() > 1};
  }
  // All draws stay at the token that is certain.
  double unseen(double variation) const {
    return std::exp(static_cast<double>(fit_.draws()) * std::log1p(-variation));
  }

 private:
  size_t cell(size_t rank) const { return static_cast<size_t>(fit_.cell_of_rank()[rank]); }
  void simulate(Rng& rng) {
    std::vector<int64_t> counts;
    null_.resize(static_cast<size_t>(null_simulations(fit_)));
    for (double& distance : null_) {
      fit_.cell_law().draw(rng, fit_.draws(), counts);
      distance = fit_.distance(counts);
    }
    std::sort(null_.begin(), null_.end());
  }
  template <class In>
  Side side(In in) const {
    Side s;
    s.in_cell.resize(fit_.cell_law().size());
    for (size_t rank = 0; rank < fit_.probs().size(); ++rank) {
      const double p = fit_.probs()[rank];
      if (in(rank)) {
        s.in_cell[cell(rank)] += p;
        s.all += p;
      } else {
        s.other += p;
      }
    }
    return s;
  }
  // Each token on either side, both sides with a token.
  Side half(Rng& rng) const {
    const size_t n = fit_.probs().size();
    std::vector<uint64_t> bits((n + 63) / 64);
    while (true) {
      for (uint64_t& word : bits) word = rng.next();
      Side s = side([&](size_t rank) { return (bits[rank / 64] >> (rank % 64) & 1) != 0; });
      if (s.all > 0 && s.other > 0) return s;
    }
  }

  const GoodnessOfFit& fit_;
  double room_ = 0;
  bool certain_ = false;
  std::vector<double> null_;  // distances, ascending
  std::vector<Side> halves_;
  Side head_;
};

class Search {
 public:
  Search(std::span<const GoodnessOfFit> tests, double level, uint64_t seed)
      : level_(level), seed_(seed) {
    for (size_t i = 0; i < tests.size(); ++i) {
      places_.emplace_back(tests[i], combine_seeds({seed, i}));
      room_ = std::max(room_, places_.back().room());
      all_certain_ = all_certain_ && places_.back().certain();
    }
  }

  double run() {
    if (places_.empty()) return 1;
    double high = all_certain_ ? 1 : room_;
    if (!found(high)) return 1;
    double low = high / 4;
    while (low > 1e-15 && found(low)) high = low, low /= 4;
    while (high / low > kPrecision) {
      const double middle = std::sqrt(low * high);
      (found(middle) ? high : low) = middle;
    }
    return high;
  }

 private:
  bool found(double variation) {
    if (all_certain_) {
      double unseen = 1;
      for (const Place& place : places_) unseen *= place.unseen(variation);
      return 1 - unseen >= kPower;
    }
    return found_in(variation, true) && found_in(variation, false);
  }
  bool found_in(double variation, bool to_tail) {
    std::vector<std::vector<Multinomial>> laws(places_.size());
    for (size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].silent()) continue;
      if (to_tail) laws[i].push_back(places_[i].moved(variation, -1));
      for (int half = 0; !to_tail && half < 2 * kHalves; ++half)
        laws[i].push_back(places_[i].moved(variation, half));
    }
    int missed = 0;
    std::vector<int64_t> counts;
    std::vector<TestP> tests;
    for (int trial = 0; trial < kTrials; ++trial) {
      Rng rng(combine_seeds({seed_, to_tail, static_cast<uint64_t>(trial)}));
      tests.clear();
      for (size_t i = 0; i < places_.size(); ++i) {
        if (laws[i].empty()) continue;
        tests.push_back(places_[i].test(laws[i][rng.below(laws[i].size())], rng, counts));
      }
      missed += joint_p(tests) >= level_;
      if (missed > (1 - kPower) * kTrials) return false;
    }
    return true;
  }

  double level_, room_ = 0;
  uint64_t seed_;
  bool all_certain_ = true;
  std::vector<Place> places_;
};

}  // namespace

double smallest_variation_found(std::span<const GoodnessOfFit> tests, double level, uint64_t seed) {
  return Search(tests, level, seed).run();
}

}  // namespace evalrun::base
