// The verification rules, exactly: every answer uniform can give is walked through and its
// probability added up, so that the distribution of the emitted tokens is computed, not sampled.
#include "methods/verifier.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "tests/methods/support/exact_laws.h"

namespace evalrun::tests::verifier_test {
namespace {

// Fails the test when a rule leaves something to chance.
class UntouchedUniforms final : public UniformSource {
 public:
  bool accept(double, double) override { return ADD_FAILURE() << "a test of a draft", false; }
  int32_t draw(std::span<const double>) override { return ADD_FAILURE() << "a draw", 0; }
};

TEST(VerifierDistribution, FixedTreesBySampleThenMatch) {
  for (const SamplingParams& cell : kCells) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      const Toy toy = make_toy(4, seed, cell);
      EXPECT_LT(distance(distribution_of(toy, 4, fixed(seed, 1 + static_cast<int>(seed), 3),
                                         Siblings::kWithoutReplacement),
                         toy.autoregressive(4)),
                kExact)
          << "seed " << seed << " T " << cell.temperature;
    }
  }
}

TEST(VerifierDistribution, DrawnChainsByRejection) {
  for (const SamplingParams& cell : kCells) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      Toy toy = make_toy(4, seed, cell);
      const Distribution expected = toy.autoregressive(3);
      const auto test = [&] {
        return distance(distribution_of(toy, 3, drawn(2, 1, Siblings::kWithoutReplacement),
                                        Siblings::kWithoutReplacement),
                        expected);
      };
      EXPECT_LT(test(), kExact) << seed;
      toy.draft_sampling = {1.0, 0, 1.0};  // the draft is warped otherwise: still lossless
      EXPECT_LT(test(), kExact) << seed;
      toy.draft_vocab = 3;  // and knows fewer tokens
      EXPECT_LT(test(), kExact) << seed;
    }
  }
}

TEST(VerifierDistribution, DrawnTreesByRepeatedRejection) {
  for (Siblings siblings : {Siblings::kWithoutReplacement, Siblings::kIndependent}) {
    for (const SamplingParams& cell : kCells) {
      for (uint64_t seed = 1; seed <= 2; ++seed) {
        for (int children = 1; children <= 3; ++children) {
          Toy toy = make_toy(5, seed, cell);
          EXPECT_LT(distance(distribution_of(toy, 2, drawn(1, children, siblings), siblings),
                             toy.autoregressive(2)),
                    kExact)
              << children << " children, seed " << seed;
        }
        Toy toy = make_toy(3, seed, cell);
        EXPECT_LT(distance(distribution_of(toy, 3, drawn(2, 2, siblings), siblings),
                           toy.autoregressive(3)),
                  kExact)
            << "two levels, seed " << seed;
      }
    }
  }
}

// A drawn child beside a fixed one, in both orders.
TEST(VerifierDistribution, DrawnAndFixedSiblingsMix) {
  for (bool fixed_first : {false, true}) {
    const MakeDraft make = [&](const Toy& toy, UniformSource& uniform) {
      Draft draft;
      draft.tree.reset(0);
      draft.q.emplace_back();
      const std::vector<double> q = toy.draft_dist({});
      for (bool is_fixed : {fixed_first, !fixed_first}) {
        draft.tree.add(is_fixed ? 1 : uniform.draw(q), 0);
        draft.q.push_back(is_fixed ? std::vector<double>() : q);
      }
      return draft;
    };
    for (const SamplingParams& cell : kCells) {
      const Toy toy = make_toy(4, 9, cell);
      EXPECT_LT(distance(distribution_of(toy, 2, make, Siblings::kWithoutReplacement),
                         toy.autoregressive(2)),
                kExact);
    }
  }
}

