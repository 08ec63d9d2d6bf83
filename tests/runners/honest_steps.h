// Step tests of draws from the very distributions they are tested against, as often as one likes:
// the level of the whole test, with the choice of the commonest way and all.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/rng.h"
#include "runners/verify/step_distribution.h"

namespace evalrun::runners {

class HonestSteps {
 public:
  // `contexts` places with `draws` each. The distribution after a token is one of 60 that differ in
  // entropy: 0.3 to 4 nats, median 2.3, as at real places.
  HonestSteps(int contexts, int draws) : contexts_(contexts), draws_(draws) {
    base::Rng rng(1);
    for (int i = 0; i < kDists; ++i) {
      const double steepness = 0.8 + 2.4 * i / kDists;
      std::vector<double> dist;
      double sum = 0;
      for (int v = 0; v < kVocab; ++v) {
        // Zipf with noise; the ranks of a distribution are its own.
        const auto rank = static_cast<double>((v + 37 * i) % kVocab) + 1;
        dist.push_back(std::pow(rank, -steepness) * (0.5 + rng.uniform()));
        sum += dist.back();
      }
      double reached = 0;
      std::vector<double> ends;
      for (double& p : dist) ends.push_back(reached += p /= sum);
      dists_.push_back(dist);
      ends_.push_back(ends);
    }
  }

  StepDistribution test(uint64_t seed) const {
    StepDistribution result;
    base::Rng rng(base::combine_seeds({seed, 7}));
    for (int c = 0; c < contexts_; ++c) {
      const auto root = static_cast<size_t>(rng.below(kDists));
      StepDraws draws;
      for (int i = 0; i < draws_; ++i) {
        std::vector<int32_t> tokens;
        for (int place = 0; place < kDistributionDepth; ++place)
          tokens.push_back(draw(after(root, tokens), rng));
        draws.push_back(std::move(tokens));
      }
      test_draws(
          c, draws, [&](std::span<const int32_t> way) { return dists_[after(root, way)]; }, seed,
          result);
    }
    return result;
  }

 private:
  static constexpr int kDists = 60, kVocab = 300;
  static size_t after(size_t root, std::span<const int32_t> way) {
    return way.empty() ? root : (root + 11 * static_cast<size_t>(way.back())) % kDists;
  }
  int32_t draw(size_t dist, base::Rng& rng) const {
    const std::vector<double>& ends = ends_[dist];
    const auto at = std::upper_bound(ends.begin(), ends.end() - 1, rng.uniform());
    return static_cast<int32_t>(at - ends.begin());
  }

  int contexts_, draws_;
  std::vector<std::vector<double>> dists_, ends_;
};

}  // namespace evalrun::runners
