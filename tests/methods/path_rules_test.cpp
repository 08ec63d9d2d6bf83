// The rules that test whole paths: block verification of chains and traversal verification of
// trees. Laws are computed, not sampled. A second implementation, written as the paper's algorithm
// for chains, gives the same decisions, and has the mistakes that the computation must see.
#include <gtest/gtest.h>

#include <cmath>

#include "methods/draft_rule.h"
#include "tests/methods/support/exact_laws.h"

namespace evalrun::tests::path_rules_test {
namespace {

const methods::RejectionRule kPaths = methods::rejection_by(methods::DraftRule::kPaths);
constexpr Siblings kWithout = Siblings::kWithoutReplacement, kWith = Siblings::kIndependent;
constexpr double kSmall = 1e-6;  // six orders above what the right rules leave
constexpr double kSeen = 1e-3;   // nine orders above what the right rules leave

double expected_accepted(const Toy& toy, const MakeDraft& make, const Decide& decide) {
  double sum = 0;
  for (const auto& [text, p] : law_of(toy, 0, make, decide))
    sum += p * static_cast<double>(text.size() - 1);
  return sum;
}

// ---- Algorithm 2 of Sun et al. 2024 (arXiv 2403.10444), and how it is got wrong -----------------

enum class Mistake {
  kNone,
  kTokenResidual,    // after a refusal max(p - q, 0) of a token, as for rejection
  kWholeBonus,       // after a refusal the target's distribution
  kRawResidual,      // what is left is not normalised: the last token gets what is missing
  kHFromBefore,      // h_i with p_{i-1}
  kHOfTheSameToken,  // h_i with the distributions that x_i was drawn by, not what follows it
  kRawH,             // h_i without its denominator
  kLastByH,          // the last token passes by h, too
  kPNotCapped,       // p_i without min(1, .)
};

// The h of the paper; `q` = what the next token was drawn from.
double h_of(const std::vector<double>& p, const std::vector<double>& q, double share,
            Mistake mistake) {
  const double left = total(lacking(p, q, share));
  if (mistake == Mistake::kRawH) return std::min(1.0, left);
  if (!(left > 0)) return share < 1 ? 0 : 1;
  return left + 1 - share > 0 ? left / (left + 1 - share) : 1;
}

std::vector<double> bonus_of(const std::vector<double>& p, const std::vector<double>& q,
                             double share, Mistake mistake) {
  if (mistake == Mistake::kWholeBonus) return p;
  std::vector<double> left = lacking(p, q, mistake == Mistake::kTokenResidual ? 1 : share);
  const double sum = total(left);
  if (!(sum > 0)) return p;
  if (mistake == Mistake::kRawResidual) {
    left.back() += 1 - sum;
    return left;
  }
  for (double& v : left) v /= sum;
  return left;
}

// For chains, whose node i is x_i.
Decide algorithm_2(Mistake mistake) {
  return [=](const Toy& toy, const Draft& draft, UniformSource& uniform) {
    const Tokens x = draft.path_to(draft.tree.size() - 1);
    const size_t n = x.size();
    std::vector<std::vector<double>> p;  // p[i]: after i tokens; what x[i] is verified by
    for (size_t i = 0; i <= n; ++i)
      p.push_back(toy.target_dist(Tokens(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(i))));
    const auto q = [&](size_t i) { return i < n ? draft.q[i + 1] : std::vector<double>(); };
    std::vector<double> share = {1};
    size_t accepted = 0;
    for (size_t i = 1; i <= n; ++i) {
      const auto token = static_cast<size_t>(x[i - 1]);
      const double ratio = share.back() * p[i - 1][token] / q(i - 1)[token];
      share.push_back(mistake == Mistake::kPNotCapped ? ratio : std::min(1.0, ratio));
      double h = std::min(1.0, share[i]);
      const double by = mistake == Mistake::kHFromBefore ? share[i - 1] : share[i];
      if (mistake == Mistake::kHOfTheSameToken && i < n)
        h = h_of(p[i - 1], q(i - 1), by, mistake);
      else if (i < n)
        h = h_of(p[i], q(i), by, mistake);
      else if (mistake == Mistake::kLastByH)
        h = h_of(p[i - 1], q(i - 1), by, mistake);
      if (uniform.accept(std::max(0.0, h), 1.0)) accepted = i;
    }
    Tokens text(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(accepted));
    text.push_back(uniform.draw(
        accepted == n ? p[n] : bonus_of(p[accepted], q(accepted), share[accepted], mistake)));
    return text;
  };
}

// ---- Laws ---------------------------------------------------------------------------------------

struct Shape {
  int vocab, depth;
};

TEST(BlockVerification, GivesTheTargetsLaw) {
  for (const SamplingParams& cell : kCells)
    for (uint64_t seed = 1; seed <= 3; ++seed)
      for (const Shape& shape :
           {Shape{2, 1}, Shape{2, 2}, Shape{2, 3}, Shape{3, 2}, Shape{3, 3}, Shape{4, 2}}) {
        const int vocab = shape.vocab, depth = shape.depth;
        Toy toy = make_toy(vocab, seed, cell);
        const int n = depth + 1;
        const Distribution expected = toy.autoregressive(n);
        const auto test = [&](const char* what) {
          EXPECT_LT(distance(distribution_of(toy, n, drawn(depth, 1, kWithout), kWithout, kPaths),
                             expected),
                    kExact)
              << what << ", vocabulary " << vocab << ", depth " << depth << ", seed " << seed;
        };
        test("alike");
        toy.draft_sampling = {1.0, 0, 1.0};
        test("the draft is warped otherwise");
        if (vocab == 2) continue;
        toy.draft_vocab = vocab - 1;
        test("the draft knows fewer tokens");
      }
}

// The same tokens with the same probability as the paper's algorithm, the step by itself.
TEST(BlockVerification, DecidesAsAlgorithm2) {
  for (const SamplingParams& cell : kCells)
    for (uint64_t seed = 1; seed <= 4; ++seed)
      for (int depth = 1; depth <= 3; ++depth) {
        const Toy toy = make_toy(3, seed, cell);
        const MakeDraft make = drawn(depth, 1, kWithout);
        EXPECT_LT(distance(law_of(toy, 0, make, by_verifier(kWithout, kPaths)),
                           law_of(toy, 0, make, algorithm_2(Mistake::kNone))),
                  kExact)
            << "depth " << depth << ", seed " << seed;
      }
}

TEST(BlockVerification, MistakesAreSeen) {
  for (const Mistake mistake :
       {Mistake::kWholeBonus, Mistake::kRawResidual, Mistake::kHFromBefore,
        Mistake::kHOfTheSameToken, Mistake::kRawH, Mistake::kLastByH, Mistake::kPNotCapped})
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const Toy toy = make_toy(3, seed, {1.0, 0, 1.0});
      const Distribution expected = toy.autoregressive(4);
      const MakeDraft make = drawn(3, 1, kWithout);
      ASSERT_LT(distance(law_of(toy, 4, make, algorithm_2(Mistake::kNone)), expected), kExact);
      EXPECT_GT(distance(law_of(toy, 4, make, algorithm_2(mistake)), expected), kSmall)
          << "mistake " << static_cast<int>(mistake) << ", seed " << seed;
    }
}

LogitTable always(const std::vector<double>& dist) {
  return [dist](std::span<const int32_t>, std::span<float> logits) {
    for (size_t i = 0; i < dist.size(); ++i) logits[i] = static_cast<float>(std::log(dist[i]));
  };
}

// The residual of rejection differs where a path with a < 1 is kept and two tokens are left. Here
// token 0 is drafted with 0.8 and a = 1/2. Then (a p - q)+ is (0, 0, 0.1), and (p - q)+ (0, 0.1,
// 0.3): 0.8 x 0.1 of all draws are refused, a quarter of which give 1 instead of 2.
TEST(BlockVerification, TheResidualOfRejectionIsSeen) {
  const SamplingParams sampling{1.0, 0, 1.0};
  const Toy toy{3, 3, always({0.4, 0.2, 0.4}), always({0.8, 0.1, 0.1}), sampling, sampling};
  const MakeDraft make = drawn(2, 1, kWithout);
  const Distribution expected = toy.autoregressive(2);
  const Distribution wrong = law_of(toy, 2, make, algorithm_2(Mistake::kTokenResidual));
  EXPECT_NEAR(wrong.at({0, 1}), 0.08 + 0.02, 1e-6);
  EXPECT_NEAR(wrong.at({0, 2}), 0.16 - 0.02, 1e-6);
  EXPECT_LT(distance(law_of(toy, 2, make, by_verifier(kWithout, kPaths)), expected), kExact);
}

TEST(BlockVerification, NeverAcceptsLessThanRejection) {
  int more = 0, compared = 0;
  for (const SamplingParams& cell : kCells)
    for (uint64_t seed = 1; seed <= 6; ++seed)
      for (int depth = 1; depth <= 3; ++depth, ++compared) {
        const Toy toy = make_toy(3, seed, cell);
        const MakeDraft make = drawn(depth, 1, kWithout);
        const double tokens = expected_accepted(toy, make, by_verifier(kWithout));
        const double paths = expected_accepted(toy, make, by_verifier(kWithout, kPaths));
        EXPECT_GE(paths, tokens - kExact) << "depth " << depth << ", seed " << seed;
        if (depth == 1) {
          EXPECT_NEAR(paths, tokens, kExact) << "one token is a block";
        }
        more += paths > tokens + 1e-6 ? 1 : 0;
      }
  EXPECT_GT(more, compared / 4);
}

// The paper's example (section 2): p = (1/3, 2/3), q = (2/3, 1/3) at every place, two drafts.
TEST(BlockVerification, AcceptsWhatThePaperWorksOut) {
  const SamplingParams sampling{1.0, 0, 1.0};
  const Toy toy{2, 2, always({1.0 / 3, 2.0 / 3}), always({2.0 / 3, 1.0 / 3}), sampling, sampling};
  const MakeDraft make = drawn(2, 1, kWithout);
  // Distributions pass through float32 logits.
  EXPECT_NEAR(expected_accepted(toy, make, by_verifier(kWithout)), 10.0 / 9, 1e-6);
  EXPECT_NEAR(expected_accepted(toy, make, by_verifier(kWithout, kPaths)), 11.0 / 9, 1e-6);
}

// A draft may end because of the value of its last token, as drafters stop that are in doubt.
TEST(BlockVerification, DraftsThatEndByTheirValuesKeepTheLaw) {
  const MakeDraft make = [](const Toy& toy, UniformSource& uniform) {
    Draft draft;
    draft.tree.reset(0);
    draft.q.emplace_back();
    for (int node = 0; node < 3; ++node) {
      const std::vector<double> q = toy.draft_dist(draft.path_to(node));
      draft.tree.add(uniform.draw(q), node);
      draft.q.push_back(q);
      if (draft.tree.token.back() == 0) break;
    }
    return draft;
  };
  for (const SamplingParams& cell : kCells)
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const Toy toy = make_toy(3, seed, cell);
      EXPECT_LT(distance(distribution_of(toy, 4, make, kWithout, kPaths), toy.autoregressive(4)),
                kExact)
          << seed;
    }
}

