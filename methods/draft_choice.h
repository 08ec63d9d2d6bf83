// Which nodes of a draft are worth verifying: what rows cost on this machine against how often such
// nodes were accepted so far. Shared by adaptive (methods/adaptive.h) and joined drafts
// (methods/joined_draft.h). Nothing here looks at a clock: equal texts and prices give equal
// choices.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/function_ref.h"
#include "engine/cost/row_cost.h"
#include "methods/method.h"
#include "methods/token_tree.h"

namespace evalrun::methods {

// T(n)/T(1): from the table with a fifth on top of what rows cost there, or 5 % a row where there
// is no table (in plans and tests).
class RowPrice {
 public:
  explicit RowPrice(const engine::RowCostTable* table);
  double operator()(int rows) const;  // rows >= 1
  // Most rows whose price is at most `limit`, at least 1.
  int affordable(double limit) const;

 private:
  std::vector<double> price_;  // [rows - 1]
};

// A whole draft, with what the acceptance of its nodes is counted by.
struct RatedDraft {
  TokenTree tree;
  std::vector<int> rank, draft_class;  // [node]; rank: siblings before it

  void reserve(int nodes);
  // Of the drafter that has just drafted `tree`.
  void rate(const Drafter& drafter);

 private:
  std::vector<int> children_;
};

// How often nodes are accepted, given that their parents were, by class, depth and rank. Newer ones
// count more; it starts from the drafter's own expectation, which is worth a few nodes.
class Acceptance {
 public:
  void start(const Drafter& drafter);
  double of(int draft_class, int depth, int rank) const {
    const Cell& cell = cells_[place(draft_class, depth, rank)];
    return cell.accepted / cell.tested;
  }
  double of(const RatedDraft& draft, int node) const {
    const auto i = static_cast<size_t>(node);
    return of(draft.draft_class[i], draft.tree.level[i], draft.rank[i]);
  }
  void note(int draft_class, int depth, int rank, bool accepted);

 private:
  static constexpr int kDepths = 3, kRanks = 3;  // the last one and all after it
  struct Cell {
    double tested, accepted;
  };
  static size_t index(int c, int d, int r) {
    return static_cast<size_t>((c * kDepths + d) * kRanks + r);
  }
  static size_t place(int draft_class, int depth, int rank);
  std::array<Cell, Drafter::kDraftClasses * kDepths * kRanks> cells_{};
};

// A draft that is held against the tokens to come, whatever of it is verified. One at a time: the
// next is watched when this one has ended, on a token it does not hold.
class WatchedDraft {
 public:
  void reserve(int nodes) { draft_.reserve(nodes); }
  void forget() { open_ = false; }
  void watch(const RatedDraft& draft);
  // The text's next token.
  void see(int32_t token, Acceptance& acceptance);

 private:
  RatedDraft draft_;
  int at_ = 0;  // node whose children are due
  bool open_ = false;
};

// The best tree of n nodes takes the n nodes of the largest joint probability, which are connected
// because a child's is never larger than its parent's. Of all n the one with the largest
//     (1 + sum of joint probabilities) / (T(1 + n + riding) / T(1) + spent)
// is chosen; n = 0 is plain decoding.
class DraftChoice {
 public:
  struct Limits {
    int riding = 0;                  // rows of the forward beside root and draft
    double spent = 0;                // plain steps that the draft has cost
    int deepest = engine::kMaxRows;  // levels
  };
  explicit DraftChoice(const RowPrice& price) : price_(price) {}
  void reserve(int nodes);
  // `acceptance(i)`: the probability that node i is accepted, given that its parent is. The nodes
  // chosen are added to `tree`, which has the same root, parents before their children.
  void choose(const TokenTree& draft, base::FunctionRef<double(int)> acceptance,
              const Limits& limits, TokenTree& tree);
  // Of the last choice: the node of `tree` that a node of the draft became, -1 = none.
  std::span<const int> node_of() const { return node_of_; }
  // Tokens that the step is expected to give, the target's own included.
  double expected() const { return expected_; }

 private:
  void sort_by_probability(const TokenTree& draft, base::FunctionRef<double(int)> acceptance,
                           int deepest);

  const RowPrice& price_;
  std::vector<double> joint_;  // probability that the target gets to a node
  std::vector<int> order_, node_of_;
  double expected_ = 1;
};

}  // namespace evalrun::methods
