// The most draft tokens that any lossless rule of verification can keep, whatever it computes, when
// the law of the drafts is known. Tables set tau beside it: what is missing there no better rule
// brings, only another drafter.
//
// One node. p is the target's distribution after a text, S the set of tokens drafted after it. A
// rule keeps one of them only where the token that comes is in S. That token has the law p. For
// every set G of tokens
//   P(the token is in S) <= p(G) + P(a draft lies outside G),
// as a token of S that is not in G is a draft outside G. Every G gives a bound. The least over all
// G is reached, as it is a least cut: p flows to the sets S, x to S where x is in S, and S takes
// what its probability allows; the largest flow is the optimal transport (Sun et al. 2023, arXiv
// 2310.15141; Hu et al. 2025, arXiv 2502.18779, who give this form). Two laws of drafts:
// - n drafts drawn from q independently: p(G) + 1 - q(G)^n. The least is at a set of the tokens
//   with the highest q/p: q(G)^n - p(G) is convex in the point (q(G), p(G)), so it is largest at a
//   corner of the convex hull of all such points; it rises with q(G) and falls with p(G), so this
//   is a corner that maximises c q(G) - d p(G) for some c, d >= 0, which are the x with c q > d p.
// - n drafts drawn from q without replacement. They are the first n arrivals of a race in which x
//   arrives after an exponential time of rate q(x). With T the first arrival outside G, and r the
//   q of all that is outside,
//     P(all n are within G) = P(n tokens of G arrive before T)
//                           = integral over t of r exp(-r t) P(n tokens of G arrive before t).
//   Sets of the highest q/p are looked at, with many tokens at steps of half a percent of q/p. They
//   give a bound. With two drafts the least of all sets is one of the highest q/p (exchange a
//   token).
#pragma once
#include <span>
#include <vector>

#include "engine/base/function_ref.h"
#include "methods/token_tree.h"
#include "methods/verifier.h"

// A step. Let K be chains drawn from q independently (K = 1: a draft that is one chain), r(n) the
// probability that one chain goes through the text n, and A(n) the probability that the step keeps
// all of n. A chain may end where its own tokens say so. Let a rule be lossless, and let what comes
// after a step depend on the text alone. Then
//   A(n x) <= P(n x is drafted) = 1 - (1 - r(n) q(x | n))^K,
//   A(n x) <= P(the step keeps n, and x comes next) = A(n) p(x | n).
// The second, because the target draws what follows n where a step ends before it has kept n. So
// for every G
//   sum over x of A(n x) <= A(n) p(G | n) + 1 - (1 - r(n) q(not in G | n))^K.
// By the first two, A(n) is bounded from the root on, where it is 1. The third bounds what is kept
// after n. The sum over all n is the number of tokens that a step keeps at most. What a sum over
// all texts is, the drafts that were drawn estimate without bias, each node n divided by the
// probability that it is drafted. For one chain the bound is
//   sum over x of min(A(n) p(x | n), r(n) q(x | n)),
// which block verification reaches (Sun et al. 2024, arXiv 2403.10444, theorem 2).
//
// Of trees whose siblings are drawn without replacement only the root's bound is known here: how
// many children a node has depends on which draw it was itself, so a node's own law is a mixture.

namespace evalrun::runners {

// What a step keeps at most, on average over the drafts.
struct MostKept {
  double tokens = 0;  // draft tokens
  double first = 0;   // the probability that it keeps one at all
};

// In all of these p sums to 1, and q is not empty, may be shorter and need not be normalised.
class TransportBound {
 public:
  // The least over G of share p(G) + 1 - (1 - reach q(not in G))^draws: with a share and a reach of
  // 1, the most that is kept of so many independent drafts.
  double of_independent(std::span<const double> p, std::span<const double> q, double share,
                        double reach, int draws);
  // Of so many drafts drawn without replacement; within 1e-10, and mostly above.
  double of_distinct(std::span<const double> p, std::span<const double> q, int draws);
  // Of `chains` chains that were drawn independently and share the nodes that they begin with.
  // `p_of`: the target's distribution after a node, asked depth first, for nodes alone that have
  // children and levels below `deepest`; valid until the next call, as what `q_of` gives.
  MostKept of_chains(const methods::TokenTree& tree, int chains, int deepest,
                     base::FunctionRef<std::span<const double>(int node)> p_of, methods::QOf q_of);

 private:
  struct Token {
    double ratio, p, q;  // q/p, infinite without p; q normalised
  };
  struct Open {
    int node;
    double share, reach;  // at most A(n); r(n)
  };
  void sort(std::span<const double> p, std::span<const double> q);

  std::vector<Token> tokens_;    // without those that have neither p nor q; the highest ratio first
  std::vector<double> outside_;  // [i]: q of tokens_ from i on
  std::vector<Open> open_;
};

}  // namespace evalrun::runners
