// Bounds of what a lossless rule can keep, against the optimal transport itself (a maximal flow,
// found by augmenting paths) and against rules whose law is computed, not sampled.
#include "runners/verify/transport_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "methods/draft_rule.h"
#include "tests/methods/support/exact_laws.h"

namespace evalrun::tests::transport_bound_test {
namespace {

using runners::MostKept;
using runners::TransportBound;
using Law = std::vector<double>;

constexpr double kEqual = 1e-9;  // six orders above what float64 and the integral leave
constexpr double kOther = 1e-3;  // six orders above that
constexpr Siblings kDistinct = Siblings::kWithoutReplacement, kIid = Siblings::kIndependent;

Law random_law(base::Rng& rng, size_t n, double steepness) {
  Law law(n);
  double sum = 0;
  for (double& p : law) sum += p = std::exp(steepness * rng.uniform());
  for (double& p : law) p /= sum;
  return law;
}

// ---- The optimal transport ----------------------------------------------------------------------

// Probabilities of the sets (bit x: token x is in it) that `draws` drafts make.
std::vector<double> sets_of(const Law& q, int draws, Siblings siblings) {
  std::vector<double> sets(size_t{1} << q.size(), 0.0);
  const auto draw = [&](const auto& self, size_t set, double probability, int left) -> void {
    double rest = 0;
    for (size_t x = 0; x < q.size(); ++x)
      if (siblings == kIid || ((set >> x) & 1) == 0) rest += q[x];
    if (left == 0 || !(rest > 0)) {
      sets[set] += probability;
      return;
    }
    for (size_t x = 0; x < q.size(); ++x)
      if ((siblings == kIid || ((set >> x) & 1) == 0) && q[x] > 0)
        self(self, set | (size_t{1} << x), probability * q[x] / rest, left - 1);
  };
  draw(draw, 0, 1, draws);
  return sets;
}

// The largest flow from tokens, of p each, to sets that hold them: Ford and Fulkerson's.
class Transport {
 public:
  Transport(Law p, std::vector<double> sets)
      : p_(std::move(p)), sets_(std::move(sets)), flow_(p_.size(), Law(sets_.size(), 0.0)) {}
  double value() {
    double sum = 0;
    for (;;) {
      double most = 0;
      for (size_t x = 0; x < p_.size() && !(most > 0); ++x) {
        if (!(p_[x] > kNothing)) continue;
        seen_.assign(p_.size(), false);
        most = augment(x, p_[x]);
        if (most > 0) p_[x] -= most;
      }
      if (!(most > 0)) return sum;
      sum += most;
    }
  }

 private:
  static constexpr double kNothing = 1e-14;
  // What more can come from the token, at most `most`; moves it.
  double augment(size_t token, double most) {
    seen_[token] = true;
    for (size_t set = 0; set < sets_.size(); ++set) {
      if (((set >> token) & 1) == 0) continue;
      if (sets_[set] > kNothing) {
        const double moved = std::min(most, sets_[set]);
        sets_[set] -= moved;
        flow_[token][set] += moved;
        return moved;
      }
      for (size_t other = 0; other < p_.size(); ++other) {
        if (seen_[other] || !(flow_[other][set] > kNothing)) continue;
        const double moved = augment(other, std::min(most, flow_[other][set]));
        if (!(moved > 0)) continue;
        flow_[other][set] -= moved;
        flow_[token][set] += moved;
        return moved;
      }
    }
    return 0;
  }

  Law p_;
  std::vector<double> sets_;
  std::vector<Law> flow_;  // [token][set]
  std::vector<bool> seen_;
};

double transported(const Law& p, const Law& q, int draws, Siblings siblings) {
  return Transport(p, sets_of(q, draws, siblings)).value();
}

// The least of p(G) + P(a draft outside G) over sets of the highest q/p, without any integral.
double least_of_prefixes(const Law& p, const Law& q, int draws, Siblings siblings) {
  const std::vector<double> sets = sets_of(q, draws, siblings);
  std::vector<size_t> order(p.size());
  for (size_t x = 0; x < p.size(); ++x) order[x] = x;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return q[a] * p[b] > q[b] * p[a]; });
  double least = 1, inside = 0;
  size_t within = 0;
  for (const size_t x : order) {
    within |= size_t{1} << x;
    inside += p[x];
    double outside = 0;
    for (size_t set = 0; set < sets.size(); ++set)
      if ((set & ~within) != 0) outside += sets[set];
    least = std::min(least, inside + outside);
  }
  return least;
}

