// Rejection by one uniform, exactly: as the uniform goes from 0 to 1 the verdicts come in one order
// - the children, then the tokens by id - so that the probability of each is found by bisection, to
// the last of its 53 bits.
#include "engine/rejection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/sampling.h"

namespace evalrun::engine {
namespace {

using Masses = std::vector<uint64_t>;

struct Distribution {
  Masses mass;
  uint64_t total = 0;
  MassDistribution view() const { return {mass, total}; }
};

Distribution distribution_of(std::vector<float> logits, const SamplingParams& params) {
  Distribution dist;
  WarpScratch scratch;
  dist.total = dist_masses(logits, params, dist.mass, scratch);
  return dist;
}
Distribution random_dist(base::Rng& rng, int vocab, double spread, const SamplingParams& params) {
  std::vector<float> logits;
  for (int i = 0; i < vocab; ++i) logits.push_back(static_cast<float>(spread * rng.uniform()));
  return distribution_of(std::move(logits), params);
}

// The smallest uniform, in units of 2^-53, whose verdict has a rank of at least `rank`.
uint64_t first_with(uint64_t rank, const std::function<uint64_t(double)>& rank_at) {
  uint64_t low = 0, high = uint64_t{1} << 53;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    if (rank_at(static_cast<double>(middle) * 0x1p-53) >= rank)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

using RejectionTest =
    std::function<RejectionOutcome(std::span<const int32_t> children, double uniform)>;

// Distribution of the emitted token over all draws of `n` children.
std::vector<double> emitted(const Distribution& target, const Distribution& draft, int n,
                            bool independent, const RejectionTest& test) {
  std::vector<double> dist(target.mass.size());
  const std::function<void(std::vector<int32_t>&, double, uint64_t)> visit =
      [&](std::vector<int32_t>& children, double probability, uint64_t left) {
        if (static_cast<int>(children.size()) < n && left > 0) {
          for (size_t x = 0; x < draft.mass.size(); ++x) {
            const auto token = static_cast<int32_t>(x);
            const bool again = std::find(children.begin(), children.end(), token) != children.end();
            if (draft.mass[x] == 0 || (again && !independent)) continue;
            children.push_back(token);
            visit(children,
                  probability * static_cast<double>(draft.mass[x]) / static_cast<double>(left),
                  independent ? left : left - draft.mass[x]);
            children.pop_back();
          }
          return;
        }
        const uint64_t verdicts = children.size() + dist.size();
        const auto rank_at = [&](double uniform) {
          const RejectionOutcome v = test(children, uniform);
          return v.passed >= 0 ? static_cast<uint64_t>(v.passed)
                               : children.size() + static_cast<uint64_t>(v.token);
        };
        uint64_t begin = 0;
        for (uint64_t rank = 0; rank < verdicts; ++rank) {
          const uint64_t end = first_with(rank + 1, rank_at);
          const auto token = rank < children.size() ? static_cast<size_t>(children[rank])
                                                    : static_cast<size_t>(rank - children.size());
          dist[token] += probability * static_cast<double>(end - begin) * 0x1p-53;
          begin = end;
        }
      };
  std::vector<int32_t> children;
  visit(children, 1.0, draft.total);
  return dist;
}

double distance(const std::vector<double>& dist, const Distribution& target) {
  double sum = 0;
  for (size_t i = 0; i < dist.size(); ++i)
    sum +=
        std::abs(dist[i] - static_cast<double>(target.mass[i]) / static_cast<double>(target.total));
  return sum / 2;
}

RejectionTest honest(const Distribution& target, const Distribution& draft, bool independent) {
  return [&target, &draft, independent](std::span<const int32_t> children, double uniform) {
    Masses left = target.mass;
    return try_children(left, target.total, draft.view(), children, independent, uniform);
  };
}

constexpr double kExact = 1e-12;

TEST(Rejection, WhatIsEmittedHasTheTargetsDistribution) {
  base::Rng rng(1);
  for (const SamplingParams& params :
       {SamplingParams{1, 0, 1}, SamplingParams{0.7, 3, 1}, SamplingParams{1.3, 0, 0.8}})
    for (const int children : {1, 2, 3})
      for (const bool independent : {false, true})
        for (const double spread : {0.5, 4.0, 12.0}) {
          const Distribution target = random_dist(rng, 5, spread, params),
                             draft = random_dist(rng, children == 2 ? 4 : 5, spread, params);
          const auto dist =
              emitted(target, draft, children, independent, honest(target, draft, independent));
          EXPECT_LT(distance(dist, target), kExact)
              << children << (independent ? " independent" : "") << " children, spread " << spread;
        }
}

TEST(Rejection, EqualDistributionsPassAndNothingIsLeft) {
  base::Rng rng(2);
  const Distribution dist = random_dist(rng, 6, 3, {1, 0, 1});
  for (int32_t x = 0; x < 6; ++x)
    for (const double uniform : {0.0, 0.5, 1 - 0x1p-53}) {
      const RejectionOutcome v = honest(dist, dist, false)({&x, 1}, uniform);
      EXPECT_EQ(v.passed, 0);
      EXPECT_EQ(v.token, x);
    }
}

TEST(Rejection, WrongRulesAreSeen) {
  base::Rng rng(3);
  const Distribution target = random_dist(rng, 5, 4, {1, 0, 1}),
                     draft = random_dist(rng, 5, 4, {1, 0, 1});
  const auto far = [&](int children, bool independent, const RejectionTest& test) {
    return distance(emitted(target, draft, children, independent, test), target) > 1e-3;
  };
  // Compared with a distribution that was not theirs.
  const Distribution other = random_dist(rng, 5, 4, {1, 0, 1});
  EXPECT_TRUE(far(1, false, honest(target, other, false)));
  // Taken for independent draws, or the other way round.
  EXPECT_TRUE(far(2, false, honest(target, draft, true)));
  // Matching: the target draws, and a child passes when it was drawn. Lossless, unless the draw
  // after a rejection is another one.
  EXPECT_TRUE(far(1, false, [&](std::span<const int32_t> children, double uniform) {
    RejectionOutcome v = honest(target, draft, false)(children, uniform);
    if (v.passed < 0) {  // the whole distribution in place of what is left
      Masses whole = target.mass;
      const MassDistribution nothing_refused{target.mass, target.total};
      std::vector<int32_t> token;
      draw_without_replacement(nothing_refused, {&uniform, 1}, token);
      v.token = token[0];
    }
    return v;
  }));
}

TEST(Rejection, DrawsWithoutReplacementEndWithTheDistribution) {
  const Distribution dist =
      distribution_of({0, 1, -std::numeric_limits<float>::infinity(), 2}, {1, 0, 1});
  std::vector<int32_t> tokens;
  const double uniforms[] = {0.999, 0.999, 0.999, 0.5};
  draw_without_replacement(dist.view(), uniforms, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{3, 1, 0, -1}));
  const double low[] = {0, 0, 0};
  draw_without_replacement(dist.view(), low, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{0, 1, 3}));
}

TEST(Rejection, AChildThatNobodyDrewIsAFault) {
  const Distribution dist =
      distribution_of({0, -std::numeric_limits<float>::infinity()}, {1, 0, 1});
  const int32_t never = 1;
  EXPECT_THROW(honest(dist, dist, false)({&never, 1}, 0.5), base::InternalError);
}

}  // namespace
}  // namespace evalrun::engine
