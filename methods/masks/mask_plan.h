// What a step of SPACE, BiTA and similar methods computes: which of the masks' ranked choices
// become nodes, and after which nodes a group of masks stands to draft for the next step.
//
// A step that stops at a node drafts from the group after it. The papers give every node and the
// root a group: 1 + n + M (n + 1) rows for n nodes. Budgeted groups (ours) stand only where a step
// is likely to stop; one that stops elsewhere has no draft, and the next computes the root and one
// group, nothing else.
#pragma once
#include <string>
#include <vector>

#include "methods/heads/learned_drafter.h"

namespace evalrun::methods {

struct MaskPlan {
  RankTree tree;
  // Nodes with a group (0 = the root), likeliest stops first. Empty: every other step drafts.
  std::vector<int> groups;
  int masks = 0;  // of a group
  // A step that stopped without a group goes on with what an ancestor's masks said further ahead
  // (BiTA's "straightforward" decoding, Table 4) instead of without a draft.
  bool reuse = false;
  // Of a step that has drafts, root and masks included.
  int rows() const;
};

// n levels of k candidates (Lin et al. 2024, section 3.3; the released program's names): efficient
// = k nodes a level, children only below the first; upper-triangle = the same, level i has k-i+1;
// full = all k below every node. nullopt when `text` is none of them ("efficient:5").
std::optional<RankTree> bita_tree(const std::string& who, const std::string& text, int n);

struct MaskOptions {
  DraftOptions draft;
  std::string groups = "auto";
  int masks = 0;
};
Parameters<MaskOptions> mask_plan_parameters();  // tree=, groups=, masks=

// tree=, groups= and masks= with the trained weights. `most` masks were trained. auto: the part of
// the stored tree and the number of groups with the largest
//   (1 + gains + p) / (T(rows) + p T(1 + M)),  p = chance to stop at a node without a group,
// gains = expected accepted tokens, T relative to one row, `mask_cost` the draft's own work.
MaskPlan choose_mask_plan(const std::string& who, const MaskOptions& options,
                          const Adapter* adapter, const MethodBuildContext& context, int most,
                          double mask_cost, const std::string& fallback);

// How many forwards a draft of PaSS costs (Monea et al. 2023, Algorithm 1: two).
enum class DraftCalls {
  kAuto,  // as many groups as pay, from none to all
  kOne,   // a group after every node: every forward verifies and drafts
  kTwo,   // no groups: one forward drafts, the next verifies
};
// A chain of `look_ahead` masks; 0 = of the `most` that were trained as many as pay by the formula
// above, all where the adapter's stored tree lacks the chain's chances (then kAuto is kTwo).
// usage_error when more are asked for than were trained.
MaskPlan choose_chain_plan(const std::string& who, int look_ahead, DraftCalls calls,
                           const Adapter& adapter, const MethodBuildContext& context, int most,
                           double mask_cost);

}  // namespace evalrun::methods