struct Case {
  Law p, q;
};
std::vector<Case> cases() {
  base::Rng rng(5);
  std::vector<Case> list = {{{1.0 / 3, 2.0 / 3}, {2.0 / 3, 1.0 / 3}},
                            {{0.5, 0.5, 0}, {0.1, 0.2, 0.7}},
                            {{0.2, 0.3, 0.5}, {0.6, 0.4, 0}},
                            {{0.1, 0.2, 0.3, 0.4}, {0.97, 0.01, 0.01, 0.01}}};
  for (int i = 0; i < 12; ++i)
    list.push_back({random_law(rng, 4, 1 + 0.5 * i), random_law(rng, 4, 1 + i % 6)});
  return list;
}

TEST(TransportBound, OfIndependentDraftsIsTheOptimalTransport) {
  TransportBound bound;
  for (const auto& [p, q] : cases())
    for (int draws = 1; draws <= 4; ++draws)
      EXPECT_NEAR(bound.of_independent(p, q, 1, 1, draws), transported(p, q, draws, kIid), kEqual)
          << draws << " drafts, p[0] = " << p[0];
}

TEST(TransportBound, OfDistinctDraftsIsNotBelowTheOptimalTransport) {
  TransportBound bound;
  for (const auto& [p, q] : cases())
    for (int draws = 1; draws <= 3; ++draws) {
      const double most = bound.of_distinct(p, q, draws);
      const double exact = transported(p, q, draws, kDistinct);
      EXPECT_GE(most, exact - kEqual) << draws << " drafts, p[0] = " << p[0];
      if (draws <= 2) {
        EXPECT_NEAR(most, exact, kEqual) << draws << " drafts, p[0] = " << p[0];
      }
      // Without replacement never covers less than with it.
      EXPECT_GE(most, bound.of_independent(p, q, 1, 1, draws) - kEqual);
      EXPECT_NEAR(most, least_of_prefixes(p, q, draws, kDistinct), kEqual)
          << draws << " drafts: the integral of the race, p[0] = " << p[0];
    }
}

// What a wrong formula gives is told from the right one by these very cases.
TEST(TransportBound, PlantedFaultsAreSeen) {
  TransportBound bound;
  int below = 0, above = 0, fewer = 0;
  for (const auto& [p, q] : cases()) {
    const double iid = transported(p, q, 2, kIid), distinct = transported(p, q, 2, kDistinct);
    below += bound.of_independent(p, q, 1, 1, 2) < distinct - kOther;  // the law of other drafts
    above += bound.of_distinct(p, q, 2) > iid + kOther;
    fewer += bound.of_independent(p, q, 1, 1, 1) < iid - kOther;  // one draft's sum of min(p, q)
  }
  EXPECT_GE(below, 3);
  EXPECT_GE(above, 3);
  EXPECT_GE(fewer, 3);
}

TEST(TransportBound, TakesShortAndUnnormalisedDrafts) {
  TransportBound bound;
  const Law p = {0.25, 0.25, 0.5}, q = {3, 1};
  EXPECT_NEAR(bound.of_independent(p, q, 1, 1, 1), 0.5, kEqual);
  EXPECT_NEAR(bound.of_independent(p, q, 1, 1, 2), transported(p, {0.75, 0.25, 0}, 2, kIid),
              kEqual);
  EXPECT_NEAR(bound.of_distinct(p, q, 2), 0.5, kEqual) << "both tokens are drafted";
  EXPECT_NEAR(bound.of_distinct(p, q, 3), 0.5, kEqual) << "there are no three";
  EXPECT_THROW(bound.of_independent(p, Law{0, 0}, 1, 1, 1), base::InternalError);
}

