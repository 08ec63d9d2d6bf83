// Draft trees of fixed shape: which ranked choice becomes which node is known before the text is
// (methods/heads/rank_tree.h); the drafter only fills in tokens. Shared by Medusa, EAGLE-1 and
// Falcon.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/function_ref.h"
#include "engine/sampling.h"
#include "methods/draft_rule.h"
#include "methods/heads/rank_tree.h"
#include "methods/method.h"
#include "methods/slot_dists.h"

namespace evalrun::methods {

// Ranked lists of tokens, one per place of the text a drafter looked at: its likeliest tokens in
// order, or tokens drawn from its warped distribution without replacement, in the order of the
// draws. Rejection knows the distribution of the k-th child of a node as that of the k-th draw, so
// its children are taken in the order of the draws whatever ranks a tree gives them. Several nodes
// may take their children from one list: a step visits one of them.
class RankedChoices {
 public:
  // Of one slot; `dists` are those of all slots, null = of this one alone.
  explicit RankedChoices(int slot = 0, std::shared_ptr<SlotDists> dists = nullptr);
  // `ids` maps draft ids to the target's, empty = they are the same; must outlive this. Of `lists`
  // at most `looks` are noted in a step.
  void start(const GenerationContext& context, DraftRule rule, int lists, int looks, int width,
             const std::vector<int32_t>& ids, int vocab_size);
  // Before each step; `position` of its first draft token.
  void clear(int64_t position);
  // How many of a place's best tokens are looked at, 0 where logits must be.
  int best() const { return draws_ || width_ > engine::kMostBest ? 0 : width_; }
  // Where distributions are kept on the target's device, a list is drawn there: what its row asks
  // for before it is noted (`row`: of the forward or product).
  bool keeps() const { return keeps_; }
  engine::DistributionDraw ask(int list, int row);
  engine::DistributionStore* dists() const { return keeps_ ? dists_->store() : nullptr; }
  const engine::SamplingParams& sampling() const { return sampling_; }
  int dist(int list) const { return keeps_ ? lists_[static_cast<size_t>(list)].dist : -1; }
  // `position` of the answer's token that the list is for (base::KeyedChance).
  void note(int list, int64_t position, const engine::RowScores& scores);
  // -1 when the list is shorter: fewer can be drawn than asked for.
  int32_t token(int list, int rank) const;
  // What the first of a list was drawn from, over the target's ids; empty where no rejection asks.
  std::span<const double> q(int list) const;
  bool rejects() const { return rule_ == DraftRule::kRejection; }

 private:
  struct List {
    std::vector<int32_t> tokens;
    std::vector<double> q;
    int dist = -1;                 // slot, where distributions are kept
    std::vector<double> uniforms;  // of its draws there
  };
  void draw(int list, std::span<const float> logits);
  int32_t token_of(int32_t output) const {
    return ids_->empty() ? output : (*ids_)[static_cast<size_t>(output)];
  }

  DraftRule rule_ = DraftRule::kArgmax;  // in this run, never kAuto
  bool draws_ = false;                   // all but kArgmax
  base::KeyedChance chance_;
  int width_ = 0;
  size_t vocab_size_ = 0;
  engine::SamplingParams sampling_;
  int64_t position_ = 0;
  const std::vector<int32_t>* ids_ = nullptr;
  std::vector<List> lists_;
  const int slot_;
  std::shared_ptr<SlotDists> dists_;
  bool keeps_ = false;
  int asked_ = 0;             // lists in this step
  std::vector<double> left_;  // of a distribution while tokens are drawn from it
  std::vector<engine::TokenLogit> best_;
  std::vector<int32_t> outputs_;
  engine::WarpScratch scratch_;
};

class StaticTree {
 public:
  explicit StaticTree(RankTree plan);
  const RankTree& plan() const { return plan_; }
  int depth() const { return plan_.depth(); }
  // Plan nodes of a level (1..) that have children: a drafter looks at what follows them.
  std::span<const int> inner(int level) const;
  int inner() const;  // of all levels
  void clear();       // before each step
  // Adds the nodes of a level whose parents are in the draft; `list_of(p)`: the list that the
  // children of plan node p (0 = the root) are taken from.
  void add_level(int level, const RankedChoices& choices, base::FunctionRef<int(int)> list_of,
                 TokenTree& tree);
  // Of a plan node: its node of the draft (-1 = none), and its token.
  int node(int plan_node) const { return node_[static_cast<size_t>(plan_node)]; }
  int32_t token(int plan_node) const { return token_[static_cast<size_t>(plan_node)]; }
  // Of a node of a rejecting drafter: which draw it is.
  DraftDraw draw_of_node(int node) const {
    const auto at = static_cast<size_t>(node);
    return {list_of_node_[at], draw_of_node_[at]};
  }
  // List a node of the draft came from.
  int list_of_node(int node) const { return list_of_node_[static_cast<size_t>(node)]; }

 private:
  const RankTree plan_;
  std::vector<std::vector<int>> inner_;  // [level]
  std::vector<int> place_;               // [plan node - 1] among the children of its parent
  std::vector<int> node_;                // [plan node]
  std::vector<int32_t> token_;           // [plan node]
  std::vector<int> draw_of_node_;        // [draft node]
  std::vector<int> list_of_node_;        // [draft node]
};

}  // namespace evalrun::methods
