// Drafts from mask rows in the target's own forward (SPACE, BiTA, gated low-rank adapters): a step
// verifies the tree and computes masks after the nodes where it may stop. Those after the node
// where it does stop give the next step's draft.
//
// Row graph of a step (node = row of the tree, C committed tokens):
//   node g at C + depth(g), sees its ancestors; mask j = 1..M of its group at C + depth(g) + j,
//   sees the node, its ancestors and the masks before it in the group; prefix and low-rank updates
//   are for masks only. Mask j gives candidates for the token j places after the next root.
// A device finds the best tokens of all masks in the target's forward, with its head. There is no
// second pass over the head and no second wait (docs/gpu.md says when). Else the head is computed
// for the masks that are read.
// Near the end of the context or of the answer groups are left out, the least likely stops first.
#pragma once
#include <memory>

#include "methods/heads/static_draft.h"
#include "methods/masks/mask_plan.h"
#include "methods/masks/mask_weights.h"

namespace evalrun::methods {

// Parameters and construction of bita and gated_lora, whose targets stay as they are. `name`: also
// of the weights (open_adapter()); `fallback_tree`: for weights without a stored tree.
MethodInfo mask_method(const std::string& name, const std::string& fallback_tree);

class MaskDrafter final : public Drafter {
 public:
  // `draft_cost`: of reading one mask out, in plain steps.
  MaskDrafter(MaskWeights weights, MaskPlan plan, DraftRule rule, bool low_rank, int vocab_size,
              double draft_cost);

  void start(const GenerationContext& context) override;
  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override;
  void side_rows(int max_rows, SideRows& rows) override;
  SideInputs side_inputs() const override;
  void side_states(const engine::ForwardResult& result, int first_row) override;
  void accepted(std::span<const int> path, int32_t bonus) override;
  LargestStep largest_step() const override;
  std::span<const double> q_of(int node) const override;
  DraftDraw draw_of(int node) const override { return tree_.draw_of_node(node); }
  engine::DistributionStore* dists() const override { return choices_.dists(); }
  int distribution_of(int node) const override { return choices_.dist(tree_.list_of_node(node)); }
  size_t extra_parameter_bytes() const override { return weights_.bytes; }

 private:
  struct Group {
    int node;   // of the draft
    int first;  // side row of its first mask
  };
  int group_at(int node) const;  // index into groups_, -1
  // The next draft, from the masks after the last accepted node.
  void take_masks(std::span<const int> path);
  void note(int list, const engine::RowScores& scores) {
    choices_.note(list, position_ + list - skipped_, scores);
  }

  const MaskWeights weights_;
  const MaskPlan plan_;
  const DraftRule rule_;
  const bool low_rank_;
  const int vocab_size_;
  const double draft_cost_;
  StaticTree tree_;
  RankedChoices choices_;  // list j - 1: mask j's
  engine::Session* target_ = nullptr;
  size_t prompt_ = 0;                            // tokens
  int64_t position_ = 0;                         // of the token after this step's root
  int skipped_ = 0;                              // masks in front that are void (MaskPlan::reuse)
  bool drafted_ = false;                         // choices_ hold the next draft
  bool in_the_forward_ = false;                  // the masks' best tokens come with the target's
  std::vector<Group> groups_;                    // of this step
  std::vector<engine::DistributionDraw> asked_;  // of the masks
  engine::ForwardResult result_;
  int first_row_ = 0;
  std::vector<float> states_;  // [masks, d_model]
};

}  // namespace evalrun::methods