// The same computation must see rules that are wrong.
TEST(VerifierDistribution, WrongRulesAreSeen) {
  const double kSeen = 1e-3;  // nine orders above what the right rules leave
  const Toy toy = make_toy(4, 3, {1.0, 0, 1.0});
  const Distribution expected = toy.autoregressive(2);
  // Drawn without replacement, verified as independent draws.
  EXPECT_GT(distance(distribution_of(toy, 2, drawn(1, 3, Siblings::kWithoutReplacement),
                                     Siblings::kIndependent),
                     expected),
            kSeen);
  // The distribution reported is not the one drawn from (temperature forgotten).
  const MakeDraft misreported = [](const Toy& t, UniformSource& uniform) {
    Draft draft = drawn(1, 1, Siblings::kWithoutReplacement)(t, uniform);
    Toy other = t;
    other.draft_sampling.temperature = 2.0;
    draft.q[1] = other.draft_dist({});
    return draft;
  };
  EXPECT_GT(distance(distribution_of(toy, 2, misreported, Siblings::kWithoutReplacement), expected),
            kSeen);
  // A drawn token passed off as a fixed one is lossless by sample and match only as long as
  // nothing else looks at the value: dropping the draft when it is token 0 makes no difference
  // there...
  const MakeDraft pruned_fixed = [](const Toy& t, UniformSource& uniform) {
    Draft draft = drawn(1, 1, Siblings::kWithoutReplacement)(t, uniform);
    if (draft.tree.token[1] == 0) draft.tree.truncate(1);
    draft.q.assign(2, {});
    return draft;
  };
  EXPECT_LT(
      distance(distribution_of(toy, 2, pruned_fixed, Siblings::kWithoutReplacement), expected),
      kExact);
  // ...but voids the distribution under rejection sampling.
  const MakeDraft pruned_drawn = [](const Toy& t, UniformSource& uniform) {
    Draft draft = drawn(1, 1, Siblings::kWithoutReplacement)(t, uniform);
    if (draft.tree.token[1] == 0) draft.tree.truncate(1);
    return draft;
  };
  EXPECT_GT(
      distance(distribution_of(toy, 2, pruned_drawn, Siblings::kWithoutReplacement), expected),
      kSeen);
}

TEST(Verifier, GreedyWalksTheLongestMatchingPath) {
  // Argmax after a context of n tokens is n % 4: from the empty path 0, then 1, 2, ...
  const auto logits_at = [](size_t depth) {
    std::vector<float> l(4, 0.0f);
    l[depth % 4] = 1;
    return l;
  };
  Draft draft;
  draft.tree.reset(3);
  draft.tree.add(2, 0);                       // wrong
  const int dead_end = draft.tree.add(0, 0);  // right, and wrong after it
  const int a = draft.tree.add(0, 0);         // equal sibling: stays in the race
  draft.tree.add(3, dead_end);
  const int b = draft.tree.add(1, a);
  draft.tree.add(3, b);  // wrong
  std::vector<float> logits;
  std::vector<int> asked;
  const auto logits_of = [&](int node) {
    asked.push_back(node);
    logits = logits_at(static_cast<size_t>(draft.tree.level[static_cast<size_t>(node)]));
    return std::span<const float>(logits);
  };
  const auto top_of = [&](int node) { return engine::argmax(logits_of(node)); };
  const std::vector<double> q = {0.25, 0.25, 0.25, 0.25};  // greedy looks at no distribution
  const auto q_of = [&](int) { return std::span<const double>(q); };
  UntouchedUniforms uniform;
  for (const TargetView& target :
       {TargetView::with_logits(logits_of), TargetView::with_top(top_of)}) {
    asked.clear();
    Verifier verifier{SamplingParams{}};
    const auto result = verifier.verify(draft.tree, target, q_of, uniform);
    EXPECT_EQ(std::vector<int>(result.path.begin(), result.path.end()), (std::vector<int>{a, b}));
    EXPECT_EQ(result.bonus, 2);
    EXPECT_EQ(asked, (std::vector<int>{0, dead_end, b})) << "one of equal paths is asked";
  }
}

