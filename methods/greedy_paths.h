// Several drafts drawn alike, reduced to one draft of a known law: the part of verify=gbv that
// comes before block verification (methods/verifier.h, "Several paths").
//
// K paths are drawn from q, each by itself. Of all paths one order is fixed; the greatest of the K
// is taken. Where a share `below` of all paths is less than each path through a node n, and a share
// `through` goes through n, the greatest of K goes through n with
//   W(n) = (below + through)^K - below^K = through S(n),
//   S(n) = sum over i < K of (below + through)^i below^(K-1-i).
// So after n the taken path has the token x with
//   q'(x | n) = W(n x) / W(n) = q(x | n) S(n x) / S(n),
// a law that depends on p and q after n and before it alone, not on what was drawn. The draft that
// is taken is thus one draw from the chain q', whatever the other drafts are. No difference of
// nearly equal numbers is taken, so that deep nodes keep their digits.
//
// The order: by tokens, the first that differs decides. After n the tokens stand by p/q, where q
// lacks most the highest; ratios within a 64th of an octave are equal, and of equal ones the
// smaller id is higher. So no sort is needed, and the cost is two passes over the vocabulary.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace evalrun::methods {

// Higher for a higher p/q; q > 0. `mass` = the sum of q.
int ratio_class(double p, double q, double mass);
inline constexpr int kRatioClasses = 1 << 14;

class GreedyPaths {
 public:
  // Of at least one path.
  explicit GreedyPaths(int paths) : paths_(paths) {}
  // At the root.
  void start() { below_ = 0, through_ = 1; }
  // From a node of the taken path to its next. `p`: the target's distribution after the node; `q`:
  // the drafter's, which may be shorter and need not be normalised; `tokens`: the node's children,
  // which all have q > 0. Returns which of them the taken path has; `law` <- q', as long as the
  // shorter of p and q. InternalError for a token without probability.
  size_t step(std::span<const double> p, std::span<const double> q, std::span<const int32_t> tokens,
              std::vector<double>& law);

 private:
  double share_of(double below, double through) const;  // S
  void sum_classes(std::span<const double> p, std::span<const double> q, double mass);

  int paths_;
  double below_ = 0, through_ = 1;  // scaled to a sum of 1, which leaves q' as it is
  std::vector<double> lower_;       // [class] q of lower classes, then with what was passed
  int least_ = 0, most_ = 0;        // classes in use; all others are 0
};

}  // namespace evalrun::methods
