// Drafts from mask rows in the target's own forward (SPACE, BiTA, PaSS, gated low-rank adapters): a
// step verifies the tree and computes masks after the nodes where it may stop. Those after the node
// where it does stop give the next step's draft. A step that stops at a node without masks has no
// draft after it: the next one computes the root and its masks.
//
// Row graph of a step (node = row of the tree, C committed tokens):
//   node g at C + depth(g), sees its ancestors; mask j = 1..M of its group at C + depth(g) + j,
//   sees the node, its ancestors and the masks before it in the group; prefix and low-rank updates
//   are for masks only. Mask j gives candidates for the token j places after the next root.
// A device finds the best tokens of all masks in the target's forward, with its head. There is no
// second pass over the head and no second wait (docs/gpu.md says when). Else the head is computed
// for the masks that are read, at the beginning of the next draft: those of all slots at once.
// Near the end of the context or of the answer groups are left out, the least likely stops first.
#pragma once
#include <memory>
#include <utility>

#include "methods/heads/static_draft.h"
#include "methods/masks/mask_head.h"
#include "methods/masks/mask_plan.h"
#include "methods/masks/mask_weights.h"

namespace evalrun::methods {

// Parameters and construction of bita and gated_lora, whose targets stay as they are. `name`: also
// of the weights (open_adapter()); `fallback_tree`: for weights without a stored tree.
MethodInfo mask_method(const std::string& name, const std::string& fallback_tree);

// What the slots of a method share.
struct MaskParts {
  MaskWeights weights;
  MaskPlan plan;
  DraftRule rule = DraftRule::kArgmax;
  bool low_rank = false;  // masks run through the weights' low-rank updates
  int vocab_size = 0;
  double draft_cost = 0;  // of reading one mask out, in plain steps
  int slots = 1;
};

class MaskDrafter final : public Drafter {
 public:
  explicit MaskDrafter(MaskParts parts);  // slot 0
  std::unique_ptr<Drafter> another(int slot) const override;

  void start(const GenerationContext& context) override;
  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override;
  DraftGroup* group() override { return &shared_->head; }
  bool stage(TokenTree& tree) override;
  void take(TokenTree& tree) override;
  void side_rows(int max_rows, SideRows& rows) override;
  SideInputs side_inputs() const override;
  void side_states(const engine::ForwardResult& result, int first_row,
                   std::span<const int> path) override;
  void accepted(std::span<const int> path, int32_t bonus) override;
  LargestStep largest_step() const override;
  std::span<const double> q_of(int node) const override;
  DraftDraw draw_of(int node) const override { return tree_.draw_of_node(node); }
  engine::DistributionStore* dists() const override { return choices_.dists(); }
  int distribution_of(int node) const override { return choices_.dist(tree_.list_of_node(node)); }
  size_t extra_parameter_bytes() const override { return weights_.bytes; }
  void add_kept(KeptMemory&) const override {}

 private:
  struct Shared {
    explicit Shared(MaskParts given)
        : parts(std::move(given)),
          head(parts.weights.head, parts.plan.masks),
          dists(std::make_shared<SlotDists>(parts.slots)) {}
    const MaskParts parts;
    MaskHead head;
    const std::shared_ptr<SlotDists> dists;
  };
  MaskDrafter(std::shared_ptr<Shared> shared, int slot);

  struct Group {
    int node;   // of the draft
    int first;  // side row of its first mask
  };
  int group_at(int node) const;  // index into groups_, -1
  // The group that the next draft is made of, -1; skipped_ of its masks are void.
  int group_after(std::span<const int> path);
  void note(int list, int64_t position, const engine::RowScores& scores) {
    choices_.note(list, position + list - skipped_, scores);
  }

  const std::shared_ptr<Shared> shared_;
  const MaskWeights& weights_;
  const MaskPlan& plan_;
  StaticTree tree_;
  RankedChoices choices_;  // list j - 1: mask j's
  engine::Session* target_ = nullptr;
  size_t prompt_ = 0;            // tokens
  bool in_the_forward_ = false;  // the masks' best tokens come with the target's
  int64_t position_ = 0;         // of the token after this step's root
  // What is there of the next draft: states_ of its masks, or choices_.
  enum class Have { kNothing, kStates, kChoices } have_ = Have::kNothing;
  int skipped_ = 0;            // masks in front that are void (MaskPlan::reuse)
  int depth_ = 0;              // of the current draft
  int first_read_ = 0;         // its first mask's row of the product
  std::vector<Group> groups_;  // of this step
  std::vector<float> states_;  // [masks, d_model]
};

}  // namespace evalrun::methods