TEST(TraversalVerification, GivesTheTargetsLaw) {
  for (const Siblings siblings : {kWithout, kWith})
    for (const SamplingParams& cell : kCells)
      for (uint64_t seed = 1; seed <= 2; ++seed) {
        for (int children = 1; children <= 3; ++children) {
          const Toy toy = make_toy(4, seed, cell);
          EXPECT_LT(
              distance(distribution_of(toy, 2, drawn(1, children, siblings), siblings, kPaths),
                       toy.autoregressive(2)),
              kExact)
              << children << " children, seed " << seed;
        }
        for (const int vocab : {2, 3}) {
          if (vocab == 3 && seed > 1) continue;  // seconds
          const Toy toy = make_toy(vocab, seed, cell);
          EXPECT_LT(distance(distribution_of(toy, 3, drawn(2, 2, siblings), siblings, kPaths),
                             toy.autoregressive(3)),
                    kExact)
              << "two levels, vocabulary " << vocab << ", seed " << seed;
        }
      }
}

// 0 has children 1, 2 and 3; 1 has 4 and 5; 4 has 6; 2 has none; 3 has 7. In the order of levels,
// as drafters add them. `fixed_node` is not drawn.
MakeDraft ragged(int fixed_node) {
  return [=](const Toy& toy, UniformSource& uniform) {
    Draft draft;
    draft.tree.reset(0);
    draft.q.emplace_back();
    std::vector<std::vector<double>> left(8);
    int node = 0;
    for (const int parent : {0, 0, 0, 1, 1, 4, 3}) {
      ++node;
      const std::vector<double> q = toy.draft_dist(draft.path_to(parent));
      std::vector<double>& dist = left[static_cast<size_t>(parent)];
      if (dist.empty()) dist = q;
      if (node == fixed_node) {
        draft.tree.add(1, parent);
        draft.q.emplace_back();
        continue;
      }
      std::vector<double> now = dist;
      const double sum = total(now);
      for (double& v : now) v /= sum;
      const int32_t token = uniform.draw(now);
      dist[static_cast<size_t>(token)] = 0;
      draft.tree.add(token, parent);
      draft.q.push_back(q);
    }
    return draft;
  };
}