TEST(TargetView, RefusesWhatTheForwardWasNotAskedFor) {
  const auto top_of = [](int node) { return node == 0 ? 5 : -1; };
  const TargetView tops = TargetView::with_top(top_of);
  EXPECT_EQ(tops.top(0), 5);
  EXPECT_THROW(tops.top(1), base::InternalError);
  EXPECT_THROW(tops.logits(0), base::InternalError);
  TokenTree tree;
  tree.reset(0);
  const auto q_of = [](int) { return std::span<const double>(); };
  methods::KeyedUniforms uniform{base::KeyedChance(1)};
  Verifier sampling({1.0, 0, 1.0});
  EXPECT_THROW(sampling.verify(tree, tops, q_of, uniform), base::InternalError);
}

// SPACE draws each slot from a distribution that knows nothing of the slots before it.
MakeDraft drawn_per_level(int depth) {
  return [=](const Toy& toy, UniformSource& uniform) {
    Draft draft;
    draft.tree.reset(0);
    draft.q.emplace_back();
    for (int level = 0; level < depth; ++level) {
      const std::vector<double> q = toy.draft_dist({level});
      draft.tree.add(uniform.draw(q), level);
      draft.q.push_back(q);
    }
    return draft;
  };
}

TEST(RejectionRule, ScalesUpToOneAreLosslessAndOthersAreNot) {
  const Siblings siblings = Siblings::kWithoutReplacement;
  for (const SamplingParams& sampling :
       {SamplingParams{1.0, 0, 1.0}, SamplingParams{0.8, 3, 0.9}}) {
    const Toy toy = make_toy(4, 21, sampling);
    const Distribution plain = toy.autoregressive(3);
    for (const MakeDraft& make :
         {drawn_per_level(2), drawn(2, 1, siblings), drawn(1, 2, siblings)}) {
      for (const double scale : {1.0, 0.9, 0.3, 0.0})
        EXPECT_LT(distance(distribution_of(toy, 3, make, siblings, {.accept_scale = scale}), plain),
                  kExact)
            << scale;
      // Nine orders above what the right rules leave.
      EXPECT_GT(distance(distribution_of(toy, 3, make, siblings, {.accept_scale = 1.5}), plain),
                1e-3);
      EXPECT_GT(distance(distribution_of(toy, 3, make, siblings, {.whole_bonus = true}), plain),
                1e-3);
    }
  }
}

// The published rule on distributions given by hand: what it emits instead of the target's
// distribution.
TEST(RejectionRule, AsPublishedGivesTheWorkedExamples) {
  struct Example {
    std::vector<double> draft, target, published;
  };
  for (const Example& e : {Example{{1, 0}, {0.5, 0.5}, {0.75, 0.25}},
                           Example{{0.6, 0.3, 0.1}, {0.2, 0.3, 0.5}, {0.28, 0.42, 0.30}}}) {
    const int vocab = static_cast<int>(e.target.size());
    const auto table = [](const std::vector<double>& dist) -> LogitTable {
      return [dist](std::span<const int32_t>, std::span<float> logits) {
        for (size_t i = 0; i < dist.size(); ++i)
          logits[i] = dist[i] > 0 ? static_cast<float>(std::log(dist[i])) : -100.0f;
      };
    };
    const SamplingParams sampling{1.0, 0, 1.0};
    const Toy toy{vocab, vocab, table(e.target), table(e.draft), sampling, sampling};
    const Siblings siblings = Siblings::kWithoutReplacement;
    const Distribution published =
        distribution_of(toy, 1, drawn_per_level(1), siblings, {.whole_bonus = true});
    const Distribution correct = distribution_of(toy, 1, drawn_per_level(1), siblings);
    for (int32_t token = 0; token < vocab; ++token) {
      const auto at = static_cast<size_t>(token);
      EXPECT_NEAR(published.at({token}), e.published[at],
                  1e-6);  // distributions pass through float32 logits
      EXPECT_NEAR(correct.at({token}), e.target[at], 1e-6);
    }
  }
}

