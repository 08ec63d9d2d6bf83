#include "methods/draft_choice.h"

#include <algorithm>

#include "engine/base/error.h"

namespace evalrun::methods {
namespace {

constexpr double kPastWeight = 0.97;  // of the counts when a node is added
constexpr double kPriorWeight = 2;    // nodes
constexpr double kUnknownRow = 0.05;  // price of a row without a table
// The table holds forwards back to back at one context. Between other work, and after longer texts,
// rows were measured about a fifth more expensive.
constexpr double kCaution = 1.2;

}  // namespace

RowPrice::RowPrice(const engine::RowCostTable* table) {
  price_.reserve(engine::kMaxRows);
  double price = 1;
  for (int n = 1; n <= engine::kMaxRows; ++n) {
    const bool known = table != nullptr && !table->empty();
    price =
        std::max(price, known ? 1 + kCaution * (table->ratio(n) - 1) : 1 + kUnknownRow * (n - 1));
    price_.push_back(price);  // rising: where a table says otherwise it is noise
  }
}

double RowPrice::operator()(int rows) const {
  EVALRUN_CHECK(rows >= 1, "{} rows", rows);
  return price_[static_cast<size_t>(std::min(rows, engine::kMaxRows)) - 1];
}

int RowPrice::affordable(double limit) const {
  int rows = 1;
  while (rows < engine::kMaxRows && price_[static_cast<size_t>(rows)] <= limit) ++rows;
  return rows;
}

void RatedDraft::reserve(int nodes) {
  tree.reserve(nodes);
  for (std::vector<int>* v : {&rank, &draft_class, &children_})
    v->reserve(static_cast<size_t>(nodes));
}

void RatedDraft::rate(const Drafter& drafter) {
  const size_t n = tree.token.size();
  rank.assign(n, 0);
  draft_class.assign(n, 0);
  children_.assign(n, 0);  // met so far
  for (size_t i = 1; i < n; ++i) {
    rank[i] = children_[static_cast<size_t>(tree.parent[i])]++;
    draft_class[i] = drafter.draft_class(static_cast<int>(i));
  }
}

void Acceptance::start(const Drafter& drafter) {
  for (int c = 0; c < Drafter::kDraftClasses; ++c)
    for (int d = 0; d < kDepths; ++d)
      for (int r = 0; r < kRanks; ++r)
        cells_[index(c, d, r)] = {kPriorWeight,
                                  kPriorWeight * drafter.expected(c, d + 1) / (1 + r)};
}

size_t Acceptance::place(int draft_class, int depth, int rank) {
  return index(draft_class, std::min(depth, kDepths) - 1, std::min(rank, kRanks - 1));
}

void Acceptance::note(int draft_class, int depth, int rank, bool accepted) {
  Cell& cell = cells_[place(draft_class, depth, rank)];
  cell.tested = kPastWeight * cell.tested + 1;
  cell.accepted = kPastWeight * cell.accepted + accepted;
}

void WatchedDraft::watch(const RatedDraft& draft) {
  if (open_ || draft.tree.drafted() == 0) return;
  draft_ = draft;
  at_ = 0;
  open_ = true;
}

void WatchedDraft::see(int32_t token, Acceptance& acceptance) {
  if (!open_) return;
  const TokenTree& tree = draft_.tree;
  int next = -1;
  for (int i = at_ + 1; i < tree.size(); ++i) {
    const auto node = static_cast<size_t>(i);
    if (tree.parent[node] != at_) continue;
    const bool hit = tree.token[node] == token;
    acceptance.note(draft_.draft_class[node], tree.level[node], draft_.rank[node], hit);
    if (hit && next < 0) next = i;
  }
  open_ = next >= 0;
  at_ = next;
}

void DraftChoice::reserve(int nodes) {
  const auto n = static_cast<size_t>(nodes);
  joint_.reserve(n);
  order_.reserve(n);
  node_of_.reserve(n);
}

// Equal ones as they stand, so that parents come before their children.
void DraftChoice::sort_by_probability(const TokenTree& draft,
                                      base::FunctionRef<double(int)> acceptance, int deepest) {
  const auto n = static_cast<size_t>(draft.size());
  joint_.assign(n, 1.0);
  order_.clear();
  for (int i = 1; i < draft.size(); ++i) {
    const auto node = static_cast<size_t>(i);
    joint_[node] = joint_[static_cast<size_t>(draft.parent[node])] * acceptance(i);
    // Beyond a cap a match gives what the target says anyway.
    if (draft.level[node] <= deepest) order_.push_back(i);
  }
  std::sort(order_.begin(), order_.end(), [this](int a, int b) {
    const double x = joint_[static_cast<size_t>(a)], y = joint_[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  order_.resize(std::min(order_.size(), static_cast<size_t>(engine::kMaxRows) - 1));
}

void DraftChoice::choose(const TokenTree& draft, base::FunctionRef<double(int)> acceptance,
                         const Limits& limits, TokenTree& tree) {
  sort_by_probability(draft, acceptance, limits.deepest);
  size_t best = 0;
  double expected = 1, best_speed = 1 / (price_(1 + limits.riding) + limits.spent);
  expected_ = 1;
  for (size_t k = 0; k < order_.size(); ++k) {
    expected += joint_[static_cast<size_t>(order_[k])];
    const int rows = 2 + limits.riding + static_cast<int>(k);
    const double speed = expected / (price_(rows) + limits.spent);
    if (speed > best_speed) {
      best_speed = speed;
      best = k + 1;
      expected_ = expected;
    }
  }
  node_of_.assign(static_cast<size_t>(draft.size()), -1);
  node_of_[0] = 0;
  for (size_t k = 0; k < best; ++k) node_of_[static_cast<size_t>(order_[k])] = 1;
  for (size_t i = 1; i < node_of_.size(); ++i)  // parents stand before their children
    if (node_of_[i] > 0)
      node_of_[i] = tree.add(draft.token[i], node_of_[static_cast<size_t>(draft.parent[i])]);
}

}  // namespace evalrun::methods