TEST(TraversalVerification, RaggedTreesAndFixedNodesKeepTheLaw) {
  const Toy toy = make_toy(3, 1, {1.0, 0, 1.0});
  for (const int fixed_node : {0, 1, 2, 4, 6})
    EXPECT_LT(distance(distribution_of(toy, 3, ragged(fixed_node), kWithout, kPaths),
                       toy.autoregressive(3)),
              kExact)
        << "node " << fixed_node << " is fixed";
}

TEST(TraversalVerification, SmallerScalesAndFewerAcceptedKeepTheLaw) {
  const Toy toy = make_toy(3, 5, {1.0, 0, 1.0});
  const Distribution plain = toy.autoregressive(3);
  for (const MakeDraft& make : {drawn(2, 1, kWithout), drawn(2, 2, kWithout)}) {
    methods::RejectionRule rule = kPaths;
    for (const double scale : {0.9, 0.3, 0.0}) {
      rule.accept_scale = scale;
      EXPECT_LT(distance(distribution_of(toy, 3, make, kWithout, rule), plain), kExact) << scale;
    }
    rule.accept_scale = 1.5;
    EXPECT_GT(distance(distribution_of(toy, 3, make, kWithout, rule), plain), kSeen);
    for (const int most : {0, 1, 2}) {
      const Decide decide = by_verifier(kWithout, kPaths, most);
      EXPECT_LT(distance(law_of(toy, 3, make, decide), plain), kExact) << most;
      for (const auto& [text, p] : law_of(toy, 0, make, decide))
        EXPECT_LE(text.size(), static_cast<size_t>(most) + 1);
    }
  }
}