// Many tokens, in no order, with tails far below the head.
TEST(TransportBound, HoldsForALargeVocabulary) {
  base::Rng rng(9);
  TransportBound bound;
  const Law p = random_law(rng, 2000, 12), q = random_law(rng, 2000, 12);
  double last = 0, last_distinct = 0;
  for (int draws = 1; draws <= 5; ++draws) {
    const double most = bound.of_independent(p, q, 1, 1, draws);
    const double distinct = bound.of_distinct(p, q, draws);
    EXPECT_GE(most, last - kEqual) << "more drafts are never worse";
    EXPECT_GE(distinct, last_distinct - kEqual);
    EXPECT_GE(distinct, most - kEqual);
    EXPECT_LE(distinct, 1);
    last = most, last_distinct = distinct;
  }
  EXPECT_NEAR(bound.of_distinct(p, p, 4), 1, kEqual) << "a draft that is the target";
}

// ---- Steps --------------------------------------------------------------------------------------

// Of `chains` chains of `depth` tokens, drawn independently, those that begin alike merged.
MakeDraft chains_of(int depth, int chains) {
  return [=](const Toy& toy, UniformSource& uniform) {
    Draft draft;
    draft.tree.reset(0);
    draft.q.emplace_back();
    for (int chain = 0; chain < chains; ++chain)
      for (int level = 0, node = 0; level < depth; ++level) {
        const Law q = toy.draft_dist(draft.path_to(node));
        const int32_t token = uniform.draw(q);
        int next = draft.tree.child(node, token);
        if (next < 0) {
          next = draft.tree.add(token, node);
          draft.q.push_back(q);
        }
        node = next;
      }
    return draft;
  };
}

// What a step keeps at most, on average over all drafts.
MostKept most_kept(const Toy& toy, const MakeDraft& make, int chains, int deepest = 99) {
  TransportBound bound;
  EnumeratingUniforms uniform;
  MostKept most;
  do {
    const Draft draft = make(toy, uniform);
    Law p;
    const auto p_of = [&](int node) {
      p = toy.target_dist(draft.path_to(node));
      return std::span<const double>(p);
    };
    const auto q_of = [&](int node) {
      return std::span<const double>(draft.q[static_cast<size_t>(node)]);
    };
    const MostKept here = bound.of_chains(draft.tree, chains, deepest, p_of, q_of);
    most.tokens += uniform.probability() * here.tokens;
    most.first += uniform.probability() * here.first;
  } while (uniform.next());
  return most;
}

MostKept kept_by(const Toy& toy, const MakeDraft& make, const Decide& decide) {
  MostKept kept;
  for (const auto& [text, p] : law_of(toy, 0, make, decide)) {
    kept.tokens += p * static_cast<double>(text.size() - 1);
    if (text.size() > 1) kept.first += p;
  }
  return kept;
}

const methods::RejectionRule kBlock = methods::rejection_by(methods::DraftRule::kPaths);

TEST(TransportBound, BlockVerificationReachesThatOfAChain) {
  int less = 0, compared = 0;
  for (const SamplingParams& cell : kCells)
    for (uint64_t seed = 1; seed <= 3; ++seed)
      for (int depth = 1; depth <= 3; ++depth, ++compared) {
        const Toy toy = make_toy(3, seed, cell);
        const MakeDraft make = drawn(depth, 1, kDistinct);
        const MostKept most = most_kept(toy, make, 1);
        const MostKept block = kept_by(toy, make, by_verifier(kDistinct, kBlock));
        const MostKept tokens = kept_by(toy, make, by_verifier(kDistinct));
        EXPECT_NEAR(block.tokens, most.tokens, kEqual) << "depth " << depth << ", seed " << seed;
        EXPECT_LE(tokens.tokens, most.tokens + kEqual);
        EXPECT_NEAR(tokens.first, most.first, kEqual) << "of one token rejection is the best, too";
        less += tokens.tokens < most.tokens - 1e-6 ? 1 : 0;
      }
  EXPECT_GT(less, compared / 6) << "rejection is told from the best";
}

// Where a step may keep one token fewer than are drafted, the last of them is not counted.
TEST(TransportBound, StopsAtTheDeepestLevel) {
  const Toy toy = make_toy(3, 2, {1.0, 0, 1.0});
  const MostKept two = most_kept(toy, drawn(2, 1, kDistinct), 1);
  const MostKept cut = most_kept(toy, drawn(3, 1, kDistinct), 1, 2);
  EXPECT_NEAR(cut.tokens, two.tokens, kEqual);
  EXPECT_LT(cut.tokens, most_kept(toy, drawn(3, 1, kDistinct), 1).tokens - kOther);
}

