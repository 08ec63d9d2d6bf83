#include "methods/heads/confidence_tree.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::methods {

ConfidenceTree::ConfidenceTree(const Options& options, const engine::RowCostTable* costs)
    : options_(options),
      price_(costs),
      growth_(options.total, options.delta, options.delta > 0 ? options.k * options.k : 0) {
  EVALRUN_CHECK(options.delta == 0 || options.total > 0, "delta {} and as many nodes as pay",
                options.delta);
  const auto k = static_cast<size_t>(options.k);
  nodes_.reserve(k + static_cast<size_t>(options.levels) * k * k);
  order_.reserve(nodes_.capacity());
  expanded_.reserve(nodes_.capacity());
  node_of_.reserve(nodes_.capacity() + 1);
  row_worth_ = price_(2) - 1;
  for (int n = 3; n <= 64; ++n) row_worth_ = std::min(row_worth_, (price_(n) - 1) / (n - 1));
}

void ConfidenceTree::clear(double cost) {
  nodes_.clear();
  growth_.clear();
  level_begin_ = 0;
  spent_ = cost;
}

void ConfidenceTree::add(int parent, int from, int32_t token, double log_prob) {
  nodes_.push_back({token, parent, from, (parent < 0 ? 0 : node(parent).log_prob) + log_prob});
  if (options_.delta > 0) growth_.add(std::exp(nodes_.back().log_prob));
}

// Stable: the likelier first, then the one seen first, so that parents stand before children.
void ConfidenceTree::sort_by_probability(size_t begin, size_t end) {
  order_.clear();
  for (size_t i = begin; i < end; ++i) order_.push_back(static_cast<int>(i));
  std::sort(order_.begin(), order_.end(), [this](int a, int b) {
    const double x = node(a).log_prob, y = node(b).log_prob;
    return x > y || (x == y && a < b);
  });
}

std::span<const int> ConfidenceTree::next_level(double cost, int rows) {
  sort_by_probability(level_begin_, nodes_.size());
  level_begin_ = nodes_.size();
  if (order_.size() > static_cast<size_t>(options_.k))
    order_.resize(static_cast<size_t>(options_.k));
  if (options_.total == 0 && !worth_a_level(cost, rows)) order_.clear();
  if (options_.delta > 0 && !growth_.grows()) order_.clear();
  expanded_ = order_;
  return expanded_;
}

// Keeps the nodes that may have a child worth a row of the target. Returns whether one more level
// can pay: about half of the probability of reaching these nodes is gained in accepted tokens.
bool ConfidenceTree::worth_a_level(double cost, int rows) {
  double reached = 0;
  size_t kept = 0;
  for (; kept < order_.size(); ++kept) {
    const double p = std::exp(node(order_[kept]).log_prob);
    if (p < row_worth_) break;
    reached += p;
  }
  order_.resize(kept);
  if (kept == 0) return false;
  const double forward = cost * price_(static_cast<int>(kept) * rows);
  if (0.5 * reached <= forward) return false;
  spent_ += forward;
  return true;
}

void ConfidenceTree::choose(TokenTree& tree) {
  sort_by_probability(0, nodes_.size());
  size_t n = std::min(order_.size(), static_cast<size_t>(options_.total));
  if (options_.total == 0) {
    double expected = 1, best_speed = 0;
    for (size_t i = 0; i < order_.size(); ++i) {
      expected += std::exp(node(order_[i]).log_prob);
      const double speed = expected / (price_(2 + static_cast<int>(i)) + spent_);
      if (speed <= best_speed) continue;
      best_speed = speed;
      n = i + 1;
    }
  }
  order_.resize(n);
  std::sort(order_.begin(), order_.end());  // as seen: parents first
  node_of_.assign(nodes_.size(), -1);
  for (const int i : order_) {
    const int parent = node(i).parent < 0 ? 0 : node_of_[static_cast<size_t>(node(i).parent)];
    EVALRUN_CHECK(parent >= 0, "a node without its parent");
    node_of_[static_cast<size_t>(i)] = tree.add(node(i).token, parent);
  }
}

// What pays (total=0) is chosen by (1 + probabilities) / cost. Every level adds a probability of at
// most 1. One node is always drafted, so that no draft is chosen whose cost is more than
// 1 + levels times that of one node. A further level is looked at where it costs half a step at
// most.
LargestStep ConfidenceTree::largest_step(double cost, std::vector<int> draft_rows) const {
  const auto& [k, levels, total, delta] = options_;
  const int seen = k + (levels - 1) * k * k;
  LargestStep step;
  step.rows = 1 + std::min({total > 0 ? total : seen, seen, engine::kMaxRows - 1});
  step.draft_cost = cost;
  if (total == 0)
    step.limit =
        (1 + levels) * (price_(2) + cost * price_(draft_rows.front()) + 0.5 * (levels - 1));
  step.draft_rows = std::move(draft_rows);
  return step;
}

}  // namespace evalrun::methods