TEST(TraversalVerification, WrongRulesAreSeen) {
  const Toy toy = make_toy(3, 3, {1.0, 0, 1.0});
  const Distribution expected = toy.autoregressive(3);
  const MakeDraft make = drawn(2, 2, kWithout);
  EXPECT_GT(distance(distribution_of(toy, 3, make, kWith, kPaths), expected), kSmall)
      << "drawn without replacement, verified as independent draws";
  methods::RejectionRule whole = kPaths;
  whole.whole_bonus = true;
  EXPECT_GT(distance(distribution_of(toy, 3, make, kWithout, whole), expected), kSeen);
  // A token that is no longer there when it was not to the drafter's liking.
  const MakeDraft pruned = [make](const Toy& t, UniformSource& uniform) {
    Draft draft = make(t, uniform);
    if (draft.tree.token.back() == 0) draft.tree.truncate(draft.tree.size() - 1);
    return draft;
  };
  EXPECT_GT(distance(distribution_of(toy, 3, pruned, kWithout, kPaths), expected), kSmall);
}

TEST(PathRules, DraftsWithoutChanceGivePlainDecodingsTokens) {
  const Toy toy = make_toy(4, 2, {1.0, 0, 1.0});
  const MakeDraft make = fixed(3, 6, 3);
  EXPECT_EQ(law_of(toy, 0, make, by_verifier(kWithout, kPaths)),
            law_of(toy, 0, make, by_verifier(kWithout)))
      << "sample and match, as without the rule";
}

// What a refused path said of later positions must not decide about them in the next step.
TEST(PathRules, TestsAreKeyedByTheStepAndTheNode) {
  const base::KeyedChance chance(11);
  methods::KeyedUniforms uniform(chance);
  const auto number = [&](double below) { return uniform.accept(below, 1.0); };
  for (const int64_t first : {1, 2, 3}) {
    uniform.begin_step(first);
    for (const int node : {3, 1, 2}) {
      const double u = chance.accept(first, node - 1);
      uniform.at_path(node);
      EXPECT_FALSE(number(u)) << first << " " << node;
      uniform.at_path(node);
      EXPECT_TRUE(number(std::nextafter(u, 2.0))) << first << " " << node;
    }
    uniform.at(2);
    const std::vector<double> halves = {0.5, 0.5};
    EXPECT_EQ(uniform.draw(halves), engine::draw(halves, chance.target(first + 2)));
  }
}

}  // namespace
}  // namespace evalrun::tests::path_rules_test
