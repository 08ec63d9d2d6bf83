// Which choices of a drafter are accepted, and the tree that follows: a method drafts a wide tree
// along real answers, and of every path it is counted how often all of it was accepted. The best
// tree of n nodes takes the n paths with the largest counts; they are connected, because a path is
// never counted more often than the one it continues (Medusa's search, without its assumption that
// heads err independently).
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "methods/heads/rank_tree.h"
#include "methods/method.h"

namespace evalrun::runners {

class TreeCounts {
 public:
  // Counts every step of `method`, which must be a drafter with the common verifier (usage_error);
  // must outlive it.
  void watch(methods::DecodingMethod& method);
  struct Path {
    std::vector<int> ranks;
    double gain = 0;  // share of the steps in which all of it was accepted
  };
  // Best first, at most n.
  std::vector<Path> best(int n) const;
  int64_t steps() const { return steps_; }

 private:
  std::map<std::vector<int>, int64_t> accepted_;
  int64_t steps_ = 0;
};

methods::RankTree tree_of(const std::vector<TreeCounts::Path>& paths, int n);

}  // namespace evalrun::runners
