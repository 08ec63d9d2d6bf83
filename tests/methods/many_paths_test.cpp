// Several drawn paths, of which one is taken and block-verified by the law that the taking gives it
// (RejectionRule::iid_paths). Laws are computed, not sampled. A second implementation, by sums over
// all paths, gives the same, and has the mistakes that the computation must see.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "engine/base/error.h"
#include "methods/draft_rule.h"
#include "methods/greedy_paths.h"
#include "tests/methods/support/exact_laws.h"

namespace evalrun::tests::many_paths_test {
namespace {

constexpr Siblings kSiblings = Siblings::kWithoutReplacement;  // of no account here
constexpr double kSmall = 1e-6;  // six orders above what the right rule leaves

methods::RejectionRule rule_of(int paths) {
  return methods::rejection_by(methods::DraftRule::kManyPaths, paths);
}

// `paths` chains of `depth` drawn tokens; where `ends` is a token, a chain ends behind it.
MakeDraft several(int depth, int paths, int32_t ends = -1) {
  return [=](const Toy& toy, UniformSource& uniform) {
    Draft draft;
    draft.tree.reset(0);
    draft.q.emplace_back();
    for (int path = 0; path < paths; ++path)
      for (int node = 0, level = 0; level < depth; ++level) {
        const std::vector<double> q = toy.draft_dist(draft.path_to(node));
        const int32_t token = uniform.draw(q);
        int child = draft.tree.child(node, token);
        if (child < 0) {
          child = draft.tree.add(token, node);
          draft.q.push_back(q);
        }
        node = child;
        if (token == ends) break;
      }
    return draft;
  };
}

// ---- The rule from its definition, and how it is got wrong --------------------------------------

enum class Mistake {
  kNone,
  kUntilted,       // tested as if the taken path were drawn from q
  kResidualOfQ,    // tests by the law of the taken path, and what is left by q
  kByTarget,       // the child that the target likes best is taken, by the other order's law
  kByTargetOfQ,    // and as if it were drawn from q
  kFirstDrawn,     // the first path is taken, by the law of the greatest
  kDistinctPaths,  // paths that were drawn twice are counted once
  kTwiceCounted,   // and twice more than they were drawn
};

struct Ordered {
  std::vector<size_t> tokens;  // the lowest first
  std::vector<double> p, q;
};
Ordered ordered(const Toy& toy, const Tokens& context) {
  Ordered o{{}, toy.target_dist(context), toy.draft_dist(context)};
  o.q.resize(o.p.size());
  for (size_t x = 0; x < o.q.size(); ++x)
    if (o.q[x] > 0) o.tokens.push_back(x);
  std::sort(o.tokens.begin(), o.tokens.end(), [&](size_t a, size_t b) {
    const int class_a = methods::ratio_class(o.p[a], o.q[a], 1);
    const int class_b = methods::ratio_class(o.p[b], o.q[b], 1);
    return class_a != class_b ? class_a < class_b : a > b;
  });
  return o;
}

struct Taken {
  Tokens tokens;
  std::vector<std::vector<double>> q, law;  // of each token
};

// A child of `node`: the highest in the order, or what a mistake takes.
int child_of(const Draft& draft, int node, const Ordered& o, Mistake mistake) {
  const TokenTree& tree = draft.tree;
  const int first = tree.next_child(node, node);
  int best = first;
  if (mistake == Mistake::kFirstDrawn) return first;
  const bool by_target = mistake == Mistake::kByTarget || mistake == Mistake::kByTargetOfQ;
  const auto value = [&](int child) {
    const auto token = static_cast<size_t>(tree.token[static_cast<size_t>(child)]);
    if (by_target) return o.p[token];
    const auto at = std::find(o.tokens.begin(), o.tokens.end(), token);
    return static_cast<double>(at - o.tokens.begin());
  };
  for (int child = first; child >= 0; child = tree.next_child(node, child))
    if (value(child) > value(best)) best = child;
  return best;
}

int leaves_of(const TokenTree& tree) {
  int leaves = 0;
  for (int node = 0; node < tree.size(); ++node) leaves += tree.next_child(node, node) < 0 ? 1 : 0;
  return leaves;
}

// Of `paths` drawn ones.
Taken taken_of(const Toy& toy, const Draft& draft, int paths, Mistake mistake) {
  double count = paths;
  if (mistake == Mistake::kDistinctPaths) count = leaves_of(draft.tree);
  if (mistake == Mistake::kTwiceCounted) count = 2 * paths - leaves_of(draft.tree);
  const auto within = [count](double below, double through) {
    return std::pow(below + through, count) - std::pow(below, count);
  };
  Taken taken;
  double below = 0, through = 1;
  for (int node = 0; draft.tree.next_child(node, node) >= 0;) {
    const Ordered o = ordered(toy, taken.tokens);
    node = child_of(draft, node, o, mistake);
    const int32_t token = draft.tree.token[static_cast<size_t>(node)];
    std::vector<double> law(o.p.size());
    double lower = below, next_below = 0;
    for (const size_t x : o.tokens) {
      law[x] = within(lower, through * o.q[x]) / within(below, through);
      if (x == static_cast<size_t>(token)) next_below = lower;
      lower += through * o.q[x];
    }
    below = next_below;
    through *= o.q[static_cast<size_t>(token)];
    taken.tokens.push_back(token);
    taken.q.push_back(o.q);
    taken.law.push_back(law);
  }
  return taken;
}

// Algorithm 2 of Sun et al. 2024 (arXiv 2403.10444) with the taken path for the draft.
Decide by_definition(int paths, Mistake mistake) {
  return [=](const Toy& toy, const Draft& draft, UniformSource& uniform) {
    const Taken x = taken_of(toy, draft, paths, mistake);
    const bool untilted = mistake == Mistake::kUntilted || mistake == Mistake::kByTargetOfQ;
    const auto& law = untilted ? x.q : x.law;
    const auto& rest = mistake == Mistake::kResidualOfQ ? x.q : law;
    const size_t n = x.tokens.size();
    std::vector<std::vector<double>> p;
    std::vector<double> share = {1};
    size_t accepted = 0;
    for (size_t i = 0; i <= n; ++i) {
      p.push_back(toy.target_dist(
          Tokens(x.tokens.begin(), x.tokens.begin() + static_cast<std::ptrdiff_t>(i))));
      if (i > 0) {
        const auto token = static_cast<size_t>(x.tokens[i - 1]);
        const double drawn = law[i - 1][token];
        share.push_back(drawn > 0 ? std::min(1.0, share.back() * p[i - 1][token] / drawn) : 0);
      }
      if (i == 0) continue;
      double h = share[i];
      if (i < n) {
        const double left = total(lacking(p[i], law[i], share[i]));
        h = left + 1 - share[i] > 0 ? left / (left + 1 - share[i]) : 1;
      }
      if (uniform.accept(h, 1.0)) accepted = i;
    }
    Tokens text(x.tokens.begin(), x.tokens.begin() + static_cast<std::ptrdiff_t>(accepted));
    std::vector<double> left = p[accepted];
    if (accepted < n) left = lacking(p[accepted], rest[accepted], share[accepted]);
    const double sum = total(left);
    if (!(sum > 0)) left = p[accepted];
    for (double& v : left) v /= sum > 0 ? sum : 1;
    text.push_back(uniform.draw(left));
    return text;
  };
}

// ---- The law of the path that is taken ----------------------------------------------------------

Tokens taken_by(const Toy& toy, const Draft& draft, int paths, double& probability) {
  methods::GreedyPaths greedy(paths);
  greedy.start();
  Tokens text;
  std::vector<double> law;
  probability = 1;
  for (int node = 0; draft.tree.next_child(node, node) >= 0;) {
    Tokens children;
    const int first = draft.tree.next_child(node, node);
    for (int child = first; child >= 0; child = draft.tree.next_child(node, child))
      children.push_back(draft.tree.token[static_cast<size_t>(child)]);
    const size_t at =
        greedy.step(toy.target_dist(text), draft.q[static_cast<size_t>(first)], children, law);
    EXPECT_NEAR(total(law), 1, kExact);
    text.push_back(children[at]);
    probability *= law[static_cast<size_t>(children[at])];
    node = draft.tree.child(node, children[at]);
  }
  return text;
}

TEST(GreedyPaths, TheTakenPathIsADrawFromItsLaw) {
  for (const SamplingParams& cell : kCells)
    for (const auto& [vocab, depth, paths] :
         {std::array{3, 1, 1}, std::array{3, 2, 1}, std::array{4, 1, 3}, std::array{3, 2, 2},
          std::array{2, 3, 2}, std::array{2, 3, 3}, std::array{3, 2, 3}}) {
      const Toy toy = make_toy(vocab, 7, cell);
      const MakeDraft make = several(depth, paths);
      EnumeratingUniforms uniform;
      Distribution drawn, stated;
      do {
        double probability = 0;
        const Tokens text = taken_by(toy, make(toy, uniform), paths, probability);
        drawn[text] += uniform.probability();
        stated[text] = probability;
      } while (uniform.next());
      EXPECT_LT(distance(drawn, stated), kExact)
          << vocab << " tokens, depth " << depth << ", " << paths << " paths";
    }
}

// Where everything of interest is in the last digits of `below`, or far below them.
TEST(GreedyPaths, DeepNodesKeepTheirDigits) {
  const std::vector<double> p = {0.5, 0.25, 0.25}, q = {1e-9, 0.3, 0.7 - 1e-9};
  const Tokens both = {0, 1}, low = {1, 2};
  for (const int paths : {1, 2, 8})
    for (const Tokens& children : {both, low}) {
      methods::GreedyPaths greedy(paths);
      greedy.start();
      std::vector<double> law;
      for (int level = 0; level < 200; ++level) {
        greedy.step(p, q, children, law);
        ASSERT_NEAR(total(law), 1, kExact) << paths << " paths, level " << level;
        ASSERT_GT(law[0], 0);
      }
      // The taken path is one of the highest or lowest; from there on it is drawn as if alone.
      if (children == both) {
        for (size_t x = 0; x < q.size(); ++x) EXPECT_NEAR(law[x], q[x], 1e-8);
      }
    }
}

TEST(GreedyPaths, OrdersByTheRatio) {
  const auto class_of = [](double ratio) { return methods::ratio_class(0.01 * ratio, 0.01, 1); };
  EXPECT_EQ(class_of(0), 0);
  EXPECT_EQ(class_of(1 - 1e-3), class_of(1 + 1e-3)) << "no border near a draft that is the target";
  int before = 0;
  for (double ratio = 1e-30; ratio < 1e30; ratio *= 1.05) {
    EXPECT_GT(class_of(ratio), before) << ratio;
    before = class_of(ratio);
  }
  EXPECT_LT(methods::ratio_class(1, 5e-324, 1), methods::kRatioClasses);
  EXPECT_EQ(methods::ratio_class(0.25, 0.5, 1), methods::ratio_class(0.25, 1, 2)) << "normalised";
  methods::GreedyPaths greedy(2);
  std::vector<double> law;
  const std::vector<double> p = {0.1, 0.6, 0.3}, q = {0.5, 0.5, 0};
  EXPECT_EQ(greedy.step(p, q, Tokens{0, 1}, law), 1u);
  EXPECT_NEAR(law[1], 1 - 0.25, kExact);
  EXPECT_EQ(law[2], 0);
  EXPECT_THROW(greedy.step(p, q, Tokens{2}, law), base::InternalError);
}

// ---- Laws of what is emitted --------------------------------------------------------------------

struct Shape {
  int vocab, depth, paths;
};
constexpr Shape kShapes[] = {{2, 1, 2}, {4, 1, 2}, {3, 1, 3}, {3, 2, 2},
                             {2, 2, 3}, {2, 3, 2}, {2, 3, 3}};

TEST(ManyPaths, GiveTheTargetsLaw) {
  uint64_t seed = 0;
  for (const SamplingParams& cell : kCells)
    for (const Shape& shape : kShapes) {
      Toy toy = make_toy(shape.vocab, ++seed, cell);
      const int n = shape.depth + 1;
      const Distribution expected = toy.autoregressive(n);
      const auto test = [&](const char* what) {
        EXPECT_LT(distance(distribution_of(toy, n, several(shape.depth, shape.paths), kSiblings,
                                           rule_of(shape.paths)),
                           expected),
                  kExact)
            << what << ", vocabulary " << shape.vocab << ", depth " << shape.depth << ", "
            << shape.paths << " paths, seed " << seed;
      };
      test("alike");
      if (shape.depth > 2) continue;
      toy.draft_sampling = {1.0, 0, 1.0};
      test("the draft is warped otherwise");
      if (shape.vocab == 2) continue;
      toy.draft_vocab = shape.vocab - 1;
      test("the draft knows fewer tokens");
    }
}

// Once, as it takes the most time: three tokens at three places.
TEST(ManyPaths, GiveTheTargetsLawAtDepthThree) {
  const Toy toy = make_toy(3, 11, {1.0, 0, 1.0});
  EXPECT_LT(distance(distribution_of(toy, 4, several(3, 2), kSiblings, rule_of(2)),
                     toy.autoregressive(4)),
            kExact);
}

TEST(ManyPaths, OneIsBlockVerification) {
  const methods::RejectionRule block = methods::rejection_by(methods::DraftRule::kPaths);
  for (const SamplingParams& cell : kCells)
    for (int depth = 1; depth <= 3; ++depth) {
      const Toy toy = make_toy(3, 4, cell);
      EXPECT_LT(distance(law_of(toy, 0, several(depth, 1), by_verifier(kSiblings, rule_of(1))),
                         law_of(toy, 0, drawn(depth, 1, kSiblings), by_verifier(kSiblings, block))),
                kExact);
    }
}

// The same tokens with the same probability, the step by itself.
TEST(ManyPaths, DecideAsDefined) {
  for (const SamplingParams& cell : kCells)
    for (const Shape& shape : kShapes) {
      const Toy toy = make_toy(shape.vocab, 5, cell);
      const MakeDraft make = several(shape.depth, shape.paths);
      EXPECT_LT(distance(law_of(toy, 0, make, by_verifier(kSiblings, rule_of(shape.paths))),
                         law_of(toy, 0, make, by_definition(shape.paths, Mistake::kNone))),
                kExact)
          << shape.vocab << " tokens, depth " << shape.depth << ", " << shape.paths << " paths";
    }
}

TEST(ManyPaths, MistakesAreSeen) {
  for (const int paths : {2, 3})
    for (const uint64_t seed : {1, 2}) {
      if (paths == 3 && seed > 1) continue;  // the most time
      const Toy toy = make_toy(3, seed, {1.0, 0, 1.0});
      const MakeDraft make = several(2, paths);
      const Distribution expected = toy.autoregressive(3);
      const auto off = [&](Mistake mistake) {
        return distance(law_of(toy, 3, make, by_definition(paths, mistake)), expected);
      };
      ASSERT_LT(off(Mistake::kNone), kExact);
      for (const Mistake mistake :
           {Mistake::kUntilted, Mistake::kResidualOfQ, Mistake::kByTarget, Mistake::kByTargetOfQ,
            Mistake::kFirstDrawn, Mistake::kDistinctPaths, Mistake::kTwiceCounted})
        EXPECT_GT(off(mistake), kSmall)
            << "mistake " << static_cast<int>(mistake) << ", " << paths << " paths, seed " << seed;
    }
}

// The verifier itself, told of another number of paths than were drawn.
TEST(ManyPaths, AnotherNumberThanWasDrawnIsSeen) {
  const Toy toy = make_toy(3, 2, {1.0, 0, 1.0});
  const Distribution expected = toy.autoregressive(3);
  for (const int told : {1, 3})
    EXPECT_GT(distance(distribution_of(toy, 3, several(2, 2), kSiblings, rule_of(told)), expected),
              kSmall)
        << told;
  methods::RejectionRule whole = rule_of(2);
  whole.whole_bonus = true;
  EXPECT_GT(distance(distribution_of(toy, 3, several(2, 2), kSiblings, whole), expected), kSmall);
}

TEST(ManyPaths, EndingByValueSmallerScalesAndFewerAcceptedKeepTheLaw) {
  const Toy toy = make_toy(3, 5, {1.0, 0, 1.0});
  const Distribution plain = toy.autoregressive(3);
  EXPECT_LT(distance(distribution_of(toy, 3, several(2, 3, 0), kSiblings, rule_of(3)), plain),
            kExact);
  const MakeDraft make = several(2, 2);
  methods::RejectionRule rule = rule_of(2);
  for (const int most : {0, 1, 2})
    EXPECT_LT(distance(law_of(toy, 3, make, by_verifier(kSiblings, rule, most)), plain), kExact)
        << most;
  for (const double scale : {0.9, 0.3, 0.0}) {
    rule.accept_scale = scale;
    EXPECT_LT(distance(distribution_of(toy, 3, make, kSiblings, rule), plain), kExact) << scale;
  }
}

// ---- What is accepted ---------------------------------------------------------------------------

double expected_accepted(const Toy& toy, const MakeDraft& make, const Decide& decide) {
  double sum = 0;
  for (const auto& [text, p] : law_of(toy, 0, make, decide))
    sum += p * static_cast<double>(text.size() - 1);
  return sum;
}

// p = (1/3, 2/3), q = (2/3, 1/3): token 1 is higher and taken with 1 - (2/3)^2 = 5/9. Accepted are
// min(1/3, 4/9) + min(2/3, 5/9) = 8/9, the most that two drafts allow, and 2/3 of one.
TEST(ManyPaths, AcceptsWhatIsWorkedOut) {
  const auto always = [](const std::vector<double>& dist) -> LogitTable {
    return [dist](std::span<const int32_t>, std::span<float> logits) {
      for (size_t i = 0; i < dist.size(); ++i) logits[i] = static_cast<float>(std::log(dist[i]));
    };
  };
  const SamplingParams sampling{1.0, 0, 1.0};
  const Toy toy{2, 2, always({1.0 / 3, 2.0 / 3}), always({2.0 / 3, 1.0 / 3}), sampling, sampling};
  const auto accepted = [&](int depth, int paths) {
    return expected_accepted(toy, several(depth, paths), by_verifier(kSiblings, rule_of(paths)));
  };
  EXPECT_NEAR(accepted(1, 1), 2.0 / 3, 1e-6);  // distributions pass through float32 logits
  EXPECT_NEAR(accepted(1, 2), 8.0 / 9, 1e-6);
  EXPECT_NEAR(accepted(2, 1), 11.0 / 9, 1e-6) << "block verification";
  EXPECT_GT(accepted(2, 2), 11.0 / 9);
}

// At one place the sum of min(p, 1 - (1 - q)^K) bounds every lossless rule (Sun et al. 2023, arXiv
// 2310.15141): a token is accepted where it is wanted and drafted.
TEST(ManyPaths, AcceptNoMoreThanAllDraftsAllow) {
  double accepted = 0, most = 0;
  for (const SamplingParams& cell : kCells)
    for (const int paths : {1, 2, 3}) {
      const Toy toy = make_toy(4, 3, cell);
      const std::vector<double> p = toy.target_dist({}), q = toy.draft_dist({});
      double bound = 0;
      for (size_t i = 0; i < p.size(); ++i) bound += std::min(p[i], 1 - std::pow(1 - q[i], paths));
      const double here =
          expected_accepted(toy, several(1, paths), by_verifier(kSiblings, rule_of(paths)));
      EXPECT_LT(here, bound + kExact) << paths;
      accepted += here, most += bound;
    }
  EXPECT_GT(accepted, 0.8 * most);
}

TEST(ManyPaths, AcceptMoreThanOneOnAverage) {
  double one = 0, two = 0, three = 0;
  for (const SamplingParams& cell : kCells) {
    const Toy toy = make_toy(2, 3, cell);
    const auto accepted = [&](int paths) {
      return expected_accepted(toy, several(2, paths), by_verifier(kSiblings, rule_of(paths)));
    };
    one += accepted(1);
    two += accepted(2);
    three += accepted(3);
  }
  EXPECT_GT(two, one);
  EXPECT_GT(three, two);
}

}  // namespace
}  // namespace evalrun::tests::many_paths_test
