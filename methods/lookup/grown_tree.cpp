#include "methods/lookup/grown_tree.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

constexpr double kTreeMemory = 0.97;  // weight of the past when a node is added, as adaptive.cpp's
constexpr double kTreePrior = 2;      // nodes
// At first: of the likeliest child; the r-th has 1/(1 + r) of it.
constexpr double kFirstChance = 0.4;

}  // namespace

GrownTree::GrownTree(const Limits& limits, std::optional<RowPrice> price)
    : limits_(limits), price_(std::move(price)) {
  EVALRUN_CHECK(limits.levels >= 1 && limits.width >= 1 && limits.nodes >= 1,
                "a tree of {} levels, {} children, {} nodes", limits.levels, limits.width,
                limits.nodes);
  const auto n = static_cast<size_t>(limits.nodes);
  cells_.resize(static_cast<size_t>(limits.levels) * static_cast<size_t>(limits.width));
  for (std::vector<int>* list : {&tree_.parent, &tree_.rank, &tree_.level}) list->reserve(n);
  joint_.reserve(n + 1);
  open_.reserve(2 * n + 1);
  start();
}

// Of two places, whether the second comes first: it is likelier, or as likely and offered before.
bool GrownTree::later(const Place& a, const Place& b) {
  return a.joint < b.joint || (a.joint == b.joint && a.order > b.order);
}

size_t GrownTree::cell(int level, int rank) const {
  return static_cast<size_t>((level - 1) * limits_.width + rank);
}

void GrownTree::start() {
  for (int level = 1; level <= limits_.levels; ++level)
    for (int rank = 0; rank < limits_.width; ++rank)
      cells_[cell(level, rank)] = {kTreePrior, kTreePrior * kFirstChance / (1 + rank)};
}

double GrownTree::chance(int level, int rank) const {
  double passed_over = 1;
  for (int r = 0; r <= rank; ++r) {
    const Cell& c = cells_[cell(level, r)];
    const double taken = c.accepted / c.tested;
    if (r == rank) return passed_over * taken;
    passed_over *= 1 - taken;
  }
  return 0;
}

void GrownTree::offer(int parent, int rank) {
  const int level = parent == 0 ? 1 : tree_.level[static_cast<size_t>(parent) - 1] + 1;
  if (level > limits_.levels || rank >= limits_.width) return;
  open_.push_back(
      {joint_[static_cast<size_t>(parent)] * chance(level, rank), parent, rank, offered_++});
  std::push_heap(open_.begin(), open_.end(), later);
}

const RankTree& GrownTree::grow() {
  tree_.parent.clear(), tree_.rank.clear(), tree_.level.clear();
  joint_.assign(1, 1.0);
  open_.clear();
  offered_ = 0;
  offer(0, 0);
  while (tree_.size() < limits_.nodes && !open_.empty()) {
    std::pop_heap(open_.begin(), open_.end(), later);
    const Place next = open_.back();
    open_.pop_back();
    tree_.add(next.parent, next.rank);
    joint_.push_back(next.joint);
    offer(tree_.size(), 0);
    offer(next.parent, next.rank + 1);
  }
  const auto n = static_cast<size_t>(worthwhile());
  tree_.parent.resize(n), tree_.rank.resize(n), tree_.level.resize(n);
  return tree_;
}

int GrownTree::worthwhile() const {
  if (!price_) return tree_.size();
  int best = 1;
  double expected = 1, best_speed = 0;
  for (int n = 1; n <= tree_.size(); ++n) {
    expected += joint_[static_cast<size_t>(n)];
    const double speed = expected / (*price_)(1 + n);
    if (speed > best_speed) {
      best_speed = speed;
      best = n;
    }
  }
  return best;
}

void GrownTree::note(const TokenTree& tree, std::span<const int> path) {
  int node = 0;
  for (size_t at = 0; at <= path.size(); ++at) {
    const int next = at < path.size() ? path[at] : -1;
    const int level = static_cast<int>(at) + 1;
    int rank = 0;
    for (int i = node + 1; i < tree.size() && level <= limits_.levels && rank < limits_.width;
         ++i) {
      if (tree.parent[static_cast<size_t>(i)] != node) continue;
      Cell& c = cells_[cell(level, rank++)];
      c.tested = kTreeMemory * c.tested + 1;
      c.accepted = kTreeMemory * c.accepted + (i == next);
      if (i == next) break;  // what stands behind it was not asked
    }
    node = next;
  }
}

}  // namespace evalrun::methods