TEST(TransportBound, NoRuleOfSeveralChainsPassesIt) {
  methods::RejectionRule gbv = methods::rejection_by(methods::DraftRule::kManyPaths, 2);
  for (const SamplingParams& cell : kCells)
    for (uint64_t seed = 1; seed <= 2; ++seed)
      for (const auto& [vocab, depth] : {std::pair{3, 1}, std::pair{3, 2}, std::pair{2, 3}}) {
        const Toy toy = make_toy(vocab, seed, cell);
        const MakeDraft make = chains_of(depth, 2);
        const MostKept most = most_kept(toy, make, 2);
        const MostKept kept = kept_by(toy, make, by_verifier(kDistinct, gbv));
        EXPECT_LE(kept.tokens, most.tokens + kEqual) << "depth " << depth << ", seed " << seed;
        EXPECT_LE(kept.first, most.first + kEqual) << "depth " << depth << ", seed " << seed;
        EXPECT_LE(most.first,
                  transported(toy.target_dist({}), toy.draft_dist({}), 2, kIid) + kEqual);
        // One chain's bound is below: two are worth more.
        EXPECT_GE(most.tokens, most_kept(toy, drawn(depth, 1, kDistinct), 1).tokens - kEqual);
      }
}

TEST(TransportBound, NoRuleOfATreesFirstTokenPassesIt) {
  TransportBound bound;
  for (const SamplingParams& cell : kCells)
    for (const Siblings siblings : {kDistinct, kIid}) {
      const Toy toy = make_toy(3, 1, cell);
      const Law p = toy.target_dist({}), q = toy.draft_dist({});
      const double most =
          siblings == kIid ? bound.of_independent(p, q, 1, 1, 2) : bound.of_distinct(p, q, 2);
      for (const methods::RejectionRule& rule : {methods::RejectionRule{}, kBlock})
        EXPECT_LE(kept_by(toy, drawn(2, 2, siblings), by_verifier(siblings, rule)).first,
                  most + kEqual);
    }
}

// Bounds that are none: rules pass them.
TEST(TransportBound, FaultsOfStepsAreSeen) {
  int single = 0, alone = 0, compared = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed, ++compared) {
    const Toy toy = make_toy(3, seed, {1.0, 0, 1.0});
    // Two chains that are taken for one.
    const MakeDraft two = chains_of(1, 2);
    methods::RejectionRule gbv = methods::rejection_by(methods::DraftRule::kManyPaths, 2);
    single += kept_by(toy, two, by_verifier(kDistinct, gbv)).first >
              most_kept(toy, two, 1).first + kOther;
    // A chain of tokens of which each has its own sum of min(p, q): what rejection keeps.
    const MakeDraft one = drawn(3, 1, kDistinct);
    alone += kept_by(toy, one, by_verifier(kDistinct, kBlock)).tokens >
             kept_by(toy, one, by_verifier(kDistinct)).tokens + 1e-6;
    // A rule that keeps everything is not lossless, and passes every bound.
    const Decide all = [](const Toy&, const Draft& draft, UniformSource&) {
      Tokens text = draft.path_to(draft.tree.size() - 1);
      text.push_back(0);
      return text;
    };
    EXPECT_GT(kept_by(toy, one, all).tokens, most_kept(toy, one, 1).tokens + kOther);
  }
  EXPECT_GE(single, compared / 2);
  EXPECT_GE(alone, 1);
}

// The paper's example (arXiv 2403.10444, section 2), and docs/measurement.md's of two paths.
TEST(TransportBound, GivesTheWorkedExamples) {
  const auto always = [](const Law& law) {
    return [law](std::span<const int32_t>, std::span<float> logits) {
      for (size_t i = 0; i < law.size(); ++i) logits[i] = static_cast<float>(std::log(law[i]));
    };
  };
  const SamplingParams sampling{1.0, 0, 1.0};
  const Toy toy{2, 2, always({1.0 / 3, 2.0 / 3}), always({2.0 / 3, 1.0 / 3}), sampling, sampling};
  // Distributions pass through float32 logits.
  EXPECT_NEAR(most_kept(toy, drawn(2, 1, kDistinct), 1).tokens, 11.0 / 9, 1e-6);
  EXPECT_NEAR(most_kept(toy, chains_of(1, 2), 2).tokens, 8.0 / 9, 1e-6);
}

}  // namespace
}  // namespace evalrun::tests::transport_bound_test