// The distribution after every node, as logits; temperature 1 gives it back.
struct TypicalWalk {
  TokenTree tree;
  std::vector<std::vector<double>> dist;  // [node]

  std::vector<int> path(const methods::TypicalAcceptance& rule, int32_t* bonus = nullptr) const {
    std::vector<float> logits;
    const auto logits_of = [&](int node) {
      logits.clear();
      for (const double p : dist[static_cast<size_t>(node)])
        logits.push_back(static_cast<float>(std::log(p)));
      return std::span<const float>(logits);
    };
    const auto q_of = [](int) { return std::span<const double>(); };
    UntouchedUniforms uniform;  // typical acceptance leaves nothing to chance
    Verifier verifier({1.0, 0, 1.0}, Siblings::kWithoutReplacement, rule);
    const auto result = verifier.verify(tree, TargetView::with_logits(logits_of), q_of, uniform);
    if (bonus != nullptr) *bonus = result.bonus;
    return {result.path.begin(), result.path.end()};
  }
  // Whether one child with `token` passes after a root with this distribution.
  static bool passes(const std::vector<double>& dist, int32_t token,
                     const methods::TypicalAcceptance& rule) {
    TypicalWalk walk;
    walk.tree.reset(0);
    walk.tree.add(token, 0);
    walk.dist = {dist, dist};
    return !walk.path(rule).empty();
  }
};

