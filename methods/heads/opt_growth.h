// When a tree that grows level by level is deep enough (OPT-Tree, Wang et al. 2024, arXiv
// 2406.17276, section 3, Algorithm 1). The best n nodes seen so far are expected to give E accepted
// tokens, the sum of their paths' probabilities. One more level is drafted as long as the last one
// raised E by more than delta.
#pragma once
#include <cstddef>
#include <vector>

namespace evalrun::methods {

class OptGrowth {
 public:
  // `nodes` of a draft; `most`: of a level.
  OptGrowth(int nodes, double delta, int most);
  void clear();  // before each step
  // A node of the newest level, with the probability of its path.
  void add(double probability) { best_.push_back(probability); }
  // Behind a level: whether it gained enough for one more.
  bool grows();
  double expected() const { return expected_; }  // E, of the nodes up to the last grows()

 private:
  const size_t nodes_;
  const double delta_;
  double expected_ = 0;
  std::vector<double> best_;  // and behind them the newest level
};

}  // namespace evalrun::methods