// p = (1/2, 3/10, 3/20, 1/20): H = 1.1421, exp(-H) = 0.3191; the uniform distribution of four: 1/4.
TEST(TypicalAcceptance, ThresholdIsTheSmallerOfEpsilonAndDeltaTimesTheEntropyTerm) {
  const std::vector<double> dist = {0.5, 0.3, 0.15, 0.05};
  const auto passing = [&](double epsilon, double delta) {
    std::vector<int32_t> tokens;
    for (int32_t token = 0; token < 4; ++token)
      if (TypicalWalk::passes(dist, token, {epsilon, delta})) tokens.push_back(token);
    return tokens;
  };
  EXPECT_EQ(passing(0.09, 0.3), (Tokens{0, 1, 2})) << "min(0.09, 0.0957), Medusa's defaults";
  EXPECT_EQ(passing(0.2, 0.3), (Tokens{0, 1, 2})) << "min(0.2, 0.0957): the entropy decides";
  EXPECT_EQ(passing(0.09, 1.0), (Tokens{0, 1, 2})) << "min(0.09, 0.3191): epsilon decides";
  EXPECT_EQ(passing(0.2, 1.0), (Tokens{0, 1})) << "min(0.2, 0.3191)";
  EXPECT_EQ(passing(0.4, 1.0), (Tokens{0})) << "min(0.4, 0.3191)";
  EXPECT_EQ(passing(0.04, 1.0), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(passing(0.0, 0.0), (Tokens{0, 1, 2, 3})) << "what has any probability passes";
  // The less certain the target is, the less a token needs.
  const std::vector<double> uniform(4, 0.25);
  EXPECT_TRUE(TypicalWalk::passes(uniform, 3, {1.0, 0.9}));  // 0.25 > 0.9 / 4
  EXPECT_FALSE(TypicalWalk::passes(uniform, 3, {1.0, 1.1}));
  const std::vector<double> certain = {0.97, 0.01, 0.01, 0.01};  // exp(-H) = 0.846
  EXPECT_FALSE(TypicalWalk::passes(certain, 1, {1.0, 0.1}));
  EXPECT_FALSE(TypicalWalk::passes(certain, 0, {0.98, 1.2}));
}

TEST(TypicalAcceptance, KeepsTheLongestPathAndOfEqualOnesTheLikelier) {
  const methods::TypicalAcceptance rule{0.09, 1.0};  // every distribution below: epsilon decides
  const std::vector<double> flat = {0.4, 0.3, 0.2, 0.1}, sharp = {0.05, 0.85, 0.05, 0.05};
  TypicalWalk walk;
  walk.tree.reset(0);
  const int a = walk.tree.add(0, 0);   // 0.4
  const int b = walk.tree.add(1, 0);   // 0.3
  const int aa = walk.tree.add(1, a);  // 0.4 * 0.3
  const int bb = walk.tree.add(1, b);  // 0.3 * 0.85: likelier, though it begins with less
  walk.dist = {flat, flat, sharp, {0.1, 0.1, 0.1, 0.7}, {0.1, 0.1, 0.7, 0.1}};
  int32_t bonus = -1;
  EXPECT_EQ(walk.path(rule, &bonus), (std::vector<int>{b, bb}));
  EXPECT_EQ(bonus, 2) << "the likeliest token after the path";
  // A longer path beats a likelier one, and a shorter one never comes back.
  const int aaa = walk.tree.add(0, aa);  // 0.1 > 0.09
  walk.dist.push_back(flat);
  EXPECT_EQ(walk.path(rule, &bonus), (std::vector<int>{a, aa, aaa}));
  EXPECT_EQ(bonus, 0);
  // After a rejected node nothing counts, however likely.
  const int refused = walk.tree.add(0, bb);
  walk.dist.push_back(flat);
  walk.dist[static_cast<size_t>(bb)] = sharp;  // its token 0 has 0.05
  int below = refused;
  for (int i = 0; i < 3; ++i) {
    below = walk.tree.add(0, below);
    walk.dist.push_back({0.97, 0.01, 0.01, 0.01});
  }
  EXPECT_EQ(walk.path(rule), (std::vector<int>{a, aa, aaa}));
  // Of equal tokens the first is kept.
  TypicalWalk twins;
  twins.tree.reset(0);
  const int first = twins.tree.add(0, 0);
  twins.tree.add(0, 0);
  twins.dist.assign(3, flat);
  EXPECT_EQ(twins.path(rule), std::vector<int>{first});
}

TEST(TypicalAcceptance, GreedyDecodingStaysExact) {
  TypicalWalk walk;
  walk.tree.reset(0);
  walk.tree.add(1, 0);  // likely enough to be typical, and not the likeliest
  const std::vector<float> logits = {0.6f, 0.5f};
  const auto logits_of = [&](int) { return std::span<const float>(logits); };
  const auto q_of = [](int) { return std::span<const double>(); };
  methods::KeyedUniforms uniform{base::KeyedChance(1)};
  Verifier verifier(SamplingParams{}, Siblings::kWithoutReplacement, methods::TypicalAcceptance{});
  const auto result = verifier.verify(walk.tree, TargetView::with_logits(logits_of), q_of, uniform);
  EXPECT_TRUE(result.path.empty());
  EXPECT_EQ(result.bonus, 0);
}

// Always rejects: what happens where rejection has no probability left but rounding.
class StubbornUniforms final : public UniformSource {
 public:
  bool accept(double, double) override { return false; }
  int32_t draw(std::span<const double> prob) override {
    drawn_from.assign(prob.begin(), prob.end());
    return 0;
  }
  std::vector<double> drawn_from;
};

TEST(Verifier, ResidualWithoutMassFallsBackToTheTarget) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f};
  std::vector<double> p;
  engine::WarpScratch scratch;
  engine::warp(logits, {1.0, 0, 1.0}, p, scratch);
  TokenTree tree;
  tree.reset(0);
  tree.add(1, 0);
  StubbornUniforms uniform;
  Verifier verifier({1.0, 0, 1.0});
  const auto logits_of = [&](int) { return std::span<const float>(logits); };
  const auto q_of = [&](int) { return std::span<const double>(p); };
  verifier.verify(tree, TargetView::with_logits(logits_of), q_of, uniform);
  EXPECT_EQ(uniform.drawn_from, p);
}

TEST(Verifier, RefusesADrawThatCouldNotHappen) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f};
  const std::vector<double> q = {0.5, 0, 0.5};
  TokenTree tree;
  tree.reset(0);
  tree.add(1, 0);
  methods::KeyedUniforms uniform{base::KeyedChance(1)};
  Verifier verifier({1.0, 0, 1.0});
  const auto logits_of = [&](int) { return std::span<const float>(logits); };
  const auto q_of = [&](int) { return std::span<const double>(q); };
  EXPECT_THROW(verifier.verify(tree, TargetView::with_logits(logits_of), q_of, uniform),
               base::InternalError);
}

TEST(KeyedUniforms, AcceptsWithTheRatio) {
  methods::KeyedUniforms uniform{base::KeyedChance(11)};
  int accepted = 0;
  for (int i = 0; i < 1000; ++i) {
    uniform.begin_step(i);
    for (int trial = 0; trial < 100; ++trial) accepted += uniform.accept(0.2, 0.5);
  }
  EXPECT_NEAR(accepted, 40000, 5 * std::sqrt(100000 * 0.4 * 0.6));  // five standard deviations
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(uniform.accept(0.5, 0.5));
    EXPECT_TRUE(uniform.accept(0.6, 0.5));
    EXPECT_FALSE(uniform.accept(0.0, 0.5));
  }
}

// What decides a position depends on nothing that was asked before: neither on where the step began
// nor on how many drafts were tried on the way.
TEST(KeyedUniforms, BelongToPositions) {
  const std::vector<double> even(1000, 1e-3);
  methods::KeyedUniforms one{base::KeyedChance(5)}, other{base::KeyedChance(5)};
  one.begin_step(3);
  one.at(4);
  other.begin_step(6);
  other.at(0);
  for (int i = 0; i < 9; ++i) other.accept(0.1, 1);
  other.at(1);
  EXPECT_EQ(one.target(4), other.target(1));
  EXPECT_EQ(one.draw(even), other.draw(even));
  for (const double p : {0.1, 0.3, 0.5, 0.7, 0.9}) {
    one.at(4);
    other.at(1);
    for (int trial = 0; trial < 20; ++trial) EXPECT_EQ(one.accept(p, 1), other.accept(p, 1));
  }
}

TEST(TokenTree, KeepsLevelsAndCutsFromTheEnd) {
  TokenTree tree;
  tree.reset(7);
  EXPECT_EQ(tree.depth(), 0);
  const int a = tree.add(1, 0), b = tree.add(2, a);
  tree.add(3, 0);
  tree.add(4, b);
  EXPECT_EQ(tree.drafted(), 4);
  EXPECT_EQ(tree.depth(), 3);
  tree.truncate(3);
  EXPECT_EQ(tree.token, (Tokens{7, 1, 2}));
  EXPECT_EQ(tree.depth(), 2);
  tree.truncate(0);
  EXPECT_EQ(tree.size(), 1);
  EXPECT_THROW(tree.add(1, 1), base::InternalError);
}

TEST(TokenTree, HoldsThePathsThatBeginBelowItsRoot) {
  TokenTree tree;
  tree.reset(7);
  const Tokens none;
  EXPECT_TRUE(tree.holds(none)) << "nothing to add";
  EXPECT_FALSE(tree.holds(Tokens{1}));
  tree.add_path(Tokens{1, 2}, true);
  tree.add_path(Tokens{1, 3}, true);
  EXPECT_EQ(tree.token, (Tokens{7, 1, 2, 3})) << "the two share a node";
  EXPECT_TRUE(tree.holds(none));
  EXPECT_TRUE(tree.holds(Tokens{1}));
  EXPECT_TRUE(tree.holds(Tokens{1, 3}));
  EXPECT_FALSE(tree.holds(Tokens{3}));
  EXPECT_FALSE(tree.holds(Tokens{1, 2, 3}));
  EXPECT_FALSE(tree.holds(Tokens{7, 1}));
}

}  // namespace
}  // namespace evalrun::tests::verifier_test
